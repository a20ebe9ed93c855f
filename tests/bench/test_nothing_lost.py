"""Whatever is killed, interrupted or full: what had finished is there, and the report can be made."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from tests.bench.command import (
    Running,
    alive,
    children_of,
    command,
    environment,
    journal_records,
    run,
    serve,
    stats,
    wait_until,
)
from tests.loadgen.driving import paced

LOAD = ("--num-prompts", 2000, "--max-concurrency", 8, "--random-input-len", 16, "--random-output-len", 8)
SLOW = "ttft=10ms,itl=2ms"


def serving(url: str) -> tuple[object, ...]:
    return ("bench", "serve", "--base-url", url, "--model", "paced", "--tokenizer", "windtunnel-words", *LOAD)


def finished_requests(folder: Path) -> int:
    return len(journal_records(folder / "state"))


def test_a_sigkill_of_the_client_loses_no_finished_request_and_the_report_can_be_made(tmp_path: Path) -> None:
    with paced(SLOW) as url:
        with Running(tmp_path, *serving(url)) as client:
            wait_until(lambda: finished_requests(tmp_path) >= 100, "100 requests are in the journal")
            client.signal(signal.SIGKILL)
            client.finish()
        completed = stats(url)["completed"]
    kept = journal_records(tmp_path / "state")
    # what the server has completed and the client had not yet read when it was killed: at most one for each slot
    assert len(kept) >= completed - 8
    recovered = run(tmp_path, "runs", "recover")
    assert re.search(rf"Successful requests: +{len(kept)}\b", recovered.stdout), recovered.stdout + recovered.stderr
    assert "not complete (the journal has no end)" in recovered.stdout
    shown = run(tmp_path, "runs", "list")
    assert "unfinished" in shown.stdout


def test_a_recovered_run_makes_the_same_result_file(tmp_path: Path) -> None:
    with paced(SLOW) as url:
        done, result = serve(tmp_path, *serving(url)[2:], "--num-prompts", 20)
    assert done.returncode == 0, done.stderr
    (tmp_path / "result.json").rename(tmp_path / "first.json")
    again = run(tmp_path, "runs", "recover", next((tmp_path / "state/windtunnel/runs").iterdir()).name)
    assert again.returncode == 0, again.stderr
    assert json.loads((tmp_path / "result.json").read_text()) == result


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_run_reports_and_saves_all_that_was_measured(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    saving = ("--save-result", "--result-dir", tmp_path, "--result-filename", "r.json")
    with paced(SLOW) as url, Running(tmp_path, *serving(url), *saving) as client:
        wait_until(lambda: finished_requests(tmp_path) >= 50, "50 requests are in the journal")
        client.signal(number)
        exit_code, out, err = client.finish()
    assert exit_code == code, err
    assert "Serving Benchmark Result" in out
    result = json.loads((tmp_path / "r.json").read_text())
    assert result["completed"] >= 50
    states = [record.get("failure", {}).get("code") for record in journal_records(tmp_path / "state")]
    assert states.count(None) == result["completed"]
    assert 0 < states.count("WT-HTTP-CANCELLED") <= 8


def test_a_second_interrupt_aborts_at_once(tmp_path: Path) -> None:
    """The target never answers and the client is stopped from ending in order, by a worker that is stopped."""
    with paced("ttft=60s") as url, Running(tmp_path, *serving(url)) as client:
        wait_until(lambda: stats(url)["started"] >= 8, "the load has begun")
        workers = children_of(client.process.pid)
        for worker in workers:
            os.kill(worker, signal.SIGSTOP)
        client.signal(signal.SIGINT)
        assert client.process.poll() is None
        client.signal(signal.SIGINT)
        exit_code, _, _ = client.finish()
        for worker in workers:
            os.kill(worker, signal.SIGCONT)
    assert exit_code == 130
    wait_until(lambda: not any(alive(worker) for worker in workers), "no worker is left")


def test_a_killed_worker_ends_the_run_with_what_was_measured(tmp_path: Path) -> None:
    with paced(SLOW) as url, Running(tmp_path, *serving(url), "--workers", "2") as client:
        wait_until(lambda: finished_requests(tmp_path) >= 50, "50 requests are in the journal")
        os.kill(children_of(client.process.pid)[0], signal.SIGKILL)
        exit_code, out, err = client.finish()
    assert exit_code == 1, err
    assert "SIGKILL" in err
    assert "Serving Benchmark Result" in out


def test_no_process_outlives_a_killed_parent(tmp_path: Path) -> None:
    with Running(tmp_path, "bench", "serve", "--embedded", f"paced:{SLOW}", *LOAD, "--workers", "2") as client:
        wait_until(lambda: finished_requests(tmp_path) >= 20, "the load runs")
        children = children_of(client.process.pid)
        assert len(children) == 3  # two workers and the target
        client.signal(signal.SIGKILL)
        client.finish()
        wait_until(lambda: not any(alive(child) for child in children), "the children are gone")


def test_a_disk_that_is_full_for_the_result_leaves_the_journal(tmp_path: Path) -> None:
    """/dev/full takes nothing: writing the result there fails as it would on a full disk."""
    with paced(SLOW) as url:
        done = run(
            tmp_path, *serving(url), "--num-prompts", "20", "--save-result", "--result-filename", "/dev/full/x.json"
        )
    assert done.returncode in (1, 2)
    assert "/dev/full" in done.stderr


def test_a_journal_that_can_not_grow_keeps_results_in_memory_and_says_so(tmp_path: Path) -> None:
    """A file size limit stands for the full disk: the same write fails in the same place."""
    with paced(SLOW) as url:
        limited = ["bash", "-c", 'ulimit -f 8; exec "$@"', "bash", *command(*serving(url)), "--num-prompts", "60"]
        done = subprocess.run(
            limited, env=environment(tmp_path), cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
        )
    assert re.search(r"Successful requests: +60\b", done.stdout), done.stdout + done.stderr
    assert "kept in memory" in done.stderr


def test_a_runs_folder_that_can_not_be_written_falls_back_to_the_result_s(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with paced(SLOW) as url:
        done = run(
            tmp_path, *serving(url), "--num-prompts", "5", "--runs-dir", tmp_path / "file", "--result-dir", tmp_path
        )
    assert done.returncode == 0, done.stderr
    assert "can't be used" in done.stderr
    assert len(list(tmp_path.glob("windtunnel-run-*/journal.jsonl"))) == 1


def test_a_result_folder_that_can_not_be_made_is_told_before_any_request(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with paced(SLOW) as url:
        done = run(tmp_path, *serving(url), "--save-result", "--result-dir", tmp_path / "file" / "sub")
        assert stats(url)["started"] == 0
    assert done.returncode != 0
    assert str(tmp_path / "file") in done.stderr
