"""The metrics of requests and tokens have the values that their formulas say."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from making import MS, answered, at, end, facts, failed

from windtunnel.errors import Truncated
from windtunnel.measure.columns import Columns
from windtunnel.measure.metrics import GOODPUT_KEYS, METRICS, aggregate, aggregates, percentile_word
from windtunnel.measure.record import Record
from windtunnel.measure.run import RampUp, RunFacts

OPEN = facts(request_rate=10.0, max_concurrency=2)


def samples(key: str, records: Sequence[Record], run: RunFacts = OPEN) -> list[float]:
    values = METRICS[key].samples(Columns.of(records, run, end()))
    return values[~np.isnan(values)].tolist()


def test_ttft_is_from_sent_to_the_first_token_of_any_kind_and_ttfo_to_the_first_output() -> None:
    thinker = answered(sent=3.0, ttft=50.0, gaps=(200.0, 10.0), first_output_ns=at(253.0), reasoning_chunks=1)
    assert samples("ttft", [thinker]) == [50.0]
    assert samples("ttfo", [thinker]) == [250.0]


def test_tpot_is_over_the_tokens_after_the_first_and_only_where_there_are_some() -> None:
    one_token = answered(1, gaps=())
    assert samples("tpot", [answered(gaps=(10.0, 20.0, 60.0)), one_token]) == [30.0]


def test_itl_counts_a_gap_before_a_chunk_of_k_tokens_as_k_intervals() -> None:
    record = answered(gaps=(10.0, 30.0), chunk_tokens=[1, 1, 3], output_tokens=5)
    assert samples("itl", [record]) == pytest.approx([10.0, 10.0, 10.0, 10.0])
    assert samples("icl", [record]) == [10.0, 30.0]


def test_itl_takes_the_mean_tokens_per_chunk_where_the_server_does_not_tell() -> None:
    record = answered(gaps=(20.0, 40.0), output_tokens=6)
    assert samples("itl", [record]) == pytest.approx([10.0, 10.0, 20.0, 20.0])


def test_itl_carries_on_what_a_fraction_of_a_token_per_chunk_leaves() -> None:
    record = answered(gaps=(15.0,) * 9, output_tokens=15)
    assert samples("itl", [record]) == pytest.approx([10.0] * 13)


def test_the_token_that_ends_an_answer_before_its_length_is_in_no_chunk() -> None:
    stopped = answered(gaps=(10.0, 10.0), output_tokens=4, finish_reason="stop")
    assert samples("itl", [stopped]) == [10.0, 10.0]


def test_itl_is_icl_where_each_chunk_has_one_token() -> None:
    records = [answered(i, gaps=(10.0 + i, 20.0)) for i in range(5)]
    assert samples("itl", records) == samples("icl", records)


def test_chunk_counts_that_do_not_fit_the_chunks_are_not_believed() -> None:
    record = answered(gaps=(10.0, 10.0), chunk_tokens=[5, 5])
    assert samples("itl", [record]) == [10.0, 10.0]


@given(st.lists(st.lists(st.tuples(st.integers(1, 50), st.integers(1, 9)), max_size=8), min_size=1, max_size=8))
def test_itl_of_counted_chunks_has_one_interval_a_token_and_loses_no_time(answers: list[list[tuple[int, int]]]) -> None:
    records = [
        answered(
            i,
            gaps=tuple(float(gap) for gap, _ in chunks),
            chunk_tokens=[1, *(k for _, k in chunks)],
            output_tokens=1 + sum(k for _, k in chunks),
            streamed=True,
        )
        for i, chunks in enumerate(answers)
    ]
    found = samples("itl", records)
    assert len(found) == sum(k for chunks in answers for _, k in chunks)
    assert sum(found) == pytest.approx(sum(gap for chunks in answers for gap, _ in chunks))


def test_a_late_usage_chunk_does_not_stretch_e2el() -> None:
    assert samples("e2el", [answered(ttft=50.0, gaps=(10.0,), done_ns=at(5000.0))]) == [60.0]


def test_an_answer_that_was_not_asked_for_as_a_stream_has_e2el_alone() -> None:
    whole = answered(streamed=False, ttft=80.0, gaps=(), output_tokens=9, done_ns=at(81.0))
    assert samples("e2el", [whole]) == [81.0]
    for key in ("ttft", "ttfo", "tpot", "itl", "icl"):
        assert samples(key, [whole]) == []


def test_an_answer_that_came_in_one_piece_has_no_pace() -> None:
    lump = answered(ttft=80.0, gaps=(0.0, 0.0), done_ns=at(500.0))
    assert samples("e2el", [lump]) == [80.0]
    for key in ("ttft", "ttfo", "tpot", "itl", "icl", "ttft_scheduled"):
        assert samples(key, [lump]) == []


def test_an_answer_without_a_token_and_a_failed_one_have_no_latency() -> None:
    nothing = answered(
        output_tokens=0, first_token_ns=None, first_output_ns=None, last_token_ns=None, gaps_ns=[], finish_reason="stop"
    )
    broken = answered(1, failure=failed(1, Truncated(3, "[DONE]")).failure)
    for key in ("ttft", "ttfo", "tpot", "itl", "icl", "e2el", "ttft_scheduled", "e2el_scheduled"):
        assert samples(key, [nothing, broken]) == []


def test_latencies_from_schedule_hold_the_wait_for_a_slot() -> None:
    waited = answered(sent=200.0, ttft=50.0, gaps=(10.0,), scheduled_ns=at(20.0), ready_ns=at(199.0))
    assert samples("ttft_scheduled", [waited]) == [230.0]
    assert samples("e2el_scheduled", [waited]) == [240.0]
    assert samples("client_queue_time", [waited]) == [179.0]
    assert samples("e2el_including_client_queue", [waited]) == [239.0]
    assert samples("send_lateness", [waited]) == [1.0]


def test_a_ramp_up_is_a_schedule_too() -> None:
    ramp = facts(ramp_up=RampUp("linear", 1.0, 5.0))
    assert samples("ttft_scheduled", [answered(sent=9.0, scheduled_ns=at(0.0), ttft=50.0)], ramp) == [59.0]


def test_a_closed_loop_has_no_latency_from_schedule() -> None:
    closed = facts(max_concurrency=2)
    record = answered(sent=200.0, scheduled_ns=at(0.0), ready_ns=at(199.0))
    for key in ("ttft_scheduled", "e2el_scheduled", "e2el_including_client_queue"):
        assert samples(key, [record], closed) == []
    assert samples("client_queue_time", [record], closed) == [199.0]


def test_the_opening_burst_waited_for_no_slot_and_has_no_lateness() -> None:
    first = answered(sent=3.0, scheduled_ns=at(0.0), ready_ns=None)
    assert samples("client_queue_time", [first], facts(max_concurrency=2)) == [0.0]
    assert samples("send_lateness", [first], facts(max_concurrency=2)) == []


def test_without_a_cap_there_is_no_queue() -> None:
    assert samples("client_queue_time", [answered()], facts(request_rate=10.0)) == []


def test_connect_time_is_of_new_connections_at_the_first_attempt() -> None:
    records = [
        answered(0, connected_ns=at(2.5)),
        answered(1),
        answered(2, connected_ns=at(700.0), attempts=2),
        answered(3, connected_ns=at(700.0), redirects=1),
        answered(4, connected_ns=at(700.0), reconnects=1),
    ]
    assert samples("connect_time", records) == [2.5]


def test_instants_late_in_a_long_uptime_keep_their_nanoseconds() -> None:
    year_ns = 365 * 86400 * 10**9
    run = end()
    late = answered(
        sent_ns=year_ns + 1,
        first_token_ns=year_ns + 2,
        last_token_ns=year_ns + 4,
        ready_ns=year_ns,
        done_ns=year_ns + 4,
    )
    columns = Columns.of([late], OPEN, type(run)(start_ns=year_ns, end_ns=year_ns + 10))
    assert METRICS["ttft"].samples(columns).tolist() == [1e-6]


def test_an_aggregate_is_numpys_mean_median_population_std_and_linear_percentiles() -> None:
    values = np.array([4.0, np.nan, 1.0, 2.0, 9.0])
    found = aggregate(values, [50, 99.9])
    assert found is not None
    present = [4.0, 1.0, 2.0, 9.0]
    assert (found.count, found.mean, found.median, found.std) == (4, 4.0, 3.0, np.std(present))
    assert (found.min, found.max) == (1.0, 9.0)
    assert found.percentiles == {"p50": 3.0, "p99.9": np.percentile(present, 99.9)}


def test_a_metric_without_data_is_left_out() -> None:
    lump = answered(gaps=(0.0, 0.0))
    assert list(aggregates(Columns.of([lump], facts(), end()), [99])) == ["e2el", "send_lateness"]
    assert aggregates(Columns.of([], facts(), end()), [99]) == {}


def test_percentiles_are_written_as_vllm_writes_them() -> None:
    assert [percentile_word(p) for p in (99, 50.0, 99.9)] == ["p99", "p50", "p99.9"]


def test_every_row_is_documented_and_a_row_that_refines_another_names_a_row() -> None:
    for key, row in METRICS.items():
        assert row.key == key
        assert row.doc.endswith(".") and row.formula and row.header and row.label
        assert row.beside is None or row.beside in METRICS
        assert len(row.header) <= 50 and len(f"Median {row.label} (ms):") <= 40
    assert "itl" not in GOODPUT_KEYS and {"ttft", "tpot", "e2el"} <= set(GOODPUT_KEYS)


def test_gaps_of_zero_between_tokens_are_data() -> None:
    record = answered(gaps=(0.0, 30.0))
    assert samples("itl", [record]) == [0.0, 30.0]
    assert record.gaps_ns == [0, 30 * MS]
