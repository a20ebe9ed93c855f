"""A connection whose requests and answers are bounded in time, and its heads in size.

uvicorn bounds neither by itself: a silent client would keep its connection for ever, and so many of them would shut out
everybody else. h11 refuses a head of more than 64 KiB; httptools, which uvicorn prefers, would take any.
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

MOST_HEAD_S = 5
"""From a connection's start to the end of its first head."""
MOST_IDLE_S = 15
"""From an answer's end to the end of the next head."""
_MOST_EXCHANGE_S = 60
"""From a head's end to the end of its answer, as the client takes it."""


class BoundedConnection(H11Protocol):
    """One deadline at a time, which each step of an exchange replaces; the connection is cut where it is missed."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a head."""
        super().connection_made(transport)
        self._end_after(MOST_HEAD_S)

    def handle_events(self) -> None:
        """Take what has arrived; where a head is complete its exchange begins."""
        before = self.cycle
        super().handle_events()
        if self.cycle is not before:
            self._end_after(_MOST_EXCHANGE_S)

    def on_response_complete(self) -> None:
        """Begin to wait for the next head, which may have arrived already."""
        self._end_after(MOST_IDLE_S)
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing."""
        super().connection_lost(exc)
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = None

    def _end_after(self, duration_s: float) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        # `abort`, since `close` would wait for a client that does not read.
        self._deadline = None if self.transport.is_closing() else self.loop.call_later(duration_s, self.transport.abort)
