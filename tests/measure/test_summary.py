"""A summary says how requests ended and why, whether the run is valid, and what else to know."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from making import MS, answered, at, end, facts, failed

from windtunnel.errors import (
    BackendError,
    Cancelled,
    ConnectFailed,
    HttpStatus,
    MalformedResponse,
    TimedOut,
    Truncated,
)
from windtunnel.measure.record import FAILED_ENDINGS, Fault, Record
from windtunnel.measure.run import RunEnd, RunFacts
from windtunnel.measure.summary import Summary, exit_code, summarize


def summary(records: Sequence[Record], run: RunFacts | None = None, run_end: RunEnd | None = None) -> Summary:
    return summarize(records, run or facts(), run_end or end())


def first_token_timeout(waited_s: float) -> TimedOut:
    return TimedOut("first_token", waited_s, "a first token", 0, "--first-token-timeout-s")


def checks(found: Summary) -> list[str]:
    return [reason.check for reason in found.invalid]


def note(found: Summary, key: str) -> str | None:
    return next((n.text for n in found.notes if n.key == key), None)


# --- endings and causes -----------------------------------------------------------------------------------------


def test_endings_are_counted_and_those_that_did_not_occur_left_out() -> None:
    records = [
        answered(0),
        answered(1, gaps=(0.0, 0.0)),
        answered(2, output_tokens=2),
        answered(3, output_tokens=0),
        failed(4, Truncated(3, "[DONE]")),
        failed(5, Cancelled("SIGINT", 0)),
    ]
    found = summary(records, facts(ignore_eos=True))
    assert found.endings == {
        "ok": 1,
        "short": 1,
        "zero_tokens": 1,
        "not_streamed": 1,
        "truncated": 1,
        "cancelled": 1,
    }
    assert (found.completed, found.failed, found.cancelled) == (4, 2, 1)


def test_a_failure_of_a_newer_version_is_still_counted_and_told() -> None:
    record = answered(0, failure=Fault("WT-FROM-THE-FUTURE", {"moon": 3}))
    found = summary([record])
    assert found.endings == {"malformed": 1}
    assert "WT-FROM-THE-FUTURE" in found.failures[0].example and "moon" in found.failures[0].example


def test_failures_are_grouped_by_cause_whatever_numbers_differ_the_most_frequent_first() -> None:
    too_long = "maximum context length is 2048 tokens, you asked for {}"
    records = [
        *(failed(i, first_token_timeout(10.0 + i)) for i in range(3)),
        *(failed(10 + i, HttpStatus(400, "Bad Request", too_long.format(3000 + i))) for i in range(5)),
        failed(20, HttpStatus(400, "Bad Request", "no such model")),
        failed(21, HttpStatus(429, "Too Many Requests", "no such model")),
        failed(22, TimedOut("stall", 10.0, "another token", 3, "--stall-timeout-s")),
    ]
    found = summary(records)
    assert [(c.code, c.count) for c in found.failures[:2]] == [("WT-HTTP-STATUS", 5), ("WT-HTTP-TIMEOUT", 3)]
    assert sorted(c.count for c in found.failures[2:]) == [1, 1, 1]
    assert found.failures[0].ratio == 5 / 11
    assert found.failures[0].example_request_id == "bench-10" and "3000" in found.failures[0].example


def test_the_example_of_a_cause_is_one_that_has_a_transcript() -> None:
    records = [failed(0, Truncated(3, "[DONE]")), failed(1, Truncated(9, "[DONE]"), transcript="data: [DONE]")]
    (cause,) = summary(records).failures
    assert (cause.example_request_id, cause.transcript) == ("bench-1", "data: [DONE]")
    assert "9 tokens" in cause.example and cause.way_out


def test_a_server_that_quotes_each_prompt_does_not_make_a_cause_of_each() -> None:
    words = [a + b for a in "abcdefghij" for b in "klmnopqrst"]
    found = summary([failed(i, HttpStatus(400, "Bad Request", f"can't take {w}")) for i, w in enumerate(words)])
    assert [c.count for c in found.failures] == [100]


def test_warnings_are_grouped_too_and_count_once_a_request() -> None:
    stray = [Fault.of(MalformedResponse("sse", f"event {i}", i, "a stray line", "b'x'")) for i in range(4)]
    found = summary([answered(0, warnings=stray[:2]), answered(1, warnings=stray[2:]), answered(2)])
    (cause,) = found.warnings
    assert (cause.count, cause.state, found.failed) == (2, "warning", 0)


@pytest.mark.parametrize(
    "error", [ConnectFailed("127.0.0.1:1", "refused", "Connection refused"), BackendError("out of memory", 2)]
)
def test_each_cause_has_the_state_of_its_failure(error: Any) -> None:
    (cause,) = summary([failed(0, error)]).failures
    assert cause.state == error.state in FAILED_ENDINGS


# --- validity ---------------------------------------------------------------------------------------------------


def test_a_good_run_is_valid() -> None:
    found = summary([answered(i) for i in range(3)], facts(request_rate=5.0, ignore_eos=True))
    assert (found.invalid, exit_code(found)) == ([], 0)


def test_no_completed_request_fails_the_run() -> None:
    assert exit_code(summary([failed(0, Truncated(0, "[DONE]"))])) == 1
    assert exit_code(summary([])) == 1


def test_more_failures_than_allowed_make_the_run_invalid() -> None:
    records = [
        *(answered(i) for i in range(8)),
        failed(8, first_token_timeout(1.0)),
        failed(9, first_token_timeout(1.0)),
    ]
    assert checks(summary(records, facts(max_failed_ratio=0.2))) == []
    found = summary(records, facts(max_failed_ratio=0.19))
    assert checks(found) == ["failed_ratio"] and exit_code(found) == 3
    assert (found.invalid[0].value, found.invalid[0].bound) == (0.2, 0.19)
    assert "--max-failed-ratio" in found.invalid[0].way_out


def test_requests_cancelled_by_an_interrupt_are_no_failures_of_the_server() -> None:
    records = [answered(0), *(failed(i, Cancelled("SIGINT", 1)) for i in range(1, 9))]
    found = summary(records, None, end(reason="SIGINT", num_without_result=4))
    assert found.invalid == []
    assert (
        note(found, "interrupted") == "The run is not complete (ended by SIGINT): 8 requests cancelled, 4 never sent."
    )


def test_any_short_answer_under_ignore_eos_makes_the_run_invalid() -> None:
    records = [answered(0), answered(1, output_tokens=2, finish_reason="stop")]
    found = summary(records, facts(ignore_eos=True))
    assert checks(found) == ["short"]
    assert "2 tokens of 3" in found.invalid[0].found and "stop × 1" in found.invalid[0].found
    without = summary(records)
    assert without.invalid == [] and note(without, "ended_early") is not None


def test_sending_late_makes_a_run_with_a_schedule_invalid() -> None:
    def late(ms: float, ttft: float) -> Summary:
        records = [answered(i, sent=ms, ready_ns=at(0.0), ttft=ttft) for i in range(10)]
        return summary(records, facts(request_rate=5.0))

    assert checks(late(5.0, 50.0)) == []
    assert checks(late(5.1, 50.0)) == ["send_lateness"]
    # 5 % of a median TTFT of 200 ms is 10 ms
    assert checks(late(9.9, 200.0)) == []
    assert checks(late(10.1, 200.0)) == ["send_lateness"]
    assert "--workers" in late(10.1, 200.0).invalid[0].way_out


def test_the_turnaround_of_a_closed_loop_is_told_and_not_judged() -> None:
    records = [answered(i, sent=90.0, ready_ns=at(0.0)) for i in range(3)]
    found = summary(records, facts(max_concurrency=2))
    assert found.invalid == []
    assert "90 ms" in (note(found, "turnaround") or "")
    assert found.instrument.closed_loop


def test_chunks_that_a_late_client_read_together_make_a_run_invalid() -> None:
    def lumped(lag_ms: float, lumps: int) -> Summary:
        lump = {"gaps": (0.0, 20.0), "reads": 2, "read_lag_ns": round(lag_ms * MS)}
        records = [answered(i, **(lump if i < lumps else {})) for i in range(10)]  # 30 chunks in all
        return summary(records, facts(max_concurrency=2))

    assert checks(lumped(72.0, 8)) == ["read_together"]
    assert checks(lumped(72.0, 7)) == []  # a quarter is borne
    assert checks(lumped(4.9, 10)) == []  # the server sent them together
    assert lumped(72.0, 8).instrument.num_chunks_merged_by_client == 8


# --- what else to know ------------------------------------------------------------------------------------------


def test_prompt_lengths_are_compared_with_the_servers_usage() -> None:
    records = [answered(0, prompt_tokens=23), answered(1, prompt_tokens=23), answered(2, prompt_tokens=None)]
    found = summary(records)
    assert found.prompt_mismatch is not None
    assert msgspec.structs.asdict(found.prompt_mismatch) == {
        "compared": 2,
        "mismatched": 2,
        "asked_tokens": 20,
        "counted_tokens": 46,
        "min_difference": 13,
        "max_difference": 13,
    }
    assert "+13 tokens each" in (note(found, "prompt_tokens") or "")
    assert found.total_input_tokens == 23 + 23 + 10


def test_prompts_that_the_server_counts_as_asked_need_no_note() -> None:
    assert note(summary([answered(0)]), "prompt_tokens") is None


def test_where_output_tokens_come_from_is_counted_and_told_when_it_is_not_usage() -> None:
    found = summary([answered(0), answered(1, output_tokens_from="tokenizer")])
    assert found.output_tokens_from == {"usage": 1, "tokenizer": 1}
    assert "1 of 2 requests" in (note(found, "output_tokens_tokenizer") or "")


def test_the_wait_for_a_slot_is_told() -> None:
    records = [answered(0), answered(1, sent=500.0, scheduled_ns=at(0.0), ready_ns=at(500.0))]
    found = summary(records, facts(request_rate=5.0, max_concurrency=1))
    assert "1 of 2 requests waited" in (note(found, "queue_wait") or "")
    assert found.metrics["client_queue_time"].mean == 250.0


def test_retries_redirects_and_keep_alives_are_told() -> None:
    found = summary(
        [answered(0, attempts=3, retry_wait_ns=1500 * MS), answered(1, redirects=1), answered(2, keep_alives=4)]
    )
    assert "1.5 s" in (note(found, "retries") or "")
    assert note(found, "redirects") is not None
    assert "4 in all" in (note(found, "keep_alives") or "")


def test_the_instruments_own_errors_are_data() -> None:
    records = [answered(i, sent=2.0, ready_ns=at(0.0), read_lag_ns=3 * MS) for i in range(3)]
    records.append(answered(3, sent=2.0, ready_ns=at(0.0), stamped_by="client", read_lag_ns=0))
    client = summary(records, facts(request_rate=5.0)).instrument
    assert (client.stamped_by_kernel, client.stamped_by_client) == (3, 1)
    assert client.read_lag_ms is not None and client.read_lag_ms.p50 == client.read_lag_ms.max == 3.0
    assert client.send_lateness_ms is not None and client.send_lateness_ms.p99 == 2.0


def test_chunks_that_shared_a_read_are_counted() -> None:
    found = summary(
        [answered(0, gaps=(10.0,) * 9, reads=4), answered(1, gaps=(10.0,) * 4, reads=7), answered(2, gaps=())]
    )
    assert (found.instrument.num_chunks, found.instrument.num_chunks_merged) == (15, 6)


def test_an_answer_in_one_piece_is_put_down_to_the_client_where_it_looked_late() -> None:
    lump = answered(gaps=(0.0, 0.0), reads=1)
    assert "client" not in (note(summary([lump]), "not_streamed") or "client")
    late = answered(gaps=(0.0, 0.0), reads=1, read_lag_ns=72 * MS)
    assert "For 1 of them the client looked up to 72 ms late" in (note(summary([lump, late]), "not_streamed") or "")


def test_a_summary_can_be_written_as_json() -> None:
    found = summary([answered(0), failed(1, first_token_timeout(2.0))])
    assert msgspec.json.decode(msgspec.json.encode(found), type=Summary) == found
