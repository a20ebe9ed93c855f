"""SIGKILL at many moments of a run: no finished request is lost, and each journal can be reported."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from tests.bench.command import Running, finished_requests, journal_records, run, stats, wait_until
from tests.loadgen.driving import paced

pytestmark = pytest.mark.long
SLOTS = 16


@pytest.mark.parametrize("finished", [1, 5, 20, 50, 90, 150, 250, 400, 600, 900])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_kill_at_any_moment_loses_no_finished_request(tmp_path: Path, finished: int, workers: int) -> None:
    load = ("--num-prompts", 5000, "--max-concurrency", SLOTS, "--random-input-len", 16, "--random-output-len", 8)
    with paced("ttft=10ms,itl=2ms") as url:
        target = ("--base-url", url, "--model", "paced", "--tokenizer", "windtunnel-words", "--workers", workers)
        with Running(tmp_path, "bench", "serve", *target, *load) as client:
            wait_until(lambda: finished_requests(tmp_path) >= finished, f"{finished} requests are in the journal")
            client.signal(signal.SIGKILL)
            client.finish()
        completed = stats(url)["completed"]
    kept = journal_records(tmp_path / "state")
    assert len(kept) >= completed - SLOTS  # what the client had not yet read when it was killed: one a slot
    recovered = run(tmp_path, "runs", "recover")
    assert re.search(rf"Successful requests: +{len(kept)}\b", recovered.stdout), recovered.stderr
