"""Faults on purpose, for tests and drills: a process that dies, hangs or dawdles at a named transition."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from typing import Literal, NamedTuple, get_args

from windtunnel.eplb.transaction.table import TRANSITIONS, Role, Transition
from windtunnel.errors import EplbInputError, did_you_mean

How = Literal["kill", "hang", "slow"]


class FailAt(NamedTuple):
    """When to fail, and how."""

    transition: str
    """As `Transition.name` spells it: `transferring+copied`."""
    how: How
    occurrence: int = 1
    """1: the first time that the transition is made."""
    slow_s: float = 0.5


class Faults:
    """What one process is to suffer."""

    def __init__(self, role: Role, fail_at: FailAt | tuple[str, How] | None) -> None:
        """Raises EplbInputError where the role has no such transition."""
        self._fail_at = FailAt(*fail_at) if fail_at else None
        self._seen: Counter[str] = Counter()
        if self._fail_at:
            self._check(role, self._fail_at)

    def entered(self, transition: Transition) -> None:
        """Called when a transition is made, before anything follows from it."""
        fault = self._fail_at
        if fault is None or transition.name != fault.transition:
            return
        self._seen[transition.name] += 1
        if self._seen[transition.name] != fault.occurrence:
            return
        match fault.how:
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "hang":
                os.kill(os.getpid(), signal.SIGSTOP)
            case "slow":
                time.sleep(fault.slow_s)

    @staticmethod
    def _check(role: Role, fault: FailAt) -> None:
        known = [t.name for t in TRANSITIONS if t.role == role]
        if fault.transition not in known:
            problem = f"a {role} has no transition {fault.transition}{did_you_mean(fault.transition, known)}"
            raise EplbInputError("fail_at", problem, f"There are: {', '.join(known)}.")
        if fault.how not in get_args(How):
            remedy = f"There are: {', '.join(get_args(How))}."
            raise EplbInputError("fail_at", f"no way to fail is called {fault.how}", remedy)
        if fault.occurrence < 1:
            raise EplbInputError("occurrence", f"{fault.occurrence}", "1: the first time that the transition is made.")
