"""Carries out what a rank's machine wants done with bytes: reads into staging, checksums, copies into slots.

It is used by one thread, the same for all calls, and never waits: `step` moves everything on a bit and tells what
happened. Reads go in pieces of at most 16 MiB, so that no call keeps the interpreter's lock for long.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from msgspec import DecodeError
from numpy.typing import NDArray

from windtunnel.eplb.plan import WEIGHT_SOURCE
from windtunnel.eplb.store import ExpertStore, Layout, decode_layout, pieces
from windtunnel.eplb.transaction.instructions import (
    Abandon,
    Broke,
    Check,
    Checked,
    Drained,
    Forget,
    Know,
    Landed,
    Moved,
    Overwrite,
    Overwritten,
    Progressed,
    Read,
)
from windtunnel.eplb.transaction.messages import Peer
from windtunnel.eplb.transport import MAX_PIECE_BYTES, Piece, ReadFailed, ReadPeerLost, Transport
from windtunnel.errors import WindtunnelError


class Weights(Protocol):
    """Where an expert can be had when no rank has it."""

    def read(self, layer: int, expert: int, into: NDArray[np.uint8]) -> None:
        """Fill `into` [bytes of a group] with all tensors of an expert. Raises a WindtunnelError or OSError."""


Task = Read | Check | Abandon | Overwrite | Know | Forget


class _Reading:
    """A copy that is being read: its pieces one read after the other."""

    def __init__(self, task: Read, parts: Sequence[Sequence[Piece]]) -> None:
        self.task = task
        self.parts = deque(parts)
        self.read: Any = None
        """The transport's; None: the next part is not begun."""
        self.broken = False
        """It ended with an error, and waits to be abandoned."""


class Mover:
    """Moves the bytes of one rank."""

    def __init__(
        self,
        rank: int,
        transport: Transport,
        store: ExpertStore,
        staging: Sequence[NDArray[np.uint8]],
        weights: Weights | None = None,
        piece_bytes: int = MAX_PIECE_BYTES,
    ) -> None:
        """Read at most `piece_bytes` at once of each copy."""
        self._rank = rank
        self._transport = transport
        self._store = store
        self._staging = staging
        self._weights = weights
        self._piece_bytes = piece_bytes
        self._layouts: dict[int, Layout] = {}
        self._readings: dict[int, _Reading] = {}
        self._abandoned: list[tuple[Abandon, Any]] = []
        self._happened: list[Moved] = []

    @property
    def busy(self) -> bool:
        """Whether a read is under way or abandoned and not drained: `step` must be called again."""
        return bool(self._readings or self._abandoned)

    def take(self, task: Task) -> None:
        """Do a task, or begin it; what comes of it is told by the next `step`."""
        match task:
            case Know(peer=peer):
                self._know(peer)
            case Forget(rank=rank):
                self._layouts.pop(rank, None)
                self._transport.remove_peer(rank)
            case Read():
                self._begin(task)
            case Check(buffer=buffer, attempt=attempt, order=order):
                digest = self._store.digest_of(self._staging[buffer][: order.num_bytes])
                self._happened.append(Checked(buffer, attempt, digest))
            case Abandon(buffer=buffer):
                self._abandon(task)
            case Overwrite(buffer=buffer, order=order):
                copy = order.copy
                self._store.overwrite(copy.layer, copy.slot, self._staging[buffer][: order.num_bytes])
                self._happened.append(Overwritten(buffer))

    def step(self) -> list[Moved]:
        """Move all reads on; what happened since the last step."""
        for reading in [r for r in self._readings.values() if not r.broken]:
            self._advance(reading)
        still = []
        for abandon, read in self._abandoned:
            if self._transport.drained(read):
                self._happened.append(Drained(abandon.buffer, abandon.attempt))
            else:
                still.append((abandon, read))
        self._abandoned = still
        happened, self._happened = self._happened, []
        return happened

    def _know(self, peer: Peer) -> None:
        self._layouts.pop(peer.rank, None)
        try:
            self._transport.add_peer(peer.rank, peer.metadata)
            layout = decode_layout(peer.layout)
        except (ReadFailed, DecodeError):  # it ended meanwhile, or is none: its copies will fail as not known
            return
        if len(layout.layers) == self._store.num_layers:
            self._layouts[peer.rank] = layout

    def _begin(self, task: Read) -> None:
        into = self._staging[task.buffer][: task.order.num_bytes]
        copy = task.order.copy
        if task.rank not in (WEIGHT_SOURCE, self._rank):
            layout = self._layouts.get(task.rank)
            if layout is None:
                self._happened.append(Broke(task.buffer, task.attempt, "lost", "the rank is not known here"))
                return
            if layout.group_bytes(copy.layer) != task.order.num_bytes:
                reason = f"its group has {layout.group_bytes(copy.layer)} bytes, not {task.order.num_bytes}"
                self._happened.append(Broke(task.buffer, task.attempt, "failed", reason))
                return
            parts = pieces(layout, copy.layer, task.slot, into.ctypes.data, self._piece_bytes)
            self._readings[task.buffer] = _Reading(task, parts)
            return
        try:
            self._read_here(task, into)
        except (WindtunnelError, OSError) as error:
            self._happened.append(Broke(task.buffer, task.attempt, "failed", str(error)))
        else:
            self._happened.append(Landed(task.buffer, task.attempt))

    def _read_here(self, task: Read, into: NDArray[np.uint8]) -> None:
        copy = task.order.copy
        if task.rank == self._rank:
            self._store.copy_out(copy.layer, task.slot, into)
        elif self._weights is None:
            raise OSError("this rank has no weight source")
        else:
            self._weights.read(copy.layer, copy.expert, into)

    def _advance(self, reading: _Reading) -> None:
        buffer, attempt, peer = reading.task.buffer, reading.task.attempt, reading.task.rank
        try:
            while reading.parts or reading.read is not None:
                if reading.read is None:
                    reading.read = self._transport.read(peer, reading.parts[0])
                if not self._transport.poll(reading.read):
                    return
                self._transport.release(reading.read)
                reading.read = None
                reading.parts.popleft()
                if reading.parts:
                    self._happened.append(Progressed(buffer, attempt))
                    return  # others have a turn
        except ReadFailed as error:
            kind = "lost" if isinstance(error, ReadPeerLost) else "failed"
            self._happened.append(Broke(buffer, attempt, kind, str(error)))
            reading.broken = True
            return
        del self._readings[buffer]
        self._happened.append(Landed(buffer, attempt))

    def _abandon(self, task: Abandon) -> None:
        reading = self._readings.pop(task.buffer, None)
        if reading is None or reading.read is None:
            self._happened.append(Drained(task.buffer, task.attempt))
            return
        self._transport.release(reading.read)
        self._abandoned.append((task, reading.read))
