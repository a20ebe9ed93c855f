"""Reads within one process, deterministic to the byte, that go wrong where they are told to.

A `Fabric` joins the agents of one process. A read moves on only when it is polled, by one slice a poll; what it shares
with real fabrics is what hurts there: a peer that is stopped leaves reads in progress for ever; a read that was
released goes on landing, bytes as they are in the peer's memory at that moment, until it has drained; forgetting a peer
stops none of that; only the end of the peer's process does.

Property tests stand on it: every poll of every read is a point where `fail_at` can strike.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from windtunnel.eplb.transport import HOST, MAX_PIECE_BYTES, Piece, ReadFailed, ReadPeerLost


class Trouble(StrEnum):
    """What happens to a read."""

    FAIL = "fail"
    """It ends with an error; no further byte lands."""
    LOSE = "lose"
    """The link to the peer is cut: this read and all others over it end with an error."""
    HANG = "hang"
    """It stays in progress until the fabric's `resume`."""
    CORRUPT = "corrupt"
    """The bytes that land at this point are not the peer's; nothing else tells of it."""


class Point(NamedTuple):
    """A moment of a run: the `call`-th poll, counted from 1, of all reads by `reader` from `peer`."""

    reader: str
    peer: str
    call: int


class _Region(NamedTuple):
    address: int
    memory: NDArray[np.uint8]

    def view(self, address: int, num_bytes: int) -> NDArray[np.uint8] | None:
        """The bytes from `address` on, where they are all in this region."""
        start = address - self.address
        return self.memory[start : start + num_bytes] if 0 <= start <= len(self.memory) - num_bytes else None


@dataclass(eq=False)
class MemoryRead:
    """A read that was begun."""

    peer: int
    reader: MemoryTransport
    source: MemoryTransport
    parts: list[tuple[NDArray[np.uint8], NDArray[np.uint8]]]
    """Local and remote bytes that have not landed yet."""
    hung: bool = False
    cut: bool = False
    """No further byte can land."""
    error: ReadFailed | None = None
    """What `poll` raises from now on."""

    @property
    def may_land(self) -> bool:
        """Whether bytes of it can still land."""
        return bool(self.parts) and not (self.cut or self.source.ended or self.reader.ended)

    @property
    def goes_on(self) -> bool:
        """Whether it moves by itself."""
        return self.may_land and not (self.hung or self.source.stopped)

    def move(self, num_bytes: int, *, corrupt: bool = False) -> None:
        """Land up to `num_bytes`, as they are in the peer's memory now."""
        while self.parts and num_bytes > 0:
            local, remote = self.parts.pop(0)
            count = min(num_bytes, len(local))
            local[:count] = ~remote[:count] if corrupt else remote[:count]
            num_bytes -= count
            if count < len(local):
                self.parts.insert(0, (local[count:], remote[count:]))


@dataclass
class Fabric:
    """What the agents of one process share: who is there, what is under way, and what goes wrong."""

    slice_bytes: int = MAX_PIECE_BYTES
    """Most bytes that land in one poll."""
    agents: dict[str, MemoryTransport] = field(default_factory=dict)
    calls: dict[tuple[str, str], int] = field(default_factory=dict)
    """Polls so far, by reader and peer: how many points there are."""
    under_way: list[MemoryRead] = field(default_factory=list)
    """Reads of which bytes may still land, released ones among them."""
    troubles: dict[Point, Trouble] = field(default_factory=dict)
    """What is to go wrong yet."""

    def fail_at(self, point: Point, trouble: Trouble) -> None:
        """Let something go wrong when that point is reached."""
        self.troubles[point] = trouble

    def kill(self, name: str) -> None:
        """End an agent's process: reads from it end with an error, and nothing of them lands any more."""
        self.agents[name].close()

    def stop(self, name: str) -> None:
        """Stop an agent's process: reads from it stay in progress."""
        self.agents[name].stopped = True

    def resume(self, name: str) -> None:
        """Let a stopped agent, and every read from it that hangs, go on."""
        self.agents[name].stopped = False
        for read in self.under_way:
            if read.source.name == name:
                read.hung = False

    def land(self, num_bytes: int = MAX_PIECE_BYTES) -> int:
        """Let `num_bytes` land of each read that is under way, also of those that hang or were released.

        It is what a fabric does on its own, at a moment of its choice. Returns how many reads there were.
        """
        landing = self._still_under_way()
        for read in landing:
            read.move(num_bytes)
        return len(landing)

    def begin(self, read: MemoryRead) -> None:
        """A read is under way."""
        self.under_way = [*self._still_under_way(), read]

    def reached(self, reader: str, peer: str) -> Trouble | None:
        """Count a poll; what is to happen at this point."""
        call = self.calls[reader, peer] = self.calls.get((reader, peer), 0) + 1
        return self.troubles.pop(Point(reader, peer, call), None)

    def _still_under_way(self) -> list[MemoryRead]:
        self.under_way = [read for read in self.under_way if read.may_land]
        return self.under_way


class MemoryTransport:
    """A `Transport` over a `Fabric`. Addresses are real, and checked against what is registered."""

    def __init__(self, name: str, fabric: Fabric) -> None:
        """Join a fabric; an agent of the same name that has ended, or not, is replaced."""
        self.name = name
        self.ended = False
        self.stopped = False
        self._fabric = fabric
        self._regions: list[_Region] = []
        self._peers: dict[int, MemoryTransport] = {}
        fabric.agents[name] = self

    def allocate(self, num_bytes: int) -> NDArray[np.uint8]:
        """Zeroed memory that peers can read and reads can land in."""
        memory = np.zeros(num_bytes, np.uint8)
        self._regions.append(_Region(memory.ctypes.data, memory))
        return memory

    def register(self, address: int, num_bytes: int, device: int = HOST) -> None:
        """Let peers read, and reads land in, memory of this process; raises ReadFailed for a device's."""
        if device != HOST:
            raise ReadFailed(f"memory of device {device} is none of this process")
        memory = np.ctypeslib.as_array((ctypes.c_uint8 * num_bytes).from_address(address))
        self._regions.append(_Region(address, memory))

    def metadata(self) -> bytes:
        """The agent's name, and which of those that had it."""
        return f"{self.name}@{id(self):x}".encode()

    def add_peer(self, peer: int, metadata: bytes) -> None:
        """Know a rank, instead of what was known under its number: reads from that one are lost."""
        name = metadata.decode(errors="replace").partition("@")[0]
        agent = self._fabric.agents.get(name)
        if agent is None or agent.metadata() != metadata or agent.ended:
            raise ReadFailed(f"no agent {metadata!r} in this process")
        self.remove_peer(peer)
        self._peers[peer] = agent

    def remove_peer(self, peer: int) -> None:
        """Forget a rank; what is under way from it can't be polled any more, but may land."""
        self._disconnect(peer, "the peer was removed")

    def read(self, peer: int, pieces: Sequence[Piece], device: int = HOST) -> MemoryRead:
        """Begin to read. Raises ReadPeerLost, or ReadFailed where an address or a size is not allowed."""
        source = self._peers.get(peer)
        if source is None or source.ended:
            raise ReadPeerLost(f"rank {peer} is not connected")
        total = sum(piece.num_bytes for piece in pieces)
        if device != HOST or total > MAX_PIECE_BYTES:
            raise ReadFailed(f"{total} bytes into device {device}: at most {MAX_PIECE_BYTES}, into the host's memory")
        parts = [(self._view(p.local, p.num_bytes), source._view(p.remote, p.num_bytes)) for p in pieces]
        read = MemoryRead(peer, self, source, [part for part in parts if len(part[0])])
        self._fabric.begin(read)
        return read

    def poll(self, read: MemoryRead) -> bool:
        """Land one slice; whether all bytes have landed. Raises ReadFailed or ReadPeerLost, now and at each call."""
        trouble = self._fabric.reached(self.name, read.source.name)
        if trouble is Trouble.FAIL:
            read.cut, read.error = True, ReadFailed("the fabric reports an error")
        elif trouble is Trouble.LOSE:
            self._disconnect(read.peer, "the link was cut", cut=True)
        read.hung = read.hung or trouble is Trouble.HANG
        if read.error:
            raise read.error
        if read.parts and read.source.ended:
            raise ReadPeerLost(f"agent {read.source.name} has ended")
        if read.goes_on:
            read.move(self._fabric.slice_bytes, corrupt=trouble is Trouble.CORRUPT)
        return not read.parts

    def release(self, read: MemoryRead) -> None:
        """Be done with a read. Its bytes go on landing."""

    def drained(self, read: MemoryRead) -> bool:
        """Whether no byte of it can land any more; where they come by themselves, one more slice has with each call."""
        if read.goes_on:
            read.move(self._fabric.slice_bytes)
        return not read.may_land

    def close(self) -> None:
        """Leave the fabric; peers see this agent end."""
        self.ended = True
        self._peers.clear()

    def _view(self, address: int, num_bytes: int) -> NDArray[np.uint8]:
        for region in self._regions:
            if (view := region.view(address, num_bytes)) is not None:
                return view
        raise ReadFailed(f"{num_bytes} bytes at {address:#x} are not registered by agent {self.name}")

    def _disconnect(self, peer: int, reason: str, *, cut: bool = False) -> None:
        """End the reads from a peer for those who poll them. Their bytes may come nevertheless, except with `cut`."""
        self._peers.pop(peer, None)
        for read in self._fabric.under_way:
            if read.reader is self and read.peer == peer:
                read.cut = read.cut or cut
                read.error = read.error or ReadPeerLost(reason)
