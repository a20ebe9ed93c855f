"""Processes with a NIXL transport each, which tests command over a pipe: NIXL can end the process that it is in."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.eplb import forks
from windtunnel.eplb.transport import HOST, Piece, ReadFailed, ReadPeerLost, Transport, make_transport

KIB, MIB = 1 << 10, 1 << 20
PATIENCE_S = 30.0
FABRICS = {"shared memory": "shm,tcp", "tcp": "tcp"}
"""By name: UCX_TLS. Shared memory needs TCP beside it, which tells that a peer has ended."""


def pattern(seed: int, num_bytes: int) -> NDArray[np.uint8]:
    """What a process with that seed has in its memory: no zeros."""
    return np.random.default_rng(seed).integers(1, 256, num_bytes, np.uint8)


class Agent:
    """A process with a transport and memory of `num_bytes`: of `pattern(seed)`, or zeros without a seed."""

    def __init__(self, fabric: str, num_bytes: int, *, name: str = "agent", seed: int | None = None) -> None:
        self._pipe, theirs = forks.context.Pipe()
        self.process = forks.context.Process(target=_serve, args=(theirs, FABRICS[fabric], name, num_bytes, seed))
        self.process.start()
        theirs.close()

    @cached_property
    def address(self) -> int:
        """Of its memory; waits until it has started."""
        return self._hear()

    def __enter__(self) -> Agent:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.is_alive():
            self.process.kill()
        self.process.join()
        self._pipe.close()

    def __getattr__(self, command: str) -> Any:
        """Any command of `_Commands`, as a method."""

        assert self.address

        def ask(*arguments: Any) -> Any:
            self._pipe.send((command, arguments))
            return self._hear()

        return ask

    def piece(self, peer: Agent, num_bytes: int, *, at: int = 0, from_: int = 0) -> Piece:
        """From byte `from_` of the peer's memory to byte `at` of this one's."""
        return Piece(self.address + at, peer.address + from_, num_bytes)

    def read_all(self, peer_rank: int, pieces: list[Piece]) -> None:
        """Read and wait. Raises what the transport raises."""
        number = self.read(peer_rank, pieces)
        self.finish(number)
        self.release(number)

    def kill(self) -> None:
        self.process.kill()
        self.process.join()

    def stop(self) -> None:
        """Returns when it has stopped."""
        os.kill(self.process.pid or 0, signal.SIGSTOP)
        stat = Path(f"/proc/{self.process.pid}/stat")
        wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T")

    def resume(self) -> None:
        os.kill(self.process.pid or 0, signal.SIGCONT)

    def exit_code(self) -> int | None:
        """Let it end by itself, as a program that returns from its main function."""
        assert self.address
        self._pipe.send(("exit", ()))
        self.process.join(PATIENCE_S)
        return self.process.exitcode

    def _hear(self) -> Any:
        if not self._pipe.poll(PATIENCE_S):
            raise TimeoutError(f"process {self.process.pid} says nothing")
        answer = self._pipe.recv()
        if isinstance(answer, Exception):
            raise answer
        return answer


def wait_until(reached: Any) -> None:
    """Ask until it is so. Raises TimeoutError."""
    deadline = time.monotonic() + PATIENCE_S
    while not reached():
        if time.monotonic() > deadline:
            raise TimeoutError("it never came")


@contextmanager
def pair(fabric: str, num_bytes: int) -> Iterator[tuple[Agent, Agent]]:
    """A reader with zeros that knows, as rank 1, an owner with a pattern; one small read has been made."""
    with Agent(fabric, num_bytes, name="owner", seed=1) as owner, Agent(fabric, num_bytes, name="reader") as reader:
        reader.add_peer(1, owner.metadata())
        reader.read_all(1, [reader.piece(owner, 1)])
        yield reader, owner


def _serve(pipe: Connection, tls: str, name: str, num_bytes: int, seed: int | None) -> None:
    os.environ["UCX_TLS"] = tls
    os.environ["NIXL_LOG_LEVEL"] = "FATAL"
    os.environ["UCX_LOG_LEVEL"] = "fatal"
    commands = _Commands(make_transport("nixl", name), num_bytes, seed)
    pipe.send(commands.memory.ctypes.data)
    while True:
        try:
            command, arguments = pipe.recv()
        except EOFError:
            os._exit(0)
        if command == "exit":
            sys.exit(0)
        try:
            pipe.send(getattr(commands, command)(*arguments))
        except Exception as error:
            pipe.send(error)


class _Commands:
    """What a process can be told to do. Reads go by number."""

    def __init__(self, made: Transport, num_bytes: int, seed: int | None) -> None:
        self.transport: Any = made
        self.memory = made.allocate(num_bytes)
        if seed is not None:
            self.memory[:] = pattern(seed, num_bytes)
        self.reads: list[Any] = []

    def metadata(self) -> bytes:
        return self.transport.metadata()

    def add_peer(self, peer: int, metadata: bytes) -> None:
        self.transport.add_peer(peer, metadata)

    def remove_peer(self, peer: int) -> None:
        self.transport.remove_peer(peer)

    def allocate(self, num_bytes: int) -> int:
        """More memory; nobody but the transport holds it."""
        address = self.transport.allocate(num_bytes).ctypes.data
        gc.collect()
        return address

    def register(self, address: int, num_bytes: int, device: int = HOST) -> None:
        self.transport.register(address, num_bytes, device)

    def own_memory(self, num_bytes: int, seed: int) -> int:
        """Memory that is none of the transport's."""
        self.own = pattern(seed, num_bytes)
        return self.own.ctypes.data

    def own_memory_equals(self, seed: int) -> bool:
        return np.array_equal(self.own, pattern(seed, len(self.own)))

    def device_memory(self, num_bytes: int, seed: int) -> int:
        """Memory of GPU 0."""
        cuda = ctypes.CDLL("libcudart.so")
        address = ctypes.c_void_p()
        if cuda.cudaMalloc(ctypes.byref(address), ctypes.c_size_t(num_bytes)):
            raise OSError("no memory on the GPU")
        host = pattern(seed, num_bytes)
        cuda.cudaMemcpy(address, ctypes.c_void_p(host.ctypes.data), ctypes.c_size_t(num_bytes), 1)
        return address.value or 0

    def device_memory_equals(self, address: int, num_bytes: int, seed: int) -> bool:
        host = np.zeros(num_bytes, np.uint8)
        ctypes.CDLL("libcudart.so").cudaMemcpy(
            ctypes.c_void_p(host.ctypes.data), ctypes.c_void_p(address), ctypes.c_size_t(num_bytes), 2
        )
        return np.array_equal(host, pattern(seed, num_bytes))

    def read(self, peer: int, pieces: list[Piece], device: int = HOST) -> int:
        self.reads.append(self.transport.read(peer, pieces, device))
        return len(self.reads) - 1

    def read_many(self, peer: int, pieces: list[Piece], times: int) -> None:
        for _ in range(times):
            read = self.transport.read(peer, pieces)
            wait_until(lambda read=read: self.transport.poll(read))
            self.transport.release(read)

    def poll(self, number: int) -> bool:
        return self.transport.poll(self.reads[number])

    def finish(self, number: int) -> None:
        """Poll until all has landed, as the mover does."""
        wait_until(lambda: self.transport.poll(self.reads[number]))

    def fails(self, number: int) -> str:
        """Poll until it raises; what, and the text."""
        try:
            self.finish(number)
        except ReadPeerLost as error:
            return f"lost: {error}"
        except ReadFailed as error:
            return f"failed: {error}"
        return "landed"

    def release(self, number: int) -> None:
        self.transport.release(self.reads[number])

    def drained(self, number: int) -> bool:
        return self.transport.drained(self.reads[number])

    def wait_drained(self, number: int) -> None:
        wait_until(lambda: self.transport.drained(self.reads[number]))

    def fill(self, value: int) -> None:
        self.memory[:] = value

    def count(self, seed: int, at: int = 0, num_bytes: int | None = None) -> int:
        """How many of this memory's bytes from `at` on are those of `pattern(seed)` at the same place."""
        end = len(self.memory) if num_bytes is None else at + num_bytes
        return int(np.count_nonzero(self.memory[at:end] == pattern(seed, len(self.memory))[at:end]))

    def forget_memory(self) -> None:
        """Hold none of the arrays any more."""
        self.memory = np.zeros(1, np.uint8)
        gc.collect()

    def is_mapped(self, address: int) -> bool:
        with open("/proc/self/maps") as maps:
            spans = [[int(end, 16) for end in line.split()[0].split("-")] for line in maps]
        return any(start <= address < end for start, end in spans)

    def withdraw(self) -> None:
        """Deregister all memory behind the transport's back; it stays mapped."""
        from nixl_cu12 import _bindings as nixl

        for region in self.transport._regions:
            memory = nixl.nixlRegDList(nixl.DRAM_SEG, [(region.address, region.num_bytes, 0, "")])
            self.transport._nixl.deregisterMem(memory, [])

    def unmap(self) -> None:
        """Do what nobody may do while peers read."""
        size = ctypes.c_size_t(len(self.memory))
        ctypes.CDLL(None).munmap(ctypes.c_void_p(self.memory.ctypes.data), size)

    def is_alive(self) -> bool:
        return True

    def drop_transport(self) -> None:
        """Hold nothing of it any more, without closing it."""
        self.transport = None
        self.forget_memory()

    def burn(self, cpu_s: float) -> None:
        """Take that much processor time."""
        until = time.thread_time() + cpu_s
        while time.thread_time() < until:
            pass

    def cpu_s(self) -> float:
        """Processor time that the process has taken."""
        return time.process_time()

    def resident_bytes(self) -> int:
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def loaded_agents(self) -> int:
        return len(self.transport._agents)

    def close(self) -> None:
        self.transport.close()
