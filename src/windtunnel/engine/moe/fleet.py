"""The processes of the expert ranks: started, hurt on purpose, and started again."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
from dataclasses import replace
from multiprocessing.process import BaseProcess
from typing import Literal

import numpy as np

from windtunnel.engine.moe.dispatch import Dispatcher
from windtunnel.engine.moe.frames import Kind
from windtunnel.engine.moe.rank import RankConfig, serve
from windtunnel.eplb.events import EventLog
from windtunnel.eplb.faults import FailAt, Faults
from windtunnel.errors import EngineRequestError
from windtunnel.units import NS_PER_S

State = Literal["starting", "serving", "stopped", "ended"]

_PRELOADED = "windtunnel.engine.moe.rank"
_JOIN_S = 2.0


class Fleet:
    """One process for each rank, from a fork server that has loaded what they need: a rank starts in a moment.

    It ends when the front closes its connection, also by dying.
    """

    def __init__(self, configs: list[RankConfig], dispatcher: Dispatcher, events: EventLog) -> None:
        self._configs = configs
        self._dispatcher = dispatcher
        self._events = events
        self._processes: dict[int, BaseProcess] = {}
        self._stopped: set[int] = set()
        self._serving: set[int] = set()
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([_PRELOADED])

    def start(self) -> None:
        """Start all ranks with the experts that they begin with."""
        for config in self._configs:
            self._start(config)

    def _start(self, config: RankConfig) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            process = self._context.Process(
                target=serve, args=(config, theirs), name=f"rank {config.rank}", daemon=True
            )
            process.start()
        self._processes[config.rank] = process
        self._stopped.discard(config.rank)
        self._serving.discard(config.rank)
        self._dispatcher.connect(config.rank, ours)

    def became_ready(self, rank: int) -> None:
        """The rank has said that it serves."""
        self._serving.add(rank)
        self._events.add("serving", rank=rank, pid=self.pid(rank))

    def was_lost(self, rank: int) -> None:
        """The rank's connection has closed."""
        self._serving.discard(rank)
        self._events.add("disconnected", rank=rank)

    def state(self, rank: int) -> State:
        """What the process is doing, as far as is known here."""
        if not self._process(rank).is_alive():
            return "ended"
        if rank in self._stopped:
            return "stopped"
        return "serving" if rank in self._serving else "starting"

    def pid(self, rank: int) -> int:
        """Of the rank's process."""
        return self._process(rank).pid or 0

    def _process(self, rank: int) -> BaseProcess:
        if rank not in self._processes:
            known = f"0 to {len(self._configs) - 1}"
            raise EngineRequestError("rank", f"there is no rank {rank}", f"There are ranks {known}.")
        return self._processes[rank]

    def kill(self, rank: int) -> None:
        """SIGKILL."""
        self._signal(rank, signal.SIGKILL, "killed")

    def hang(self, rank: int) -> None:
        """SIGSTOP: the process is there, and does nothing."""
        self._signal(rank, signal.SIGSTOP, "stopped")
        self._stopped.add(rank)

    def resume(self, rank: int) -> None:
        """SIGCONT."""
        self._signal(rank, signal.SIGCONT, "resumed")
        self._stopped.discard(rank)

    def _signal(self, rank: int, number: signal.Signals, deed: str) -> None:
        pid = self._living(rank)
        self._events.add(deed, rank=rank, pid=pid)  # first: what follows from it is told by others
        os.kill(pid, number)

    def _living(self, rank: int) -> int:
        """The rank's process id. Raises EngineRequestError where it has ended."""
        process = self._process(rank)
        if not process.is_alive() or process.pid is None:
            raise EngineRequestError("rank", f"rank {rank} has ended", "Restart it first.")
        return process.pid

    def slow(self, rank: int, delay_s: float) -> None:
        """Let a rank wait before each answer; 0 ends it."""
        self._living(rank)
        self._events.add("slowed", rank=rank, delay_s=delay_s)
        self._dispatcher.tell(rank, Kind.SLOW, round(delay_s * NS_PER_S).to_bytes(8, "little"))

    def fail_at(self, rank: int, fault: FailAt) -> None:
        """Let a rank fail at a transition of a transaction. Raises EplbInputError where there is no such one."""
        self._living(rank)
        Faults("rank", fault)
        self._events.add("to fail", rank=rank, transition=fault.transition, how=fault.how, occurrence=fault.occurrence)
        self._dispatcher.tell(rank, Kind.FAIL_AT, f"{fault.transition}\n{fault.how}\n{fault.occurrence}".encode())

    def restart(self, rank: int) -> None:
        """Start a rank anew, with empty slots; a process of it that is there is killed first.

        For the engine's thread."""
        process = self._process(rank)
        self._events.add("restarted", rank=rank)
        if process.is_alive():
            process.kill()
        process.join(_JOIN_S)
        config = self._configs[rank]
        self._start(replace(config, contents=np.full_like(config.contents, -1)))

    def close(self) -> None:
        """End all processes, once the dispatcher has closed their connections; those that don't are killed."""
        for rank in sorted(self._stopped):
            if self._processes[rank].is_alive():
                self.resume(rank)
        for process in self._processes.values():
            process.join(_JOIN_S)
            if process.is_alive():
                process.kill()
                process.join()
