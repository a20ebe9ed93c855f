"""When requests are due."""

from __future__ import annotations

import math
from datetime import datetime

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct

from windtunnel.errors import ConfigurationError
from windtunnel.workload.arrivals import arrival_offsets_ns, ramp_rates, rps_change_events


class Ramp(Struct, frozen=True):
    strategy: str
    start_rps: float
    end_rps: float


rates = st.floats(0.01, 1e6)
shapes = st.one_of(st.floats(1e-3, 1e3), st.just(math.inf))


def offsets(
    num: int, rate: float | None = None, shape: float = 1.0, ramp: Ramp | None = None, seed: int = 0
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return arrival_offsets_ns(num, rate, shape, ramp, np.random.default_rng(seed))


@given(num=st.integers(1, 300), rate=rates, shape=shapes, seed=st.integers(0, 2**32))
@settings(deadline=None)
def test_offsets_grow_and_the_last_is_due_at_n_over_the_rate(num: int, rate: float, shape: float, seed: int) -> None:
    due = offsets(num, rate, shape, seed=seed)
    assert due.shape == (num,)
    assert due.dtype == np.int64
    assert due[0] >= 0
    assert (np.diff(due) >= 0).all()
    if due[-1]:  # a burstiness near 0 can draw nothing but zeros
        assert due[-1] == pytest.approx(num / rate * 1e9, rel=1e-12, abs=1)


@given(num=st.integers(1, 200), start=rates, growth=st.floats(1, 100), shape=shapes, strategy=st.sampled_from(
    ["linear", "exponential"]))  # fmt: skip
@settings(deadline=None)
def test_offsets_grow_under_a_ramp(num: int, start: float, growth: float, shape: float, strategy: str) -> None:
    due = offsets(num, None, shape, Ramp(strategy, start, start * growth))
    assert due.shape == (num,)
    assert due[0] >= 0
    assert (np.diff(due) >= 0).all()


@pytest.mark.parametrize("rate", [None, math.inf])
def test_without_a_rate_all_are_due_at_the_start(rate: float | None) -> None:
    assert offsets(3, rate).tolist() == [0, 0, 0]


def test_no_requests_have_no_offsets() -> None:
    assert offsets(0, 5.0).tolist() == []


def test_infinite_burstiness_is_a_metronome() -> None:
    assert offsets(4, 10.0, math.inf).tolist() == [100_000_000, 200_000_000, 300_000_000, 400_000_000]


@pytest.mark.parametrize("shape", [0.25, 1.0, 9.0])
def test_the_burstiness_is_the_shape_of_the_intervals(shape: float) -> None:
    gaps = np.diff(offsets(200_000, 50.0, shape))
    assert gaps.mean() == pytest.approx(20e6, rel=0.01)
    # a gamma distribution's variation is 1 / sqrt(shape)
    assert gaps.std() / gaps.mean() == pytest.approx(1 / math.sqrt(shape), rel=0.02)


def test_under_a_ramp_the_burstiness_keeps_the_rate() -> None:
    gaps = np.diff(offsets(100_000, None, 9.0, Ramp("linear", 50, 50)))
    assert gaps.mean() == pytest.approx(20e6, rel=0.01)
    assert gaps.std() / gaps.mean() == pytest.approx(1 / 3, rel=0.02)


def test_intervals_of_a_poisson_process_are_exponential() -> None:
    gaps = np.diff(offsets(100_000, 1.0)) / 1e9
    assert (gaps > 1.0).mean() == pytest.approx(math.exp(-1), abs=0.01)
    assert (gaps > 3.0).mean() == pytest.approx(math.exp(-3), abs=0.01)


def test_a_ramp_goes_by_a_requests_place() -> None:
    assert ramp_rates(5, Ramp("linear", 1, 5)).tolist() == [1, 2, 3, 4, 5]
    assert ramp_rates(3, Ramp("exponential", 1, 100)).tolist() == pytest.approx([1, 10, 100])
    assert ramp_rates(1, Ramp("linear", 2, 8)).tolist() == [2]


def test_a_ramp_is_not_scaled_to_a_total() -> None:
    due = offsets(3, None, math.inf, Ramp("linear", 1, 4))
    assert due.tolist() == pytest.approx([1e9, 1.4e9, 1.65e9])


def test_one_seed_makes_one_schedule() -> None:
    assert offsets(50, 3.0, seed=1).tolist() == offsets(50, 3.0, seed=1).tolist()
    assert offsets(50, 3.0, seed=1).tolist() != offsets(50, 3.0, seed=2).tolist()


def test_changes_of_the_rate_are_told_once_for_each_whole_rate() -> None:
    ramp = Ramp("linear", 1, 5)
    start = datetime(2025, 5, 4, 3, 2, 1)
    events = rps_change_events(np.array([0, 10, 20]) * 10**9, ramp, int(start.timestamp()) * 10**9)
    assert events == [
        {"rps": 1, "timestamp": "2025-05-04T03:02:01"},
        {"rps": 2, "timestamp": "2025-05-04T03:02:11"},
        {"rps": 3, "timestamp": "2025-05-04T03:02:11"},
        {"rps": 4, "timestamp": "2025-05-04T03:02:21"},
        {"rps": 5, "timestamp": "2025-05-04T03:02:21"},
    ]


def test_the_end_of_an_exponential_ramp_is_told_though_it_is_rounded() -> None:
    ramp = Ramp("exponential", 11, 15)
    events = rps_change_events(np.zeros(7, dtype=np.int64), ramp, 0)
    assert [event["rps"] for event in events] == list(range(11, 16))


@pytest.mark.parametrize(
    ("rate", "shape", "ramp", "flag"),
    [
        (0.0, 1.0, None, "--request-rate"),
        (-1.0, 1.0, None, "--request-rate"),
        (math.nan, 1.0, None, "--request-rate"),
        (1e-12, 1.0, None, "--request-rate"),
        (1.0, 0.0, None, "--burstiness"),
        (1.0, -2.0, None, "--burstiness"),
        (1.0, math.nan, None, "--burstiness"),
        (1.0, 1.0, Ramp("linear", 1, 2), "--request-rate"),
        (None, 1.0, Ramp("linaer", 1, 2), "--ramp-up-strategy"),
        (None, 1.0, Ramp("linear", 0, 2), "--ramp-up-start-rps"),
        (None, 1.0, Ramp("exponential", 0, 2), "--ramp-up-start-rps"),
        (None, 1.0, Ramp("linear", 3, 2), "--ramp-up-start-rps"),
        (None, 1.0, Ramp("linear", 1e-12, 2e-12), "--ramp-up-start-rps"),
        (None, 1.0, Ramp("linear", 1, math.inf), "--ramp-up-end-rps"),
        (None, 1.0, Ramp("linear", 1, -2), "--ramp-up-end-rps"),
    ],
)
def test_what_makes_no_sense_is_named_by_its_flag(
    rate: float | None, shape: float, ramp: Ramp | None, flag: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        offsets(10, rate, shape, ramp)
    assert caught.value.where == flag
    assert caught.value.remedy


def test_a_strategy_that_is_nearly_known_is_suggested() -> None:
    with pytest.raises(ConfigurationError, match="did you mean linear"):
        offsets(10, ramp=Ramp("linaer", 1, 2))
