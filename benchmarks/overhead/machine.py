"""Where a figure was measured: facts about the machine and this checkout, and nothing that names them."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path
from typing import Any

_PROJECT = Path(__file__).parents[2]


def facts() -> dict[str, Any]:
    """Processors, kernel, Python, memory."""
    return {
        "cpus": os.cpu_count(),
        "model_name": _model_name(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def _model_name() -> str | None:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return None


def revision() -> str | None:
    """The checkout's commit, with `+` where files differ from it; None outside of a checkout."""
    try:
        commit = _git("rev-parse", "--short=12", "HEAD")
        return commit + ("+" if _git("status", "--porcelain", "--", "src", "benchmarks/overhead") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(_PROJECT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
