"""How sure is it that an error that was seen is a record's? Each kind of evidence has a confidence, and words for it.

The figures of `SURE` are how often a match of that kind was right when CPython's own test modules were run and each
exception was looked up (`benchmarks/catalog/ground_truth.py`), rounded down; seven of ten were the interpreter's, that
no record explains. Kinds that hardly came up there (a logger's place, a line alone) are guesses. What is cut off or
only similar counts by its share, and records that nothing tells apart share theirs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from windtunnel.catalog.match.envelopes import Variant, variants_of
from windtunnel.catalog.match.fit import Fit, fit, pieces_of, single_spaced
from windtunnel.catalog.match.likeness import share_of_text, similarity
from windtunnel.catalog.match.places import file_name, same_function, same_path
from windtunnel.catalog.match.seen import Frame, Seen
from windtunnel.catalog.match.types_of_errors import same_type
from windtunnel.catalog.match.words import words_of
from windtunnel.catalog.template import Hole, Part, literals_of, merged, num_literal_characters

if TYPE_CHECKING:
    from windtunnel.catalog.store import Matchable

SURE = {
    "place, whole message": 0.99,
    "place, message": 0.98,
    "place, message, other type": 0.95,
    "place, statement": 0.98,
    "place, type": 0.9,
    "place, reworded": 0.85,
    "place, line": 0.8,
    "logger's place, message": 0.9,
    "whole message, type": 0.7,
    "whole message": 0.7,
    "whole message, other type": 0.4,
    "cut message": 0.5,
    "part of the message, type": 0.5,
    "part of the message": 0.3,
    "similar words": 0.25,
    "whole short message": 0.3,
    "whole generic message": 0.1,
}
FOUND = 0.75
"""At a place: above it is found, below it is possible. Text alone is never more than possible."""

_SAME_PLACE = 0.6
"""From here on, paths are taken for the same file's."""
_SPECIFIC_CHARACTERS = 12
_LEAST_CHARACTERS, _LEAST_OF_BEGINNING = 8, 5
"""Letters and digits of a whole message without a type; fewer, where it begins with them: `IO error: {0}`."""
_BEGINNING = 8
_LEAST_OF_PART = 18
"""Letters and digits of a message that is only a part of the text: the interpreter's have some words of many."""
_LEAST_SIMILAR = 0.7
_LEAST_OF_TEXT = 0.3
"""Of the text's words, so many have to be the template's: a long text has some words of every template."""
_LEAST_REWORDED = 0.5
_EXPLICIT = re.compile(r"\b(?:raise|assert|exit|_exit|abort|fail|error|fatal|throw|panic|bail|Err|reject)\w*\b")
_MOST_CHARACTERS = 20_000


class Candidate(NamedTuple):
    """A record that may be the one."""

    matchable: Matchable
    kind: str
    """A key of `SURE`."""
    confidence: float
    evidence: tuple[str, ...]
    values: tuple[tuple[str, str], ...] = ()
    """Expressions of holes, and what they hold."""
    place: int | None = None
    """Which of the record's places it is."""
    order: tuple[float, ...] = ()
    """Among candidates of the same confidence, the larger is better."""


class _Match(NamedTuple):
    fit: Fit
    variant: Variant
    pieces: Sequence[Part]
    is_rendered: bool

    @property
    def strength(self) -> tuple[float, ...]:
        whole = self.fit.is_whole and self.variant.is_sure
        return (not self.fit.is_cut, not self.fit.is_off, whole, self.fit.num_literal, self.fit.is_whole)


class _Variants:
    """The variants of a message, single-spaced; each is made when it is first wanted."""

    def __init__(self, seen: Seen) -> None:
        self._known: list[Variant] = []
        self._rest = self._made(seen)

    def __iter__(self) -> Iterator[Variant]:
        yield from self._known
        for variant in self._rest:
            self._known.append(variant)
            yield variant

    @staticmethod
    def _made(seen: Seen) -> Iterator[Variant]:
        message = seen.message[:_MOST_CHARACTERS]
        for variant in variants_of(message, seen.type):
            yield variant._replace(text=single_spaced(variant.text))
        if seen.type and not seen.is_type_certain:  # what stands before the colon may be the message's
            yield Variant(single_spaced(f"{seen.type}: {message}"), "")


def at_place(seen: Seen, frame: Frame, matchables: Iterable[Matchable]) -> list[Candidate]:
    """Records with a site in the frame's file and function that the error can be; the best first."""
    if frame.source and not is_explicit(frame.source) and seen.language == "python":
        return []  # the interpreter raised it there, or something that it called
    variants = _Variants(seen)
    found = []
    for matchable in matchables:
        place = _place_of(matchable, frame)
        if place is None or (matchable.kind == "log" and seen.how != "logged"):
            continue
        candidate = _at_place(seen, frame, matchable, place, variants)
        if candidate is not None:
            found.append(candidate)
    return ranked(found)


def is_explicit(source: str) -> bool:
    """Whether a source line may raise by itself; else what it calls or computes did."""
    return _EXPLICIT.search(source) is not None


def _place_of(matchable: Matchable, frame: Frame) -> int | None:
    """The record's place that the frame names, the nearest in lines."""
    near = [
        (abs((frame.line or start) - start), index)
        for index, (path, start, _, function) in enumerate(matchable.places)
        if same_path(frame.path, path) >= _SAME_PLACE
        and (not frame.function or same_function(frame.function, function))
    ]
    return min(near)[1] if near else None


def _at_place(seen: Seen, frame: Frame, matchable: Matchable, place: int, variants: _Variants) -> Candidate | None:
    path, start, end, function = matchable.places[place]
    is_line = frame.line is not None and start <= frame.line <= end
    types = same_type(seen, matchable)
    where = f"raised in {function or 'the module'} of {path}, as the traceback says"
    if not frame.function:
        if not is_line:
            return None
        where = f"raised at {path}:{frame.line}, as the panic says"
    evidence = [where]
    if types:
        evidence.append(f"the type is {matchable.type}")
    order = (float(types or 0), float(is_line))
    match = _matched(matchable, seen, variants)
    if match is not None and match.fit.num_literal:
        evidence += _in_words(match)
        kind = "place, message" if types is not False else "place, message, other type"
        if match.fit.is_whole and types is not False:
            kind = "place, whole message"
        if types is False and not is_line and num_literal_characters(matchable.template) < _SPECIFIC_CHARACTERS:
            return None
        first, second, *strength = match.strength
        return _candidate(matchable, kind, evidence, match, place, (first, second, is_line, *strength, *order))
    if types is False:
        return None
    source = _statement_is(matchable, frame)
    if source and not _says_its_message(matchable):
        evidence.append("the traceback shows its statement")
        return _candidate(matchable, "place, statement", evidence, match, place, order)
    if _says_its_message(matchable):
        likeness = similarity(matchable, words_of(seen.message))
        if likeness < _LEAST_REWORDED or not seen.message:
            return None
        evidence.append(
            f"{likeness:.0%} of the message's words are the same: it may be worded differently in another version"
        )
        return _candidate(matchable, "place, reworded", evidence, None, place, (likeness, *order))
    if is_line and not frame.source:
        evidence.append(f"the line is {frame.line}")
        return _candidate(matchable, "place, line", evidence, match, place, order)
    return _candidate(matchable, "place, type", evidence, match, place, order) if types and frame.source else None


def _says_its_message(matchable: Matchable) -> bool:
    return matchable.message_source == "message" and any(
        character.isalnum() for part in matchable.template if isinstance(part, str) for character in part
    )


def _statement_is(matchable: Matchable, frame: Frame) -> bool:
    """Whether the source line of a traceback is the beginning of the record's statement or condition."""
    if matchable.message_source == "message":
        return False
    source = re.sub(r"\s+", "", frame.source)
    statement = re.sub(r"\s+", "", "".join(p if isinstance(p, str) else p.expression for p in matchable.template))
    condition = re.sub(r"^(?:if.*?:)?assert\(?", "", source)
    return bool(source) and (statement.startswith((source, condition)) or statement.rstrip("…") in source)


def by_text(seen: Seen, matchables: Iterable[Matchable]) -> list[Candidate]:
    """Records that the text alone speaks for; the best first."""
    variants = _Variants(seen)
    words = words_of(f"{seen.type} {seen.message}")
    text, there = single_spaced(seen.message[:_MOST_CHARACTERS]), set(words)
    found = []
    for matchable in matchables:
        if not _says_its_message(matchable) or not _may_fit(matchable, text, there):
            continue
        match = _matched(matchable, seen, variants)
        if match is None or not match.fit.num_literal:
            candidate = _similar(seen, matchable, words)
        else:
            candidate = _by_text(seen, matchable, match)
        if candidate is not None:
            found.append(candidate)
    return ranked(found)


def _may_fit(matchable: Matchable, text: str, words: set[str]) -> bool:
    """Whether it is worth a look: the text has its beginning, or every second of its words."""
    literals = literals_of(pieces_of(matchable.template))
    if literals[0][:_BEGINNING] in text:
        return True
    own = {word for literal in literals for word in words_of(literal)}
    return 2 * len(own & words) >= len(own)


def _by_text(seen: Seen, matchable: Matchable, match: _Match) -> Candidate | None:
    types = same_type(seen, matchable)
    evidence = _in_words(match)
    if types:
        evidence.append(f"the type is {matchable.type}")
    elif types is False:
        evidence.append(f"the type is {matchable.type} there, and {seen.type} here")
    place = None
    is_specific = match.fit.num_literal >= _SPECIFIC_CHARACTERS
    if seen.hint and (place := _hinted(matchable, seen.hint)) is not None:
        path, start, _end, _ = matchable.places[place]
        kind = "logger's place, message"
        evidence.insert(0, f"logged from {file_name(path)}:{seen.hint.line}, which is {path}:{start}")
    elif match.fit.is_cut:
        kind = "cut message"
    elif match.fit.is_whole and match.variant.is_sure:
        if not is_specific:
            begins = isinstance(match.pieces[0], str)
            if match.fit.num_literal < (_LEAST_OF_BEGINNING if begins else _LEAST_CHARACTERS) and not types:
                return None
            kind = "whole message" if types else "whole short message" if begins else "whole generic message"
        else:
            kind = {True: "whole message, type", None: "whole message", False: "whole message, other type"}[types]
    else:
        if match.fit.num_literal < _LEAST_OF_PART:
            return None
        kind = "part of the message, type" if types else "part of the message"
    return _candidate(matchable, kind, evidence, match, place, (*match.strength, float(types or 0)))


def _similar(seen: Seen, matchable: Matchable, words: list[str]) -> Candidate | None:
    likeness = similarity(matchable, words)
    if likeness < _LEAST_SIMILAR or share_of_text(matchable, words) < _LEAST_OF_TEXT:
        return None
    evidence = [
        f"{likeness:.0%} of its words, counted by their weight, are in the text: cut off, or worded differently"
    ]
    types = same_type(seen, matchable)
    if types:
        evidence.append(f"the type is {matchable.type}")
    order = (likeness, float(types or 0))
    candidate = _candidate(matchable, "similar words", evidence, None, None, order)
    return candidate._replace(confidence=candidate.confidence * likeness)


def _hinted(matchable: Matchable, hint: Frame) -> int | None:
    for index, (path, start, end, _) in enumerate(matchable.places):
        if same_path(hint.path, path) >= _SAME_PLACE and hint.line is not None and start <= hint.line <= end:
            return index
    return None


def _candidate(
    matchable: Matchable,
    kind: str,
    evidence: list[str],
    match: _Match | None,
    place: int | None,
    order: tuple[float, ...],
) -> Candidate:
    confidence = SURE[kind]
    if match and match.fit.is_cut:
        confidence *= match.fit.num_literal / max(match.fit.num_all, 1)
    if match and match.fit.is_off:
        confidence *= 0.5
    values = _values(match) if match else ()
    return Candidate(matchable, kind, confidence, tuple(evidence), values, place, order)


def _values(match: _Match) -> tuple[tuple[str, str], ...]:
    holes = [piece for piece in match.pieces if isinstance(piece, Hole)]
    return tuple(
        (hole.expression, value) for hole, value in zip(holes, match.fit.values, strict=False) if hole.expression
    )


def _in_words(match: _Match) -> list[str]:
    found = match.fit
    if found.is_cut:
        share = found.num_literal / max(found.num_all, 1)
        words = [f"the text is its beginning, and ends after {share:.0%} of its letters"]
    elif found.is_whole:
        words = ["its message is the whole text"]
    else:
        words = ["its message is a part of the text"]
    if match.variant.without:
        words[0] += f" without {match.variant.without}"
    if match.is_rendered:
        words[0] += ", as its class shows it"
    if found.is_off:
        words.append("but a value is none that the code shows")
    return words


def _matched(matchable: Matchable, seen: Seen, variants: _Variants) -> _Match | None:
    """The best fit of the message, and of the form that its class shows it in, in any variant of the text."""
    if matchable.message_source != "message":
        return None
    templates: list[tuple[tuple[Part, ...], bool]] = [(matchable.template, False)]
    if matchable.renders:
        templates.append((_rendered(matchable.renders, matchable.template), True))
    best: _Match | None = None
    for template, is_rendered in templates:
        for variant in variants:
            found = fit(template, variant.text, may_be_cut=True)
            if found is None:
                continue
            match = _Match(found, variant, pieces_of(template), is_rendered)
            if best is None or match.strength > best.strength:
                best = match
            if found.is_whole and not found.is_cut and not found.is_off:
                break  # what else may be taken off only leaves less of it
    return best


def _rendered(renders: tuple[Part, ...], template: tuple[Part, ...]) -> tuple[Part, ...]:
    parts: list[Part] = []
    for part in renders:
        parts += template if isinstance(part, Hole) and part.expression == "message" else [part]
    return merged(parts)


def ranked(candidates: list[Candidate]) -> list[Candidate]:
    """The best first. Those that nothing tells apart share their confidence."""
    candidates.sort(key=lambda c: (c.confidence, c.order), reverse=True)
    if not candidates:
        return []
    best = candidates[0]
    equal = sum(c.confidence == best.confidence and c.order == best.order for c in candidates)
    if equal == 1:
        return candidates
    shared = [
        c._replace(confidence=c.confidence / equal, evidence=(*c.evidence, _as_likely(equal - 1)))
        for c in candidates[:equal]
    ]
    return shared + candidates[equal:]


def _as_likely(num_others: int) -> str:
    return f"{num_others} other {'record is' if num_others == 1 else 'records are'} as likely"
