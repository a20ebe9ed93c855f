"""The result document: vLLM's schema, key for key and in its order, and what we add beside it.

Its per-request arrays keep vLLM's conventions (0.0, "" and [] for a request that failed); in keys of ours what is
absent is null. Aggregates of our metrics stand beside vLLM's and are named like them; all else of ours is under the
key `windtunnel`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
import numpy as np

from windtunnel.measure.causes import words
from windtunnel.measure.columns import Columns, Floats
from windtunnel.measure.metrics import METRICS, queue_wait_ms
from windtunnel.measure.record import Record
from windtunnel.measure.run import RampUp, RunEnd, RunFacts
from windtunnel.measure.summary import Summary
from windtunnel.report.instrument import instrument_statement
from windtunnel.units import NS_PER_S
from windtunnel.workload.arrivals import ramp_rates, rps_change_events

SCHEMA_VERSION = 1

_DETAILED = ("input_lens", "output_lens", "ttfts", "itls", "start_times", "generated_texts", "errors")
"""vLLM's keys that only --save-detailed keeps."""


def result_document(
    summary: Summary, facts: RunFacts, end: RunEnd, records: Sequence[Record], *, detailed: bool
) -> dict[str, Any]:
    """The document of a run; `detailed` keeps the arrays of all requests."""
    records = sorted(records, key=lambda r: r.index)
    columns = Columns.of(records, facts, end)
    document = _head(facts) | _figures(summary, facts, end, records, columns)
    if facts.ramp_up is not None:
        document["rps_change_events"] = rate_changes(facts, facts.ramp_up, end, records)
    document |= _aggregates(summary, facts)
    document |= _as_vllm_rs(summary, facts)
    if not detailed:
        for key in _DETAILED:
            del document[key]
    document["windtunnel"] = _ours(summary, facts, end)
    if detailed:
        document["windtunnel"]["requests"] = request_columns(records, columns)
    return document


def _head(facts: RunFacts) -> dict[str, Any]:
    head: dict[str, Any] = {
        "date": facts.date,
        "endpoint_type": facts.backend,
        "backend": facts.backend,
        "label": facts.label,
        "model_id": facts.model_id,
        "tokenizer_id": facts.tokenizer_id,
        "num_prompts": facts.num_prompts,
    }
    head |= facts.metadata
    head["request_rate"] = "inf" if facts.request_rate is None else facts.request_rate
    head["burstiness"] = "inf" if facts.burstiness is None else facts.burstiness
    head["max_concurrency"] = facts.max_concurrency
    if facts.ramp_up is not None:
        head["ramp_up_strategy"] = facts.ramp_up.strategy
        head["ramp_up_start_rps"] = _whole(facts.ramp_up.start_rps)
        head["ramp_up_end_rps"] = _whole(facts.ramp_up.end_rps)
    return head


def _figures(
    summary: Summary, facts: RunFacts, end: RunEnd, records: Sequence[Record], columns: Columns
) -> dict[str, Any]:
    completed = columns.completed.tolist()
    rates = summary.rates
    return {
        "duration": end.duration_s,
        "completed": summary.completed,
        "failed": summary.failed,
        "total_input_tokens": summary.total_input_tokens,
        "total_output_tokens": summary.total_output_tokens,
        "request_throughput": rates.get("request_throughput", 0.0),
        "request_goodput": rates.get("request_goodput"),
        "output_throughput": rates.get("output_throughput", 0.0),
        "total_token_throughput": rates.get("total_token_throughput", 0.0),
        "input_lens": columns.prompt_tokens.tolist(),
        "output_lens": np.where(columns.completed, columns.output_tokens, 0).tolist(),
        "ttfts": _seconds(METRICS["ttft"].samples(columns)),
        "itls": [[gap / NS_PER_S for gap in r.gaps_ns] if c else [] for r, c in zip(records, completed, strict=True)],
        "latencies": _seconds(METRICS["e2el"].samples(columns)),
        "start_times": [(r.sent_ns or 0) / NS_PER_S for r in records],
        "queue_times": _seconds(queue_wait_ms(columns)),
        "generated_texts": [r.text if c else "" for r, c in zip(records, completed, strict=True)],
        "errors": ["" if r.failure is None else words(r.failure)[0] for r in records],
        "max_output_tokens_per_s": rates["max_output_tokens_per_s"],
        "max_concurrent_requests": int(rates["max_concurrent_requests"]),
        "rtfx": 0.0,
    }


def _aggregates(summary: Summary, facts: RunFacts) -> dict[str, float]:
    """Mean, median, std and percentiles of every metric that has data; those that were asked for come first."""
    asked = [key for key in summary.metrics if key in facts.percentile_metrics]
    out: dict[str, float] = {}
    for key in (*asked, *(k for k in summary.metrics if k not in asked)):
        found, unit = summary.metrics[key], METRICS[key].unit
        out[f"mean_{key}_{unit}"] = found.mean
        out[f"median_{key}_{unit}"] = found.median
        out[f"std_{key}_{unit}"] = found.std
        out |= {f"{word}_{key}_{unit}": value for word, value in found.percentiles.items()}
    return out


def _as_vllm_rs(summary: Summary, facts: RunFacts) -> dict[str, Any]:
    """Keys that only vLLM's Rust client writes."""
    return {"max_model_len": facts.max_model_len, "input_throughput": summary.rates.get("input_throughput", 0.0)}


def rate_changes(facts: RunFacts, ramp_up: RampUp, end: RunEnd, records: Sequence[Record]) -> list[dict[str, Any]]:
    """When a ramp-up reached each whole rate; those that an interrupted run didn't come to are left out."""
    if not records:
        return []
    due_ns = np.full(max(facts.num_prompts, records[-1].index + 1), 0, dtype=np.int64)
    due_ns[[r.index for r in records]] = [r.scheduled_ns - end.start_ns for r in records]
    last_rate = ramp_rates(len(due_ns), ramp_up)[records[-1].index]
    reached = max(ramp_up.start_rps, last_rate + 1e-9)
    events = rps_change_events(due_ns, ramp_up, _start_realtime_ns(facts, end))
    return [event for event in events if event["rps"] <= reached]


def _start_realtime_ns(facts: RunFacts, end: RunEnd) -> int:
    """The run's start on CLOCK_REALTIME; without a paired clock reading, to the second of its date."""
    if facts.clock_monotonic_ns is None or facts.clock_realtime_ns is None:
        return round(datetime.strptime(facts.date, "%Y%m%d-%H%M%S").timestamp()) * NS_PER_S
    return facts.clock_realtime_ns + end.start_ns - facts.clock_monotonic_ns


def _ours(summary: Summary, facts: RunFacts, end: RunEnd) -> dict[str, Any]:
    told = msgspec.to_builtins(summary)
    return {
        "schema_version": SCHEMA_VERSION,
        "run": msgspec.to_builtins(facts),
        "end": msgspec.to_builtins(end),
        "valid": bool(summary.completed) and not summary.invalid,
        "invalid": told["invalid"],
        "endings": told["endings"],
        "failures": told["failures"],
        "warnings": told["warnings"],
        "notes": told["notes"],
        "instrument": told["instrument"] | {"statement": instrument_statement(summary.instrument)},
        "prompt_mismatch": told["prompt_mismatch"],
        "output_tokens_from": told["output_tokens_from"],
        "sample_counts": {key: found.count for key, found in summary.metrics.items()},
    }


def request_columns(records: Sequence[Record], columns: Columns) -> dict[str, list[Any]]:
    """What our records know beyond vLLM's arrays, in the same order; instants are CLOCK_MONOTONIC ns."""
    names = (
        "index", "request_id", "worker", "model",
        "scheduled_ns", "ready_ns", "sent_ns", "connected_ns", "first_byte_ns",
        "first_token_ns", "first_output_ns", "last_token_ns", "done_ns",
        "chunk_tokens", "prompt_tokens_asked", "prompt_tokens", "output_tokens_asked", "output_tokens",
        "output_tokens_from", "reasoning_chunks", "finish_reason",
        "attempts", "retry_wait_ns", "reconnects", "redirects", "reads", "read_lag_ns", "stamped_by", "keep_alives",
    )  # fmt: skip
    out: dict[str, list[Any]] = {"ending": columns.endings}
    out["code"] = [None if r.failure is None else r.failure.code for r in records]
    return out | {name: [getattr(r, name) for r in records] for name in names}


def _seconds(milliseconds: Floats) -> list[float]:
    """vLLM's array: seconds, 0.0 for a request that has no such datum."""
    values: list[float] = (np.nan_to_num(milliseconds, nan=0.0) / 1e3).tolist()
    return values


def _whole(number: float) -> float:
    return int(number) if number == int(number) else number
