"""A line, a traceback, a log or a body → the errors in it, each chain with its root first."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from windtunnel.catalog.match.bodies import read_body
from windtunnel.catalog.match.clean import lines_of, prefix_of, process_of
from windtunnel.catalog.match.lines import Block, Lines
from windtunnel.catalog.match.other_traces import (
    FORMS,
    error_start,
    read_anyhow,
    read_java,
    starts_at_line,
)
from windtunnel.catalog.match.python_traces import FRAME_START, HEAD, read_python
from windtunnel.catalog.match.seen import Event, Seen

_Read = Callable[[Lines, Block], tuple[list[Event], int]]
_LOGGED = ("python", "java", "javascript")
"""Loggers of these write tracebacks below their words."""
_BLOCK_SIZES = (200, 4_000, 40_000)
_TYPE = re.compile(r"(?P<type>(?:\w+(?:\.|::))*[A-Z]\w{2,80}|(?:\w+\.)*error)(?:: (?P<message>\S.*)|:?$)", re.DOTALL)
_MOST_PARAGRAPH_LINES = 12
_INSIDE_VALIDATION = re.compile(
    r"(?P<what>Value error|Assertion failed), (?P<message>.+?)(?: \[type=\w+,|\n\S|$)", re.DOTALL
)
_VALIDATION = re.compile(r"\d+ validation errors? for ")


def read(text: str) -> list[Event]:
    """All that looks like an error, in the order of the text; of a single line or paragraph, that itself."""
    return read_lines(Lines(lines_of(text)))


def read_lines(lines: Lines, *, traces_until: int | None = None) -> list[Event]:
    """The events of lines that were cleaned; with `traces_until` only the tracebacks that begin up to that line."""
    events: list[Event] = []
    num_plain = 0
    for index in lines:
        if traces_until is not None and index > traces_until:
            break
        found = list(_traces(lines, index))
        if found:
            logged = _logged_above(lines, index) if found[0][-1].language in _LOGGED else None
            if logged and events and len(events[-1]) == 1 and events[-1][0].last_line == logged.last_line:
                events.pop()  # it belongs to the traceback
                num_plain -= 1
            events += [(*event, logged) if logged else event for event in found]
            if logged:
                lines.take([(index - 1, "")])
        elif (line := lines.lines[index]).strip() and traces_until is None:
            num_plain += 1
            events += read_line(line, lines.number(index))
    if num_plain == len(events) and 1 < num_plain <= _MOST_PARAGRAPH_LINES:
        events.insert(0, _paragraph(lines))
    return [_opened(event) for event in events]


def _traces(lines: Lines, index: int) -> Iterator[Event]:
    line = lines.lines[index]
    if "Traceback (most recent call last):" in line:
        start = line.index(HEAD)
        group = line.rfind("  + Exception Group ", 0, start)
        yield from _grown(lines, index, line[: group if group >= 0 else start], read_python)
        return
    if match := FRAME_START.match(line):
        yield from _grown(lines, index, match["prefix"], read_python)
        return
    for form in FORMS:
        if (match := form.is_start.search(line)) and (found := _grown(lines, index, line[: match.start()], form.read)):
            yield from found
            return
    if starts_at_line(lines, index):
        yield from _grown(lines, index, line[: error_start(line)], read_java)
    elif _has_causes(lines, index):
        yield from _grown(lines, index, line[: error_start(line)], read_anyhow)


def _grown(lines: Lines, index: int, prefix: str, read: _Read) -> list[Event]:
    """What `read` makes of the lines from `index` on: of few, and of more where those are not enough."""
    events: list[Event] = []
    for most in _BLOCK_SIZES:
        block = lines.block(index, prefix, most)
        events, end = read(lines, block)
        if end < len(block) or len(block) < most:
            break
    if events:
        lines.take(block[: max(end, 1)])
    return events


def _has_causes(lines: Lines, index: int) -> bool:
    """Whether anyhow's `Caused by:` stands two lines further down."""
    below = [text.strip() for text in lines.lines[index + 1 : index + 3]]
    return len(below) == 2 and not below[0] and below[1].endswith("Caused by:")


def _logged_above(lines: Lines, index: int) -> Seen | None:
    """What a logger said right above a traceback."""
    above = lines.lines[index - 1] if index else ""
    prefix = prefix_of(above)
    if (
        process_of(above) != process_of(lines.lines[index])
        or prefix.level is None
        or prefix.level < 2
        or not prefix.rest.strip()
    ):
        return None
    number = lines.number(index - 1)
    seen = Seen("", prefix.rest, (), "logged", number, number, is_type_certain=False)
    return seen._replace(hint=prefix.place, is_grave=True)


def read_line(line: str, number: int) -> list[Event]:
    """A line that is no traceback's: a message with its logger's prefix, or a body."""
    prefix = prefix_of(line)
    if not prefix.rest.strip():
        return []
    if "{" in line and (found := read_body(line)):
        return [tuple(s._replace(first_line=number, last_line=number) for s in event) for event in found]
    seen = seen_of(prefix.rest)._replace(first_line=number, last_line=number, hint=prefix.place)
    grave = prefix.level is not None and prefix.level >= 2
    return [(seen._replace(is_grave=grave, is_benign=prefix.level == 0),)]


def seen_of(text: str) -> Seen:
    """A message that may have its type before it."""
    match = _TYPE.match(text.strip())
    if match is None:
        return Seen("", text.strip(), is_type_certain=False)
    return Seen(match["type"], match["message"] or "", is_type_certain=False)


def _paragraph(lines: Lines) -> Event:
    """Few lines that may be one message."""
    prefix = prefix_of(lines.lines[0])
    text = "\n".join([prefix.rest, *lines.lines[1:]]).strip()
    seen = seen_of(text)._replace(first_line=lines.number(0), last_line=lines.number(len(lines.lines) - 1))
    return (seen._replace(hint=prefix.place),)


def _opened(event: Event) -> Event:
    """Errors that pydantic reports within its own, as what they are: raised by a validator."""
    chain: list[Seen] = []
    for seen in event:
        if _VALIDATION.match(seen.message):
            inner = [
                Seen(
                    "ValueError" if match["what"] == "Value error" else "AssertionError", match["message"].strip(),
                    (), "", seen.first_line, seen.last_line,
                )
                for match in _INSIDE_VALIDATION.finditer(seen.message)
            ]  # fmt: skip
            chain += inner
            seen = seen._replace(how="validator" if inner else seen.how)
        chain.append(seen)
    return tuple(chain)
