"""Conditions of code in plain words, with their polarity kept: `not (a is None or b)` → "`a` is not None and `b` is …".

One reader for all languages: conditions are split at their outermost `and` and `or` (`&&`, `||`), negations are carried
inwards, and what is left is a comparison, a membership, a type test, or a thing that is true or false. Code that fits
none of these is quoted as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Literal, NamedTuple

_OPEN, _CLOSE = "([{", ")]}"
_WORD_OPERATORS = {"and": ("&&", "and"), "or": ("||", "or")}
_COMPARED = {
    "==": ("is", "is not"), "!=": ("is not", "is"), "===": ("is", "is not"), "!==": ("is not", "is"),
    "<": ("is less than", "is at least"), "<=": ("is at most", "is greater than"),
    ">": ("is greater than", "is at most"), ">=": ("is at least", "is less than"),
    "is not": ("is not", "is"), "is": ("is", "is not"),
    "not in": ("is not in", "is in"), "in": ("is in", "is not in"),
    "instanceof": ("is of type", "is not of type"),
}  # fmt: skip
_OPERATORS = sorted(_COMPARED, key=len, reverse=True)
_TESTS = {
    "isinstance": ("is of type", "is not of type"),
    "issubclass": ("is a subclass of", "is no subclass of"),
    "hasattr": ("has the attribute", "has no attribute"),
}
_QUESTION = re.compile(
    r"(?:^|[._:>])(?:is|has|have|can|should|must|was|are|use|needs?|supports?|allows?|enabled?|matches)(?:_|[A-Z]|$)"
)
_ADJECTIVE = re.compile(r"(?:[a-z]{2}ed|able|ible|async|ready|valid|active)$")
_STRING = re.compile(r"""^[rbuf]*(?:"[^"]*"|'[^']*')$""")
_LITERAL = re.compile(r"(?:-?\d[\w.]*|None|null|nullptr|nil|undefined)$")
_TURNED = {"==": "==", "!=": "!=", "===": "===", "!==": "!==", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""Comparisons with their sides exchanged."""
_MOST_CHARACTERS = 120


class Atom(NamedTuple):
    """A condition without `and` and `or`: subject, what is said of it, and object (empty: none)."""

    subject: str
    verb: str
    object: str = ""

    @property
    def words(self) -> str:
        """In plain words."""
        return f"{code(self.subject)} {self.verb}" + (f" {_value(self.object)}" if self.object else "")


class Several(NamedTuple):
    """Conditions together."""

    how: Literal["and", "or"]
    parts: tuple[Condition, ...]

    @property
    def words(self) -> str:
        """In plain words."""
        joined = _merged(self.parts) if self.how == "and" else [part.words for part in self.parts]
        if self.how == "or":
            return f"either {' or '.join(joined)}"
        return " and ".join(joined)


Condition = Atom | Several


def code(text: str) -> str:
    """As code in a sentence."""
    short = text if len(text) <= _MOST_CHARACTERS else f"{text[: _MOST_CHARACTERS - 1]}…"
    return f"`{short.replace('`', chr(39))}`"


@lru_cache(maxsize=20_000)
def read(condition: str, holds: bool) -> Condition:
    """A condition that holds, or that does not."""
    text = _bare(condition.strip())
    for how, operators in _WORD_OPERATORS.items():  # `or` binds looser, so it is looked for last and split first
        other = "or" if how == "and" else "and"
        pieces = _split(text, _WORD_OPERATORS[other])
        if len(pieces) > 1 and how == "and":
            return _together("or" if holds else "and", pieces, holds)
        pieces = _split(text, operators)
        if len(pieces) > 1 and how == "and":
            return _together("and" if holds else "or", pieces, holds)
    negated = re.match(r"(?:not\s+|!(?![=])\s*)(.+)$", text, re.DOTALL)
    if negated and len(list(_operators_in(text.removeprefix("not").lstrip("! ")))) == 0:
        return read(negated[1], not holds)
    if negated and text.startswith("not "):
        return read(negated[1], not holds)
    return _atom(text, holds)


def _together(how: Literal["and", "or"], pieces: list[str], holds: bool) -> Condition:
    parts: list[Condition] = []
    for piece in pieces:
        part = read(piece, holds)
        parts += part.parts if isinstance(part, Several) and part.how == how else (part,)
    return Several(how, tuple(parts))


def _bare(text: str) -> str:
    """Without parentheses around the whole."""
    while text.startswith("(") and text.endswith(")") and _closes_at_end(text):
        text = text[1:-1].strip()
    return text


def _closes_at_end(text: str) -> bool:
    depth = 0
    for position, character in _outside_strings(text):
        depth += (character in _OPEN) - (character in _CLOSE)
        if depth == 0:
            return position == len(text) - 1 and not _has_top_comma(text[1:-1])
    return False


def _has_top_comma(text: str) -> bool:
    return any(character == "," for _, character in _top_level(text))


def _outside_strings(text: str) -> Iterator[tuple[int, str]]:
    quote = ""
    position = 0
    while position < len(text):
        character = text[position]
        if quote:
            if character == "\\":
                position += 1
            elif character == quote:
                quote = ""
        elif character in "\"'":
            quote = character
        else:
            yield position, character
        position += 1


def _top_level(text: str) -> Iterator[tuple[int, str]]:
    """Characters outside of strings and brackets."""
    depth = 0
    for position, character in _outside_strings(text):
        if character in _CLOSE:
            depth -= 1
        if depth == 0 and character not in _CLOSE:
            yield position, character
        if character in _OPEN:
            depth += 1


def _split(text: str, operators: tuple[str, ...]) -> list[str]:
    if not any(operator in text for operator in operators):
        return [text]
    pieces, start = [], 0
    for position, _ in _top_level(text):
        if position < start:
            continue
        for operator in operators:
            if text.startswith(operator, position) and _stands_alone(text, position, operator):
                pieces.append(text[start:position].strip())
                start = position + len(operator)
                break
    pieces.append(text[start:].strip())
    return [piece for piece in pieces if piece]


def _stands_alone(text: str, position: int, operator: str) -> bool:
    if not operator[0].isalpha():
        return True
    end = position + len(operator)
    before = position == 0 or not (text[position - 1].isalnum() or text[position - 1] in "_.")
    return before and (end >= len(text) or not (text[end].isalnum() or text[end] == "_"))


def _operators_in(text: str) -> Iterator[tuple[int, str]]:
    """Comparisons at the top level."""
    taken = 0
    for position, _ in _top_level(text):
        if position < taken:
            continue
        for operator in _OPERATORS:
            if text.startswith(operator, position) and _stands_alone(text, position, operator):
                if operator in ("<", ">") and text[position : position + 2] in ("<<", ">>", "->", "=>"):
                    break
                if operator == ">" and position and text[position - 1] in "-=":
                    break
                yield position, operator
                taken = position + len(operator)
                break


def _atom(text: str, holds: bool) -> Atom:
    if bound := re.match(r"let\s+(.+?)\s+=\s+(.+)$", text, re.DOTALL):  # Rust's
        return Atom(bound[2], "matches" if holds else "does not match", bound[1])
    if text.startswith("lambda") or len(_split(text, ("if", "else"))) > 1 or len(_split(text, ("?",))) > 1:
        return Atom(text, "holds" if holds else "does not hold")
    operators = list(_operators_in(text))
    if len(operators) == 1:
        position, operator = operators[0]
        subject, value = text[:position].strip(), text[position + len(operator) :].strip()
        if operator in _TURNED and _LITERAL.match(subject) and not _LITERAL.match(value):  # `0 == count`
            subject, value, operator = value, subject, _TURNED[operator]
        if subject and value:
            verb = _COMPARED[operator][0 if holds else 1]
            return _membership(subject, verb, value) if verb in ("is in", "is not in") else Atom(subject, verb, value)
    call = re.fullmatch(r"(isinstance|issubclass|hasattr)(\(.+\))", text, re.DOTALL)
    if call and not operators and _closes_at_end_of_call(call[2]) and len(arguments := _items(call[2])) == 2:
        subject, kind = arguments
        return _type_test(call[1], subject, kind, holds)
    if operators:
        return Atom(text, "holds" if holds else "does not hold")
    if text.endswith(")") or _QUESTION.search(text.partition("(")[0]) or _ADJECTIVE.search(text):
        return Atom(text, "is true" if holds else "is false")
    return Atom(text, "is set" if holds else "is empty or not set")


def _closes_at_end_of_call(text: str) -> bool:
    depth = 0
    for position, character in _outside_strings(text):
        depth += (character in _OPEN) - (character in _CLOSE)
        if depth == 0:
            return position == len(text) - 1
    return False


def _type_test(test: str, subject: str, kind: str, holds: bool) -> Atom:
    verb = _TESTS[test][0 if holds else 1]
    if test == "hasattr":
        return Atom(subject, verb, kind.strip("\"'"))
    kinds = _items(kind) if kind.startswith("(") else [kind]
    if len(kinds) == 1:
        return Atom(subject, verb, kinds[0])
    listed = ", ".join(code(each) for each in kinds)
    return Atom(subject, f"is {'one' if holds else 'none'} of {listed}")


def _membership(subject: str, verb: str, value: str) -> Atom:
    """`x in ("a", "b")`: one of what is written out."""
    items = literal_items(value)
    if not items:
        return Atom(subject, verb, value)
    if len(items) == 1:
        return Atom(subject, "is" if verb == "is in" else "is not", items[0])
    if verb == "is in":
        return Atom(subject, f"is {' or '.join((', '.join(items[:-1]), items[-1]))}")
    return Atom(subject, f"is {_none_of(items)}")


def literal_items(text: str) -> list[str]:
    """The items of a tuple, list or set that is written out with literals; none: it is something else."""
    items = _items(text)
    is_literal = all(_STRING.match(item) or re.fullmatch(r"-?\d[\w.]*|None|True|False", item) for item in items)
    return items if is_literal and len(items) <= 12 else []


def _items(text: str) -> list[str]:
    """What stands between brackets, and commas."""
    inside = re.fullmatch(r"[(\[{](.*?),?\s*[)\]}]", text.strip(), re.DOTALL)
    if inside is None:
        return []
    cuts = [position for position, character in _top_level(inside[1]) if character == ","]
    bounds = zip([0, *(cut + 1 for cut in cuts)], [*cuts, len(inside[1])], strict=True)
    return [inside[1][start:end].strip() for start, end in bounds]


def _none_of(items: list[str]) -> str:
    if len(items) == 2:
        return f"neither {items[0]} nor {items[1]}"
    return f"none of {', '.join(items)}"


def _value(text: str) -> str:
    """The object of a comparison: literals as they are, other things as code."""
    if _STRING.match(text) or re.fullmatch(r"-?\d[\w.]*|None|True|False|null|nullptr|nil|undefined|empty", text):
        return text
    return code(text)


def _merged(parts: Iterable[Condition]) -> list[str]:
    """Words of conditions that all hold; "is not a", "is not b" of one subject become "is neither a nor b"."""
    words: list[str] = []
    excluded: dict[str, list[str]] = {}
    at: dict[str, int] = {}
    for part in parts:
        if isinstance(part, Atom) and part.verb == "is not" and part.object:
            excluded.setdefault(part.subject, []).append(_value(part.object))
            if part.subject in at:
                continue
            at[part.subject] = len(words)
        words.append(part.words)
    for subject, values in excluded.items():
        if len(values) > 1:
            words[at[subject]] = f"{code(subject)} is {_none_of(values)}"
    return words


_TRUTH = {"is set": "is true", "is empty or not set": "is false"}


def of_truth_values(condition: Condition) -> Condition:
    """As languages mean it in which a condition is a truth value, and nothing else counts as one."""
    if isinstance(condition, Several):
        return Several(condition.how, tuple(of_truth_values(part) for part in condition.parts))
    return condition._replace(verb=_TRUTH.get(condition.verb, condition.verb))


def all_hold(conditions: Iterable[Condition]) -> list[str]:
    """Words of conditions that all hold, one for each, or fewer where some go together."""
    flat: list[Condition] = []
    for condition in conditions:
        flat += condition.parts if isinstance(condition, Several) and condition.how == "and" else (condition,)
    return list(dict.fromkeys(_merged(flat)))
