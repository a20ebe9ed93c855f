"""Whether a sentence says of a condition what the code says: not the opposite, and something at all.

A condition is taken apart into atoms (`catalog.conditions`): a subject, what is said of it, an object. In the sentence
the clauses about the subject are looked for, and what they say is read from a few kinds of words: those that negate,
those that stand for nothing (None, 0, empty, false), and those for more and for less. A clause that can't be read this
way neither agrees nor disagrees.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from windtunnel.catalog.conditions import Atom, Condition, read
from windtunnel.catalog.record import Guard

Verdict = Literal["agrees", "disagrees", "silent"]
Alias = Callable[[str], str]
"""What a variable was assigned from; empty: that is not known."""

_NEGATION = re.compile(
    r"\b(?:not|no|never|neither|nor|none of|without|unless|isn't|aren't|wasn't|doesn't|don't|didn't|can't|cannot|"
    r"lacks?|differs?|unequal|other than|anything but|fails? to|another)\b",
    re.IGNORECASE,
)
_NOTHING = re.compile(
    r"\b(?:(?-i:None)|null|nil|nullptr|zero|0|empty|false|missing|absent|unset|nothing|divisible|multiple of)\b",
    re.IGNORECASE,
)
_MORE = re.compile(
    r"\b(?:greater|(?<!any )more|above|exceeds?|exceeded|larger|over|beyond|at least|longer|higher)\b|>", re.IGNORECASE
)
_LESS = re.compile(r"\b(?:less|fewer|below|under|smaller|at most|shorter|lower|up to)\b|<", re.IGNORECASE)
_VERB = re.compile(
    r"\b(?:is|are|was|were|has|have|does|do|gives?|gave|returns?|exceeds?|differs?|equals?|contains?|lacks?|raises?|"
    r"fails?|holds?|neither|not|greater|less|more|at (?:most|least))\b|[<>=]"
)
_BOUNDARY = re.compile(r",? (?:and|or|but|while|nor) |, |[;:.](?=\s|$)")
_OBJECT_FIRST = re.compile(r"(?:a |an |the )?[`\"\d]")
_ITS_OWN = re.compile(r"[`\"][^`\"]*[`\"](?:\[[^\]]*\])? (?:is|are|has|does|differs|was)\b")
_GOES_ON = re.compile(r"(?:not|neither|greater|less|more|at (?:most|least)|(?:that|which|it) (?:is|are|has|was))\b")
_CODE = re.compile(r"`[^`]*`|\"[^\"]*\"")
_NOT_RAISED = re.compile(r"\b(?:not|never|no|without)\s+(?:\w+\s+){0,2}`?$")
_NOR = re.compile(r"\b(neither|none of|never)\b.*?\bnor\b", re.IGNORECASE)
_NOTHINGS = frozenset(("None", "null", "nil", "nullptr", "0", "False", "false", '""', "''", "[]", "{}", "()"))
_NUMBERS = {"0": "zero", "1": "one", "2": "two", "3": "three", "4": "four", "8": "eight"}
_UP = ("is greater than", "is at least")
_DOWN = ("is less than", "is at most")
_FALSY = ("is empty or not set", "is false", "is none", "fails", "gives None", "does not hold")
_TRUTHY = ("is set", "is true", "holds")
_NEGATIVE = ("is not", "is no ", "is neither", "is none of", "has no", "does not")
_WRAPPERS = re.compile(r"(?:\w+\.)*(?:len|bool|int|str|set|list|any|all|sum|type)\((.*)\)")
_CHAIN = re.compile(r"(not )?([^<>=()]+?)\s*(<=?|>=?)\s*([^<>=]+?)\s*(<=?|>=?)\s*([^<>=]+)")
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def judge(text: str, guard: Guard, alias: Alias = lambda name: "") -> Verdict:
    """What a sentence does to a condition: it disagrees where it turns a part of it round."""
    if guard.kind == "except":
        return _judge_caught(text, guard.condition)
    as_written = guard.condition.removeprefix("while ")
    verdicts = {
        _judge_whole(text, read(condition, guard.holds), alias) for condition in (as_written, _plain(as_written))
    }
    return "agrees" if "agrees" in verdicts else "disagrees" if "disagrees" in verdicts else "silent"


def _judge_whole(text: str, condition: Condition, alias: Alias) -> Verdict:
    found = {_judge_atom(text, atom, alias) for atom in _atoms(condition)}
    return "disagrees" if "disagrees" in found else "agrees" if "agrees" in found else "silent"


def _judge_caught(text: str, types: str) -> Verdict:
    for name in re.findall(r"[A-Z]\w{3,}", types):
        if place := re.search(rf"(?<!\w){name}(?!\w)|\bexception\b", text):
            return "disagrees" if _NOT_RAISED.search(text[: place.start()]) else "agrees"
    return "silent"


def _plain(condition: str) -> str:
    """A condition as `read` takes it: without walrus and compile-time calls, a chain as two comparisons."""
    condition = re.sub(r"\b\w+ := ", "", condition)
    condition = re.sub(r"(?:\w+\.)*const_expr\(((?:[^()]|\([^()]*\))*)\)", r"(\1)", condition)
    if chain := _CHAIN.fullmatch(condition):
        negation, low, first, middle, second, high = chain.groups()
        return f"{negation or ''}({middle} {_TURNED[first]} {low} and {middle} {second} {high})"
    return condition


def _atoms(condition: Condition) -> Sequence[Atom]:
    if isinstance(condition, Atom):
        return [condition]
    return [atom for part in condition.parts for atom in _atoms(part)]


def _judge_atom(text: str, atom: Atom, alias: Alias) -> Verdict:
    candidates = [*_predicates(text, atom.subject), *_predicates_of_alias(text, alias(_last_name(atom.subject)))]
    objects = _objects(atom)
    if objects:
        named = [each for each in candidates if any(_mentions(each, each_object) for each_object in objects)]
        # of another value the direction can't be told, and of none only that
        vague = [each for each in candidates if not _CODE.search(each) and not re.search(r"\d", each)]
        candidates = named or (vague if atom.verb in (*_UP, *_DOWN) else [])
    verdicts = {_of_predicate(each, atom, is_of_nothing=_is_of_nothing(atom)) for each in candidates} - {"silent"}
    # a sentence may say several things of one subject: it is enough that one of them is this
    return "agrees" if "agrees" in verdicts else "disagrees" if verdicts else "silent"


def _is_of_nothing(atom: Atom) -> bool:
    return atom.object in _NOTHINGS and atom.verb in ("is", "is not")


def _objects(atom: Atom) -> list[str]:
    """What the subject is compared with; nothing where it is compared with nothing."""
    if _is_of_nothing(atom):
        return []
    if atom.object:
        return [part.strip() for part in re.split(r"[|,]", atom.object.strip("() ,")) if part.strip()]
    return [code or value for code, value in re.findall(r"`([^`]*)`|(\"[^\"]*\"|'[^']*'|\b\d+\b)", atom.verb)]


def _of_predicate(predicate: str, atom: Atom, *, is_of_nothing: bool) -> Verdict:
    plain = _CODE.sub(lambda found: found[0] if found[0].strip('`"') in _NOTHINGS else " § ", predicate)
    if not _VERB.search(plain):
        return "silent"
    is_negated = len(_NEGATION.findall(_NOR.sub(r"\1", plain))) % 2 == 1
    if atom.verb in (*_UP, *_DOWN):
        up, down = bool(_MORE.search(plain)), bool(_LESS.search(plain))
        if up == down:
            return "silent"
        return "agrees" if (up != is_negated) == (atom.verb in _UP) else "disagrees"
    if is_of_nothing or atom.verb in (*_FALSY, *_TRUTHY):
        wants_nothing = atom.verb == "is" if is_of_nothing else atom.verb in _FALSY
        says_nothing = bool(_NOTHING.search(plain)) != is_negated
        return "agrees" if says_nothing == wants_nothing else "disagrees"
    if _MORE.search(plain) or _LESS.search(plain):
        return "silent"
    return "agrees" if is_negated == atom.verb.startswith(_NEGATIVE) else "disagrees"


def _predicates(text: str, subject: str) -> Iterator[str]:
    """What a sentence says of a subject, piece by piece: `x` is not None | and not in `y`.

    In `a` or `b` is None the verb of `a` comes after `b`; in neither `a` nor `b` is 0 the negation comes before `a`. An
    object without words of its own has those of the one before: is none of `x`, | `y`.
    """
    masked = _CODE.sub(lambda found: "`" + "§" * (len(found[0]) - 2) + "`", text)
    for start, end in _places(text, subject):
        before = text[max(0, start - 24) : start]
        is_negated = re.search(r"\b(?:neither|none of|nor|no)\s+(?:\w+\s+)?`?$", before, re.IGNORECASE)
        words, piece_start = " never " if is_negated else "", end
        for boundary in [*_BOUNDARY.finditer(masked, end), None]:
            stop = len(text) if boundary is None else boundary.start()
            if boundary is not None and not _VERB.search(masked, piece_start, stop) and not _VERB.search(words):
                continue
            yield words + text[piece_start:stop]
            if boundary is None or boundary[0][0] in ";:.":
                break
            if _VERB.search(masked, piece_start, stop):
                words += re.sub(r"`[^`]*`|\"[^\"]*\"|\d+", " ", text[piece_start:stop]) + " "
            piece_start = boundary.end()
            rest = text[piece_start:]
            if _GOES_ON.match(rest):
                words = ""
            elif _ITS_OWN.match(rest) or not _OBJECT_FIRST.match(rest):
                break


def _predicates_of_alias(text: str, expression: str) -> Iterator[str]:
    """What is said of what a variable was assigned from, or of any part of a list."""
    if not expression:
        return
    found = list(_predicates(text, expression))
    if not found and expression[0] in "[(":
        for name in re.findall(r"[^\W\d][\w.]*", expression):
            found += _predicates(text, name)
    yield from found


def _places(text: str, subject: str) -> list[tuple[int, int]]:
    """Where a sentence names a subject: as code, or by its last name."""
    sought = _squeezed(subject).strip("\"'")
    exact = [(m.start(), m.end()) for m in _CODE.finditer(text) if _same(_squeezed(m[0].strip("`\"'")), sought)]
    if exact:
        return exact
    name = _last_name(subject)
    if len(name) < 2:
        return []
    named = re.finditer(rf"(?<!\w){re.escape(name)}(?!\w)(?:\([^)]*\)|\[[^\]]*\])*`?", text)
    return [(match.start(), match.end()) for match in named]


def _same(said: str, sought: str) -> bool:
    return said == sought or sought.endswith(f".{said}") or said.endswith(f".{sought}")


def _squeezed(text: str) -> str:
    return re.sub(r"\s+|\bself\.", "", text)


def _last_name(subject: str) -> str:
    """The name that a subject goes by: of a call of `len`, `bool` and the like that of what is asked about."""
    subject = subject.strip()
    if inner := _WRAPPERS.fullmatch(subject):
        return _last_name(inner[1])
    got = re.match(r"getattr\([^,]+,\s*[\"'](\w+)[\"']", subject) or re.search(r"\.get\([\"'](\w+)[\"']", subject)
    if got:
        return got[1]
    if " % " in subject:
        return _last_name(subject.partition(" % ")[0])
    bare = re.sub(r"\(.*|\[.*", "", subject).strip("!*& -")
    if not re.fullmatch(r"[\w.:>\-]+", bare):
        return ""
    names = re.findall(r"[^\W\d]\w*", bare)
    return names[-1] if names else ""


def _mentions(text: str, symbol: str) -> bool:
    """Whether a text has a symbol: as it is written, or by its last name."""
    bare = _squeezed(symbol).strip("\"'")
    if bare.isdecimal():
        return bool(re.search(rf"(?<![\w.]){bare}(?![\w.]*\w)|\b{_NUMBERS.get(bare, bare)}\b", text))
    if bare and bare in _squeezed(text):
        return True
    name = _last_name(symbol)
    return len(name) > 2 and re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text) is not None
