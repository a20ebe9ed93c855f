"""Whatever is killed, interrupted or full: what had finished is there, and the report can be made."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests.bench.command import (
    LENGTHS,
    TARGET,
    WORDS,
    Running,
    alive,
    assert_ran,
    children_of,
    command,
    command_line_of,
    environment,
    finished_requests,
    journal_records,
    run,
    serve,
    stats,
    wait_until,
)
from tests.engine.serving import fronted, paced

LOAD = ("--num-prompts", 2000, "--max-concurrency", 8, *LENGTHS)


def serving(url: str) -> tuple[object, ...]:
    return ("bench", "serve", "--base-url", url, *WORDS, *LOAD)


def test_a_sigkill_of_the_client_loses_no_finished_request_and_the_report_can_be_made(tmp_path: Path) -> None:
    with paced(TARGET) as url:
        with Running(tmp_path, *serving(url)) as client:
            wait_until(lambda: finished_requests(tmp_path) >= 50, "50 requests are in the journal")
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
    with paced(TARGET) as url:
        done, result = serve(tmp_path, *serving(url)[2:], "--num-prompts", 20)
    assert_ran(done)
    (tmp_path / "result.json").rename(tmp_path / "first.json")
    again = run(tmp_path, "runs", "recover", next((tmp_path / "state/windtunnel/runs").iterdir()).name)
    assert again.returncode == done.returncode, again.stderr
    assert json.loads((tmp_path / "result.json").read_text()) == result


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_run_reports_and_saves_all_that_was_measured(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    saving = ("--save-result", "--result-dir", tmp_path, "--result-filename", "r.json")
    with paced(TARGET) as url, Running(tmp_path, *serving(url), *saving) as client:
        wait_until(lambda: finished_requests(tmp_path) >= 50, "50 requests are in the journal")
        client.signal(number)
        done = client.finish()
    assert done.returncode == code, done.stderr
    assert "Serving Benchmark Result" in done.stdout
    result = json.loads((tmp_path / "r.json").read_text())
    assert result["completed"] >= 50
    states = [record.get("failure", {}).get("code") for record in journal_records(tmp_path / "state")]
    assert states.count(None) == result["completed"]
    assert 0 < states.count("WT-HTTP-CANCELLED") <= 8


def test_a_second_interrupt_aborts_at_once(tmp_path: Path) -> None:
    """No answer comes and the workers are stopped, so the first interrupt can't end the run in order."""
    with fronted(holds=True) as front, Running(tmp_path, *serving(front.url)) as client:
        wait_until(lambda: front.num_held == 8, "the load has begun")
        workers = children_of(client.process.pid)
        for worker in workers:
            os.kill(worker, signal.SIGSTOP)

        def interrupted_again() -> bool:
            # two signals that come before the first is looked at count as one, so it is not enough to send two
            client.signal(signal.SIGINT)
            return client.process.poll() is not None

        try:
            wait_until(interrupted_again, "the run has ended")
        finally:
            for worker in workers:
                os.kill(worker, signal.SIGCONT)
        done = client.finish()
    assert done.returncode == 130, done.stderr
    assert "Serving Benchmark Result" not in done.stdout
    assert len(workers) == 1
    wait_until(lambda: not any(alive(worker) for worker in workers), "no worker is left")


def test_a_killed_worker_ends_the_run_with_what_was_measured(tmp_path: Path) -> None:
    with paced(TARGET) as url:
        arguments = (*serving(url), "--workers", "2", "--num-prompts", 200)
        with Running(tmp_path, *arguments) as client:
            wait_until(lambda: finished_requests(tmp_path) >= 20, "20 requests are in the journal")
            os.kill(children_of(client.process.pid)[0], signal.SIGKILL)
            done = client.finish()
    assert done.returncode == 1, done.stderr
    assert "SIGKILL" in done.stderr
    assert re.search(rf"Successful requests: +{finished_requests(tmp_path)}\b", done.stdout), done.stdout


def test_a_killed_target_ends_the_run_with_failures_and_says_that_it_was_lost(tmp_path: Path) -> None:
    arguments = ("bench", "serve", "--embedded", f"paced:{TARGET}", *LOAD, "--num-prompts", 400)
    with Running(tmp_path, *arguments) as client:
        wait_until(lambda: finished_requests(tmp_path) >= 20, "20 requests are in the journal")
        (target,) = [pid for pid in children_of(client.process.pid) if "engine.paced" in command_line_of(pid)]
        os.kill(target, signal.SIGKILL)
        done = client.finish()
    assert done.returncode == 1, done.stderr
    assert "the embedded target ended" in done.stderr
    records = journal_records(tmp_path / "state")
    failed = sum("failure" in record for record in records)
    assert len(records) == 400
    assert 0 < failed <= 380
    assert re.search(rf"Failed requests: +{failed}\b", done.stdout), done.stdout
    assert "(refused)" in done.stdout


def test_no_process_outlives_a_killed_parent(tmp_path: Path) -> None:
    with Running(tmp_path, "bench", "serve", "--embedded", f"paced:{TARGET}", *LOAD, "--workers", "2") as client:
        wait_until(lambda: finished_requests(tmp_path) >= 20, "the load runs")
        children = children_of(client.process.pid)
        assert len(children) == 3  # two workers and the target
        client.signal(signal.SIGKILL)
        client.finish()
        wait_until(lambda: not any(alive(child) for child in children), "the children are gone")


def test_a_result_that_cannot_be_written_at_the_end_is_made_from_the_journal(tmp_path: Path) -> None:
    """The folder, which was proven before the first request, goes away while the load runs."""
    results = tmp_path / "results"
    saving = ("--num-prompts", 20, "--save-result", "--result-dir", results, "--result-filename", "r.json")
    with fronted(TARGET, holds=True) as front, Running(tmp_path, *serving(front.url), *saving) as client:
        wait_until(lambda: front.num_held == 8, "the load has begun")
        shutil.rmtree(results)
        front.release()
        done = client.finish()
    (journal,) = tmp_path.rglob("journal.jsonl")
    assert done.returncode == 1, done.stderr
    assert f"write the result to {results / 'r.json'}" in done.stderr
    assert str(journal) in done.stderr
    assert "Traceback" not in done.stderr
    assert re.search(r"Successful requests: +20\b", done.stdout), done.stdout
    assert sorted(record["index"] for record in journal_records(tmp_path)) == list(range(20))
    assert json.loads(journal.read_bytes().splitlines()[-1])["type"] == "end"

    results.mkdir()
    assert_ran(run(tmp_path, "runs", "recover", journal.parent.name))
    assert json.loads((results / "r.json").read_text())["completed"] == 20


def test_a_journal_that_cannot_grow_keeps_results_in_memory_and_says_so(tmp_path: Path) -> None:
    """A file size limit stands for the full disk: the same write fails in the same place."""
    with paced(TARGET) as url:
        limited = ["bash", "-c", 'ulimit -f 8; exec "$@"', "bash", *command(*serving(url)), "--num-prompts", "60"]
        done = subprocess.run(
            limited, env=environment(tmp_path), cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
        )
    assert_ran(done)
    assert re.search(r"Successful requests: +60\b", done.stdout), done.stdout + done.stderr
    assert "kept in memory" in done.stderr
    assert finished_requests(tmp_path) < 60


def test_a_runs_folder_that_cannot_be_made_falls_back_to_the_results(tmp_path: Path) -> None:
    """It lies below a file, where nobody, whatever his rights, can make a folder."""
    (tmp_path / "file").write_text("no folder")
    with paced(TARGET) as url:
        done = run(
            tmp_path, *serving(url), "--num-prompts", "5", "--runs-dir", tmp_path / "file" / "runs",
            "--save-result", "--result-dir", tmp_path / "results",
        )  # fmt: skip
    assert_ran(done)
    assert str(tmp_path / "file" / "runs") in done.stderr
    assert len(list((tmp_path / "results").glob("windtunnel-run-*/journal.jsonl"))) == 1


def test_a_result_folder_that_cannot_be_made_is_told_before_any_request(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with fronted(TARGET) as front:
        done = run(tmp_path, *serving(front.url), "--save-result", "--result-dir", tmp_path / "file" / "sub")
        assert front.requests == []
    assert done.returncode == 1
    assert str(tmp_path / "file") in done.stderr
