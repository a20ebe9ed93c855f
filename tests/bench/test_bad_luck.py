"""Closed consoles, full disks and hasty removals cost no result."""

from __future__ import annotations

import json
import re
import resource
import subprocess
from pathlib import Path

from tests.bench.command import (
    Running,
    children_of,
    command,
    environment,
    journal_records,
    run,
    wait_until,
)
from tests.loadgen.driving import paced

LOAD = ("--max-concurrency", 8, "--random-input-len", 16, "--random-output-len", 8)
PACE = "ttft=10ms,itl=2ms"


def serving(url: str, num: int) -> tuple[object, ...]:
    target = ("--base-url", url, "--model", "paced", "--tokenizer", "windtunnel-words")
    return ("bench", "serve", *target, *LOAD, "--num-prompts", num)


def test_a_console_that_is_closed_costs_no_result(tmp_path: Path) -> None:
    """The reader of both streams is gone before the run ends, and another run has no streams at all."""
    for number, streams in enumerate(("2>&1 | true", ">&- 2>&-")):
        name = f"r{number}.json"
        with paced(PACE) as url:
            line = [*command(*serving(url, 30)), "--save-result", "--result-filename", name]
            shell = f'"$@" {streams}'
            subprocess.run(
                ["bash", "-c", shell, "bash", *line], env=environment(tmp_path), cwd=tmp_path, timeout=60, check=False
            )
        assert json.loads((tmp_path / name).read_text())["completed"] == 30


def test_results_that_the_journal_did_not_take_are_kept_where_there_is_room(tmp_path: Path) -> None:
    """The journal's file system is full; the folder of temporary files is not."""
    room = tmp_path / "room"
    room.mkdir()
    with paced(PACE) as url, Running(tmp_path, *serving(url, 200), TMPDIR=str(room)) as client:
        wait_until(lambda: len(journal_records(tmp_path / "state")) >= 10, "10 requests are in the journal")
        workers = children_of(client.process.pid)
        for pid in workers:
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
        done = client.finish()
    assert done.returncode in (0, 3), done.stderr
    assert re.search(r"Successful requests: +200\b", done.stdout)
    (kept,) = [*tmp_path.glob("windtunnel-run-*/journal.jsonl"), *room.glob("windtunnel-run-*/journal.jsonl")]
    again = run(tmp_path, "runs", "show", kept)
    assert re.search(r"Successful requests: +200\b", again.stdout), again.stderr


def test_a_folder_that_holds_more_than_a_journal_is_not_removed(tmp_path: Path) -> None:
    with paced(PACE) as url:
        run(tmp_path, *serving(url, 3))
    (journal,) = (tmp_path / "state").rglob("journal.jsonl")
    other = journal.parent / "thesis.txt"
    other.write_text("precious")
    done = run(tmp_path, "runs", "rm", journal)
    assert done.returncode != 0
    assert other.read_text() == "precious"
    assert run(tmp_path, "runs", "rm", "").returncode == 2
