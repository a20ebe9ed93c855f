"""A fleet of real processes: ranks with weights and a coordinator, which tests kill, stop and continue."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.eplb import forks
from tests.eplb.live.actor import Model, run_coordinator, run_rank

PATIENCE_S = 30.0


class Actor:
    """One process, and the pipe to it."""

    def __init__(self, run: Callable[..., None], *arguments: Any) -> None:
        self.pipe, theirs = forks.context.Pipe()
        self.process = forks.context.Process(target=run, args=(theirs, *arguments), daemon=True)
        self.process.start()
        theirs.close()
        self.pid = self.process.pid or 0

    def hear(self, patience_s: float = PATIENCE_S) -> Any:
        """What it says next. Raises EOFError where it has died, TimeoutError where it says nothing."""
        if not self.pipe.poll(patience_s):
            raise TimeoutError(f"process {self.pid} says nothing")
        try:
            return self.pipe.recv()
        except ConnectionResetError as error:
            raise EOFError from error

    def ask(self, command: Any, patience_s: float = PATIENCE_S) -> Any:
        self.pipe.send(command)
        return self.hear(patience_s)

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def end(self) -> None:
        """End it, whatever state it is in."""
        if self.process.is_alive():
            self.process.kill()
        self.process.join()
        self.pipe.close()
        self.process.close()


class Fleet:
    """Ranks under a coordinator."""

    def __init__(
        self,
        model: Model | None = None,
        *,
        ranks: dict[int, dict[str, Any]] | None = None,
        coordinator: dict[str, Any] | None = None,
        ready: bool = True,
    ) -> None:
        """Options by rank, and the coordinator's: see `actor`. `ready`: wait until all are here and an epoch serves."""
        self._to_be_ready = ready
        self.model = model or Model()
        self._options = ranks or {}
        self._coordinator_options = coordinator or {}
        self.ranks: dict[int, Actor] = {}
        self.coordinator: Actor | None = None
        self.port = 0

    def __enter__(self) -> Fleet:
        try:
            self.start_coordinator(**self._coordinator_options)
            for rank in range(len(self.model.slots_per_rank)):
                self.start_rank(rank, **self._options.get(rank, {}))
            if self._to_be_ready:
                self.await_ranks(*self.ranks)
                self.ask("ready")
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for actor in [*self.ranks.values(), *([self.coordinator] if self.coordinator else [])]:
            actor.end()

    def start_coordinator(self, **options: Any) -> None:
        """Start one, on the port of its predecessor."""
        self.coordinator = Actor(run_coordinator, self.model, self.port, options)
        self.port = self.coordinator.hear()

    def start_rank(self, rank: int, **options: Any) -> Actor:
        self.ranks[rank] = Actor(run_rank, self.model, rank, self.port, options)
        return self.ranks[rank]

    def stranger(self, rank: int, model: Model | None = None, **options: Any) -> Actor:
        """A process that says it is this rank; the caller ends it."""
        return Actor(run_rank, model or self.model, rank, self.port, options)

    def await_ranks(self, *ranks: int) -> None:
        """Wait until these ranks are members."""
        for rank in ranks:
            assert self.ranks[rank].hear() == {"joined": True}

    def ask(self, command: Any, patience_s: float = PATIENCE_S) -> Any:
        assert self.coordinator
        return self.coordinator.ask(command, patience_s)

    def rebalance(self, seed: int) -> None:
        """Move experts. A rank that a busy machine keeps from running may be evicted meanwhile; it comes back."""
        for _ in range(5):
            record = self.ask(("rebalance", seed))
            if record["result"] == "committed":
                return
            self.settled(set(self.ranks))
        raise AssertionError(f"five rebalances were rolled back, the last one since {record['reason']}")

    def state(self) -> dict[str, Any]:
        return self.ask("state")  # type: ignore[no-any-return]

    def until(self, holds: Callable[[], bool], what: str) -> None:
        """Wait until something holds."""
        deadline = time.monotonic() + PATIENCE_S
        while not holds():
            if time.monotonic() > deadline:
                raise TimeoutError(f"not within {PATIENCE_S} s: {what}; {self.describe()}")
            time.sleep(0.01)

    def describe(self) -> str:
        try:
            state = self.state()
        except (EOFError, TimeoutError, OSError, AssertionError) as error:
            return f"the coordinator is gone: {error!r}"
        events = [(what, facts) for _, what, facts in state["events"][-40:]]
        inside = [self._inside(rank) for rank in state["live"]]
        return f"{inside}; epoch {state['epoch']}, live {state['live']}, events {events}"

    def _inside(self, rank: int) -> str:
        try:
            return str(self.ranks[rank].ask("inside", 2.0))
        except (EOFError, TimeoutError, OSError) as error:
            return f"rank {rank}: {error!r}"

    def heard_of(self, rank: int, what: str) -> bool:
        """Whether a rank has noted such an event."""
        return any(name == what for name, _ in self.ranks[rank].ask("state")["events"])

    def settled(self, live: set[int]) -> None:
        """Wait until exactly these ranks live, all experts are there, and all route by one epoch; check all of it."""

        def holds() -> bool:
            state = self.state()
            if set(state["live"]) != live or state["missing"] != () or not state["idle"]:
                return False
            return all(self.ranks[rank].ask("state")["digest"] == state["digest"] for rank in live)

        self.until(holds, f"ranks {sorted(live)} serve one epoch with all experts")
        state = self.state()
        dead = [rank for rank in range(len(self.model.slots_per_rank)) if rank not in live]
        assert (state["slots"][:, dead] == -1).all()
        for rank in live:
            if (state["slots"][:, rank] >= 0).any():
                self.check(rank)

    def check(self, rank: int) -> dict[str, Any]:
        """What a rank has seen so far: never a wrong byte, and it goes on reading."""
        state = self.ranks[rank].ask("state")
        assert state["wrong"] == []
        self.until(lambda: self.ranks[rank].ask("state")["checks"] > state["checks"] + 8, "the rank reads on")
        return self.ranks[rank].ask("state")  # type: ignore[no-any-return]

    def stop(self, rank: int) -> None:
        self.ranks[rank].signal(signal.SIGSTOP)

    def go_on(self, rank: int) -> None:
        self.ranks[rank].signal(signal.SIGCONT)

    def kill(self, rank: int) -> None:
        self.ranks[rank].signal(signal.SIGKILL)
        self.ranks[rank].process.join()


def is_stopped(pid: int) -> bool:
    """Whether a process was stopped by a signal."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
