"""The only place that reads time.

Instants are integers in nanoseconds of CLOCK_MONOTONIC. Two things come in CLOCK_REALTIME, the kernel's receive
stamps and the send instants that a ground-truth target writes into its tokens; a `ClockPair` leads from one to the
other.
"""

from __future__ import annotations

import time
from typing import NamedTuple

monotonic_ns = time.monotonic_ns
realtime_ns = time.time_ns


class ClockPair(NamedTuple):
    """One instant read on both clocks."""

    monotonic_ns: int
    realtime_ns: int

    @property
    def offset_ns(self) -> int:
        """Subtract it from a CLOCK_REALTIME instant to have it on CLOCK_MONOTONIC."""
        return self.realtime_ns - self.monotonic_ns


def read_clock_pair(tries: int = 5) -> ClockPair:
    """Read both clocks as one: of a few tries, the one during which the least time passed.

    The error is at most half the time between the two outer readings: below a microsecond, unless the process was
    descheduled in each try.
    """
    best_gap = None
    best = ClockPair(0, 0)
    for _ in range(tries):
        before = time.monotonic_ns()
        real = time.time_ns()
        after = time.monotonic_ns()
        if best_gap is None or after - before < best_gap:
            best_gap = after - before
            best = ClockPair((before + after) // 2, real)
    return best


def local_time() -> time.struct_time:
    """The wall clock in the local time zone, for names of files and dates in reports."""
    return time.localtime()
