"""An answer as parts that run in time: scripts for the pacer, which a whole answer or a fault is put together from.

Token `n` is due at the request's arrival plus the time to first token plus `n` inter-token latencies: absolute, so no
delay adds to a later one. A chunk is due when its first token is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from windtunnel.clock import monotonic_ns, realtime_ns
from windtunnel.engine.paced.asked import Asked
from windtunnel.engine.paced.chunks import MARK, ChunkWriter
from windtunnel.engine.paced.config import PacedConfig
from windtunnel.engine.paced.encoding import Encoder, Template
from windtunnel.engine.pacer import Script
from windtunnel.engine.server import Exchange
from windtunnel.units import s_to_ns
from windtunnel.wire.http1 import write_response_head

NEVER = None
_PIECE_GAP_NS = 50_000
"""Between the pieces of a split write: time for the client to read one before the next comes."""


class Answer(Protocol):
    """What faults need of an answer, streamed or not. All but `due_ns` are scripts that send something."""

    config: PacedConfig
    exchange: Exchange
    output_tokens: int
    damage: bool
    """Cut JSON in two from here on."""

    def due_ns(self, token: int) -> int:
        """When a token is due, on the monotonic clock."""

    def head(self) -> Script:
        """The status and headers."""

    def begin(self) -> Script:
        """What comes before the first token."""

    def tokens(self, first: int, last: int) -> Script:
        """The tokens from `first` up to, not with, `last`, each when it is due."""

    def conclude(self) -> Script:
        """What comes after the last token."""

    def end(self) -> Script:
        """The proper end of the body, whatever was in it, and of the answer."""

    def send(self, data: bytes) -> Script:
        """Raw bytes, now."""


def serve(answer: Answer) -> Script:
    """The answer as it should be."""
    yield from answer.head()
    yield from answer.begin()
    yield from answer.tokens(0, answer.output_tokens)
    yield from answer.conclude()
    yield from answer.end()


class _Sender:
    """What streamed and whole answers share: deadlines, and sending in time."""

    def __init__(self, config: PacedConfig, exchange: Exchange, output_tokens: int) -> None:
        self.config = config
        self.exchange = exchange
        self.output_tokens = output_tokens
        self.damage = False
        self._write: Callable[[bytes], None] = exchange.write
        self._first_due_ns = exchange.arrived.monotonic_ns + s_to_ns(config.ttft_s)
        self._itl_ns = s_to_ns(config.itl_s)

    def due_ns(self, token: int) -> int:
        """When a token is due, on the monotonic clock."""
        if token > 0 and self._itl_ns == 0:
            return monotonic_ns()  # not paced: as soon as it is its turn
        return self._first_due_ns + token * self._itl_ns

    def send(self, data: bytes) -> Script:
        """Raw bytes, now; goes on when the client has taken enough of what waits for it."""
        size = self.config.split or len(data) or 1
        for start in range(0, len(data), size):
            self._write(data[start : start + size])
            if self.config.split:
                yield monotonic_ns() + _PIECE_GAP_NS
        while not self.exchange.writable:
            yield NEVER


class StreamedAnswer(_Sender):
    """An answer as server-sent events."""

    def __init__(
        self, config: PacedConfig, exchange: Exchange, asked: Asked, answer_id: str, output_tokens: int, reason: str
    ) -> None:
        super().__init__(config, exchange, output_tokens)
        self._asked = asked
        self._reason = reason
        self._chunks = ChunkWriter(config, asked, answer_id, exchange.arrived, output_tokens)
        self.encoder = Encoder(config)
        self._per_write = config.tokens * config.burst

    def head(self) -> Script:
        """The status and headers, at once: generation begins."""
        return self.send(self.encoder.head())

    def begin(self) -> Script:
        """Byte order mark, comments and chat's role chunk: no tokens, and at once."""
        yield from self.send(self.encoder.opening())
        if self.config.pings:
            yield from self.send_comment()
            yield from self.send_comment()
        if self.config.role and self._asked.dialect == "chat":
            yield from self.send_event(self._chunks.role())

    def tokens(self, first: int, last: int) -> Script:
        """The tokens from `first` up to, not with, `last`, each write when its first token is due."""
        token = first
        while token < last:
            template, writes = self._plan_run(token, last)
            for _ in range(writes):
                due_ns = self.due_ns(token)
                if self.config.pings:
                    yield due_ns - (self._itl_ns if token else s_to_ns(self.config.ttft_s)) // 2
                    yield from self.send_comment()
                yield due_ns
                if self.config.split:
                    yield from self.send(template.stamp(realtime_ns()))
                else:
                    self._write(template.stamp(realtime_ns()))
                while not self.exchange.writable:
                    yield NEVER
                token += self._per_write

    def conclude(self) -> Script:
        """Finish reason, usage and [DONE], as far as they come."""
        config = self.config
        if self.output_tokens == 0:
            yield self.due_ns(0)
        if config.finish == "separate" or (config.finish == "last" and self.output_tokens == 0):
            yield from self.send_event(self._chunks.finish(self._reason))
        if self._asked.usage and config.usage != "none":
            if config.usage == "late":
                yield monotonic_ns() + s_to_ns(config.usage_delay_s)
            yield from self.send_event(self._chunks.usage())
        if config.done:
            yield from self.send_done()

    def end(self) -> Script:
        """The end of the body."""
        yield from self.send(self.encoder.end())
        self.release()

    def release(self) -> None:
        """All is sent: the connection takes the next request, or is closed where that is what ends the body."""
        if self.config.chunked:
            self.exchange.finish()
        else:
            self.exchange.close()

    def send_event(self, data: bytes) -> Script:
        """An event with this data, now."""
        return self.send(self.encoder.frame(self.encoder.event(self._damaged(data))))

    def send_done(self) -> Script:
        """[DONE], now."""
        return self.send(self.encoder.frame(self.encoder.event(b"[DONE]")))

    def send_comment(self) -> Script:
        """A keep-alive, now."""
        return self.send(self.encoder.frame(self.encoder.comment()))

    def send_line(self, line: bytes) -> Script:
        """A line that is no event, now."""
        return self.send(self.encoder.frame(self.encoder.line(line)))

    def all_at_once(self) -> bytes:
        """All of the answer's bytes, with no heed to when they are due."""
        pieces: list[bytes] = []
        self._write = pieces.append
        for script in (self.head(), self.begin(), self.tokens(0, self.output_tokens), self.conclude()):
            for _ in script:
                pass
        self._write = self.exchange.write
        return b"".join([*pieces, self.encoder.end()])

    def _plan_run(self, token: int, last: int) -> tuple[Template, int]:
        """The bytes of the write that begins with `token`, and how many writes from there on have the same.

        Building is slow. All but a few writes differ in nothing but their instants: the first, the last, and those
        where reasoning ends or the chunk without choices comes in.
        """
        template = Template(self.encoder.frame(b"".join(self._events(token, min(token + self._per_write, last)))))
        special = (0, self._chunks.reasoning_tokens, self._middle, self.output_tokens - 1, last)
        if self.damage or self._chunks.vary or self.encoder.vary or token in special:
            return template, 1
        alike = min(number for number in special if number > token) - token
        return template, max(alike // self._per_write, 1)

    @property
    def _middle(self) -> int:
        """The token that the chunk without choices comes before; 0 where there is none."""
        return self.output_tokens // 2 if self.config.empty_chunk else 0

    def _events(self, token: int, end: int) -> list[bytes]:
        """The events of one write."""
        events = []
        while token < end:
            stop = min(token + self.config.tokens, end)
            if token < self._chunks.reasoning_tokens:
                stop = min(stop, self._chunks.reasoning_tokens)
            if self.config.empty_chunk and token <= self._middle < stop:
                events.append(self.encoder.event(self._chunks.empty()))
            is_last = stop == self.output_tokens and self.config.finish == "last"
            data = self._chunks.tokens(token, stop, finish_reason=self._reason if is_last else None)
            events.append(self.encoder.event(self._damaged(data)))
            token = stop
        return events

    def _damaged(self, data: bytes) -> bytes:
        return _cut_in_two(data) if self.damage else data


class WholeAnswer(_Sender):
    """An answer as one JSON object, complete when the last token would have been due."""

    def __init__(
        self, config: PacedConfig, exchange: Exchange, asked: Asked, answer_id: str, output_tokens: int, reason: str
    ) -> None:
        super().__init__(config, exchange, output_tokens)
        chunks = ChunkWriter(config, asked, answer_id, exchange.arrived, output_tokens)
        self._body = chunks.whole(None if config.finish == "none" else reason)
        self._sent_bytes = 0

    def head(self) -> Script:
        """The status and headers, when the answer is ready."""
        yield self.due_ns(max(self.output_tokens - 1, 0))
        body = _cut_in_two(self._body) if self.damage else self._body
        self._body = Template(body).stamp(realtime_ns())
        headers = [("content-type", "application/json"), ("content-length", str(len(self._body)))]
        if not self.exchange.request.keep_alive:
            headers.append(("connection", "close"))
        yield from self.send(write_response_head(200, headers))

    def begin(self) -> Script:
        """Nothing comes before."""
        yield from ()

    def tokens(self, first: int, last: int) -> Script:
        """The body's bytes, up to a share that is that of the tokens."""
        return self._send_up_to(len(self._body) * last // max(self.output_tokens, 1))

    def conclude(self) -> Script:
        """The rest of the body."""
        return self._send_up_to(len(self._body))

    def end(self) -> Script:
        """The end of the answer; where bytes are missing, only the connection's end can be that."""
        yield from ()
        if self._sent_bytes == len(self._body):
            self.exchange.finish()
        else:
            self.exchange.close()

    def _send_up_to(self, length: int) -> Script:
        piece = self._body[self._sent_bytes : length]
        self._sent_bytes = max(self._sent_bytes, length)
        return self.send(piece)


def _cut_in_two(data: bytes) -> bytes:
    """The first part of a JSON text: up to its first instant, or its middle."""
    before, mark, _ = data.partition(MARK.encode())
    return before if mark else data[: len(data) // 2]
