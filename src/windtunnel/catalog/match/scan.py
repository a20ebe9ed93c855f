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

from windtunnel.catalog.match.clean import MOST_LINE_CHARACTERS, lines_of
from windtunnel.catalog.match.fit import pieces_of
from windtunnel.catalog.match.judge import by_text
from windtunnel.catalog.match.lines import Lines
from windtunnel.catalog.match.look_up import Explained, is_worth_telling, resolve
from windtunnel.catalog.match.reading import read_line, read_lines
from windtunnel.catalog.match.seen import Event, Seen
from windtunnel.catalog.template import literals_of, num_literal_characters

if TYPE_CHECKING:
    from windtunnel.catalog.store import Matchable, Store

LEAST_CHARACTERS = 10
"""Letters and digits of a template's literals: what says less stands in many lines that are no errors."""
_LEAST_KEY_BYTES = 6
_MOST_KEY_BYTES = 40
_TRACE_MARKS = (
    b"Traceback (most recent call last):", b"' panicked at ", b"panic: ", b"fatal error: ", b"\tat ", b"    at ",
    b"Caused by:", b"terminate called after throwing",
)  # fmt: skip
_MOST_LINES_ABOVE = 3
"""Of the mark of a traceback: an error stands above its frames, and a logger's words above it."""
_TRACE_LINES = (150, 3_000)
"""So many are read; more, where a traceback goes on."""
_MOST_HELD_BYTES = 4_000_000
_MOST_REMEMBERED = 50_000
_MOST_ERRORS = 5_000
"""Different ones of a log that are kept."""
_DIGITS = re.compile(rb"[0-9]+")


@dataclass
class Sighting:
    """An error of a log, with what it was made from."""

    chain: tuple[Explained, ...]
    count: int
    first_line: int
    last_line: int


class Scanner:
    """Scans a log that comes in blocks. `sightings` are what it has found so far."""

    def __init__(self, store: Store, project: str | None = None) -> None:
        """Takes a second for each 50,000 records. Needs the package ahocorasick_rs."""
        from ahocorasick_rs import BytesAhoCorasick, Implementation

        self._store = store
        self._project = project
        self._owners: list[list[_Searched]] = []
        patterns = self._patterns(store.matchables(project))
        self._automaton = BytesAhoCorasick([*patterns, *_TRACE_MARKS], implementation=Implementation.ContiguousNFA)
        self._first_mark = len(patterns)
        self._shapes: dict[bytes, Sighting | None] = {}
        self._resolved: dict[tuple[object, ...], Explained] = {}
        self._rest = b""
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

    def feed(self, data: bytes, *, is_last: bool = False) -> list[Sighting]:
        """Scan more of the log; what was not seen before. A traceback that may go on is kept for the next time."""
        data = self._rest + data.replace(b"\r\n", b"\n")
        end = len(data) if is_last else data.rfind(b"\n") + 1
        if end == 0 and len(data) > _MOST_HELD_BYTES:  # a line without end
            data, end = data[:MOST_LINE_CHARACTERS] + b"\n", MOST_LINE_CHARACTERS + 1
        self._rest = b""
        new, done, line = self._scan(data, end, self._line, is_last=is_last)
        self._rest, self._line = data[done:], line
        self.num_lines = line - 1
        return new

    def _scan(self, data: bytes, end: int, line: int, *, is_last: bool) -> tuple[list[Sighting], int, int]:
        """What is new; up to which byte the data is done; the number of the line there."""
        new: list[Sighting] = []
        counted = 0  # bytes before which newlines were counted
        taken = 0  # bytes that tracebacks have
        pending: tuple[int, int, list[_Searched]] | None = None  # a line that a traceback right below may have
        for start, owners in self._stops(data, end):
            if start < taken:
                continue
            line += data.count(b"\n", counted, start)
            counted = start
            if owners is not None:
                new += self._count_line(data, *pending) if pending else []
                pending = (start, line, owners)
                continue
            found = self._trace(data, start, end, taken, line)
            if found is None:
                continue
            if pending and pending[0] < found.begin:
                new += self._count_line(data, *pending)
            pending = None
            if found.goes_on and not is_last and end - found.begin < _MOST_HELD_BYTES:
                return new, found.begin, line - data.count(b"\n", found.begin, start)
            for event in found.events:
                new += self._count_event(event)
            taken = found.end
        new += self._count_line(data, *pending) if pending else []
        return new, end, line + data.count(b"\n", counted, end)

    def _stops(self, data: bytes, end: int) -> Iterator[tuple[int, list[_Searched] | None]]:
        """Starts of the lines that something stands in, in order: whose literals; None: a traceback begins."""
        hits = self._automaton.find_matches_as_indexes(memoryview(data)[:end], overlapping=True)
        line_start, line_end = 0, -1
        owners: list[_Searched] = []
        is_trace = False
        for pattern, at, _ in hits:
            if at > line_end:
                if line_end >= 0:
                    yield line_start, None if is_trace else owners
                line_start = data.rfind(b"\n", 0, at) + 1
                line_end = data.find(b"\n", at, end)
                line_end = end if line_end < 0 else line_end
                owners, is_trace = [], False
            if pattern >= self._first_mark:
                is_trace = True
            else:
                owners += self._owners[pattern]
        if line_end >= 0:
            yield line_start, None if is_trace else owners

    # --- lines ----------------------------------------------------------------------------------------------------

    def _count_line(self, data: bytes, start: int, number: int, owners: list[_Searched]) -> list[Sighting]:
        end = data.find(b"\n", start)
        line = data[start : min(end if end >= 0 else len(data), start + MOST_LINE_CHARACTERS)]
        fitting = [searched.matchable for searched in owners if searched.is_in(line)]
        if not fitting:
            return []
        shape = _DIGITS.sub(b"0", line)
        if shape in self._shapes:
            sighting = self._shapes[shape]
            if sighting is not None:
                sighting.count += 1
                sighting.last_line = number
            return []
        sighting, is_new = self._judged(line, number, fitting)
        if len(self._shapes) >= _MOST_REMEMBERED:
            self._shapes.clear()
        self._shapes[shape] = sighting
        return [sighting] if is_new and sighting is not None else []

    def _judged(self, line: bytes, number: int, fitting: list[Matchable]) -> tuple[Sighting | None, bool]:
        text = lines_of(line.decode("utf-8", "replace"))[0]
        events = read_line(text, number)
        chain = tuple(Explained(seen, tuple(by_text(seen, fitting))) for seen in events[0]) if events else ()
        if not chain or not any(item.candidates for item in chain) or not is_worth_telling(chain):
            return None, False
        return self._counted(chain, number, number)

    # --- tracebacks -----------------------------------------------------------------------------------------------

    def _trace(self, data: bytes, start: int, end: int, taken: int, number: int) -> _Trace | None:
        """The events of the traceback that the line at `start` belongs to; None: it is none."""
        begin, above = start, 0
        while above < _MOST_LINES_ABOVE and begin > taken:
            begin = data.rfind(b"\n", 0, begin - 1) + 1
            above += 1
        for most in _TRACE_LINES:
            starts = _line_starts(data, begin, end, most + above)
            text = data[begin : starts[-1]].decode("utf-8", "replace")
            lines = Lines(lines_of(text.removesuffix("\n")), number - above)
            events = read_lines(lines, traces_until=above)
            last = lines.last_taken()
            if last is None or last < len(starts) - 2:
                break
        first = lines.first_taken()
        if not events or last is None or first is None or last < above:
            return None
        stop = starts[min(last + 1, len(starts) - 1)]
        return _Trace(events, starts[first], stop, stop >= end or not data[stop:end].strip())

    def _count_event(self, event: Event) -> list[Sighting]:
        chain = tuple(self._resolve(seen) for seen in event)
        sighting, is_new = self._counted(chain, event[0].first_line, event[-1].last_line)
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
            known.count += 1
            known.last_line = last
            return known, False
        sighting = Sighting(chain, 1, first, last)
        if len(self.sightings) < _MOST_ERRORS:
            self.sightings[key] = sighting
        return sighting, True


class _Trace(NamedTuple):
    """A traceback of a block."""

    events: list[Event]
    begin: int
    end: int
    """Its bytes, with the logger's line above it."""
    goes_on: bool
    """It may: the block ends with it."""


class _Searched:
    """A template as it is looked for in a line."""

    __slots__ = ("literals", "matchable")

    def __init__(self, matchable: Matchable, literals: tuple[bytes, ...]) -> None:
        self.matchable = matchable
        self.literals = literals

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


def _line_starts(data: bytes, start: int, end: int, most: int) -> list[int]:
    """Where the line at `start` begins, and those after it; the last is where the last one ends."""
    starts = [start]
    while len(starts) <= most and starts[-1] < end:
        at = data.find(b"\n", starts[-1], end)
        starts.append(end if at < 0 else at + 1)
    return starts
