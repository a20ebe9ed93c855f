"""A run of vLLM's own client, as records: what it saved and printed is what our reports must say of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from windtunnel.measure.record import Record
from windtunnel.measure.run import RunEnd, RunFacts

FOLDER = Path(__file__).parent / "golden"


def vllm_document() -> dict[str, Any]:
    return json.loads((FOLDER / "vllm.json").read_text())


def vllm_block() -> list[str]:
    return (FOLDER / "vllm.txt").read_text().splitlines()


def records() -> list[Record]:
    decoder = msgspec.json.Decoder(Record)
    return decoder.decode_lines((FOLDER / "records.jsonl").read_bytes())


def facts() -> RunFacts:
    theirs = vllm_document()
    return RunFacts(
        run_id="golden",
        date=theirs["date"],
        version="0",
        target="http://127.0.0.1:8001/v1/completions",
        backend="openai",
        model_id=theirs["model_id"],
        tokenizer_id=theirs["tokenizer_id"],
        num_prompts=theirs["num_prompts"],
        metadata={"board": "lab", "seat": "3"},
        request_rate=theirs["request_rate"],
        max_concurrency=theirs["max_concurrency"],
        goodput_ms={"ttft": 20.0, "tpot": 4.0, "e2el": 80.0},
        percentile_metrics=["ttft", "tpot", "itl", "e2el", "client_queue_time", "e2el_including_client_queue"],
        metric_percentiles=[50.0, 90.0, 99.9],
    )


def end() -> RunEnd:
    start_ns = records()[0].scheduled_ns
    return RunEnd(start_ns=start_ns, end_ns=start_ns + round(vllm_document()["duration"] * 1e9))
