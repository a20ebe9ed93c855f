"""Whether another process has ended, as far as it can be known."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from windtunnel.eplb.processes import has_ended, host_identity


def test_a_process_has_ended_once_it_is_killed_before_and_after_it_is_reaped() -> None:
    host = host_identity()
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert not has_ended(process.pid, host)
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert has_ended(process.pid, host)
    process.communicate()
    assert has_ended(process.pid, host)


def test_processes_of_one_host_agree_on_its_identity() -> None:
    ask = "from windtunnel.eplb.processes import host_identity; print(host_identity(), end='')"
    told = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True).stdout
    assert told == host_identity() != ""


@pytest.mark.parametrize("host", ["", "another/1"])
def test_of_another_host_nothing_is_known(host: str) -> None:
    assert not has_ended((1 << 22) + 1, host)


@pytest.mark.parametrize("pid", [0, -1, -5, os.getpid(), 1], ids=["0", "-1", "-5", "itself", "1"])
def test_who_is_alive_or_no_process_at_all_has_not_ended(pid: int) -> None:
    assert not has_ended(pid, host_identity())


@pytest.mark.parametrize("pid", [(1 << 22) + 1, 1 << 40])
def test_a_pid_that_nobody_can_have_has_ended(pid: int) -> None:
    assert has_ended(pid, host_identity())
