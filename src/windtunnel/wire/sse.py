"""Server-sent events, as WHATWG's HTML standard defines them: bytes in, events out, whatever the split of the bytes."""

from __future__ import annotations

import re

from msgspec import Struct

_BOM = b"\xef\xbb\xbf"
_LINE_END = re.compile(rb"\r\n|\n|\r")
_MESSAGE = b"message"
_KNOWN_FIELDS = frozenset((b"event", b"id", b"retry"))


class Event(Struct, frozen=True, gc=False):
    """One event that has data."""

    data: bytes
    """The values of its `data` lines, joined by newlines."""
    stamp_ns: int
    """The stamp given with the bytes that completed its last `data` line."""
    offset: int
    """Where its last `data` line begins in the stream, in bytes."""
    type: bytes = _MESSAGE


class Stray(Struct, frozen=True, gc=False):
    """A line that belongs to no field of the standard. A browser drops it; we tell."""

    line: bytes
    offset: int


class EventStream:
    """Reads one stream. Feed it with bytes and their stamp; it returns what they complete."""

    def __init__(self) -> None:
        self._rest = b""
        self._pieces: list[bytes] = []
        self._rest_offset = 0
        self._data: list[bytes] = []
        self._data_ns = 0
        self._data_offset = 0
        self._type = _MESSAGE
        self.comments = 0
        """Comment lines seen: keep-alives."""

    def feed(self, data: bytes, stamp_ns: int) -> list[Event | Stray]:
        """The events and stray lines that these bytes complete, in order."""
        if data[:6] == b"data: " and data[-2:] == b"\n\n" and not (self._rest or self._pieces or self._data):
            # the shape that nearly all servers send: whole events of one line each, most often one
            if data.find(b"\n") == len(data) - 2 and b"\r" not in data and self._type is _MESSAGE:
                event = Event(data[6:-2], stamp_ns, self._rest_offset)
                self._rest_offset += len(data)
                return [event]
            pieces = data[6:-2].split(b"\n\ndata: ")
            if data.count(b"\n") == 2 * len(pieces) and b"\r" not in data and self._type is _MESSAGE:
                return self._whole_events(pieces, stamp_ns)
        begun = self._rest_offset or len(self._rest) > len(_BOM)
        if begun and b"\n" not in data and b"\r" not in data:
            self._pieces.append(data)  # a piece of a long line: joined once, when its end comes
            return []
        buffer = b"".join((self._rest, *self._pieces, data)) if self._rest or self._pieces else data
        self._pieces.clear()
        offset = self._rest_offset
        if offset == 0 and buffer[:1] == b"\xef":
            if len(buffer) < 3:
                self._rest = buffer
                return []
            if buffer.startswith(_BOM):
                buffer = buffer[3:]
                offset = 3
        if b"\r" in buffer:
            return self._feed_any_line_end(buffer, offset, stamp_ns)
        lines = buffer.split(b"\n")
        self._rest = lines.pop()
        out: list[Event | Stray] = []
        for line in lines:
            self._take_line(line, offset, stamp_ns, out)
            offset += len(line) + 1
        self._rest_offset = offset
        return out

    def _whole_events(self, pieces: list[bytes], stamp_ns: int) -> list[Event | Stray]:
        out: list[Event | Stray] = []
        for piece in pieces:
            out.append(Event(piece, stamp_ns, self._rest_offset))
            self._rest_offset += len(piece) + 8
        return out

    def finish(self, stamp_ns: int) -> list[Event | Stray]:
        """The stream has ended: an event that lacks only its empty line, or its last line's end, still counts."""
        out: list[Event | Stray] = []
        self._rest = b"".join((self._rest, *self._pieces))
        if self._rest:
            self._take_line(self._rest.rstrip(b"\r"), self._rest_offset, stamp_ns, out)
            self._rest = b""
        self._take_line(b"", self._rest_offset, stamp_ns, out)
        return out

    def _feed_any_line_end(self, buffer: bytes, offset: int, stamp_ns: int) -> list[Event | Stray]:
        out: list[Event | Stray] = []
        start = 0
        for match in _LINE_END.finditer(buffer):
            if match.end() == len(buffer) and match[0] == b"\r":
                break  # may be half of a CRLF
            self._take_line(buffer[start : match.start()], offset + start, stamp_ns, out)
            start = match.end()
        self._rest = buffer[start:]
        self._rest_offset = offset + start
        return out

    def _take_line(self, line: bytes, offset: int, stamp_ns: int, out: list[Event | Stray]) -> None:
        if not line:
            if self._data:
                data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
                out.append(Event(data, self._data_ns, self._data_offset, self._type))
                self._data = []
            self._type = _MESSAGE
        elif line.startswith(b"data:"):
            self._data.append(line[6:] if line[5:6] == b" " else line[5:])
            self._data_ns = stamp_ns
            self._data_offset = offset
        elif line[:1] == b":":
            self.comments += 1
        else:
            name, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            if name == b"data":
                self._data.append(value)
                self._data_ns = stamp_ns
                self._data_offset = offset
            elif name == b"event":
                self._type = value or _MESSAGE
            elif name not in _KNOWN_FIELDS:
                out.append(Stray(line, offset))
