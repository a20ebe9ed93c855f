"""Drills that are interrupted or killed: what they stopped goes on, and what they started ends."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from tests.bench.command import alive, children_of, finished_requests, wait_until
from tests.drill.drilling import started

LONG = """
    title: A long drill of a test
    target: {embedded: "paced:ttft=10ms,itl=5ms"}
    load: {num_prompts: 6000, request_rate: 100, burstiness: inf, random_input_len: 16, random_output_len: 8}
"""
STOPS = """
    actions:
    - after_s: 100ms
      signal: {signal: SIGSTOP, pid_file: pid}
    - after_s: 200ms
      exec: {command: [touch, done], undo: [touch, undone]}
    - after_s: 300ms
      delay: {delay_s: 20ms}
    - after_s: 55
      cut: {}
"""


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_drill_undoes_what_it_did_and_tells_what_it_saw(
    number: signal.Signals, code: int, tmp_path: Path, bystander: subprocess.Popen[bytes]
) -> None:
    with started(tmp_path, STOPS, "--yes", head=LONG) as running:
        wait_until(lambda: (tmp_path / "done").exists(), "the program was run")
        wait_until(lambda: finished_requests(tmp_path) > 100, "requests were answered")
        assert state_of(bystander.pid) == "T"
        running.signal(number)
        done = running.finish()
    assert done.returncode == code, done.stderr
    assert state_of(bystander.pid) == "S" and (tmp_path / "undone").exists()
    assert f"interrupted by {number.name}" in done.stdout and "exec touch done" in done.stdout
    assert "cut (after 55 s) was not done: we were interrupted before" in done.stdout


def test_a_drill_that_is_interrupted_in_its_reference_run_ends_without_a_result(tmp_path: Path) -> None:
    with started(tmp_path, "reference: true", head=LONG) as running:
        wait_until(lambda: finished_requests(tmp_path) > 10, "requests were answered")
        running.signal(signal.SIGINT)
        done = running.finish()
    assert done.returncode == 130 and not done.stdout
    assert "interrupted before anything was done to the target" in done.stderr


def test_what_a_killed_drill_started_ends_with_it(tmp_path: Path) -> None:
    with started(tmp_path, "", head=LONG) as running:
        wait_until(lambda: finished_requests(tmp_path) > 10, "requests were answered")
        children = children_of(running.process.pid)
        grandchildren = [pid for child in children for pid in children_of(child)]
        assert len(children) == 2 and grandchildren
        running.signal(signal.SIGKILL)
        for pid in (*children, *grandchildren):
            wait_until(lambda pid=pid: not alive(pid), "it ended")
