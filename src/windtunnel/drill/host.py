"""What a drill does on this machine: programs that it runs, processes that it signals and looks at."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence
from pathlib import Path

from windtunnel.drill.scenario import Word
from windtunnel.errors import ActionFailed

_TAIL_CHARS = 300


async def run_program(words: Sequence[Word], timeout_s: float) -> str:
    """Run a program without a shell, and return the end of what it said; raises ActionFailed where it fails.

    When its time is over, or the wait is cancelled, it is killed with all that it started.
    """
    command = [str(word) for word in words]
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        raise ActionFailed(command[0], error.strerror or str(error)) from error
    try:
        async with asyncio.timeout(timeout_s):
            output, _ = await process.communicate()
    except TimeoutError:
        raise ActionFailed(command[0], f"it was not over after {timeout_s:g} s, and was killed") from None
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
    said = output.decode("utf-8", "replace").strip()[-_TAIL_CHARS:]
    if process.returncode:
        raise ActionFailed(command[0], f"exit code {process.returncode}{': ' if said else ''}{said}")
    return said


def send_signal(pid: int, number: signal.Signals) -> None:
    """Raises ActionFailed where there is no such process, or it is not ours."""
    try:
        os.kill(pid, number)
    except OSError as error:
        raise ActionFailed(f"{number.name} to process {pid}", error.strerror or str(error)) from error


def read_pid(path: str) -> int:
    """The number that a file holds; raises ActionFailed."""
    try:
        pid = int(Path(path).read_text("ascii").strip())
    except (OSError, ValueError) as error:
        raise ActionFailed(path, f"no process's number can be read from it: {error}") from error
    if pid < 2:
        raise ActionFailed(path, f"{pid} is no process's number")
    return pid


def is_down(pid: int) -> bool:
    """The process has ended or is stopped."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return stat.rpartition(b")")[2].split()[0] in (b"T", b"t", b"Z", b"X")
