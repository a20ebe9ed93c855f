"""The rules of the gate, cheap to dear. Each takes a claim and the pack that it was made from, and says what is wrong.

| rule | refuses |
| --- | --- |
| identity | an answer that does not give back the record's id and the request's nonce: it belongs to another request |
| citation | a claim without a citation, or with one outside of the pack |
| neighbour | a claim that names the message of a record outside of this one's chain |
| symbols | a claim with an identifier, flag, variable, number or quoted text that its cited lines do not have |
| sample | code that can't be parsed, or calls what is neither in the pack nor built in |
| substance | a claim that names nothing of the code: it would fit any error |
| polarity | a trigger that cites no condition, or turns one round |
| slice | an explanation most of whose symbols lie outside of the pack |
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterable, Sequence

from windtunnel.catalog.conditions import Atom, Condition, read
from windtunnel.catalog.gate.pack import Pack
from windtunnel.catalog.record import Claim, Guard

LEAST_SLICE_RATIO = 0.6
_LEAST_FRAGMENT = 12

_CODE = re.compile(r"`([^`]+)`")
_IDENTIFIER = re.compile(
    r"(?<![\w.])(?:[A-Za-z_][\w]*(?:(?:\.|::|->)[A-Za-z_]\w*)+|[A-Za-z]+_[\w]*|_\w+|"
    r"[A-Z][a-z0-9]+(?:[A-Z][\w]*)+|[A-Z][A-Z0-9]+_[A-Z0-9_]+)"
)
_FLAG = re.compile(r"(?<![\w-])--[a-z][\w-]*")
_NUMBER = re.compile(r"(?<![\w.])\d{2,}(?:\.\d+)?(?![\w.])")
_QUOTED = re.compile(r"[\"“]([^\"“”]{2,80})[\"”]")
_NEGATIONS = re.compile(
    r"\b(?:not|no|never|neither|nor|none|without|unless|isn't|aren't|wasn't|doesn't|don't|didn't|can't|cannot|missing|"
    r"absent|empty|unset|false|lacks?|fails? to|other than|anything but|un\w+able)\b",
    re.IGNORECASE,
)
_MORE = re.compile(
    r"\b(?:greater|more|above|exceeds?|exceeded|larger|over|beyond|at least|longer|higher)\b|>", re.IGNORECASE
)
_LESS = re.compile(r"\b(?:less|fewer|below|under|smaller|at most|shorter|lower|up to)\b|<", re.IGNORECASE)
_NOTHINGS = ("None", "null", "nil", "nullptr")
_NOTHING = re.compile(r"\b(?:None|null|nil|nullptr)\b")
_SOMETHING = re.compile(r"\b(?:is|are|was) not (?:`?None|null|nil)|\bis set\b|\bis given\b")
_UP = frozenset(("is greater than", "is at least"))
_DOWN = frozenset(("is less than", "is at most"))
_NEGATIVE = (
    "is not",
    "is no ",
    "is none",
    "is neither",
    "is empty or not set",
    "is false",
    "has no",
    "does not",
    "is not in",
)


def symbols_of(text: str) -> list[str]:
    """Everything in a sentence that must come from code: names, flags, variables, numbers, quoted texts."""
    plain = _CODE.sub(" ", text)
    found = [code.strip() for code in _CODE.findall(text)]
    for pattern in (_IDENTIFIER, _FLAG, _NUMBER):
        found += pattern.findall(plain)
    found += _QUOTED.findall(plain)
    return list(dict.fromkeys(symbol for symbol in found if symbol))


def citation(claim: Claim, pack: Pack) -> str | None:
    """Every citation lies in the pack, and there is one."""
    if not claim.citations:
        return "it cites nothing"
    for each in claim.citations:
        if pack.cited(each) is None:
            return f"{each.path}:{each.start}-{each.end} is not in the pack"
    return None


def neighbour(claim: Claim, others: Iterable[str]) -> str | None:
    """It quotes no message of another error. `others`: literals of records outside of the chain."""
    for literal in others:
        words = " ".join(literal.split())
        if len(words) >= _LEAST_FRAGMENT and words.lower() in claim.text.lower():
            return f"it names another error: {words!r}"
    return None


def symbols(claim: Claim, pack: Pack) -> str | None:
    """All that must come from code stands in the cited lines, or is a name, type or message on the error's way."""
    cited = "\n".join(line for each in claim.citations for line in pack.cited(each) or ())
    paths = [each.path for each in claim.citations]
    own = "\n".join((pack.type, pack.text, *pack.names, *paths))
    for symbol in symbols_of(claim.text):
        if not _occurs(symbol, cited) and not _occurs(symbol, own) and not _is_heading(symbol, pack):
            return f"{symbol!r} is not in the cited lines"
    return None


def _is_heading(symbol: str, pack: Pack) -> bool:
    """The name of the function that the lines are of: a slice of it begins with its head."""
    last = re.split(r"\.|::|->", symbol.rstrip("()"))[-1]
    heads = [each.lines[0].text for each in pack.slices if each.role == "function" and each.lines]
    return any(re.search(rf"\b{re.escape(last)}\b", head) for head in heads)


def _occurs(symbol: str, text: str) -> bool:
    if symbol in text:
        return True
    bare = symbol.strip("`'\"()").replace("…", "")
    if bare and bare in text:
        return True
    squeezed = re.sub(r"\s+", "", bare)
    if len(squeezed) > 3 and squeezed in re.sub(r"\s+", "", text):
        return True
    parts = [part for part in re.split(r"\.|::|->", bare) if part]
    return len(parts) > 1 and all(re.search(rf"\b{re.escape(part.rstrip('()'))}\b", text) for part in parts)


def sample(claim: Claim, pack: Pack) -> str | None:
    """Python that can be parsed, and calls only what there is."""
    if claim.code is None:
        return None
    try:
        tree = ast.parse(claim.code)
    except (SyntaxError, ValueError) as error:
        return f"its sample can't be parsed: {error}"
    made = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    made |= {name.asname or name.name.partition(".")[0] for node in ast.walk(tree)
             if isinstance(node, ast.Import | ast.ImportFrom) for name in node.names}  # fmt: skip
    source = pack.source
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = node.func
            name = (
                called.id if isinstance(called, ast.Name) else called.attr if isinstance(called, ast.Attribute) else ""
            )
            known = name in made or hasattr(builtins, name) or re.search(rf"\b{re.escape(name)}\b", source)
            if name and not known:
                return f"its sample calls {name}, which is not in the pack"
    return None


def substance(claim: Claim, pack: Pack) -> str | None:
    """It names something of the code."""
    where = "\n".join((pack.source, *pack.names))
    if any(_occurs(symbol, where) for symbol in symbols_of(claim.text)):
        return None
    words = set(re.findall(r"[a-z]{5,}", claim.text.lower()))
    cited = "\n".join(line for each in claim.citations for line in pack.cited(each) or ())
    told = set(re.findall(r"[a-z]{5,}", f"{pack.text}\n{cited}".lower()))
    return None if len(words & told) >= 2 else "it names nothing of this error's code"


def polarity(claim: Claim, pack: Pack) -> str | None:
    """A trigger cites a condition and keeps it as it is."""
    cited = [guard for path, guard in pack.guards if _cites(claim, path, guard)]
    if pack.guards and not cited:
        return "it cites no condition"
    for guard in cited:
        for atom in _atoms(read(guard.condition, guard.holds)):
            if (problem := _turned_round(claim.text, atom)) is not None:
                return problem
    return None


def _cites(claim: Claim, path: str, guard: Guard) -> bool:
    return any(c.path == path and c.start <= guard.end and guard.start <= c.end for c in claim.citations)


def _atoms(condition: Condition) -> Sequence[Atom]:
    if isinstance(condition, Atom):
        return [condition]
    return [atom for part in condition.parts for atom in _atoms(part)]


def _turned_round(text: str, atom: Atom) -> str | None:
    """Whether the clause about a condition says the opposite; where no clause is about it, it does not."""
    clause = _clause_about(text, atom)
    if clause is None:
        return None
    if atom.verb in _UP | _DOWN:
        up, down = bool(_MORE.search(clause)), bool(_LESS.search(clause))
        if up != down and up != (atom.verb in _UP):
            return f"`{atom.words}` is turned round"
        return None
    expected = atom.verb.startswith(_NEGATIVE)
    if atom.object in _NOTHINGS and atom.verb in ("is", "is not"):
        says_nothing = bool(_NEGATIONS.search(clause) or _NOTHING.search(clause)) and not _SOMETHING.search(clause)
        return None if says_nothing == (atom.verb == "is") else f"`{atom.words}` is turned round"
    said_negative = len(_NEGATIONS.findall(clause)) % 2 == 1
    if "neither" in clause.lower() or " nor " in clause.lower():
        said_negative = True
    return None if said_negative == expected else f"`{atom.words}` is turned round"


def _clause_about(text: str, atom: Atom) -> str | None:
    name = re.split(r"\.|::|->", re.sub(r"\(.*", "", atom.subject).strip("!*& "))[-1]
    if len(name) < 2:
        return None
    for clause in re.split(r"[,;:]|\band\b|\bbut\b|\bwhile\b|\bafter\b|\bor\b(?! equal)", text):
        if re.search(rf"\b{re.escape(name)}\b", clause):
            return clause
    return None


def slice_ratio(claims: Iterable[Claim], pack: Pack) -> float:
    """Share of the symbols of an explanation that lie in this error's slice of the code."""
    every = [symbol for claim in claims for symbol in symbols_of(claim.text)]
    if not every:
        return 1.0
    where = "\n".join((pack.source, pack.type, pack.text, *pack.names, *(each.path for each in pack.slices)))
    return sum(_occurs(symbol, where) for symbol in every) / len(every)
