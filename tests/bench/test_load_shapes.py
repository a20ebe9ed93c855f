"""How the load is spread over time and processes, end to end."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.bench.command import (
    LENGTHS,
    TARGET,
    WORDS,
    Running,
    assert_ran,
    children_of,
    journal_records,
    run,
    serve,
    wait_until,
)
from tests.engine.serving import fronted, paced

MS = 1_000_000


def in_order(records: Sequence[dict[str, Any]], key: str) -> list[int]:
    return [record[key] for record in sorted(records, key=lambda record: record["index"])]


def most_in_flight(records: Sequence[dict[str, Any]]) -> int:
    events = [(record["sent_ns"], 1) for record in records] + [(record["done_ns"], -1) for record in records]
    most = now = 0
    for _, change in sorted(events):
        now += change
        most = max(most, now)
    return most


@pytest.mark.parametrize("strategy", ["linear", "exponential"])
def test_a_ramp_begins_slowly_and_ends_fast(tmp_path: Path, strategy: str) -> None:
    with paced(TARGET) as url:
        done, result = serve(
            tmp_path, "--base-url", url, *WORDS, *LENGTHS, "--num-prompts", 60, "--burstiness", "inf",
            "--ramp-up-strategy", strategy, "--ramp-up-start-rps", 20, "--ramp-up-end-rps", 200,
        )  # fmt: skip
    assert_ran(done)
    ramp = [result[f"ramp_up_{key}"] for key in ("strategy", "start_rps", "end_rps")]
    assert ramp == [strategy, 20, 200]
    events = result["rps_change_events"]
    assert [event["rps"] for event in events] == list(range(20, 201))
    instants = [datetime.fromisoformat(event["timestamp"]) for event in events]
    assert instants == sorted(instants)
    records = journal_records(tmp_path)
    due, sent = in_order(records, "scheduled_ns"), in_order(records, "sent_ns")
    assert sent == sorted(sent)
    assert all(at >= when for at, when in zip(sent, due, strict=True))
    for instants_ns in (due, sent):
        assert instants_ns[19] - instants_ns[0] > instants_ns[59] - instants_ns[40]
    # half-way an exponential ramp has reached 63 requests/s, a linear one 110
    first, second = due[30] - due[0], due[59] - due[30]
    assert (first > 3 * second) == (strategy == "exponential")


def test_three_workers_share_a_cap_and_send_each_request_once(tmp_path: Path) -> None:
    """Nothing is answered before five requests are in flight, so the cap is reached; then none may be above it."""
    with (
        fronted(TARGET, holds=True) as front,
        Running(
            tmp_path, "bench", "serve", "--base-url", front.url, *WORDS, *LENGTHS, "--num-prompts", 60,
            "--workers", 3, "--max-concurrency", 5,
        ) as client,
    ):  # fmt: skip
        wait_until(lambda: front.num_held == 5, "the cap is reached")
        front.release()
        done = client.finish()
    assert_ran(done)
    records = journal_records(tmp_path)
    assert in_order(records, "index") == list(range(60))
    assert {record.get("worker", 0) for record in records} == {0, 1, 2}
    assert most_in_flight(records) == 5
    prompts = [body["prompt"] for body in front.bodies("/v1/completions")]
    assert (len(prompts), len(set(prompts))) == (60, 60)


def test_the_wait_for_a_slot_is_a_result(tmp_path: Path) -> None:
    """100 requests a second of about 130 ms under a cap of 2: requests wait for most of a second."""
    done, result = serve(
        tmp_path, "--embedded", "paced:ttft=95ms,itl=5ms", *LENGTHS, "--num-prompts", 16, "--request-rate", 100,
        "--burstiness", "inf", "--max-concurrency", 2,
        "--percentile-metrics", "ttft,e2el,client_queue_time,e2el_scheduled",
    )  # fmt: skip
    assert_ran(done)
    assert result["mean_client_queue_time_ms"] > 200
    assert result["mean_e2el_scheduled_ms"] > result["mean_e2el_ms"] + 200


def test_a_client_that_sends_late_says_so_and_the_run_is_invalid(tmp_path: Path) -> None:
    """The only worker is stopped for so long that dozens of requests are due meanwhile."""
    with (
        fronted(TARGET) as front,
        Running(
            tmp_path, "bench", "serve", "--base-url", front.url, *WORDS, *LENGTHS, "--num-prompts", 200,
            "--request-rate", 100, "--burstiness", "inf",
        ) as client,
    ):  # fmt: skip
        wait_until(lambda: len(front.bodies("/v1/completions")) >= 5, "the load has begun")
        (worker,) = children_of(client.process.pid)
        os.kill(worker, signal.SIGSTOP)
        threading.Event().wait(0.3)
        os.kill(worker, signal.SIGCONT)
        done = client.finish()
    assert done.returncode == 3, done.stderr
    told = " ".join(done.stdout.split())
    assert "✗ the client was the bottleneck: p99 of send lateness is" in told
    recovered = run(tmp_path, "runs", "show")
    assert "p99 of send lateness is" in recovered.stdout
    lateness = [record["sent_ns"] - record["scheduled_ns"] for record in journal_records(tmp_path)]
    assert max(lateness) > 200 * MS
