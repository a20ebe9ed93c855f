"""Which ranks have been silent for too long.

Death is seen by the control connection that closes. A rank that hangs keeps its connection: its silence gives it away.
Silence counts only while the detector itself was running. A busy machine stops the coordinator too, for tenths of a
second; heartbeats that arrived meanwhile are still unread when it goes on, and to count such a pause against the ranks
would evict all of them at once.
"""

from __future__ import annotations

from windtunnel.errors import EplbInputError
from windtunnel.units import NS_PER_MS, NS_PER_S

_MOST_TICKS = 3
"""A tick may come this many intervals after the one before; later ones find that the detector has slept."""


class FailureDetector:
    """Counts the observed silence of each rank. Instants are passed in, in nanoseconds of one monotonic clock."""

    def __init__(self, timeout_ns: int = NS_PER_S, tick_ns: int = 50 * NS_PER_MS) -> None:
        """Suspect a rank after `timeout_ns` of silence; `tick` is meant to be called each `tick_ns`.

        Raises EplbInputError where the timeout has no room for the heartbeats between a few ticks.
        """
        if tick_ns < 1:
            raise EplbInputError("tick_ns", f"{tick_ns} ns", "Ticks come at intervals of 1 ns or more.")
        if timeout_ns < 2 * _MOST_TICKS * tick_ns:
            problem = f"{timeout_ns} ns, with ticks each {tick_ns} ns"
            raise EplbInputError("timeout_ns", problem, f"It spans at least {2 * _MOST_TICKS} ticks.")
        self.timeout_ns = timeout_ns
        self.tick_ns = tick_ns
        self._observed_ns = 0
        """The time until the latest tick during which the detector was running."""
        self._ticked_ns: int | None = None
        self._silent_since_ns: dict[int, int] = {}
        """By rank, in observed time."""

    def heard(self, rank: int, now_ns: int) -> None:
        """A rank has given a sign of life; the first one makes it watched."""
        self._silent_since_ns[rank] = self._observed_until(now_ns)

    def forget(self, rank: int) -> None:
        """Watch a rank no more; one that isn't watched is fine too."""
        self._silent_since_ns.pop(rank, None)

    def tick(self, now_ns: int) -> list[int]:
        """Let time pass. The ranks whose silence exceeds the timeout, in order; again with each tick until forgotten.

        Call it after what has arrived was passed to `heard`.
        """
        self._observed_ns = self._observed_until(now_ns)
        self._ticked_ns = now_ns
        return sorted(rank for rank in self._silent_since_ns if self.silence_ns(rank) > self.timeout_ns)

    def silence_ns(self, rank: int) -> int:
        """For how long a rank was silent, up to the latest tick; 0 for one that isn't watched."""
        return max(self._observed_ns - self._silent_since_ns.get(rank, self._observed_ns), 0)

    def _observed_until(self, now_ns: int) -> int:
        passed_ns = 0 if self._ticked_ns is None else max(now_ns - self._ticked_ns, 0)
        return self._observed_ns + min(passed_ns, _MOST_TICKS * self.tick_ns)
