"""`windtunnel catalog watch`: follows a log that grows, is rotated and truncated, and ends when it is told to."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest
from tests.catalog.trees import store_of
from tests.cli.command_lines import windtunnel

CODE = """
def sync(replica):
    raise RuntimeError(f"replica {replica} is not ready to serve")


def drain(queue):
    raise ValueError(f"the queue {queue} did not drain in time")


def close(door):
    raise OSError(f"the door {door} can not be closed")
"""

TRACEBACK = 'Traceback (most recent call last):\n  File "x.py", line 1, in f\n    a\nNameError: a\n'


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(store_of(tmp_path_factory.mktemp("watched"), {"shop.py": CODE}, "shop"))


@contextmanager
def watching(store: str, *arguments: str, **options: Any) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "windtunnel", "catalog", "watch", "--json", "--store", store, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def told(stream: IO[str] | None) -> dict[str, Any]:
    """The next line, as soon as there is one."""
    assert stream is not None
    document: dict[str, Any] = json.loads(stream.readline())
    return document


def message(process: subprocess.Popen[str]) -> str:
    return str(told(process.stdout)["errors"][0]["message"])


def append(path: Path, text: str) -> None:
    with path.open("a") as stream:
        stream.write(text)


def test_errors_are_told_as_the_log_grows_is_rotated_and_truncated(store: str, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("INFO:shop:open\nERROR:shop:replica a is not ready to serve\n")
    with watching(store, str(log)) as process:
        assert message(process) == "replica a is not ready to serve"
        append(log, "ERROR:shop:replica b is not ready to serve\nERROR:shop:the queue q did not drain in time\n")
        assert message(process) == "the queue q did not drain in time"
        log.rename(tmp_path / "server.log.1")
        log.write_text("ERROR:shop:the door d can not be closed\n" + "INFO:shop:all is well\n" * 9)
        assert message(process) == "the door d can not be closed"
        log.write_text(TRACEBACK)  # shorter than before
        assert told(process.stdout)["errors"][0]["type"] == "NameError"
        process.send_signal(signal.SIGINT)
        end = told(process.stdout)
        assert process.wait(30) == 0
    counts = {error["id"]: error["count"] for error in end["errors"]}
    assert (end["event"], sorted(counts.values())) == ("end", [1, 1, 1, 2])


def test_a_log_that_is_not_there_yet_is_waited_for(store: str, tmp_path: Path) -> None:
    log = tmp_path / "later.log"
    with watching(store, str(log)) as process:
        log.write_text("ERROR:shop:replica a is not ready to serve\n")
        assert message(process) == "replica a is not ready to serve"


def test_stdin_is_watched_to_its_end(store: str) -> None:
    with watching(store, "-", stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write("ERROR:shop:replica a is not ready to serve\n")
        process.stdin.flush()
        assert message(process) == "replica a is not ready to serve"
        process.stdin.write("ERROR:shop:replica b is not ready to serve")  # no end of line
        process.stdin.close()
        assert told(process.stdout)["errors"][0]["count"] == 2
        assert process.wait(30) == 0


def test_once_ends_at_the_end_of_the_file_and_tells_people_counts(store: str, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("ERROR:shop:replica a is not ready to serve\n" * 3)
    done = windtunnel("catalog", "watch", "--once", "--store", store, str(log))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("line 1: replica a is not ready to serve\n")
    assert "3 lines, 1 different errors" in done.stderr


def test_what_the_file_has_already_can_be_left_out(store: str, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("ERROR:shop:replica a is not ready to serve\n" * 3)
    done = windtunnel("catalog", "watch", "--once", "--new-only", "--store", store, str(log))
    assert (done.returncode, done.stdout) == (0, "")


def test_a_file_that_cannot_be_watched_is_named(store: str, tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none.log"):
        done = windtunnel("catalog", "watch", "--once", "--store", store, str(path))
        assert done.returncode == 2
        assert str(path) in done.stderr


def test_a_reader_that_goes_away_ends_it(store: str, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("ERROR:shop:replica a is not ready to serve\n")
    with watching(store, str(log)) as process:
        message(process)
        assert process.stdout is not None
        process.stdout.close()
        append(log, "ERROR:shop:the queue q did not drain in time\n")
        assert process.wait(30) not in (0, None)
    assert os.path.exists(log)
