"""Logs of any length → the errors in them, each once, with how often and where.

One Aho-Corasick automaton looks for a literal of each template, and for what tracebacks begin with, in blocks of bytes.
Only lines that it stops at are looked at: there a template's literals must stand in their order, and the best template
is then judged like any message. Bytes, so no encoding can break it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from windtunnel.catalog.match.answer import Explanation
from windtunnel.catalog.match.clean import MOST_LINE_CHARACTERS, lines_of
from windtunnel.catalog.match.fit import pieces_of
from windtunnel.catalog.match.judge import by_text
from windtunnel.catalog.match.lines import MOST_FOREIGN_LINES, Lines
from windtunnel.catalog.match.look_up import LIMIT, Explained, Sighted, explanation, is_worth_telling, resolve
from windtunnel.catalog.match.reading import read_line, read_lines
from windtunnel.catalog.match.seen import Event, Seen
from windtunnel.catalog.template import literals_of, num_literal_characters

if TYPE_CHECKING:
    from windtunnel.catalog.store import Matchable, Store

LEAST_CHARACTERS = 10
"""Letters and digits of a template's literals: what says less stands in many lines that are no errors."""
_LEAST_KEY_BYTES = 6
_MOST_KEY_BYTES = 24
_TRACE_MARKS = (
    b"Traceback (most recent call last):", b"' panicked at ", b"panic: ", b"fatal error: ", b"\tat ", b"    at ",
    b"Caused by:", b"terminate called after throwing",
)  # fmt: skip
_GRAVE_MARKS = (b"ERROR", b"CRITICAL", b"FATAL", b"Error: ", b"Exception: ")
"""Of lines that are told of, whether a record has their words or not."""
_MOST_LINES_ABOVE = 3
"""Of the mark of a traceback: an error stands above its frames, and a logger's words above it."""
_TRACE_LINES = (150, 3_000)
"""So many are read; more, where a traceback goes on."""
_MOST_HELD_BYTES = 4_000_000
_MOST_LINE_BYTES = 1_000_000
_MOST_REMEMBERED = 50_000
_MOST_ERRORS = 5_000
"""Different ones of a log that are kept."""
_DIGITS = re.compile(rb"[0-9]+")


@dataclass
class Sighting:
    """An error of a log, with what it was made from."""

    chain: tuple[Explained, ...]
    num_times: int
    first_line: int
    last_line: int


def explain_log(
    blocks: Iterable[bytes], store: Store, *, project: str | None = None, limit: int = LIMIT
) -> Explanation:
    """What a log's errors are, each once, in the order in which they first come."""
    scanner = Scanner(store, project)
    for block in blocks:
        scanner.feed(block)
    scanner.settle()
    found = sorted(scanner.sightings.values(), key=lambda sighting: sighting.first_line)
    return explanation([Sighted(s.chain, s.num_times, s.last_line) for s in found], store, limit=limit)


class Scanner:
    """Scans a log that comes in blocks. `sightings` are what it has found so far."""

    def __init__(self, store: Store, project: str | None = None) -> None:
        """Takes a second for each 50,000 records. Needs the package ahocorasick_rs."""
        from ahocorasick_rs import BytesAhoCorasick, Implementation

        self._store = store
        self._project = project
        self._owners: list[list[_Searched]] = []
        patterns = self._patterns(store.matchables(project))
        self._automaton = BytesAhoCorasick([*patterns, *_GRAVE_MARKS, *_TRACE_MARKS], implementation=Implementation.DFA)
        self._num_patterns = len(patterns)
        self._first_trace = len(patterns) + len(_GRAVE_MARKS)
        self._verdicts: dict[_Searched | bytes | None, Sighting | None] = {}
        self._resolved: dict[tuple[object, ...], Explained] = {}
        self._rest = b""
        self._taken: set[int] = set()
        """Starts of its lines that belong to tracebacks which were counted."""
        self._line = 1
        """Number of the first line of `_rest`."""
        self.sightings: dict[tuple[tuple[str, ...], ...], Sighting] = {}
        self.num_lines = 0

    def _patterns(self, matchables: Iterable[Matchable]) -> list[bytes]:
        by_key: dict[bytes, list[_Searched]] = defaultdict(list)
        for matchable in matchables:
            searched = _searched(matchable)
            if searched is not None:
                by_key[max(searched.literals, key=len)[:_MOST_KEY_BYTES]].append(searched)
        self._owners = list(by_key.values())
        return list(by_key)

    def feed(self, data: bytes) -> list[Sighting]:
        """Scan more of the log; what was not seen before. The last lines, and a traceback that may go on, wait."""
        data = self._rest + data
        end = data.rfind(b"\n") + 1
        if len(data) - end > _MOST_LINE_BYTES:  # a line without end: its beginning is enough
            data = data[: end + MOST_LINE_CHARACTERS]
        return self._scan(data, end, is_last=False)

    def settle(self, *, is_last: bool = True) -> list[Sighting]:
        """Scan what waits, since nothing comes any more; what was not seen before. A line without end waits on."""
        end = len(self._rest) if is_last else self._rest.rfind(b"\n") + 1
        return self._scan(self._rest, end, is_last=True)

    def _scan(self, data: bytes, end: int, *, is_last: bool) -> list[Sighting]:
        """Scan lines up to `end`, and keep those that wait."""
        new: list[Sighting] = []
        counted = 0  # bytes before which newlines were counted
        held = end if is_last else _start_of_last(data, end, _MOST_LINES_ABOVE)
        done = 0  # bytes before which lines were counted as errors
        taken = self._taken  # starts of lines that tracebacks have
        pending: tuple[_Stop, int] | None = None  # a line that a traceback right below may have
        for stop in self._stops(data, end):
            if stop.start >= held:
                if stop.is_trace:
                    held = max(done, _start_of_last(data, stop.start, _MOST_LINES_ABOVE))
                break
            if stop.start in taken:
                continue
            self._line += data.count(b"\n", counted, stop.start)
            counted = stop.start
            if stop.is_trace:
                found = self._trace(data, stop.start, end, taken, self._line)
                if not is_last and end - found.starts[0] < _MOST_HELD_BYTES and (found.goes_on or found.end > held):
                    held = max(done, found.starts[0])
                    break
                for event in found.events:
                    new += self._count_event(event)
                taken.update(found.starts)
            if pending and pending[0].start not in taken:
                new += self._count_line(data, *pending)
            done = stop.start
            pending = None if stop.is_trace else (stop, self._line)
        if pending and pending[0].start < held:
            new += self._count_line(data, *pending)
        self._line += data.count(b"\n", counted, held) if held >= counted else -data.count(b"\n", held, counted)
        self.num_lines = self._line - 1
        self._rest = data[held:]
        self._taken = {start - held for start in taken if start >= held}
        return new

    def _stops(self, data: bytes, end: int) -> Iterator[_Stop]:
        """The lines that something stands in, in order."""
        hits = self._automaton.find_matches_as_indexes(memoryview(data)[:end], overlapping=True)
        start, line_end = 0, -1
        owners: list[_Searched] = []
        is_grave = is_trace = False
        for pattern, at, _ in hits:
            if at > line_end:
                if line_end >= 0:
                    yield _Stop(start, owners, is_grave, is_trace)
                start = data.rfind(b"\n", 0, at) + 1
                line_end = data.find(b"\n", at, end)
                line_end = end if line_end < 0 else line_end
                owners, is_grave, is_trace = [], False, False
            if pattern < self._num_patterns:
                owners += self._owners[pattern]
            elif pattern < self._first_trace:
                is_grave = True
            else:
                is_trace = True
        if line_end >= 0:
            yield _Stop(start, owners, is_grave, is_trace)

    # --- lines ----------------------------------------------------------------------------------------------------

    def _count_line(self, data: bytes, stop: _Stop, number: int) -> list[Sighting]:
        end = data.find(b"\n", stop.start)
        line = data[stop.start : min(end if end >= 0 else len(data), stop.start + MOST_LINE_CHARACTERS)]
        fitting = [searched for searched in stop.owners if searched.is_in(line)]
        if not fitting and not stop.is_grave:
            return []
        # lines that a logger marks as errors are one error where they have one template, others where they look alike
        best = max(fitting, key=lambda searched: searched.num_characters) if fitting and stop.is_grave else None
        shape = _DIGITS.sub(b"0", line) if best is None or best not in self._verdicts else b""
        for key in (best, shape):
            if key in self._verdicts:
                sighting = self._verdicts[key]
                if sighting is not None:
                    sighting.num_times += 1
                    sighting.last_line = number
                return []
        sighting, is_new = self._judged(line, number, [searched.matchable for searched in fitting])
        if len(self._verdicts) >= _MOST_REMEMBERED:
            self._verdicts.clear()
        self._verdicts[best if best is not None and sighting is not None else shape] = sighting
        return [sighting] if is_new and sighting is not None else []

    def _judged(self, line: bytes, number: int, fitting: list[Matchable]) -> tuple[Sighting | None, bool]:
        text = lines_of(line.decode("utf-8", "replace"))[0]
        events = read_line(text, number)
        chain = tuple(Explained(seen, tuple(by_text(seen, fitting))) for seen in events[0]) if events else ()
        if not chain or not is_worth_telling(chain):
            return None, False
        return self._counted(chain, number, number)

    # --- tracebacks -----------------------------------------------------------------------------------------------

    def _trace(self, data: bytes, start: int, end: int, taken: set[int], number: int) -> _Trace:
        """The tracebacks that the line at `start` belongs to, and their lines; without events where it has none."""
        begin, above = start, 0
        while above < _MOST_LINES_ABOVE and begin > 0:
            begin = data.rfind(b"\n", 0, begin - 1) + 1
            above += 1
        for most in _TRACE_LINES:
            starts = _line_starts(data, begin, end, most + above)
            text = data[begin : starts[-1]].decode("utf-8", "replace").replace("\r\n", "\n").removesuffix("\n")
            lines = Lines(lines_of(text), number - above)
            lines.take([(index, "") for index, at in enumerate(starts[:-1]) if at in taken])
            events = read_lines(lines, traces_until=above)
            own = [index for index in lines.taken() if starts[index] not in taken]
            if not own or own[-1] < len(starts) - 2:
                break
        if not events or not own:
            return _Trace([], [start], start, _has_few_lines(data, start, end))
        stop = starts[own[-1] + 1]
        return _Trace(events, [starts[index] for index in own], stop, _has_few_lines(data, stop, end))

    def _count_event(self, event: Event) -> list[Sighting]:
        chain = tuple(self._resolve(seen) for seen in event)
        first, last = min(seen.first_line for seen in event), max(seen.last_line for seen in event)
        sighting, is_new = self._counted(chain, first, last)
        return [sighting] if is_new else []

    def _resolve(self, seen: Seen) -> Explained:
        key = (seen.type, _DIGITS.sub(b"0", seen.message[:500].encode("utf-8", "replace")), seen.frames[-1:], seen.hint)
        found = self._resolved.get(key)
        if found is None:
            if len(self._resolved) >= _MOST_REMEMBERED:
                self._resolved.clear()
            found = self._resolved[key] = resolve(seen, self._store, self._project)
        return found._replace(seen=seen)

    def _counted(self, chain: tuple[Explained, ...], first: int, last: int) -> tuple[Sighting, bool]:
        key = tuple(item.identity for item in chain)
        known = self.sightings.get(key)
        if known is not None:
            known.num_times += 1
            known.last_line = last
            return known, False
        sighting = Sighting(chain, 1, first, last)
        if len(self.sightings) < _MOST_ERRORS:
            self.sightings[key] = sighting
        return sighting, True


class _Stop(NamedTuple):
    """A line that something stands in."""

    start: int
    owners: list[_Searched]
    """Whose literals."""
    is_grave: bool
    is_trace: bool
    """A traceback begins near it."""


class _Trace(NamedTuple):
    """A traceback of a block."""

    events: list[Event]
    starts: list[int]
    """Of its lines, with the logger's line above it."""
    end: int
    goes_on: bool
    """It may: the block ends with it."""


class _Searched:
    """A template as it is looked for in a line."""

    __slots__ = ("literals", "matchable", "num_characters")

    def __init__(self, matchable: Matchable, literals: tuple[bytes, ...]) -> None:
        self.matchable = matchable
        self.literals = literals
        self.num_characters = sum(map(len, literals))

    def is_in(self, line: bytes) -> bool:
        """Whether all literals stand in the line, in their order."""
        at = 0
        for literal in self.literals:
            at = line.find(literal, at)
            if at < 0:
                return False
            at += len(literal)
        return True


def _searched(matchable: Matchable) -> _Searched | None:
    """None: it says too little to be looked for in lines that may be anything."""
    if matchable.message_source != "message":
        return None
    literals = literals_of(pieces_of(matchable.template))
    if num_literal_characters(literals) < LEAST_CHARACTERS:
        return None
    encoded = tuple(literal.encode("utf-8", "replace") for literal in literals)
    if max(map(len, encoded)) < _LEAST_KEY_BYTES:
        return None
    return _Searched(matchable, encoded)


def _has_few_lines(data: bytes, start: int, end: int) -> bool:
    """Whether a traceback that seems to end at `start` may go on below: lines of other processes may be between."""
    return data.count(b"\n", start, end) <= MOST_FOREIGN_LINES + 1


def _start_of_last(data: bytes, end: int, num_lines: int) -> int:
    """Where the last lines before `end` begin."""
    for _ in range(num_lines):
        end = data.rfind(b"\n", 0, max(end - 1, 0)) + 1
    return end


def _line_starts(data: bytes, start: int, end: int, most: int) -> list[int]:
    """Where the line at `start` begins, and those after it; the last is where the last one ends."""
    starts = [start]
    while len(starts) <= most and starts[-1] < end:
        at = data.find(b"\n", starts[-1], end)
        starts.append(end if at < 0 else at + 1)
    return starts
