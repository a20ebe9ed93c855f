"""When requests are due: a schedule is computed before the run, as offsets from its start.

Intervals are drawn as vLLM's client draws them: from a gamma distribution whose shape is the burstiness (1 makes it a
Poisson process, infinity a metronome), and without a ramp they are scaled so that the last of N requests is due
exactly N / rate after the start. Under a ramp the rate is a function of a request's place in the order.
"""

from __future__ import annotations

import math
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from windtunnel.errors import ConfigurationError, did_you_mean
from windtunnel.units import NS_PER_S

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

STRATEGIES = ("linear", "exponential")
_LONGEST_S = 2.0**63 / NS_PER_S


class RampUp(Protocol):
    """A request rate that grows over the run's requests."""

    @property
    def strategy(self) -> str:
        """`linear` or `exponential`."""

    @property
    def start_rps(self) -> float:
        """Rate at the first request, per second."""

    @property
    def end_rps(self) -> float:
        """Rate at the last request, per second."""


def arrival_offsets_ns(
    num: int, request_rate: float | None, burstiness: float, ramp_up: RampUp | None, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Instants at which requests are due, in ns from the run's start.

    Args:
        num: how many requests.
        request_rate: requests per second; None or infinity: all are due at the start.
        burstiness: shape of the gamma distribution; infinity: constant intervals.
        ramp_up: takes the place of `request_rate`.
        rng: the source of the intervals.

    Returns:
        [num] int64, non-decreasing.

    Raises ConfigurationError, naming the flag.
    """
    import numpy as np

    _check(request_rate, burstiness, ramp_up)
    if num == 0 or (ramp_up is None and (request_rate is None or math.isinf(request_rate))):
        return np.zeros(num, dtype=np.int64)
    rates = np.full(num, request_rate) if ramp_up is None else ramp_rates(num, ramp_up)
    shares = np.ones(num) if math.isinf(burstiness) else rng.gamma(burstiness, 1 / burstiness, size=num)
    due_s = np.cumsum(shares / rates)
    # a burstiness near 0 can draw nothing but zeros: one burst, which no factor can stretch
    if ramp_up is None and request_rate is not None and due_s[-1] > 0:
        due_s *= num / request_rate / due_s[-1]
    if not due_s[-1] < _LONGEST_S:
        where = "--request-rate" if ramp_up is None else "--ramp-up-start-rps"
        raise ConfigurationError(where, f"the last request would be due after {due_s[-1]:.3g} s", "Raise the rate.")
    return np.rint(due_s * NS_PER_S).astype(np.int64)


def ramp_rates(num: int, ramp_up: RampUp) -> NDArray[np.float64]:
    """The rate at each request, per second: [num] float64."""
    import numpy as np

    progress = np.arange(num) / max(num - 1, 1)
    if ramp_up.strategy == "linear":
        return ramp_up.start_rps + (ramp_up.end_rps - ramp_up.start_rps) * progress
    return np.asarray(ramp_up.start_rps * (ramp_up.end_rps / ramp_up.start_rps) ** progress)


def rps_change_events(offsets_ns: NDArray[np.int64], ramp_up: RampUp, start_realtime_ns: int) -> list[dict[str, Any]]:
    """When a ramp reached each whole rate, as vLLM's result files have it under `rps_change_events`.

    Args:
        offsets_ns: [num] int64, when requests were due, from the start.
        ramp_up: the ramp.
        start_realtime_ns: the run's start on CLOCK_REALTIME.

    Returns:
        One `{"rps", "timestamp"}` for the start and for each whole number of requests per second above it; the
        timestamp is local time in ISO 8601.
    """
    reached = int(ramp_up.start_rps)
    events = [{"rps": reached, "timestamp": _local_iso(start_realtime_ns)}]
    for rate, offset_ns in zip(ramp_rates(len(offsets_ns), ramp_up), offsets_ns.tolist(), strict=True):
        # 29.999999999999996 is a rounded 30, not a rate of 29
        for rps in range(reached + 1, math.floor(rate + 1e-9) + 1):
            events.append({"rps": rps, "timestamp": _local_iso(start_realtime_ns + offset_ns)})
            reached = rps
    return events


def _local_iso(realtime_ns: int) -> str:
    return datetime.fromtimestamp(realtime_ns / NS_PER_S).isoformat()


def _check(request_rate: float | None, burstiness: float, ramp_up: RampUp | None) -> None:
    if request_rate is not None and not request_rate > 0:
        raise ConfigurationError(
            "--request-rate", f"{request_rate:g} is no rate", "Give requests per second above 0, or inf."
        )
    if not burstiness > 0:
        raise ConfigurationError(
            "--burstiness",
            f"{burstiness:g} is no shape of a gamma distribution",
            "Give a number above 0: below 1 is burstier than a Poisson process, above 1 more even.",
        )
    if ramp_up is not None:
        _check_ramp(ramp_up, request_rate)


def _check_ramp(ramp_up: RampUp, request_rate: float | None) -> None:
    if ramp_up.strategy not in STRATEGIES:
        suggestion = did_you_mean(ramp_up.strategy, STRATEGIES)
        raise ConfigurationError(
            "--ramp-up-strategy", f"no strategy is called {ramp_up.strategy}{suggestion}", "Give linear or exponential."
        )
    if request_rate is not None and not math.isinf(request_rate):
        raise ConfigurationError(
            "--request-rate", "a ramp-up sets the rate itself", "Leave out --request-rate or --ramp-up-strategy."
        )
    for flag, rps in (("--ramp-up-start-rps", ramp_up.start_rps), ("--ramp-up-end-rps", ramp_up.end_rps)):
        if not 0 < rps < math.inf:
            raise ConfigurationError(flag, f"{rps:g} is no rate", "Give requests per second above 0.")
    if ramp_up.start_rps > ramp_up.end_rps:
        raise ConfigurationError(
            "--ramp-up-start-rps",
            f"{ramp_up.start_rps:g} lies above --ramp-up-end-rps {ramp_up.end_rps:g}",
            "A ramp goes up: give the lower rate as its start.",
        )
