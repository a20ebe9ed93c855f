"""When service was back at its level, decided from requests that were made by rule."""

from __future__ import annotations

import numpy as np
import pytest

from tests.drill.served import serve, stalled, traffic
from tests.measure.making import answered
from windtunnel.drill.recovery import Effect, goodput_lost_ratio, recoveries, seen
from windtunnel.drill.traffic import Traffic

STEP_S = 0.1
"""What an instant may be off by where nothing came at all: two steps of the windows and a few gaps between tokens."""


def recover_s(flow: Traffic, *effects_s: float, level_ratio: float = 0.7, at_once: bool = True) -> list[float | None]:
    _, found = recoveries(flow, [Effect(at_s, acts_at_once=at_once) for at_s in effects_s], level_ratio)
    return [None if each.back_s is None else each.back_s - at_s for each, at_s in zip(found, effects_s, strict=True)]


def test_service_that_never_left_its_level_recovered_at_once() -> None:
    assert recover_s(traffic(serve()), 4.0) == [0.0]


@pytest.mark.parametrize("outage_s", [0.4, 1.0, 2.5])
def test_an_outage_ends_when_tokens_come_again(outage_s: float) -> None:
    (found,) = recover_s(traffic(serve(stalled(4.0, 4.0 + outage_s))), 4.0)
    assert found == pytest.approx(outage_s, abs=STEP_S)


def test_an_outage_that_begins_a_while_after_the_action_counts_from_the_action() -> None:
    (found,) = recover_s(traffic(serve(stalled(5.5, 6.5))), 4.0)
    assert found == pytest.approx(2.5, abs=STEP_S)


def test_after_two_seconds_at_its_level_service_is_back_but_for_what_takes_its_time() -> None:
    flow = traffic(serve(stalled(7.0, 8.0)))
    assert recover_s(flow, 4.0) == [0.0]
    (found,) = recover_s(flow, 4.0, at_once=False)
    assert found == pytest.approx(4.0, abs=STEP_S)


def test_service_that_did_not_come_back_has_no_recovery() -> None:
    assert recover_s(traffic(serve(stalled(4.0, 30.0))), 4.0) == [None]


def test_a_hiccup_long_after_the_action_is_not_the_actions() -> None:
    assert recover_s(traffic(serve(stalled(5.5, 5.75))), 4.0) == [0.0]
    (found,) = recover_s(traffic(serve(stalled(4.0, 4.25))), 4.0)
    assert found == pytest.approx(0.25, abs=STEP_S)


def test_each_action_has_the_outage_that_follows_it() -> None:
    def later(at_s: float) -> float:
        return stalled(7.0, 8.0)(stalled(4.0, 4.5)(at_s))

    first, second = recover_s(traffic(serve(later)), 4.0, 7.0)
    assert first == pytest.approx(0.5, abs=STEP_S) and second == pytest.approx(1.0, abs=STEP_S)


def test_an_outage_that_goes_on_when_the_next_action_comes_counts_for_both() -> None:
    first, second = recover_s(traffic(serve(stalled(4.0, 6.0))), 4.0, 5.0)
    assert first == pytest.approx(2.0, abs=STEP_S) and second == pytest.approx(1.0, abs=STEP_S)


def test_two_actions_at_almost_the_same_instant_have_the_same_outage() -> None:
    first, second = recover_s(traffic(serve(stalled(4.0, 5.0))), 4.0, 4.01)
    assert first == pytest.approx(1.0, abs=STEP_S) and second == pytest.approx(0.99, abs=STEP_S)


def test_a_slowdown_is_over_when_speed_is_back_and_never_where_it_stays() -> None:
    quick = serve(for_s=4.0)
    slow = [record for record in serve(for_s=10.0, gap_s=0.06) if record.index >= 80]
    assert recover_s(traffic(quick + slow), 4.0) == [None]
    later = [record for record in serve(for_s=14.0) if record.index >= 200]
    (found,) = recover_s(traffic(quick + slow + later), 4.0)
    assert found is not None and found == pytest.approx(6.0, abs=0.7)


def test_a_smaller_level_allows_for_a_lasting_slowdown() -> None:
    flow = traffic(serve(for_s=4.0) + [record for record in serve(for_s=10.0, gap_s=0.04) if record.index >= 80])
    assert recover_s(flow, 4.0) == [None]
    assert recover_s(flow, 4.0, level_ratio=0.4) == [0.0]


def test_heavier_load_that_slows_each_request_as_usual_is_no_outage() -> None:
    records = []
    for begin_s, num in ((0.0, 10), (1.5, 20), (3.0, 12), (4.5, 40), (6.0, 15), (7.5, 30)):
        gap_ms = 5.0 + num  # a server that is slower for each the more requests it has
        for lane in range(num):
            gaps = (gap_ms,) * round(1480 / gap_ms)
            records.append(answered(len(records), sent=begin_s * 1e3 + lane * 0.1, ttft=gap_ms, gaps=gaps))
    assert recover_s(traffic(records), 4.5) == [0.0]


def test_failures_that_were_not_there_before_are_an_outage_though_others_are_quick() -> None:
    def storm(sent_s: float) -> bool:
        return 4.0 <= sent_s < 6.0 and round(sent_s / 0.05) % 2 == 0

    (found,) = recover_s(traffic(serve(fails=storm)), 4.0)
    assert found == pytest.approx(2.0, abs=0.3)


def test_a_share_of_failures_that_was_there_before_is_none() -> None:
    assert recover_s(traffic(serve(fails=lambda sent_s: round(sent_s / 0.05) % 4 == 0)), 4.0) == [0.0]


def test_without_any_time_before_the_action_nothing_can_be_said() -> None:
    assert recover_s(traffic(serve()), 0.1) == [None]


def test_without_any_token_nothing_can_be_said() -> None:
    assert recover_s(traffic(serve(fails=lambda sent_s: True)), 4.0) == [None]
    assert recover_s(traffic([]), 4.0) == [None]


def test_windows_are_wide_enough_for_slow_streams() -> None:
    width_s, _ = recoveries(traffic(serve(every_s=0.5, gap_s=0.1, for_s=30)), [Effect(15.0)], 0.7)
    assert 1.0 < width_s <= 5.0
    assert recoveries(traffic(serve()), [Effect(4.0)], 0.7)[0] == 0.5


def test_all_of_the_good_tokens_are_lost_in_an_outage_and_none_without() -> None:
    flow = traffic(serve(stalled(4.0, 6.0)))
    lost = goodput_lost_ratio(flow, (1.0, 4.0), 4.0, 6.0 - 0.001)
    assert lost == pytest.approx(1.0, abs=0.02)
    assert goodput_lost_ratio(flow, (1.0, 4.0), 4.0, 4.0) == 0.0
    assert goodput_lost_ratio(traffic(serve()), (1.0, 4.0), 4.0, 6.0) == pytest.approx(0.0, abs=0.02)


def test_tokens_of_requests_that_miss_an_objective_are_no_good_tokens() -> None:
    late = serve(stalled(4.0, 5.0))
    all_good, with_objective = traffic(late), traffic(late, bounds_ms={"e2el": 500})
    lost = [goodput_lost_ratio(flow, (1.0, 4.0), 4.0, 5.1) for flow in (all_good, with_objective)]
    assert lost[0] == pytest.approx(0.0, abs=0.1) and lost[1] == pytest.approx(0.6, abs=0.15)


def test_the_worst_gap_is_the_longest_time_without_any_token_while_requests_were_in_flight() -> None:
    flow = traffic(serve(stalled(4.0, 5.0)))
    assert flow.worst_gap_s(0.0, 10.0) == pytest.approx(1.0, abs=0.03)
    assert flow.worst_gap_s(4.5, 10.0) == pytest.approx(0.5, abs=0.03)
    assert flow.worst_gap_s(6.0, 10.0) == pytest.approx(0.02, abs=0.02)


def test_time_in_which_nobody_asks_is_no_gap() -> None:
    late = [record for record in serve(for_s=10.0) if record.index >= 160]
    flow = traffic(serve(for_s=2.0) + late)
    worst = flow.worst_gap_s(0.0, 10.0)
    assert worst is not None and worst < 0.1
    assert flow.worst_gap_s(4.0, 6.0) is None


def test_figures_of_a_stretch_are_of_the_requests_that_were_in_flight_in_it() -> None:
    records = serve(fails=lambda sent_s: 4.0 <= sent_s < 4.5)
    records[50].attempts = 3
    changed = [record.index == 52 for record in records]
    flow = traffic(records, changed)
    early, late = seen(flow, 0.0, 4.0, compared=True), seen(flow, 4.0, 11.0, compared=True)
    assert (early.failed, early.retried, early.tokens_changed) == (0, 1, 1)
    assert (late.failed, late.retried, late.tokens_changed) == (10, 0, 0)
    assert seen(flow, 0.0, 11.0, compared=False).tokens_changed is None
    assert early.requests == 80 and late.requests == 200 - 80 + 4


def test_a_phase_tells_what_ended_in_it() -> None:
    phase = traffic(serve()).phase(2.0, 4.0)
    assert phase is not None
    assert phase.requests == 40 and phase.failed == 0
    assert phase.tokens_per_s == pytest.approx(200, rel=0.05)
    assert phase.median_ttft_ms == pytest.approx(20) and phase.p99_itl_ms == pytest.approx(20)
    assert traffic(serve()).phase(4.0, 4.0) is None


def test_the_series_has_every_token_and_every_failure_once() -> None:
    records = serve(fails=lambda sent_s: sent_s == 4.0)
    series = traffic(records).series()
    assert sum(series.tokens_per_s) * series.bin_s == pytest.approx(199 * 10)
    assert sum(series.failed) == 1
    assert np.mean(series.in_flight[40:80]) == pytest.approx(4.0, abs=0.3)
