"""A run's journal: one JSON document a line, written as things happen, from which every report is made.

Lines: a header; `start` when the measured part begins; a `clock` line each second; a `request` line for each request
that is over, by the worker that sent it, with one write to a file opened for appending (so the lines of several
processes don't mix, and a line that was written survives the death of its writer); an `end` line. A journal without an
`end` line is a run that did not finish; a torn last line is passed over.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from windtunnel import errors
from windtunnel.clock import ClockPair
from windtunnel.loadgen.config import OutputConfig
from windtunnel.measure.record import Record
from windtunnel.measure.run import RunEnd, RunFacts

SCHEMA = 1
FILE_NAME = "journal.jsonl"
REQUEST_LINE = b'{"type":"request"'
"""How a request's line begins."""


class Header(Struct, kw_only=True, tag="header", tag_field="type"):
    """The first line."""

    schema: int = SCHEMA
    facts: RunFacts
    """What a report needs to know of the run."""
    output: OutputConfig
    """What was to be done with the result."""
    arguments: dict[str, Any]
    """As the user gave them, without secrets."""
    clock: ClockPair
    """Both clocks at the same instant: [CLOCK_MONOTONIC ns, CLOCK_REALTIME ns]."""
    machine: dict[str, Any]
    """Python, kernel, processors."""


class StartLine(Struct, tag="start", tag_field="type"):
    """The measured part begins."""

    start_ns: int


class ClockLine(Struct, tag="clock", tag_field="type"):
    """Both clocks, again."""

    clock: ClockPair


class RequestLine(Struct, tag="request", tag_field="type"):
    """A request is over."""

    record: Record


class EndLine(Struct, tag="end", tag_field="type"):
    """The run is over."""

    end: RunEnd


Line = Header | StartLine | ClockLine | RequestLine | EndLine

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Line)


def encode_line(line: Line) -> bytes:
    """The line's bytes, newline included."""
    return _encoder.encode(line) + b"\n"


class JournalWriter:
    """Appends lines. Several processes may write to one journal."""

    def __init__(self, path: str | Path) -> None:
        self.path = str(path)
        self._fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._torn = False

    def lock(self) -> None:
        """Mark the run as going on, until this process closes the journal or ends, however it ends."""
        fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def write(self, line: bytes) -> None:
        """Append one line with one write; raises OSError when not all of it fits."""
        if self._torn:
            line = b"\n" + line
        written = os.write(self._fd, line)
        self._torn = written < len(line)
        if self._torn:
            raise OSError(errno.ENOSPC, "only a part of the line was written")

    def sync(self) -> None:
        """Bring what was written, by anyone, to the disk."""
        os.fsync(self._fd)

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)


class Journal(Struct):
    """What a journal says."""

    path: str
    header: Header
    start_ns: int | None
    records: list[Record]
    """In the order of the run."""
    end: RunEnd | None
    """None: the run did not finish."""
    num_torn: int = 0
    num_unsafe: int = 0
    """Results that no disk took: they are here and nowhere else."""

    @property
    def run_end(self) -> RunEnd:
        """The run's end; of an unfinished one, as far as its records tell."""
        if self.end is not None:
            return self.end
        start_ns = self.start_ns if self.start_ns is not None else self.header.clock.monotonic_ns
        end_ns = max((r.done_ns for r in self.records if r.done_ns is not None), default=start_ns)
        unsent = max(0, self.header.facts.num_prompts - len(self.records))
        return RunEnd(start_ns=start_ns, end_ns=end_ns, reason="unfinished", num_without_result=unsent)


def decode_end(line: bytes) -> RunEnd | None:
    """What an `end` line says; None for any other."""
    try:
        decoded = _decoder.decode(line)
    except msgspec.DecodeError:
        return None
    return decoded.end if isinstance(decoded, EndLine) else None


def is_locked(path: str | Path) -> bool:
    """The run is going on."""
    try:
        with open(path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def read_header(path: str | Path) -> Header:
    """Only the first line; raises errors.FileError or errors.JournalError."""
    for _, line in _lines(path):
        return _header(path, line)
    raise errors.JournalError(
        str(path), 1, "it is empty: the run ended before it began", "Nothing was lost: no request was sent."
    )


def read_journal(path: str | Path, unwritten: list[bytes] | None = None) -> Journal:
    """All of a journal, and lines that it did not take; raises errors.FileError or errors.JournalError."""
    journal: Journal | None = None
    by_index: dict[int, Record] = {}
    for number, line in _lines(path, unwritten or []):
        if journal is None:
            journal = Journal(str(path), _header(path, line), None, [], None)
            continue
        try:
            decoded = _decoder.decode(line)
        except msgspec.ValidationError as error:
            remedy = "Was it written by a newer windtunnel? Use that one."
            raise errors.JournalError(str(path), number, str(error), remedy) from error
        except msgspec.DecodeError:
            journal.num_torn += 1  # its writer was killed, or the disk was full, in the middle of it
            continue
        if isinstance(decoded, RequestLine):
            by_index[decoded.record.index] = decoded.record
        elif isinstance(decoded, StartLine):
            journal.start_ns = decoded.start_ns
        elif isinstance(decoded, EndLine):
            journal.end = decoded.end
    if journal is None:
        read_header(path)
        raise AssertionError("unreachable: an empty journal has no header")
    journal.records = [by_index[index] for index in sorted(by_index)]
    return journal


def _lines(path: str | Path, more: list[bytes] | None = None) -> Iterator[tuple[int, bytes]]:
    number = 0
    try:
        with open(path, "rb") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield number, line
    except OSError as error:
        raise errors.FileError(
            "read", str(path), str(error.strerror), "`windtunnel runs list` shows what is there."
        ) from error
    for offset, line in enumerate(more or [], 1):
        yield number + offset, line


def _header(path: str | Path, line: bytes) -> Header:
    try:
        header = _decoder.decode(line)
    except msgspec.DecodeError as error:
        remedy = "It is no journal of windtunnel, or one of a newer windtunnel: use that one."
        raise errors.JournalError(str(path), 1, str(error), remedy) from error
    if not isinstance(header, Header):
        raise errors.JournalError(str(path), 1, "it has no header", "It is no journal of windtunnel.")
    if header.schema > SCHEMA:
        problem = f"schema {header.schema}, and this windtunnel knows {SCHEMA}"
        raise errors.JournalError(str(path), 1, problem, "Use the windtunnel that wrote it, or a newer one.")
    return header
