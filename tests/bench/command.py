"""Runs the real command as a user does, in a process of its own, with runs kept in a folder of the test's."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

PATIENCE_S = 60


def environment(folder: Path, **more: str) -> dict[str, str]:
    """Our own environment, with the state in the test's folder and no key."""
    kept = {name: value for name, value in os.environ.items() if name not in ("OPENAI_API_KEY", "COLUMNS")}
    return {**kept, "XDG_STATE_HOME": str(folder / "state"), **more}


def command(*arguments: object) -> list[str]:
    """The command line."""
    return [sys.executable, "-m", "windtunnel", *map(str, arguments)]


def run(folder: Path, *arguments: object, **more: str) -> subprocess.CompletedProcess[str]:
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


def serve(folder: Path, *arguments: object, **more: str) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    """Run `bench serve` to its end and read its result file."""
    done = run(
        folder, "bench", "serve", *arguments, "--save-result", "--save-detailed", "--result-dir", folder,
        "--result-filename", "result.json", **more,
    )  # fmt: skip
    path = folder / "result.json"
    return done, json.loads(path.read_text()) if path.exists() else {}


class Running:
    """A `windtunnel` that runs, killed at the end whatever happens."""

    def __init__(self, folder: Path, *arguments: object, **more: str) -> None:
        self.process = subprocess.Popen(
            command(*arguments),
            env=environment(folder, **more),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,
        )

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *exception: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def finish(self) -> tuple[int, str, str]:
        """(exit code, output, errors)."""
        out, err = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, out, err


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
