"""The metrics of a run: throughputs, goodput, true peaks."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from making import answered, at, end, facts, failed

from windtunnel.errors import HttpStatus
from windtunnel.measure.columns import Columns
from windtunnel.measure.rates import RATES, good, peak_concurrency, peak_tokens_per_s, rates
from windtunnel.measure.record import Record

BROKEN = HttpStatus(503, "Service Unavailable", "")


def columns(records: Sequence[Record], ms: float = 1000.0) -> Columns:
    return Columns.of(records, facts(), end(ms))


def test_throughputs_count_completed_requests_and_their_tokens() -> None:
    records = [answered(0), answered(1, prompt_tokens=14), failed(2, BROKEN)]
    assert rates(columns(records, 2000.0), {}) == {
        "request_throughput": 1.0,
        "input_throughput": 12.0,
        "output_throughput": 3.0,
        "total_token_throughput": 15.0,
        "max_output_tokens_per_s": 6.0,
        "max_concurrent_requests": 3,
    }


def test_a_run_without_length_has_no_throughput() -> None:
    assert "request_throughput" not in rates(columns([], 0.0), {})


def test_goodput_wants_every_bound_kept_by_a_completed_request() -> None:
    records = [
        answered(0, ttft=40.0, gaps=(5.0,)),
        answered(1, ttft=60.0, gaps=(5.0,)),
        answered(2, ttft=40.0, gaps=(50.0,)),
        failed(3, BROKEN),
    ]
    assert good(columns(records), {"ttft": 40.0, "tpot": 10.0}).tolist() == [True, False, False, False]
    assert rates(columns(records, 2000.0), {"ttft": 40.0, "tpot": 10.0})["request_goodput"] == 0.5


def test_the_pace_of_a_one_token_answer_keeps_any_bound() -> None:
    assert good(columns([answered(gaps=())]), {"tpot": 0.001}).tolist() == [True]


def test_a_request_without_the_datum_is_not_good() -> None:
    assert good(columns([answered(gaps=(0.0, 0.0))]), {"ttft": 1e9}).tolist() == [False]


def test_goodput_takes_metrics_from_the_schedule() -> None:
    late = answered(0, sent=500.0, scheduled_ns=at(0.0))
    run = Columns.of([late, answered(1)], facts(request_rate=5.0), end())
    assert good(run, {"ttft_scheduled": 100.0}).tolist() == [False, True]


def test_a_request_that_ends_as_another_is_sent_makes_room_for_it() -> None:
    back_to_back = [answered(i, sent=60.0 * i, ttft=50.0, gaps=(10.0,)) for i in range(5)]
    assert peak_concurrency(columns(back_to_back)) == 1


def test_peak_concurrency_counts_failed_requests_and_not_those_never_sent() -> None:
    records = [answered(0), failed(1, BROKEN), failed(2, BROKEN, sent=None)]
    assert peak_concurrency(columns(records)) == 2


@given(st.lists(st.floats(1.0, 500.0), min_size=1, max_size=60), st.integers(1, 5))
def test_peak_concurrency_never_exceeds_the_slots_of_a_closed_loop(lengths: list[float], slots: int) -> None:
    free_at = [0.0] * slots
    records = []
    for i, length in enumerate(lengths):
        slot = free_at.index(min(free_at))
        sent = free_at[slot]
        records.append(answered(i, sent=sent, ttft=length, gaps=()))
        free_at[slot] = (records[-1].done_ns - at(0.0)) / 1e6
    assert peak_concurrency(columns(records)) == min(slots, len(lengths))


def test_peak_tokens_are_found_in_any_second_by_each_chunks_tokens() -> None:
    # 2 tokens at 900 ms and 7 at 1,850 ms lie within one second, though on both sides of a full one
    record = answered(sent=0.0, ttft=900.0, gaps=(950.0,), chunk_tokens=[2, 7], output_tokens=9)
    far = answered(1, sent=2000.0, ttft=1000.0, gaps=())
    assert peak_tokens_per_s(columns([record, far], 4000.0)) == 9.0


def test_a_second_does_not_hold_both_its_ends() -> None:
    record = answered(ttft=100.0, gaps=(1000.0,))
    assert peak_tokens_per_s(columns([record], 2000.0)) == 1.0


def test_the_peak_of_a_run_shorter_than_a_second_is_not_below_its_mean() -> None:
    run = columns([answered(gaps=(10.0,) * 9)], 250.0)
    assert peak_tokens_per_s(run) == rates(run, {})["output_throughput"] == 40.0


def test_all_tokens_of_an_answer_in_one_piece_come_at_once() -> None:
    lump = answered(ttft=100.0, gaps=(0.0,), output_tokens=8)
    whole = answered(1, streamed=False, ttft=100.0, gaps=(), output_tokens=5)
    assert peak_tokens_per_s(columns([lump, whole])) == 13.0


@pytest.mark.parametrize("key", RATES)
def test_every_rate_is_documented(key: str) -> None:
    row = RATES[key]
    assert row.key == key and row.doc.endswith(".") and row.formula and row.label and row.unit
