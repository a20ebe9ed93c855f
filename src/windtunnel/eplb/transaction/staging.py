"""The staging buffers of a rank, and what may be done with each.

Releasing a read does not stop it: bytes may go on landing. So the buffer of a copy that was given up is *quarantined*,
and used again only when its read has drained or the process that was read from is known to have ended.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from windtunnel.eplb.transaction.messages import Order


class BufferState(StrEnum):
    """Who may touch a staging buffer."""

    FREE = "free"
    ARMED = "armed"
    """A read into it may be under way."""
    LANDED = "landed"
    """All bytes have come, and are being checked."""
    VERIFIED = "verified"
    """Holds an expert, byte for byte. Served from here until it is settled into its slot."""
    QUARANTINED = "quarantined"
    """Given up; bytes may still land in it."""


@dataclass
class Buffer:
    """A staging buffer; `attempt` counts its uses, so that what is said of an earlier use is told apart."""

    number: int
    state: BufferState = BufferState.FREE
    attempt: int = 0
    order: Order | None = None
    source: int | None = None
    """The rank that is read from."""
    generation: int | None = None
    """That rank's, where it is a peer."""
    view: int | None = None
    """Quarantined until nobody reads this view."""


class Staging:
    """A rank's buffers. Their number is fixed: that is the bound of staging memory."""

    def __init__(self, count: int) -> None:
        self.buffers = [Buffer(number) for number in range(count)]
        self._ended: set[tuple[int, int]] = set()
        """Ranks and generations whose processes have ended: they write nowhere any more."""

    def arm(self, order: Order, source: int, generation: int | None = None) -> Buffer | None:
        """A free buffer for a copy from a rank, of that generation where it is a peer; None: there is none."""
        buffer = next((b for b in self.buffers if b.state is BufferState.FREE), None)
        if buffer:
            buffer.state, buffer.attempt = BufferState.ARMED, buffer.attempt + 1
            buffer.order, buffer.source, buffer.generation, buffer.view = order, source, generation, None
        return buffer

    def find(self, number: int, attempt: int) -> Buffer | None:
        """The buffer, if it is still in that use."""
        buffer = self.buffers[number]
        return buffer if buffer.attempt == attempt and buffer.state is not BufferState.FREE else None

    def quarantine(self, buffer: Buffer, view: int | None = None) -> None:
        """Give a copy up. With `view`, no read is under way, but somebody may read the buffer in that view."""
        buffer.state, buffer.view = BufferState.QUARANTINED, view
        if view is None and (buffer.source, buffer.generation) in self._ended:
            self.free(buffer)

    def free(self, buffer: Buffer) -> None:
        """Nobody writes into it or reads it any more."""
        buffer.state = BufferState.FREE
        buffer.order = buffer.source = buffer.generation = buffer.view = None

    def free_of_view(self, view: int) -> None:
        """Nobody reads that view any more."""
        for buffer in self.buffers:
            if buffer.view == view and buffer.state is BufferState.QUARANTINED:
                self.free(buffer)

    def free_of_peer(self, rank: int, generation: int) -> None:
        """The process that was read from has ended; an earlier one under the same rank may not have."""
        self._ended.add((rank, generation))
        for buffer in self.buffers:
            given_up = buffer.state is BufferState.QUARANTINED and buffer.view is None
            if given_up and (buffer.source, buffer.generation) == (rank, generation):
                self.free(buffer)

    def count(self, state: BufferState) -> int:
        """Buffers in a state."""
        return sum(b.state is state for b in self.buffers)
