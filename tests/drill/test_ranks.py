"""Drills that do every deed of the admin API, on an engine of their own and on one by its address."""

from __future__ import annotations

import json
import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bench.command import finished_requests, wait_until
from tests.drill.drilling import drill, problems, result, started
from windtunnel.engine.process import EmbeddedTarget

LOAD = "load: {num_prompts: 200, request_rate: 40, random_input_len: 24, random_output_len: 24, temperature: 0}"
EMBEDDED = f"title: t\ntarget: {{embedded: {{ranks: 4}}}}\n{LOAD}\n"


@pytest.fixture
def engine() -> Iterator[EmbeddedTarget]:
    with EmbeddedTarget.start("engine:ranks=4,admin") as target:
        yield target


def head(engine: EmbeddedTarget) -> str:
    return f"title: t\ntarget: {{url: '{engine.url}'}}\n{LOAD}\n"


def states(engine: EmbeddedTarget) -> list[str]:
    with urllib.request.urlopen(f"{engine.url}/admin/ranks", timeout=20) as answer:
        return [rank["state"] for rank in json.load(answer)["ranks"]]


def test_ranks_are_slowed_hung_resumed_killed_and_started_again_while_no_token_changes(tmp_path: Path) -> None:
    done = drill(
        tmp_path,
        """
actions:
- after_s: 1
  slow_rank: {rank: 0, delay_s: 10ms}
- after_s: 1.4
  slow_rank: {rank: 0, delay_s: 0}
- after_s: 1.8
  hang_rank: 1
- after_s: 2
  resume_rank: 1
- after_s: 2.4
  kill_rank: 2
- when: live_ranks < 4
  http: {path: /health, method: GET}
- after_s: 3
  restart_rank: 2
- when: vllm:num_requests_running > 0
  http: {path: /health, method: GET}
- after_s: 3.6
  signal: {signal: SIGKILL, rank: 3}
expect: {failed: 0, tokens_changed: 0}
""",
        "--json",
        head=EMBEDDED,
    )
    found = result(done)
    assert done.returncode == 0 and not problems(found), done.stderr
    assert found["tokens_compared"] == 200 and found["ranks"] == [0, 1, 2, 3]
    by_label = {action["label"]: action for action in found["actions"]}
    assert by_label["kill_rank 2"]["detect_s"] is not None
    told = [(event["what"], event["facts"].get("rank")) for event in found["events"] if event["who"] == "coordinator"]
    assert ("lost", 2) in told and ("joined", 2) in told and ("lost", 3) in told


def test_an_engine_by_its_address_is_left_without_faults_and_with_its_ranks_going_on(
    engine: EmbeddedTarget, tmp_path: Path
) -> None:
    actions = """
actions:
- after_s: 500ms
  hang_rank: 1
- after_s: 600ms
  slow_rank: {rank: 0, delay_s: 5ms}
- after_s: 700ms
  fail_at: {rank: 2, transition: serving+prepare, how: slow}
"""
    with started(tmp_path, actions, head=head(engine).replace("200", "4000") + "reference: false\n") as running:
        wait_until(lambda: "fail_at" in running.errors, "the last action was done")
        wait_until(lambda: finished_requests(tmp_path) > 10, "requests were answered")
        assert states(engine)[1] == "stopped"
        running.signal(signal.SIGTERM)
        done = running.finish()
    assert done.returncode == 143, done.stderr
    assert "could not be undone" not in done.stderr
    wait_until(lambda: "stopped" not in states(engine), "the rank goes on")


def test_what_the_engine_refuses_is_told_and_fails_the_drill(tmp_path: Path) -> None:
    refused = "- after_s: 200ms\n  kill_rank: 9\n"
    actions = f"actions:\n{refused}- after_s: 300ms\n  fail_at: {{rank: 1, transition: verified+abort}}\n"
    done = drill(tmp_path, actions, "--json", head=EMBEDDED.replace("200", "40"))
    found = result(done)
    assert done.returncode == 1
    reason, never = problems(found)
    assert "rank" in reason and "HTTP 400" in reason
    assert never == "rank 1 did not come to verified+abort before the load was over"
