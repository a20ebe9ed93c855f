"""A process that lets others read its memory over shm, and does what it is told."""

from __future__ import annotations

import mmap
import multiprocessing
import os
import signal
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.eplb import forks
from windtunnel.eplb.transport.shm import SharedMemoryTransport

NUM_BYTES = 1 << 16
"""Of each of the two regions, unless told otherwise."""


def pattern(seed: int, num_bytes: int = NUM_BYTES) -> NDArray[np.uint8]:
    """The bytes of a region."""
    return np.random.default_rng(seed).integers(0, 256, num_bytes, np.uint8)


def export(pipe: Connection, seed: int, num_bytes: int) -> None:
    """The process: `allocated` is the transport's memory, `registered` is its own."""
    transport = SharedMemoryTransport("exporter")
    allocated = transport.allocate(num_bytes)
    own = mmap.mmap(-1, num_bytes)
    registered: Any = np.frombuffer(own, np.uint8)
    addresses = {"allocated": allocated.ctypes.data, "registered": registered.ctypes.data}
    transport.register(addresses["registered"], num_bytes)
    allocated[:], registered[:] = pattern(seed, num_bytes), pattern(seed + 1, num_bytes)
    pipe.send((transport.metadata(), addresses))
    while True:
        try:
            match pipe.recv():
                case ("fill", new_seed):
                    allocated[:], registered[:] = pattern(new_seed, num_bytes), pattern(new_seed + 1, num_bytes)
                case "unmap":
                    registered = None
                    own.close()
        except EOFError:
            return
        pipe.send("done")


class Exporter:
    """Such a process, from the outside."""

    def __init__(self, seed: int = 1, num_bytes: int = NUM_BYTES, *, own_child: bool = False) -> None:
        """`own_child`: nobody but this process can reap it."""
        context: Any = multiprocessing.get_context("spawn") if own_child else forks.context
        self._pipe, theirs = context.Pipe()
        self.process: BaseProcess = context.Process(target=export, args=(theirs, seed, num_bytes), daemon=True)
        self.process.start()
        theirs.close()
        self.metadata, self.addresses = self._pipe.recv()

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    def tell(self, command: Any) -> None:
        """Returns once it is done."""
        self._pipe.send(command)
        assert self._pipe.recv() == "done"

    def stop(self) -> None:
        """Returns once it is stopped."""
        os.kill(self.pid, signal.SIGSTOP)
        while _state(self.pid) != "T":
            os.sched_yield()

    def kill(self) -> None:
        """Returns once it has ended and is reaped."""
        os.kill(self.pid, signal.SIGKILL)
        self.process.join()

    def kill_unreaped(self) -> None:
        """Returns once it has ended; of an own child."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)

    def close(self) -> None:
        """Be rid of it, whatever state it is in."""
        if not self._pipe.closed:
            self.process.kill()
            self.process.join()
            self.process.close()
            self._pipe.close()


def _state(pid: int) -> str:
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
        return file.read().rpartition(")")[2].split()[0]
