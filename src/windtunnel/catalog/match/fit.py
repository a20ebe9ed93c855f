"""Does a text come from a template? Literals are looked for in their order, with `str.find`: linear, whatever the text.

White space counts as one space, so a message that a terminal or a logger broke into lines still fits.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from windtunnel.catalog.template import Hole, Part

_SPACE = re.compile(r"\s+")
_INTEGER = re.compile(r"\s*[-+]?(?:0[xob])?[0-9a-fA-F][0-9a-fA-F_,]*\s*")
_NUMBER = re.compile(r"\s*[-+]?(?:[\d_,.]+(?:e[-+]?\d+)?|nan|inf)\s*%?", re.IGNORECASE)
_INTEGER_FORMAT = re.compile(r"[:%][-+ 0#,_]*\d*[dxXob]|%[-+ 0#]*\d*(?:l|ll|z|h)?[diuxX]")
_NUMBER_FORMAT = re.compile(r"[:%][-+ 0#,_<>^]*\d*(?:\.\d+)?[feEgG%]|\.\d+[fge]?")
_QUOTED = re.compile(r"[bru]?(?P<quote>['\"])")
_LEAST_CUT, _LEAST_CUT_SHARE = 10, 0.2
"""Letters and digits that have to be there of a message that was cut off, and their share."""


class Fit(NamedTuple):
    """How a text comes from a template."""

    values: tuple[str, ...]
    """What the holes hold, in their order; of neighbouring holes the first holds all. Shorter where the text is cut."""
    start: int
    end: int
    """The part of the text that the template explains; the text's white space is single spaces."""
    num_literal: int
    """Letters and digits of the literals that were found."""
    num_all: int
    """Letters and digits of all literals."""
    text: str
    """The text, with single spaces."""
    is_off: bool = False
    """A hole holds what the code never puts there."""

    @property
    def is_whole(self) -> bool:
        """The template explains the whole text."""
        return self.start == 0 and self.end == len(self.text)

    @property
    def is_cut(self) -> bool:
        """The text ends before the template does."""
        return self.num_literal < self.num_all


def single_spaced(text: str) -> str:
    """White space as single spaces, none at the ends."""
    return _SPACE.sub(" ", text).strip()


@lru_cache(maxsize=16_384)
def pieces_of(template: tuple[Part, ...]) -> tuple[Part, ...]:
    """The template as it is looked for: single spaces, none at its ends, neighbouring holes as one."""
    pieces: list[Part] = []
    for part in template:
        if isinstance(part, Hole):
            if not pieces or isinstance(pieces[-1], str):
                pieces.append(part)
            elif pieces:
                pieces[-1] = Hole(pieces[-1].expression)
        elif pieces and isinstance(pieces[-1], str):
            pieces[-1] = _SPACE.sub(" ", pieces[-1] + part)
        elif part:
            pieces.append(_SPACE.sub(" ", part))
    if pieces and isinstance(pieces[0], str):
        pieces[0] = pieces[0].lstrip()
    if pieces and isinstance(pieces[-1], str):
        pieces[-1] = pieces[-1].rstrip()
    return tuple(piece for piece in pieces if piece != "")


@lru_cache(maxsize=16_384)
def num_literal(pieces: tuple[Part, ...]) -> int:
    """Letters and digits of the literals."""
    return sum(_num_characters(piece) for piece in pieces if isinstance(piece, str))


def fit(template: tuple[Part, ...], text: str, *, may_be_cut: bool = False) -> Fit | None:
    """How `text`, single-spaced, comes from a template; None where it does not. The whole text is tried first."""
    pieces = pieces_of(template)
    if not pieces:
        return None
    before = pieces[-2] if len(pieces) > 1 and isinstance(pieces[-1], Hole) else ""
    if isinstance(before, str) and before.endswith(" ") and text.endswith(before.rstrip()):
        text += " "  # the last hole is empty, and the space before it was the text's end
    total = num_literal(pieces)
    found = _whole(pieces, text, total) or _within(pieces, text, total)
    if found is None and may_be_cut:
        found = _cut(pieces, text.rstrip("….").rstrip(), text, total)
    return found


def _num_characters(text: str) -> int:
    return sum(map(str.isalnum, text))


def _whole(pieces: Sequence[Part], text: str, total: int) -> Fit | None:
    first, last = pieces[0], pieces[-1]
    position, end = 0, len(text)
    if isinstance(first, str):
        if not text.startswith(first):
            return None
        position = len(first)
        if len(pieces) == 1:
            return Fit((), 0, end, total, total, text) if position == end else None
    if isinstance(last, str):
        end -= len(last)
        if end < position or not text.endswith(last):
            return None
    values: list[str] = []
    for piece in pieces[1 if isinstance(first, str) else 0 : -1 if isinstance(last, str) else None]:
        if isinstance(piece, Hole):
            values.append("")  # until the next literal tells where it ends
            continue
        at = text.find(piece, position, end)
        if at < 0:
            return None
        if values:
            values[-1] = text[position:at]
        position = at + len(piece)
    if values and values[-1] == "":
        values[-1] = text[position:end]
    elif position != end:
        return None
    return _checked(Fit(tuple(values), 0, len(text), total, total, text), pieces)


def _within(pieces: Sequence[Part], text: str, total: int) -> Fit | None:
    """The template explains a part of the text: from its first literal to its last; outer holes take the rest."""
    position, start = 0, None
    values: list[str] = []
    for i, piece in enumerate(pieces):
        if isinstance(piece, Hole):
            values.append("")
            continue
        at = _at_words(piece, text, position, is_first=i == 0, is_last=i == len(pieces) - 1)
        if at < 0:
            return None
        if start is None:
            start = at if i == 0 else 0
        if values and isinstance(pieces[i - 1], Hole):
            values[-1] = text[position:at]
        position = at + len(piece)
    if start is None:
        return None
    if isinstance(pieces[-1], Hole):
        values[-1] = text[position:]
        position = len(text)
    return _checked(Fit(tuple(values), start, position, total, total, text), pieces)


def _at_words(literal: str, text: str, position: int, *, is_first: bool, is_last: bool) -> int:
    """Where a literal is; one at the template's end is not within a word: `n must be` is not in `len must be`."""
    at = text.find(literal, position)
    while at >= 0:
        end = at + len(literal)
        is_within = (is_first and at > 0 and _is_joined(text[at - 1], literal[0])) or (
            is_last and end < len(text) and _is_joined(literal[-1], text[end])
        )
        if not is_within:
            break
        at = text.find(literal, at + 1)
    return at


def _is_joined(one: str, other: str) -> bool:
    return (one.isalnum() or one == "_") and (other.isalnum() or other == "_")


def _cut(pieces: Sequence[Part], text: str, full: str, total: int) -> Fit | None:
    """The text ends before the template does: in a literal, or in a hole."""
    position, start, found = 0, None, 0
    values: list[str] = []
    for i, piece in enumerate(pieces):
        if isinstance(piece, Hole):
            values.append(text[position:])
            continue
        at = text.find(piece, position)
        if at < 0:
            begun = _begun(piece, text, position)
            if begun:
                if values and isinstance(pieces[i - 1], Hole):
                    values[-1] = text[position : len(text) - begun]
                found += _num_characters(piece[:begun])
                start = (len(text) - begun if i == 0 else 0) if start is None else start
            break
        start = (at if i == 0 else 0) if start is None else start
        if values and isinstance(pieces[i - 1], Hole):
            values[-1] = text[position:at]
        found += _num_characters(piece)
        position = at + len(piece)
    if start != 0 or found < _LEAST_CUT or found < _LEAST_CUT_SHARE * total or found == total:
        return None
    return Fit(tuple(values), start, len(full), found, total, full)


def _begun(literal: str, text: str, position: int) -> int:
    """How many characters of a literal the text ends with."""
    at = max(position, len(text) - len(literal) + 1) - 1
    while (at := text.find(literal[0], at + 1)) >= 0:
        if literal.startswith(text[at:]):
            return len(text) - at
    return 0


def _checked(found: Fit, pieces: Sequence[Part]) -> Fit | None:
    """Holes of numbers hold numbers, and those with known values one of them."""
    is_off = False
    holes = [piece for piece in pieces if isinstance(piece, Hole)]
    for hole, value in zip(holes, found.values, strict=False):
        if hole.format and not _suits(hole.format, value):
            return None
        is_off = is_off or (hole.values is not None and value.strip("'\"") not in hole.values)
    return found._replace(is_off=is_off)


def _suits(format_: str, value: str) -> bool:
    if _INTEGER_FORMAT.fullmatch(format_):
        return _INTEGER.fullmatch(value) is not None
    if _NUMBER_FORMAT.fullmatch(format_):
        return _NUMBER.fullmatch(value) is not None
    if format_ in ("!r", "%r") and (quoted := _QUOTED.match(value)):
        return value.endswith(quoted["quote"])
    return True
