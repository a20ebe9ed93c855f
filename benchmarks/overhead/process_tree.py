"""What a command costs: processor time and memory of the process and all of its descendants.

- Processor time is the kernel's own account, handed out when the process is waited for (wait4): it holds the process
  and every descendant that was itself waited for. A descendant that is still there at the end would be missing in it,
  so that is an error here.
- Memory is sampled: PSS (a page shared by n processes counts 1/n in each) of all processes of the tree, summed, from
  /proc/PID/smaps_rollup; the peak is the greatest of the sums. The greatest resident set of a single process is its
  VmHWM, not wait4's ru_maxrss: that one begins with what the parent held when it forked.
"""

from __future__ import annotations

import os
import select
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

SAMPLE_S = 0.05
_PROC = Path("/proc")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_BUSY = (0, 1, 2, 5, 6, 7)
"""Columns of /proc/stat's first line: user, nice, system, irq, softirq, steal."""


class Cost(NamedTuple):
    """One run of a command."""

    exit_code: int
    started_ns: int
    """CLOCK_REALTIME, just before it was started."""
    wall_s: float
    user_s: float
    system_s: float
    peak_pss_bytes: int
    max_rss_bytes: int


class StrayProcesses(Exception):
    """A command ended before its descendants did, so its processor time can't be told."""


def measure(
    command: Sequence[str], *, environment: Mapping[str, str], log: Path, sample_s: float | None = SAMPLE_S
) -> Cost:
    """Run a command to its end, its output in `log`. `sample_s` None: don't look at its memory."""
    peak_pss = max_rss = 0
    seen: set[int] = set()
    with log.open("wb") as output:
        started_ns, start = time.time_ns(), time.perf_counter()
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment
        )
    exit_of = os.pidfd_open(process.pid)
    try:
        while not select.select([exit_of], [], [], sample_s)[0]:
            tree = descendants(process.pid)
            seen.update(tree)
            memory = [_memory_bytes(pid) for pid in tree]
            peak_pss = max(peak_pss, sum(pss for pss, _ in memory))
            max_rss = max(max_rss, *(rss for _, rss in memory))
    except BaseException:
        process.kill()
        process.wait()
        raise
    finally:
        os.close(exit_of)
    _, status, usage = os.wait4(process.pid, 0)
    wall_s = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    strays = sorted(pid for pid in seen - {process.pid} if (_PROC / str(pid)).exists())
    if strays:
        raise StrayProcesses(f"{command[0]} left processes behind: {strays}")
    return Cost(process.returncode, started_ns, wall_s, usage.ru_utime, usage.ru_stime, peak_pss, max_rss)


def descendants(pid: int) -> list[int]:
    """The process and all that stem from it, as far as they are there."""
    found = [pid]
    for parent in found:
        try:
            for thread in (_PROC / str(parent) / "task").iterdir():
                found += map(int, (thread / "children").read_text().split())
        except OSError:
            pass  # it has just ended
    return found


def _memory_bytes(pid: int) -> tuple[int, int]:
    """(PSS, greatest resident set so far); zeros when the process has just ended."""
    try:
        pss = _kilobytes(_PROC / str(pid) / "smaps_rollup", "Pss:")
        return 1024 * pss, 1024 * _kilobytes(_PROC / str(pid) / "status", "VmHWM:")
    except OSError:
        return 0, 0


def _kilobytes(path: Path, name: str) -> int:
    for line in path.read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1])
    return 0  # a process that is ending has no memory any more


def cpu_s(pid: int) -> float:
    """Processor seconds of one process so far, user and system."""
    after_name = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    return (int(after_name[11]) + int(after_name[12])) / _TICKS_PER_S


def machine_cpu_s() -> float:
    """Processor seconds that the whole machine has spent so far, those that the hypervisor took included."""
    columns = (_PROC / "stat").read_text().split("\n", 1)[0].split()[1:]
    return sum(int(columns[column]) for column in _BUSY) / _TICKS_PER_S
