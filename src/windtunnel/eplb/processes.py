"""What one process can know of another on the same host: whether it has ended for good."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path


@cache
def host_identity() -> str:
    """The same for processes that can see each other's pids; empty where that can't be told."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}/{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return ""


def has_ended(pid: int, host: str) -> bool:
    """Whether the process is known to have ended: False also where that can't be known.

    A process that was killed has given its memory back before its sockets close, reaped or not.
    """
    if not host or host != host_identity() or pid < 1:
        return False
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return not _takes_signals(pid)
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] in ("Z", "X")


def _takes_signals(pid: int) -> bool:
    """A process of another user may be hidden in /proc; it takes no signal of ours, but it is there."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True
