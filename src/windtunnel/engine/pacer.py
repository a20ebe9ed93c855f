"""Resumes many scripts at exact instants, from one timer.

A script is a generator that yields the instant at which it is to go on. One heap of them is about ten times cheaper
than a task or a timer handle for each, and a thousand streams at 10 ms are a hundred thousand instants a second.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Generator
from heapq import heappop, heappush

from msgspec import Struct

from windtunnel.clock import monotonic_ns
from windtunnel.units import NS_PER_S

Script = Generator[int | None, None, None]
"""Yields monotonic nanoseconds; None parks it until `Pacer.resume`, which may never come."""

_BATCH = 64
"""Resumptions between two looks at the sockets: when a thousand streams are due together, requests that arrive
are still read, and their instants taken, within a millisecond."""


class Lateness(Struct):
    """How late scripts were resumed."""

    count: int = 0
    total_ns: int = 0
    max_ns: int = 0

    def add(self, count: int, total_ns: int, max_ns: int) -> None:
        """Count some more."""
        self.count += count
        self.total_ns += total_ns
        self.max_ns = max(self.max_ns, max_ns)

    @property
    def mean_ns(self) -> float | None:
        """None before the first."""
        return self.total_ns / self.count if self.count else None


class Pacer:
    """Holds the scripts of one event loop. An ended or closed script drops out by itself."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._heap: list[tuple[int, int, Script]] = []
        self._order = itertools.count()
        self._parked: set[Script] = set()
        self._timer: asyncio.TimerHandle | asyncio.Handle | None = None
        self._timer_ns = 0
        self.lateness = Lateness()

    def start(self, script: Script) -> None:
        """Run a script up to its first instant, and on from there."""
        self._advance(script)
        self._arm()

    def resume(self, script: Script) -> None:
        """Run a parked script on; one that waits for an instant is left to it."""
        if script in self._parked:
            self._parked.discard(script)
            self.start(script)

    def stop(self, script: Script) -> None:
        """Close a script and forget it."""
        script.close()
        self._parked.discard(script)

    def _advance(self, script: Script) -> None:
        try:
            due_ns = next(script)
        except StopIteration:
            return
        if due_ns is None:
            self._parked.add(script)
        else:
            heappush(self._heap, (due_ns, next(self._order), script))

    def _fire(self) -> None:
        self._timer = None
        heap = self._heap
        count = total_ns = max_ns = 0
        try:
            while heap and count < _BATCH:
                late_ns = monotonic_ns() - heap[0][0]
                if late_ns < 0:
                    break
                count += 1
                total_ns += late_ns
                max_ns = max(max_ns, late_ns)
                # taken out first: a script that ends may start another, and the heap changes under us
                self._advance(heappop(heap)[2])
        finally:
            self.lateness.add(count, total_ns, max_ns)
            self._arm()

    def _arm(self) -> None:
        """See to it that the timer goes off for the earliest instant."""
        if not self._heap:
            return
        due_ns = self._heap[0][0]
        if self._timer is not None:
            if self._timer_ns <= due_ns:
                return
            self._timer.cancel()
        self._timer_ns = due_ns
        if due_ns <= monotonic_ns():
            self._timer = self._loop.call_soon(self._fire)
        else:
            self._timer = self._loop.call_at(due_ns / NS_PER_S, self._fire)
