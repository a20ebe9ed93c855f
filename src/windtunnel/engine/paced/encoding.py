"""From JSON to the bytes of an event stream and of HTTP, with the oddities of both."""

from __future__ import annotations

import itertools

import msgspec

from windtunnel.engine.paced.chunks import MARK
from windtunnel.engine.paced.config import PacedConfig
from windtunnel.wire.http1 import LAST_CHUNK, write_chunk, write_response_head

_MARK = MARK.encode()
_BOM = b"\xef\xbb\xbf"


class Template:
    """Bytes that are ready but for the instant at which they are sent."""

    def __init__(self, data: bytes) -> None:
        self._parts = data.split(_MARK)

    def stamp(self, realtime_ns: int) -> bytes:
        """The bytes, sent at that instant."""
        return (b"%d" % realtime_ns).join(self._parts)


class Encoder:
    """Writes one answer's events and frames them as its body."""

    def __init__(self, config: PacedConfig) -> None:
        self._config = config
        self._end = b"\r\n" if config.crlf else b"\r" if config.cr else b"\n"
        self._data = b"data:" if config.nospace else b"data: "
        self._events = 0
        self._comments = itertools.cycle((b": ping", b":"))

    @property
    def vary(self) -> bool:
        """Each event differs from the one before in more than its JSON."""
        return self._config.fields

    def head(self) -> bytes:
        """The head of a streamed answer."""
        framing = ("transfer-encoding", "chunked") if self._config.chunked else ("connection", "close")
        return write_response_head(200, [("content-type", "text/event-stream; charset=utf-8"), framing])

    def opening(self) -> bytes:
        """What stands before the first event."""
        return self.frame(_BOM) if self._config.bom else b""

    def event(self, data: bytes) -> bytes:
        """An event, empty line included."""
        if self._config.multiline and data[:1] == b"{":
            data = msgspec.json.format(data, indent=1)
        lines = [self._data + line for line in data.split(b"\n")]
        if self._config.fields:
            lines[:0] = [b"event: message", b"id: %d" % self._events, b"retry: 3000"]
        self._events += 1
        return self._end.join([*lines, b"", b""])

    def line(self, line: bytes) -> bytes:
        """A line that is no field, as an event of its own."""
        return line + self._end * 2

    def comment(self) -> bytes:
        """A keep-alive: `: ping` and a bare `:` in turn."""
        return self.line(next(self._comments))

    def frame(self, data: bytes) -> bytes:
        """A piece of the body as HTTP carries it."""
        return write_chunk(data) if self._config.chunked else data

    def end(self) -> bytes:
        """What ends the body, beside the connection's end."""
        return LAST_CHUNK if self._config.chunked else b""
