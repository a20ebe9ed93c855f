"""Carries out what a rank's machine wants done with bytes: reads into staging, checksums, copies into slots.

It is used by one thread, the same for all calls, and never waits: `step` moves everything on a bit and tells what
happened. Reads go in pieces of at most 16 MiB, so that no call keeps the interpreter's lock for long.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
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


class Weights(Protocol):
    """Where an expert can be had when no rank has it."""

    def read(self, layer: int, expert: int, into: NDArray[np.uint8]) -> None:
        """Fill `into` [bytes of a group] with all tensors of an expert, or raise."""


ReadWeights = Callable[[int, int, NDArray[np.uint8]], Future[None]]
"""`(layer, expert, into)`: begin to read from a weight source."""


class WeightReader:
    """Reads from a weight source in a thread of its own, one expert after the other: storage may be slow, or hang."""

    def __init__(self, weights: Weights) -> None:
        self._weights = weights
        self._wanted: queue.SimpleQueue[tuple[Future[None], int, int, NDArray[np.uint8]] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def begin(self, layer: int, expert: int, into: NDArray[np.uint8]) -> Future[None]:
        """Fill `into` when it is its turn. The future may raise whatever the weight source raises."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._read, name="eplb-weights", daemon=True)
            self._thread.start()
        future: Future[None] = Future()
        self._wanted.put((future, layer, expert, into))
        return future

    def close(self) -> None:
        """End after the read that is under way; nobody waits for it."""
        self._wanted.put(None)

    def _read(self) -> None:
        while wanted := self._wanted.get():
            future, layer, expert, into = wanted
            if not future.set_running_or_notify_cancel():
                continue
            try:
                self._weights.read(layer, expert, into)
            except Exception as error:  # a callback of the engine's may raise anything
                future.set_exception(error)
            else:
                future.set_result(None)


Task = Read | Check | Abandon | Overwrite | Know | Forget


class _Reading:
    """A copy that is being read: its pieces one read after the other."""

    def __init__(self, task: Read, parts: Sequence[Sequence[Piece]]) -> None:
        self.task = task
        self.parts = deque(parts)
        self.read: Any = None
        """The transport's, or a future of the weight source; None: the next part is not begun."""
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
        read_weights: ReadWeights | None = None,
        piece_bytes: int = MAX_PIECE_BYTES,
    ) -> None:
        """Read at most `piece_bytes` at once of each copy."""
        self._rank = rank
        self._transport = transport
        self._store = store
        self._staging = staging
        self._read_weights = read_weights
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
            if read.done() if isinstance(read, Future) else self._transport.drained(read):
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
        if task.rank == self._rank:
            self._store.copy_out(copy.layer, task.slot, into)
            self._happened.append(Landed(task.buffer, task.attempt))
        elif self._read_weights is None:
            self._happened.append(Broke(task.buffer, task.attempt, "failed", "this rank has no weight source"))
        else:
            reading = self._readings[task.buffer] = _Reading(task, ())
            reading.read = self._read_weights(copy.layer, copy.expert, into)

    def _advance(self, reading: _Reading) -> None:
        buffer, attempt, peer = reading.task.buffer, reading.task.attempt, reading.task.rank
        if isinstance(reading.read, Future):
            self._advance_weights(reading, reading.read)
            return
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

    def _advance_weights(self, reading: _Reading, read: Future[None]) -> None:
        if not read.done():
            return
        del self._readings[reading.task.buffer]
        if error := read.exception():
            reason = str(error) or type(error).__name__
            self._happened.append(Broke(reading.task.buffer, reading.task.attempt, "failed", reason))
        else:
            self._happened.append(Landed(reading.task.buffer, reading.task.attempt))

    def _abandon(self, task: Abandon) -> None:
        reading = self._readings.pop(task.buffer, None)
        if reading is None or reading.read is None or (isinstance(reading.read, Future) and reading.read.cancel()):
            self._happened.append(Drained(task.buffer, task.attempt))
            return
        if not isinstance(reading.read, Future):
            self._transport.release(reading.read)
        self._abandoned.append((task, reading.read))
