"""Reads over NIXL: RDMA, TCP or shared memory by way of UCX, from and to memory of the host or of a GPU.

NIXL can't stop a read, and forgets who may still write: a handle that was released, or whose agent was removed, goes on
landing, and nothing tells when it ends. So a handle is kept until NIXL itself says that the read is over, and an agent
stays loaded until its last handle is. A peer that hangs keeps both, and `drained` stays False.

An agent runs a thread of its own that moves transfers on, since over TCP the owner of the memory sends the bytes. In
NIXL's Python API that thread never sleeps and takes a whole core, from the reads too; so the library below it is used,
where it can be told to sleep. The agent's mode is *strict*: with others, reads over TCP can get stuck on a busy
machine. Notifications are not used: for a peer that is stopped they pile up without bound.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import secrets
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct, msgpack
from numpy.typing import NDArray

from windtunnel.eplb.transport import HOST, MAX_PIECE_BYTES, Piece, ReadFailed, ReadPeerLost
from windtunnel.errors import EplbInputError

try:
    import nixl_cu12._bindings as nixl
except ImportError as error:
    raise EplbInputError(
        "transport",
        f"nixl needs the package nixl-cu12, which can't be imported: {error}",
        "pip install --no-deps nixl-cu12 (without its dependencies: torch is not needed), or use shm on one host.",
    ) from error

_OVER = (nixl.nixlRemoteDisconnectError, nixl.nixlNotFoundError)
"""The connection is closed, so nothing lands any more. Which of the two comes for a killed peer depends on NIXL's
version; not found can't come from an agent that was removed, since none is while a read from it is under way."""

_LOST = (*_OVER, nixl.nixlBackendError)
"""What NIXL raises for a peer that is gone, or that came back as another process."""


_THREAD_SLEEP_US = 100
"""How long the agent's thread sleeps when nothing comes; what comes wakes it."""


class _Region(Struct, frozen=True, array_like=True):
    """Memory that reads may come from or land in."""

    address: int
    num_bytes: int
    device: int


class _Metadata(Struct, frozen=True, array_like=True):
    name: str
    agent: bytes
    """NIXL's own."""
    regions: tuple[_Region, ...]


class _Agent:
    """A peer's agent that is loaded into ours."""

    def __init__(self, metadata: _Metadata) -> None:
        self.metadata = metadata
        self.reads: set[NixlRead] = set()
        """Those that are not over, released ones among them."""


class NixlRead:
    """A read that was begun."""

    def __init__(self, peer: int, agent: _Agent) -> None:
        self.peer = peer
        self.agent = agent
        self.handle: int | None = None
        """NIXL's; None: the read is over."""
        self.error: ReadFailed | None = None
        """What `poll` raises from now on."""


class NixlTransport:
    """One process's end."""

    def __init__(self, name: str) -> None:
        """`name` is for messages: the agent's own is another in each life, so that none is taken for its predecessor.

        Raises EplbInputError where UCX does not start.
        """
        self.name = f"{name}-{secrets.token_hex(8)}"
        self._nixl, self._backend = _start(self.name)
        self._held: list[Any] = [self._nixl]
        """The agent and its memory. This list is never freed, so that they last until `close` or the process's end."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._held))
        self._regions: list[_Region] = []
        self._agents: dict[str, _Agent] = {}
        self._peers: dict[int, _Agent] = {}

    def allocate(self, num_bytes: int) -> NDArray[np.uint8]:
        """Zeroed memory [num_bytes] of the host."""
        if num_bytes < 1:
            raise EplbInputError("num_bytes", f"{num_bytes} bytes", "Ask for at least one.")
        memory = mmap.mmap(-1, num_bytes)
        array = np.frombuffer(memory, np.uint8)
        self.register(array.ctypes.data, num_bytes)
        self._held.append(memory)
        return array

    def register(self, address: int, num_bytes: int, device: int = HOST) -> None:
        """Let peers read, and reads land in, memory of the host or of a GPU. Raises EplbInputError."""
        try:
            memory = nixl.nixlRegDList(_kind(device), [(address, num_bytes, max(device, 0), "")])
            self._nixl.registerMem(memory, [self._backend])
        except Exception as error:
            where = "the host" if device == HOST else f"device {device}"
            raise EplbInputError(
                "transport",
                f"NIXL can't register {num_bytes} bytes at {address:#x} of {where}: {_words(error)}",
                "A GPU's memory needs a UCX with CUDA, and a CUDA context from before; RDMA needs room in `ulimit -l`.",
            ) from error
        self._regions.append(_Region(address, num_bytes, device))

    def metadata(self) -> bytes:
        """What peers need to read from here."""
        return msgpack.encode(_Metadata(self.name, self._nixl.getLocalMD(), tuple(self._regions)))

    def add_peer(self, peer: int, metadata: bytes) -> None:
        """Load a peer's agent, or what is new in one that is loaded. Raises ReadFailed, ReadPeerLost."""
        try:
            known = msgpack.decode(metadata, type=_Metadata)
        except msgspec.DecodeError as error:
            raise ReadFailed(f"this is no metadata of a NIXL transport: {error}") from error
        self.remove_peer(peer)
        agent = self._agents.get(known.name)
        if agent is None or agent.metadata != known:
            try:
                self._nixl.loadRemoteMD(known.agent)
            except Exception as error:
                raise _translated(error) from error
            agent = self._agents.setdefault(known.name, _Agent(known))
            agent.metadata = known
        self._peers[peer] = agent

    def remove_peer(self, peer: int) -> None:
        """Forget a rank. Its agent stays loaded until no read from it is under way."""
        agent = self._peers.pop(peer, None)
        if agent is None:
            return
        for read in agent.reads:
            if read.peer == peer:
                read.error = read.error or _unknown(peer)
        self._unload_unused(agent)

    def read(self, peer: int, pieces: Sequence[Piece], device: int = HOST) -> NixlRead:
        """Begin to read into memory of `device`; the peer's may be of any device, one for all pieces."""
        agent = self._peers.get(peer)
        if agent is None:
            raise _unknown(peer)
        read = NixlRead(peer, agent)
        total = sum(piece.num_bytes for piece in pieces)
        if total > MAX_PIECE_BYTES:
            raise ReadFailed(f"{total} bytes are asked for at once; at most {MAX_PIECE_BYTES} are read")
        if not total:
            return read
        there = _device_at(pieces[0].remote, agent.metadata.regions)
        try:
            read.handle = self._nixl.createXferReq(
                nixl.NIXL_READ,
                _descriptors([(local, size) for local, _, size in pieces], device),
                _descriptors([(remote, size) for _, remote, size in pieces], there),
                agent.metadata.name,
                b"",
                [self._backend],
            )
        except nixl.nixlNotFoundError as error:
            for local, remote, size in pieces:
                _check_registered(local, size, device, self._regions, "here")
                _check_registered(remote, size, there, agent.metadata.regions, "by the peer")
            raise _translated(error) from error
        except Exception as error:
            raise _translated(error) from error
        agent.reads.add(read)
        self._move(read, self._post)  # an error is told by poll: some bytes may have landed, or still land
        return read

    def poll(self, read: NixlRead) -> bool:
        """Whether all bytes have landed."""
        if read.error is None:
            self._move(read, self._status)
        if read.error:
            raise read.error
        return read.handle is None

    def release(self, read: NixlRead) -> None:
        """Be done with a read. NIXL's handle is kept until it is over: released, it would land unseen."""

    def drained(self, read: NixlRead) -> bool:
        """Whether NIXL has said that the read is over, or its peer gone."""
        self._move(read, self._status)
        return read.handle is None

    def close(self) -> None:
        """Give everything back; where reads are under way, only with the end of the process.

        Over TCP an agent that goes before a stopped peer has answered it lets UCX abort that peer when it continues.
        """
        under_way = [read for agent in self._agents.values() for read in agent.reads]
        for read in under_way:
            read.error = read.error or ReadPeerLost("the transport was closed")
        self._peers, self._regions = {}, []
        if not under_way:
            self._nixl, self._agents = None, {}
            del self._held[:1]  # ends the agent's thread and connections; unmapped before, memory kills who uses it
            self._held.clear()

    def _unload_unused(self, agent: _Agent) -> None:
        if agent.reads or agent in self._peers.values():
            return
        del self._agents[agent.metadata.name]
        self._nixl.invalidateRemoteMD(agent.metadata.name)

    def _post(self, handle: int) -> Any:
        return self._nixl.postXferReq(handle, b"")

    def _status(self, handle: int) -> Any:
        return self._nixl.getXferStatus(handle)

    def _move(self, read: NixlRead, call: Callable[[int], Any]) -> None:
        """Let NIXL move a read on, by posting it or by asking for its state."""
        if read.handle is None:
            return
        try:
            over = call(read.handle) == nixl.NIXL_SUCCESS
        except Exception as error:
            read.error = read.error or _translated(error)
            over = isinstance(error, _OVER)
        if over:
            self._nixl.releaseXferReq(read.handle)
            read.handle = None
            read.agent.reads.remove(read)
            self._unload_unused(read.agent)


def _start(name: str) -> tuple[Any, int]:
    config = nixl.nixlAgentConfig()
    config.useProgThread = True
    config.pthrDelay = _THREAD_SLEEP_US
    config.syncMode = nixl.NIXL_THREAD_SYNC_STRICT
    try:
        agent = nixl.nixlAgent(name, config)
        return agent, agent.createBackend("UCX", {})
    except Exception as error:
        problem = f"NIXL does not start with UCX_TLS={os.environ.get('UCX_TLS', '')}: {_words(error)}"
        remedy = "Leave UCX_TLS out, or have tcp in it: shared memory alone can't tell that a peer has ended."
        raise EplbInputError("transport", problem, remedy) from error


def _kind(device: int) -> Any:
    return nixl.DRAM_SEG if device == HOST else nixl.VRAM_SEG


def _descriptors(spans: Sequence[tuple[int, int]], device: int) -> Any:
    index = max(device, 0)
    return nixl.nixlXferDList(_kind(device), [(address, num_bytes, index) for address, num_bytes in spans])


def _device_at(address: int, regions: Sequence[_Region]) -> int:
    for region in regions:
        if 0 <= address - region.address < region.num_bytes:
            return region.device
    return HOST


def _check_registered(address: int, num_bytes: int, device: int, regions: Sequence[_Region], whose: str) -> None:
    """Say what NIXL's "not found" doesn't: which piece, and on which side."""
    for region in regions:
        if region.device == device and 0 <= address - region.address <= region.num_bytes - num_bytes:
            return
    where = "the host" if device == HOST else f"device {device}"
    raise ReadFailed(f"{num_bytes} bytes at {address:#x} of {where} are not registered {whose}")


def _unknown(peer: int) -> ReadPeerLost:
    return ReadPeerLost(f"rank {peer} is not known here, or was fenced")


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _translated(error: Exception) -> ReadFailed:
    return (ReadPeerLost if isinstance(error, _LOST) else ReadFailed)(_words(error))
