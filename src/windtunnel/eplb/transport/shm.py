"""Reads from the memory of other processes on the same host. No dependency, and the default.

Memory that the transport allocates is a file without a name (`memfd_create`), which peers map by way of
`/proc/PID/fd`: nothing is left behind by a process that is killed, and what a peer has mapped outlives the process.
Memory that is the caller's is read with `process_vm_readv`. Both are copies by the reader's own processor, so a read is
over when it says so, and nothing lands later. Both also work while the peer is stopped. What is the caller's must
stay where it is: unmapped, it is an error of the reader's; mapped anew, it is whatever is there by then.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import select
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec
import numpy as np
from msgspec import Meta, Struct, msgpack
from numpy.typing import NDArray

from windtunnel.eplb.processes import host_identity
from windtunnel.eplb.transport import HOST, MAX_PIECE_BYTES, Piece, ReadFailed, ReadPeerLost
from windtunnel.errors import EplbInputError

_PR_SET_PTRACER = 0x59616D61
_PR_SET_PTRACER_ANY = ctypes.c_ulong(-1)
_MOST_IOVECS = 1024

_libc = ctypes.CDLL(None, use_errno=True)
_libc.process_vm_readv.restype = ctypes.c_ssize_t


class _IoVec(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


_Address = Annotated[int, Meta(gt=0, lt=1 << 62)]
_Number = Annotated[int, Meta(ge=-1, lt=1 << 31)]


class _Region(Struct, frozen=True, array_like=True):
    """Memory that a process lets others read."""

    address: _Address
    num_bytes: _Address
    fd: _Number
    """The memory's file in its process; -1: memory of the caller's, which has none."""

    @property
    def end(self) -> int:
        """The address behind its last byte."""
        return self.address + self.num_bytes


class _Metadata(Struct, frozen=True, array_like=True):
    host: str
    pid: Annotated[int, Meta(gt=0, lt=1 << 31)]
    started: str
    """The process's start, in ticks since boot: tells it from a later process of the same pid."""
    regions: tuple[_Region, ...]


class _Mapped(NamedTuple):
    region: _Region
    memory: mmap.mmap | None
    base: int
    """Where it is mapped here; 0: it is not."""


class _Peer:
    def __init__(self, metadata: _Metadata) -> None:
        self.pid = metadata.pid
        self.mapped: list[_Mapped] = []
        self.pidfd = _open_process(metadata)
        self._end = select.poll()  # not select: an engine has more than 1,024 files open
        self._end.register(self.pidfd, select.POLLIN)
        try:
            for region in metadata.regions:
                self.mapped.append(_map(metadata.pid, region))
        except (OSError, ValueError) as error:
            try:
                self.check_alive()
            finally:
                self.close()
            raise ReadFailed(f"can't map the memory of process {metadata.pid}: {error}") from error

    def check_alive(self) -> None:
        if self._end.poll(0):
            raise ReadPeerLost(f"process {self.pid} has ended")

    def find(self, remote: int, num_bytes: int) -> _Mapped:
        for mapped in self.mapped:
            region = mapped.region
            if region.address <= remote and remote + num_bytes <= region.end and num_bytes >= 0:
                return mapped
        raise ReadFailed(f"{num_bytes} bytes at {remote:#x} are not among what process {self.pid} exports")

    def close(self) -> None:
        os.close(self.pidfd)
        for mapped in self.mapped:
            if mapped.memory:
                mapped.memory.close()
        self.mapped = []


class SharedMemoryRead:
    """A read that was begun. The copying is done by `poll`."""

    __slots__ = ("mapped", "peer", "source", "unmapped")

    def __init__(self, peer: int, source: _Peer) -> None:
        self.peer = peer
        self.source = source
        """This one only: a later process under the same rank is another."""
        self.mapped: list[tuple[int, int, int]] = []
        """What is mapped: where it goes, where it is here, bytes."""
        self.unmapped: list[Piece] = []


class SharedMemoryTransport:
    """One process's end."""

    def __init__(self, name: str) -> None:
        """`name` is for messages."""
        self.name = name
        self._own: list[tuple[mmap.mmap, int]] = []
        self._regions: list[_Region] = []
        self._peers: dict[int, _Peer] = {}

    def allocate(self, num_bytes: int) -> NDArray[np.uint8]:
        """Zeroed memory [num_bytes], which peers can map."""
        if num_bytes < 1:
            raise EplbInputError("num_bytes", f"{num_bytes} bytes", "Ask for at least one.")
        fd = os.memfd_create(f"windtunnel-{self.name}"[:200], os.MFD_CLOEXEC)
        try:
            os.ftruncate(fd, num_bytes)
            memory = mmap.mmap(fd, num_bytes)
        except (OSError, OverflowError) as error:
            os.close(fd)
            raise EplbInputError("num_bytes", f"{num_bytes} bytes: {error}", "Ask for less memory.") from error
        array = np.frombuffer(memory, np.uint8)
        self._own.append((memory, fd))
        self._regions.append(_Region(array.ctypes.data, num_bytes, fd))
        return array

    def register(self, address: int, num_bytes: int, device: int = HOST) -> None:
        """Let peers read memory of the caller's. Raises EplbInputError for a device's memory."""
        if device != HOST:
            raise EplbInputError("transport", "shm reads host memory only", "Use nixl for memory of a device.")
        _libc.prctl(_PR_SET_PTRACER, _PR_SET_PTRACER_ANY, 0, 0, 0)  # where Yama restricts who may read whom
        self._regions.append(_Region(address, num_bytes, -1))

    def metadata(self) -> bytes:
        """What peers need to read from here."""
        return msgpack.encode(_Metadata(host_identity(), os.getpid(), _started("self"), tuple(self._regions)))

    def add_peer(self, peer: int, metadata: bytes) -> None:
        """Map a peer's memory. Raises ReadFailed, ReadPeerLost."""
        self.remove_peer(peer)
        try:
            known = msgpack.decode(metadata, type=_Metadata)
        except msgspec.DecodeError as error:
            raise ReadFailed(f"this is no metadata of a shared memory transport: {error}") from error
        self._peers[peer] = _Peer(known)

    def remove_peer(self, peer: int) -> None:
        """Unmap a peer's memory."""
        if known := self._peers.pop(peer, None):
            known.close()

    def read(self, peer: int, pieces: Sequence[Piece], device: int = HOST) -> SharedMemoryRead:
        """Begin to read. Raises ReadFailed, ReadPeerLost."""
        known = self._peers.get(peer)
        if known is None:
            raise ReadPeerLost(f"rank {peer} is not known here, or was fenced")
        read, total = SharedMemoryRead(peer, known), 0
        for piece in pieces:
            local, remote, num_bytes = piece
            total += num_bytes
            self._check_landing(local, num_bytes)
            found = known.find(remote, num_bytes)
            if found.memory is None:
                read.unmapped.append(piece)
            else:
                read.mapped.append((local, found.base + remote - found.region.address, num_bytes))
        if total > MAX_PIECE_BYTES or device != HOST:
            raise ReadFailed(f"{total} bytes are asked for at once; at most {MAX_PIECE_BYTES} of host memory are read")
        known.check_alive()
        return read

    def _check_landing(self, local: int, num_bytes: int) -> None:
        for region in self._regions:
            if region.address <= local and local + num_bytes <= region.end and num_bytes >= 0:
                return
        raise ReadFailed(f"{num_bytes} bytes at {local:#x} are not memory that reads can land in")

    def poll(self, read: SharedMemoryRead) -> bool:
        """Copy. A peer that has ended is lost, even where its memory could still be read: nobody vouches for it."""
        if self._peers.get(read.peer) is not read.source:  # whose memory is unmapped
            raise ReadPeerLost(f"rank {read.peer} was fenced, or came back as another process than {read.source.pid}")
        for local, mapped, num_bytes in read.mapped:
            ctypes.memmove(local, mapped, num_bytes)
        for start in range(0, len(read.unmapped), _MOST_IOVECS):
            _read_process(read.source.pid, read.unmapped[start : start + _MOST_IOVECS])
        read.source.check_alive()
        self.release(read)
        return True

    def release(self, read: SharedMemoryRead) -> None:
        """Be done with a read: nothing is under way between polls."""
        read.mapped, read.unmapped = [], []

    def drained(self, read: SharedMemoryRead) -> bool:
        """True: no byte lands outside of `poll`."""
        return True

    def close(self) -> None:
        """Give everything back; memory that is still used here stays mapped."""
        for peer in list(self._peers):
            self.remove_peer(peer)
        for memory, fd in self._own:
            os.close(fd)
            try:
                memory.close()
            except BufferError:  # an array of the caller's still points into it
                pass
        self._own, self._regions = [], []


def _started(pid: int | str) -> str:
    return Path(f"/proc/{pid}/stat").read_text("ascii", errors="replace").rpartition(")")[2].split()[19]


def _open_process(metadata: _Metadata) -> int:
    if metadata.host != host_identity():
        raise ReadFailed(f"process {metadata.pid} is on another host or in another container: use nixl")
    try:
        fd = os.pidfd_open(metadata.pid)
    except OSError as error:
        raise ReadPeerLost(f"process {metadata.pid} has ended") from error
    try:
        same = _started(metadata.pid) == metadata.started
    except OSError:
        same = False
    if not same:
        os.close(fd)
        raise ReadPeerLost(f"process {metadata.pid} is another one by now")
    return fd


def _map(pid: int, region: _Region) -> _Mapped:
    if region.fd < 0:
        return _Mapped(region, None, 0)
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK  # garbage may name a pipe: that must not block
    fd = os.open(f"/proc/{pid}/fd/{region.fd}", flags)
    try:
        memory = mmap.mmap(fd, region.num_bytes, prot=mmap.PROT_READ)
    finally:
        os.close(fd)
    return _Mapped(region, memory, np.frombuffer(memory, np.uint8).ctypes.data)


def _read_process(pid: int, pieces: Sequence[Piece]) -> None:
    count, total = len(pieces), sum(piece.num_bytes for piece in pieces)
    local = (_IoVec * count)(*(_IoVec(piece.local, piece.num_bytes) for piece in pieces))
    remote = (_IoVec * count)(*(_IoVec(piece.remote, piece.num_bytes) for piece in pieces))
    got = _libc.process_vm_readv(pid, local, ctypes.c_ulong(count), remote, ctypes.c_ulong(count), ctypes.c_ulong(0))
    if got == total:
        return
    number = ctypes.get_errno() if got < 0 else errno.EFAULT
    if number == errno.ESRCH:
        raise ReadPeerLost(f"process {pid} has ended")
    hint = "; it needs CAP_SYS_PTRACE, or memory from allocate_tensors" if number == errno.EPERM else ""
    raise ReadFailed(f"can't read the memory of process {pid}: {os.strerror(number)}{hint}")
