"""Text → explanation: read what was seen, find the records that it may be, and say how sure that is.

Order: a frame's file and function; the message's exact template; what is left of it when envelopes are taken off; the
words that it shares with a template; last, a search, which is a hint and no answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from windtunnel.catalog.match.answer import SCHEMA, Answer, Explanation, Match, SeenAt, SeenError, Value
from windtunnel.catalog.match.judge import FOUND, Candidate, at_place, by_text, is_explicit
from windtunnel.catalog.match.likeness import similarity, weight
from windtunnel.catalog.match.outside import to_index, why_not
from windtunnel.catalog.match.places import file_name, is_inner, last_name
from windtunnel.catalog.match.reading import read
from windtunnel.catalog.match.seen import Event, Frame, Seen
from windtunnel.catalog.match.words import words_of
from windtunnel.catalog.template import num_literal_characters
from windtunnel.errors import NotInCatalog

if TYPE_CHECKING:
    from windtunnel.catalog.record import Claim, Record
    from windtunnel.catalog.store import Matchable, Store

LIMIT = 5
_OURS = "windtunnel"
_CODE = re.compile(r"\bWT-[A-Z]+(?:-[A-Z]+)*\b")
_ID = re.compile(r"[0-9a-f]{6,16}")
_MOST_WORDS = 400
_MOST_SEARCHED_CHARACTERS = 400
_MOST_SEARCHED_WORDS = 6
_MOST_HITS = 12
_LEAST_WEIGHT = 1.0
_MOST_SIMILAR, _LEAST_SIMILAR, _OF_SIMILAR = 3, 0.4, 0.1
_OF_ELSEWHERE = 0.6
_LEAST_ALONE = 25
"""Letters and digits of a message that may be another function's than the traceback says."""
_MOST_SHOWN_CHARACTERS = 500
_IN_A_LOG = 0.45
"""A line among others that no logger marks as an error has to be so sure."""


class Explained(NamedTuple):
    """An error that was seen, and what it may be."""

    seen: Seen
    candidates: tuple[Candidate, ...]
    near: tuple[Matchable, ...] = ()
    """Where nothing else is found: what a search for its words finds."""
    is_interpreters: bool = False
    """Its innermost frame is a function of an indexed project, but nothing that raises there is this error."""

    @property
    def identity(self) -> tuple[str, ...]:
        """Of equal errors the same, whatever their values."""
        if self.candidates:
            return (self.candidates[0].matchable.id,)
        if self.seen.frames:
            frame = self.seen.frames[-1]
            return (self.seen.type, frame.path, frame.function, str(frame.line))
        return (self.seen.type, re.sub(r"\d+", "0", self.seen.message[:200]))

    @property
    def answer(self) -> Answer:
        """Found needs a place."""
        if not self.candidates:
            return "not in this catalog"
        best = self.candidates[0]
        return "found" if best.confidence >= FOUND and best.kind.startswith("place") else "possible"


class Sighted(NamedTuple):
    """A chain of a text, how often it is there, and the last line where it is."""

    chain: tuple[Explained, ...]
    num_times: int = 1
    last_line: int = 0


def explain(text: str, store: Store, *, project: str | None = None, limit: int = LIMIT) -> Explanation:
    """What a line, traceback, log, body, error code or record id is; at most `limit` records for each error."""
    direct = _by_name(text.strip(), store, project)
    chains = [direct] if direct else explained(read(text), store, project)
    return explanation([Sighted(chain) for chain in chains], store, limit=limit)


def explained(events: Iterable[Event], store: Store, project: str | None = None) -> list[tuple[Explained, ...]]:
    """Each event's errors with their candidates, tracebacks first. Of lines, those that say nothing are left out."""
    chains = [tuple(resolve(seen, store, project) for seen in event) for event in events]
    if len(chains) > 1 and _is_paragraph(chains[0]):
        lines = chains[1:]
        if _confidence(chains[0]) > max(map(_confidence, lines)):
            return chains[:1]
        chains = lines
    if len(chains) == 1:
        return chains
    kept = [chain for chain in chains if is_worth_telling(chain)] or chains[:1]
    return sorted(kept, key=lambda chain: not any(item.seen.has_trace for item in chain))


def _is_paragraph(chain: tuple[Explained, ...]) -> bool:
    """Several lines that were read as one message, and are read one by one as well."""
    root = chain[0].seen
    return root.last_line > root.first_line and not root.has_trace


def _confidence(chain: tuple[Explained, ...]) -> float:
    return max((item.candidates[0].confidence for item in chain if item.candidates), default=0.0)


def is_worth_telling(chain: tuple[Explained, ...]) -> bool:
    """Whether a line among others is an error: a logger says so, it names a type, or a record fits it well."""
    root = chain[0]
    if root.seen.has_trace or len(chain) > 1:
        return True
    best = root.candidates[0] if root.candidates else None
    if best is not None and best.kind in ("whole message, type", "logger's place, message"):
        return True
    if root.seen.is_grave or _is_named_error(root.seen):
        return True
    return best is not None and best.confidence >= _IN_A_LOG and best.kind != "cut message" and not root.seen.is_benign


def _is_named_error(seen: Seen) -> bool:
    return seen.type.endswith(("Error", "Exception")) and seen.message != ""


def resolve(seen: Seen, store: Store, project: str | None = None) -> Explained:
    """The records that an error may be, the best first."""
    frame = seen.frames[-1] if seen.frames else None
    if frame is None:
        if candidates := by_text(seen, _with_words(seen, store, project)):
            return Explained(seen, tuple(candidates))
        near = _searched(seen, store, project)
        return Explained(seen, tuple(by_text(seen, near)), tuple(near))
    near = _at_frame(seen, frame, store, project)
    candidates = at_place(seen, frame, near)
    if candidates:
        return Explained(seen, tuple(candidates))
    is_ours = any(_is_at(matchable, frame) for matchable in near)
    if is_ours and seen.language == "python":
        return Explained(seen, (), is_interpreters=True)
    elsewhere = [c for c in by_text(seen, _with_words(seen, store, project)) if _may_be_elsewhere(c, seen, frame)]
    return Explained(seen, tuple(c._replace(confidence=c.confidence * _OF_ELSEWHERE) for c in elsewhere))


def _at_frame(seen: Seen, frame: Frame, store: Store, project: str | None) -> list[Matchable]:
    """Records that the frame's function may raise; a panic that names no function is looked up by its words."""
    if is_inner(frame.function):
        return []
    if not frame.function:
        return _with_words(seen, store, project)
    found = store.by_place(file_name(frame.path), last_name(frame.function))
    return [matchable for matchable in found if project in (None, matchable.project)]


def _is_at(matchable: Matchable, frame: Frame) -> bool:
    from windtunnel.catalog.match.places import same_path

    return any(same_path(frame.path, path) >= 0.9 for path, *_ in matchable.places)


def _may_be_elsewhere(candidate: Candidate, seen: Seen, frame: Frame) -> bool:
    """A traceback names another place than the record's: it moved, or native code below the frame raised it."""
    is_native = candidate.matchable.language != seen.language
    if not is_native and frame.source and not is_explicit(frame.source):
        return False
    kinds = ("whole message, type", "whole message") if is_native or not seen.type else ("whole message, type",)
    return candidate.kind in kinds and candidate.order[3] >= _LEAST_ALONE


def _with_words(seen: Seen, store: Store, project: str | None) -> list[Matchable]:
    words = set(words_of(f"{seen.type} {seen.message[:20_000]}")[:_MOST_WORDS])
    return [matchable for matchable in store.by_words(words) if project in (None, matchable.project)]


def _searched(seen: Seen, store: Store, project: str | None) -> list[Matchable]:
    """A message that was cut off may have lost the words that its record is kept under: a search takes any."""
    words = sorted(set(words_of(seen.message[:_MOST_SEARCHED_CHARACTERS])), key=lambda word: (-weight(word), word))
    words = [word for word in words[:_MOST_SEARCHED_WORDS] if weight(word) >= _LEAST_WEIGHT]
    hits = store.search(" ".join(words), project=project, limit=_MOST_HITS) if words else []
    return [_matchable(store.record(hit.id)) for hit in hits]


def _by_name(text: str, store: Store, project: str | None) -> tuple[Explained, ...] | None:
    """A record's id, or a code of windtunnel's own errors."""
    if _ID.fullmatch(text):
        try:
            record = store.record(text)
        except NotInCatalog:
            return None
        return (_certain(record, f"{text} is its id"),)
    if (match := _CODE.search(text)) and project in (None, _OURS):
        from windtunnel.errors import classes

        type_ = next((c.__name__ for c in classes() if c.code == match[0]), None)
        found = (
            [r for hit in store.search(type_, project=_OURS) if (r := store.record(hit.id)).type == type_]
            if type_
            else []
        )
        if found:  # of several, the one that says least of a case of its own
            general = min(found, key=lambda record: num_literal_characters(record.template))
            return (_certain(general, f"{match[0]} is the code of {type_}"),)
    return None


def _certain(record: Record, why: str) -> Explained:
    seen = Seen(record.type, record.text)
    return Explained(seen, (Candidate(_matchable(record), "place, whole message", 1.0, (why,)),))


def _matchable(record: Record) -> Matchable:
    from windtunnel.catalog.store import Matchable

    places = tuple((site.path, site.start, site.end, site.function) for site in record.sites)
    return Matchable(
        id=record.id, project=record.project, language=record.language, kind=record.kind, type=record.type,
        template=record.template, message_source=record.message_source, renders=record.renders, places=places,
    )  # fmt: skip


def explanation(sighted: Iterable[Sighted], store: Store, *, limit: int = LIMIT) -> Explanation:
    """Put together what was found: each distinct error once, roots first."""
    errors: dict[tuple[str, ...], _Counted] = {}
    for chain, num_times, last_line in sighted:
        for item in _each_once(chain):
            last = max(last_line, item.seen.last_line)
            known = errors.get(item.identity)
            if known is None:
                errors[item.identity] = _Counted(item, num_times, last)
            else:
                errors[item.identity] = _Counted(known.item, known.num_times + num_times, max(known.last_line, last))
    items = [counted.item for counted in errors.values()]
    records = _records(items, store, limit)
    projects = store.projects()
    frames = [frame for item in items if not item.candidates for frame in reversed(item.seen.frames)]
    return Explanation(
        SCHEMA, bool(records), _answer(items), tuple(records), tuple(_error(counted) for counted in errors.values()),
        tuple(f"{p.name} {p.version}" for p in projects), to_index(frames, {p.name for p in projects}),
        () if records else tuple(_similar(items, store)),
    )  # fmt: skip


def _each_once(chain: tuple[Explained, ...]) -> Iterable[Explained]:
    """pydantic's error and the one that it reports are one record's."""
    once: dict[tuple[str, ...], Explained] = {}
    for item in chain:
        once.setdefault(item.identity, item)
    return once.values()


class _Counted(NamedTuple):
    item: Explained
    num_times: int
    last_line: int


def _answer(items: list[Explained]) -> Answer:
    answers = {item.answer for item in items}
    return "found" if "found" in answers else "possible" if "possible" in answers else "not in this catalog"


def _records(items: list[Explained], store: Store, limit: int) -> list[Match]:
    """The best candidate of each error, roots first, then the others; each record once."""
    wanted = [(index, item.candidates[0]) for index, item in enumerate(items) if item.candidates]
    others = [(index, c) for index, item in enumerate(items) for c in item.candidates[1:limit]]
    wanted += sorted(others, key=lambda pair: -pair[1].confidence)
    shown: set[str] = set()
    records = []
    for index, candidate in wanted:
        if candidate.matchable.id in shown:
            continue
        shown.add(candidate.matchable.id)
        records.append(_match(candidate, index, store.record(candidate.matchable.id)))
    return records


def _match(candidate: Candidate, error: int, record: Record) -> Match:
    here = candidate.matchable.places[candidate.place] if candidate.place is not None else None
    sites = [
        SeenAt(s.path, s.start, s.end, s.function, s.permalink, (s.path, s.start, s.end, s.function) == here)
        for s in record.sites
    ]
    prose = record.prose
    return Match(
        record.id, record.project, record.provenance.version, record.language, record.kind, record.type, record.text,
        round(candidate.confidence, 3), candidate.evidence, error,
        tuple(Value(expression, value[:_MOST_SHOWN_CHARACTERS]) for expression, value in candidate.values),
        tuple(sorted(sites, key=lambda site: not site.is_here)), record.severity,
        _texts(prose.meaning), _texts(prose.trigger), _texts(prose.situations), _texts(prose.solutions),
    )  # fmt: skip


def _texts(claims: Sequence[Claim]) -> tuple[str, ...]:
    return tuple(claim.text if claim.code is None else f"{claim.text}\n{claim.code}" for claim in claims)


def _error(counted: _Counted) -> SeenError:
    item, seen = counted.item, counted.item.seen
    frame = seen.frames[-1] if seen.frames else None
    raised_in = ""
    if frame is not None:
        line = f":{frame.line}" if frame.line else ""
        raised_in = f"{frame.path}{line}" + (f", in {frame.function}" if frame.function else "")
    return SeenError(
        seen.type, seen.message[:_MOST_SHOWN_CHARACTERS], item.answer, counted.num_times, seen.first_line,
        counted.last_line, seen.how, raised_in, "" if item.candidates else why_not(seen, item.is_interpreters),
        tuple(candidate.matchable.id for candidate in item.candidates[:LIMIT]),
    )  # fmt: skip


def _similar(items: list[Explained], store: Store) -> Iterator[Match]:
    """What has most of the words: no answer, but perhaps a hint. Not for tracebacks, which say where it was raised."""
    for index, item in enumerate(items[:_MOST_SIMILAR]):
        words = words_of(item.seen.message)
        scored = sorted(((similarity(m, words), m) for m in item.near), key=lambda pair: -pair[0])
        for likeness, matchable in scored[:_MOST_SIMILAR]:
            if likeness >= _LEAST_SIMILAR:
                evidence = (f"{likeness:.0%} of its words, counted by their weight, are in the text",)
                candidate = Candidate(matchable, "similar words", round(_OF_SIMILAR * likeness, 3), evidence)
                yield _match(candidate, index, store.record(matchable.id))
