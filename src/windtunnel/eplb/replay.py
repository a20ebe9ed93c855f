"""Recorded loads through policies: each plans on the steps so far, and is judged on the steps that follow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from windtunnel.eplb.balance import balancedness_weighted, copies_between
from windtunnel.eplb.load import LoadWindow
from windtunnel.eplb.placement import Placement
from windtunnel.eplb.planning import Planner
from windtunnel.eplb.topology import Topology
from windtunnel.errors import EplbInputError, WindtunnelError


@dataclass(frozen=True)
class Windows:
    """How the steps of a trace are cut."""

    every: int
    """A plan is made after each so many steps; the first so many are only looked at."""
    window_steps: int
    """A plan sees as many of the latest steps, or fewer where there are not so many yet."""

    @classmethod
    def of(cls, num_steps: int, every: int | None = None, window_steps: int | None = None) -> Windows:
        """Of a trace: a plan after each tenth of it, on the steps since the plan before, unless told otherwise.

        Raises EplbInputError where the trace is too short for one plan.
        """
        if num_steps < 2:
            remedy = "Record more steps: the axes are [steps, layers, experts]. A plan is judged on later steps."
            raise EplbInputError("load", "the trace has 1 step", remedy)
        chosen = max(num_steps // 10, 1) if every is None else every
        if not 1 <= chosen < num_steps:
            problem = f"a plan every {chosen} steps, and {num_steps} are recorded"
            raise EplbInputError("every", problem, f"Plan more often: every 1 to {num_steps - 1} steps.")
        return cls(chosen, min(chosen if window_steps is None else window_steps, num_steps))


@dataclass(frozen=True)
class ReplayedPlan:
    """One plan, and how it did."""

    step: int
    """The first step that it served."""
    planned: float
    """Balancedness on the mean load that it was planned for."""
    achieved: float
    """Mean balancedness of the steps that it served."""
    copies: int
    """Experts new to a rank, over all layers."""
    moved_ratio: float
    """Copies ÷ slots of live ranks."""
    plan_ns: int
    stopped: Mapping[str, int]
    """Why planning ended, and in how many layers."""


@dataclass(frozen=True)
class Outcome:
    """What a policy did with a trace."""

    plans: list[ReplayedPlan]
    balancedness: NDArray[np.float64]
    """Of each step that was judged, tokens split by the placement's shares: those after the first plan [steps]."""
    error: WindtunnelError | None = None
    """What stopped it; the steps from there on are not judged."""


def replay(
    trace: NDArray[Any],
    planner: Planner | None,
    topology: Topology,
    start: Placement,
    windows: Windows,
    on_step: Callable[[int], None] = lambda step: None,
) -> Outcome:
    """Plan as `windows` says, and judge each step by the placement that serves it.

    `trace` [steps, layers, experts] is what `load.recorded` gives. Without a planner, `start` stays in place. A typed
    error of the policy ends its part. `on_step` is told how many steps are done.
    """
    window = LoadWindow(trace.shape[1], trace.shape[2], window_steps=windows.window_steps)
    plans: list[ReplayedPlan] = []
    judged: list[float] = []
    placement = start
    for begin in range(0, len(trace), windows.every):
        served = trace[begin : begin + windows.every]
        if begin:
            before = placement
            if planner is not None:
                try:
                    placement, explanation, plan_ns = planner.plan(window, topology, before)
                except WindtunnelError as error:
                    return Outcome(plans, np.array(judged), error)
            achieved = [balancedness_weighted(counts, placement) for counts in served]
            judged += achieved
            if planner is not None:
                copies = copies_between(before, placement)
                plans.append(
                    ReplayedPlan(
                        step=begin,
                        planned=balancedness_weighted(window.mean, placement),
                        achieved=float(np.mean(achieved)),
                        copies=copies,
                        moved_ratio=copies / (topology.num_slots * placement.num_layers),
                        plan_ns=plan_ns,
                        stopped=explanation.stopped,
                    )
                )
        for counts in served:
            window.add(counts)
        on_step(begin + len(served))
    return Outcome(plans, np.array(judged))
