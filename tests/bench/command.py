"""Runs the real command as a user does, in a process of its own, with runs kept in a folder of the test's."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from windtunnel.errors import EXIT_INVALID, EXIT_OK

PATIENCE_S = 60
TARGET = "ttft=10ms,itl=5ms"
"""A target whose tokens lie far enough apart for a busy machine to tell them."""
WORDS = ("--model", "paced", "--tokenizer", "windtunnel-words")
"""What needs no question to the server."""
LENGTHS = ("--random-input-len", 16, "--random-output-len", 8)
Done = subprocess.CompletedProcess[str]


def environment(folder: Path, **more: str) -> dict[str, str]:
    """Our own environment, with the state in the test's folder and no key."""
    kept = {name: value for name, value in os.environ.items() if name not in ("OPENAI_API_KEY", "COLUMNS")}
    return {**kept, "XDG_STATE_HOME": str(folder / "state"), **more}


def command(*arguments: object) -> list[str]:
    """The command line."""
    return [sys.executable, "-m", "windtunnel", *map(str, arguments)]


def run(folder: Path, *arguments: object, **more: str) -> Done:
    """Run `windtunnel` to its end."""
    return subprocess.run(
        command(*arguments),
        env=environment(folder, **more),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        stdin=subprocess.DEVNULL,
        check=False,
    )


def assert_ran(done: Done) -> None:
    """It ran to its end, and is valid but for what a busy machine does to the client."""
    told = done.stdout + done.stderr
    if done.returncode == EXIT_INVALID:
        reasons = re.findall(r"✗ ([^✗]*)", done.stdout)
        assert reasons, told
        assert all(reason.startswith("the client was the bottleneck") for reason in reasons), told
    else:
        assert done.returncode == EXIT_OK, told


def serve(folder: Path, *arguments: object, **more: str) -> tuple[Done, dict[str, Any]]:
    """Run `bench serve` to its end and read its result file."""
    done = run(
        folder, "bench", "serve", *arguments, "--save-result", "--save-detailed", "--result-dir", folder,
        "--result-filename", "result.json", **more,
    )  # fmt: skip
    path = folder / "result.json"
    return done, json.loads(path.read_text()) if path.exists() else {}


class Running:
    """A `windtunnel` that runs, killed at the end whatever happens. What it says goes into files.

    (The end of a pipe would come only when the last of its workers, which hold it too, has ended.)
    """

    def __init__(self, folder: Path, *arguments: object, before: tuple[str, ...] = (), **more: str) -> None:
        self._out = tempfile.TemporaryFile("w+")  # noqa: SIM115  closed at this object's exit
        self._err = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self.process = subprocess.Popen(
            [*before, *command(*arguments)],
            env=environment(folder, **more),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=self._out,
            stderr=self._err,
            process_group=0,
        )

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *exception: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._out.close()
        self._err.close()

    @property
    def errors(self) -> str:
        """What it has written to stderr so far."""
        return os.pread(self._err.fileno(), 1 << 20, 0).decode()

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def finish(self) -> Done:
        """Wait for its end."""
        code = self.process.wait(timeout=PATIENCE_S)
        self._out.seek(0)
        return subprocess.CompletedProcess(self.process.args, code, self._out.read(), self.errors)


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Look again and again, each hundredth of a second, until the condition holds."""
    ticks = threading.Event()
    for _ in range(PATIENCE_S * 100):
        if condition():
            return
        ticks.wait(0.01)
    raise AssertionError(f"waited {PATIENCE_S} s in vain until {what}")


def stats(url: str) -> dict[str, Any]:
    """The paced target's own count of what it did."""
    with urllib.request.urlopen(f"{url}/stats", timeout=10) as answer:
        document: dict[str, Any] = json.load(answer)
    return document


def children_of(pid: int) -> list[int]:
    """The processes whose parent is `pid`."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_bytes().rpartition(b")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == pid:
                found.append(int(entry.name))
    return found


def alive(pid: int) -> bool:
    """The process runs: it is there, and no zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except OSError:
        return False
    return state != b"Z"


def command_line_of(pid: int) -> str:
    """How a process was called, as anybody can read it."""
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()


def finished_requests(folder: Path) -> int:
    """How many requests are in the journals below a folder."""
    count = 0
    for path in folder.rglob("journal.jsonl"):
        try:
            count += path.read_bytes().count(b'{"type":"request"')
        except FileNotFoundError:
            pass  # what was seen was the proof that the folder can be written to
    return count


def journal_records(folder: Path) -> list[dict[str, Any]]:
    """The requests in the journals below a folder, without the tool's own reader."""
    records = []
    for path in folder.rglob("journal.jsonl"):
        for line in path.read_bytes().splitlines():
            try:
                document = json.loads(line)
            except ValueError:
                continue
            if document.get("type") == "request":
                records.append(document["record"])
    return records
