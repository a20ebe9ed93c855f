"""The cost of real commands."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from overhead.process_tree import Cost, StrayProcesses, measure

MB = 1_000_000
PARENT = "import subprocess, sys; sys.exit(subprocess.run([sys.executable, '-c', sys.argv[1]]).returncode)"


def cost_of(tmp_path: Path, *arguments: str, sample_s: float | None = 0.01) -> Cost:
    return measure([sys.executable, *arguments], environment=os.environ, log=tmp_path / "log", sample_s=sample_s)


def test_the_processor_time_of_a_child_of_the_command_counts(tmp_path: Path) -> None:
    burn = "import time\nwhile time.process_time() < 0.4: pass"
    cost = cost_of(tmp_path, "-c", PARENT, burn)
    assert cost.user_s + cost.system_s >= 0.4
    assert cost.wall_s > 0.4


def test_memory_is_summed_over_the_tree_and_the_greatest_process_told_apart(tmp_path: Path) -> None:
    hold = "import sys, time; held = b'x' * 60_000_000; time.sleep(0.3)"
    both = f"import subprocess, sys; child = subprocess.Popen([sys.executable, '-c', {hold!r}]); {hold}; child.wait()"
    cost = cost_of(tmp_path, "-c", both)
    assert cost.peak_pss_bytes > 120 * MB
    assert 60 * MB < cost.max_rss_bytes < 120 * MB


def test_what_the_measuring_process_holds_is_not_the_commands_memory(tmp_path: Path) -> None:
    ballast = b"x" * (300 * MB)
    cost = cost_of(tmp_path, "-c", "import time; time.sleep(0.2)")
    assert 0 < cost.max_rss_bytes < len(ballast)


def test_the_exit_status_and_the_output_are_kept(tmp_path: Path) -> None:
    cost = cost_of(tmp_path, "-c", "print('words'); raise SystemExit(3)", sample_s=None)
    assert cost.exit_code == 3
    assert (tmp_path / "log").read_text() == "words\n"


def test_a_command_that_leaves_processes_behind_is_refused(tmp_path: Path) -> None:
    leave = "import subprocess, time; print(subprocess.Popen(['sleep', '60']).pid, flush=True); time.sleep(0.3)"
    try:
        with pytest.raises(StrayProcesses):
            cost_of(tmp_path, "-c", leave)
    finally:
        os.kill(int((tmp_path / "log").read_text()), signal.SIGKILL)
