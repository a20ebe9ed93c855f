"""The result document is vLLM's for vLLM's own run, with our keys beside."""

from __future__ import annotations

import json
from typing import Any

import golden_run
import pytest
from msgspec import structs

from windtunnel.errors import Cancelled, Truncated
from windtunnel.measure.record import Fault, Record
from windtunnel.measure.run import RampUp, RunEnd, RunFacts
from windtunnel.measure.summary import summarize
from windtunnel.report.result import result_document

FACTS = golden_run.facts()
END = golden_run.end()
RECORDS = golden_run.records()
THEIRS = golden_run.vllm_document()
OWN_TRUTH = {"max_output_tokens_per_s", "max_concurrent_requests"}
"""vLLM counts chunks and requests that touch the same second; we count true peaks."""


def document(
    records: list[Record] = RECORDS, facts: RunFacts = FACTS, end: RunEnd = END, *, detailed: bool = True
) -> dict[str, Any]:
    return result_document(summarize(records, facts, end), facts, end, records, detailed=detailed)


def failing(index: int) -> list[Record]:
    broken = structs.replace(RECORDS[index], failure=Fault.of(Truncated(5, "[DONE]")))
    return [*RECORDS[:index], broken, *RECORDS[index + 1 :]]


def test_vllms_keys_come_first_and_in_vllms_order() -> None:
    assert list(document())[: len(THEIRS)] == list(THEIRS)


@pytest.mark.parametrize("key", [key for key in THEIRS if key not in OWN_TRUTH])
def test_each_number_of_vllms_file_is_ours_too(key: str) -> None:
    ours, theirs = document()[key], THEIRS[key]
    assert type(ours) is type(theirs)
    if key == "itls":
        assert len(ours) == len(theirs)
        for a, b in zip(ours, theirs, strict=True):
            assert a == pytest.approx(b, abs=1e-9)
    elif isinstance(theirs, float) or (isinstance(theirs, list) and isinstance(theirs[0], float)):
        assert ours == pytest.approx(theirs, rel=1e-6, abs=1e-9)
    else:
        assert ours == theirs


def test_the_peaks_are_true() -> None:
    ours = document()
    assert ours["max_concurrent_requests"] <= FACTS.max_concurrency
    assert ours["max_output_tokens_per_s"] >= THEIRS["max_output_tokens_per_s"]
    assert type(ours["max_concurrent_requests"]) is int


def test_without_save_detailed_only_vllms_own_arrays_are_kept() -> None:
    arrays = {key for key, value in document(detailed=False).items() if isinstance(value, list)}
    assert arrays == {"latencies", "queue_times"}
    assert "requests" not in document(detailed=False)["windtunnel"]


def test_a_failed_request_has_vllms_zeros_in_vllms_arrays_and_nulls_in_ours() -> None:
    told = document(failing(2))
    assert told["failed"] == 1
    assert (told["ttfts"][2], told["itls"][2], told["latencies"][2], told["output_lens"][2]) == (0.0, [], 0.0, 0)
    assert (told["generated_texts"][2], told["generated_texts"][1]) == ("", "answer 1")
    assert "without a finish reason" in told["errors"][2] and told["errors"][1] == ""
    assert told["start_times"][2] > 0
    ours = told["windtunnel"]["requests"]
    assert (ours["ending"][2], ours["code"][2], ours["code"][1]) == ("truncated", "WT-HTTP-TRUNCATED", None)
    assert ours["connected_ns"][2] is None


def test_arrays_are_in_the_order_of_the_run() -> None:
    assert document(RECORDS[::-1])["start_times"] == document()["start_times"]


def test_a_request_that_was_never_sent_has_vllms_zeros() -> None:
    unsent = Record(
        index=0,
        request_id="a",
        scheduled_ns=END.start_ns,
        prompt_tokens_asked=5,
        failure=Fault.of(Cancelled("SIGINT", 0)),
    )
    told = document([unsent], end=structs.replace(END, reason="SIGINT"))
    assert told["start_times"] == told["queue_times"] == told["latencies"] == [0.0]
    assert told["completed"] == 0 and told["request_throughput"] == 0.0
    assert not [key for key in told if key.startswith(("mean_", "p99_"))]
    assert told["windtunnel"]["valid"] is False


def test_an_aggregate_without_data_is_left_out() -> None:
    told = document([structs.replace(r, gaps_ns=[0] * 11, last_token_ns=r.first_token_ns) for r in RECORDS])
    assert "mean_ttft_ms" not in told and "mean_e2el_ms" in told


def test_aggregates_of_our_metrics_stand_beside_vllms() -> None:
    told = document()
    assert told["mean_ttfo_ms"] == pytest.approx(told["mean_ttft_ms"])
    assert told["p99.9_ttft_scheduled_ms"] > told["p99.9_ttft_ms"]
    assert told["input_throughput"] == pytest.approx(told["total_input_tokens"] / told["duration"])


def test_a_closed_loop_has_vllms_inf_and_no_goodput() -> None:
    told = document(facts=structs.replace(FACTS, request_rate=None, goodput_ms={}))
    assert (told["request_rate"], told["request_goodput"]) == ("inf", None)


def test_metadata_stands_at_the_top_level_and_cannot_replace_a_figure() -> None:
    told = document(facts=structs.replace(FACTS, metadata={"board": "lab", "duration": "long"}))
    assert told["board"] == "lab" and told["duration"] == pytest.approx(THEIRS["duration"])


def test_a_ramp_up_tells_when_its_rate_rose() -> None:
    start = RECORDS[0].scheduled_ns
    facts = structs.replace(
        FACTS,
        request_rate=None,
        ramp_up=RampUp("linear", 2.0, 6.5),
        num_prompts=4,
        clock_monotonic_ns=start,
        clock_realtime_ns=1_800_000_000_250_000_000,
    )
    records = [structs.replace(r, scheduled_ns=start + i * 10**9) for i, r in enumerate(RECORDS[:4])]
    told = document(records, facts)
    assert (told["request_rate"], told["ramp_up_strategy"]) == ("inf", "linear")
    assert repr((told["ramp_up_start_rps"], told["ramp_up_end_rps"])) == "(2, 6.5)"
    # rates of the four requests: 2, 3.5, 5, 6.5
    assert [e["rps"] for e in told["rps_change_events"]] == [2, 3, 4, 5, 6]
    assert [e["timestamp"][-9:] for e in told["rps_change_events"]] == ["00.250000", "01.250000"] + [
        "02.250000"
    ] * 2 + ["03.250000"]


def test_an_interrupted_ramp_up_tells_only_of_rates_that_it_reached() -> None:
    facts = structs.replace(FACTS, request_rate=None, ramp_up=RampUp("linear", 2.0, 6.5), num_prompts=4)
    assert [e["rps"] for e in document(RECORDS[:3], facts)["rps_change_events"]] == [2, 3, 4, 5]
    falling = structs.replace(facts, ramp_up=RampUp("linear", 6.0, 2.0))
    assert [e["rps"] for e in document(RECORDS[:3], falling)["rps_change_events"]] == [6]


def test_a_ramp_up_without_a_paired_clock_is_dated_from_the_runs_start() -> None:
    facts = structs.replace(FACTS, request_rate=None, date="20260102-030405", ramp_up=RampUp("exponential", 1.0, 1.0))
    assert document(facts=facts)["rps_change_events"] == [{"rps": 1, "timestamp": "2026-01-02T03:04:05"}]


def test_our_own_key_says_what_the_run_was_and_whether_it_is_valid() -> None:
    told = document(failing(0))["windtunnel"]
    assert told["schema_version"] == 1 and told["run"]["run_id"] == "golden"
    assert told["endings"] == {"ok": 15, "truncated": 1}
    assert (told["valid"], told["invalid"][0]["check"]) == (False, "failed_ratio")
    assert told["failures"][0]["code"] == "WT-HTTP-TRUNCATED"
    assert told["instrument"]["statement"].startswith("Instrument: ")
    assert told["sample_counts"]["ttft"] == 15


def test_a_document_is_strict_json() -> None:
    told = document(failing(0))
    assert json.loads(json.dumps(told, allow_nan=False)) == told
