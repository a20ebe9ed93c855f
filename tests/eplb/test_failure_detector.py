"""The failure detector: silence, as far as the detector itself was running to hear it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windtunnel.eplb.membership import FailureDetector
from windtunnel.errors import EplbInputError
from windtunnel.units import NS_PER_MS, NS_PER_S

TIMEOUT_NS = NS_PER_S
TICK_NS = 50 * NS_PER_MS
quick = settings(max_examples=300, deadline=None)


def detector() -> FailureDetector:
    return FailureDetector(TIMEOUT_NS, TICK_NS)


def suspected_after(watching: FailureDetector, start_ns: int, every_ns: int, until_ns: int) -> int | None:
    """When rank 0 is suspected first, with regular ticks."""
    for now_ns in range(start_ns, until_ns, every_ns):
        if watching.tick(now_ns) == [0]:
            return now_ns
    return None


@quick
@given(st.lists(st.integers(0, 3 * NS_PER_S), min_size=1, max_size=100), st.data())
def test_a_rank_that_is_heard_every_half_timeout_is_never_suspected_whatever_the_jitter_of_ticks(
    gaps_ns: list[int], data: st.DataObject
) -> None:
    watching, now_ns = detector(), 0
    watching.heard(0, now_ns)
    heard_ns = now_ns
    for gap_ns in gaps_ns:
        tick_ns = now_ns + gap_ns
        while heard_ns + TIMEOUT_NS // 2 <= tick_ns:
            heard_ns += data.draw(st.integers(TIMEOUT_NS // 4, TIMEOUT_NS // 2))
            watching.heard(0, min(heard_ns, tick_ns))
        now_ns = tick_ns
        assert watching.tick(now_ns) == []


@quick
@given(st.lists(st.integers(1, 10 * NS_PER_S), min_size=1, max_size=100), st.integers(0, 3))
def test_pauses_of_the_detector_are_not_counted_where_what_came_meanwhile_is_read_first(
    pauses_ns: list[int], ticks_between: int
) -> None:
    watching, now_ns = detector(), 0
    watching.heard(0, now_ns)
    watching.tick(now_ns)
    for pause_ns in pauses_ns:
        now_ns += pause_ns
        assert watching.tick(now_ns) == [], "before what came in the pause is read, at most a few ticks count"
        watching.heard(0, now_ns)
        for _ in range(ticks_between):
            now_ns += TICK_NS
            assert watching.tick(now_ns) == []


@quick
@given(
    st.integers(0, 10 * NS_PER_S),
    st.lists(st.integers(0, 3 * TICK_NS), max_size=20),
    st.integers(0, TICK_NS),
)
def test_a_silent_rank_is_suspected_after_the_timeout_and_within_two_ticks_of_it(
    start_ns: int, before_ns: list[int], offset_ns: int
) -> None:
    watching, now_ns = detector(), start_ns
    for gap_ns in before_ns:
        now_ns += gap_ns
        watching.tick(now_ns)
    watching.tick(now_ns)
    silent_since_ns = now_ns + offset_ns
    watching.heard(0, silent_since_ns)
    found_ns = suspected_after(watching, now_ns + TICK_NS, TICK_NS, silent_since_ns + 2 * TIMEOUT_NS)
    assert found_ns is not None
    assert silent_since_ns + TIMEOUT_NS < found_ns <= silent_since_ns + TIMEOUT_NS + 2 * TICK_NS


def test_ten_seconds_of_sleep_count_as_three_ticks() -> None:
    watching = detector()
    watching.tick(0)
    watching.heard(0, 0)
    assert watching.tick(10 * NS_PER_S) == []
    assert watching.silence_ns(0) == 3 * TICK_NS


def test_all_silent_ranks_are_told_in_order_until_they_are_forgotten() -> None:
    watching = detector()
    for rank in (5, 2, 9):
        watching.heard(rank, 0)
    now_ns = 0
    while now_ns < 2 * TIMEOUT_NS:
        now_ns += TICK_NS
        watching.heard(9, now_ns)
        told = watching.tick(now_ns)
    assert told == [2, 5]
    watching.forget(2)
    assert watching.tick(now_ns) == [5]
    assert watching.silence_ns(2) == 0
    watching.heard(5, now_ns)
    assert watching.tick(now_ns + TICK_NS) == []


def test_a_rank_that_comes_back_begins_with_no_silence() -> None:
    watching = detector()
    watching.heard(0, 0)
    for now_ns in range(0, 2 * TIMEOUT_NS, TICK_NS):
        watching.tick(now_ns)
    watching.forget(0)
    watching.heard(0, now_ns)
    assert watching.silence_ns(0) == 0 and watching.tick(now_ns + TICK_NS) == []


def test_ranks_that_nobody_watches_are_forgotten_without_complaint() -> None:
    watching = detector()
    watching.forget(3)
    assert watching.tick(0) == [] and watching.tick(10 * NS_PER_S) == []


def test_a_clock_that_steps_back_adds_no_silence() -> None:
    watching = detector()
    watching.heard(0, 0)
    watching.tick(NS_PER_S)
    watching.tick(0)
    assert watching.silence_ns(0) == 0


@pytest.mark.parametrize(("timeout_ns", "tick_ns", "field"), [(NS_PER_S, 0, "tick_ns"), (100, 50, "timeout_ns")])
def test_a_timeout_of_a_few_ticks_is_refused(timeout_ns: int, tick_ns: int, field: str) -> None:
    with pytest.raises(EplbInputError) as refused:
        FailureDetector(timeout_ns, tick_ns)
    assert refused.value.field == field
