"""A replay: which steps a plan sees, which judge it, and what stops it."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from windtunnel.eplb.placement import Placement
from windtunnel.eplb.planning import Planner, engine_placement
from windtunnel.eplb.policies import Budget, Constraints, Explanation, Load, policy
from windtunnel.eplb.replay import Windows, replay
from windtunnel.eplb.topology import Topology
from windtunnel.errors import EplbInputError, TooFewSlots

TOPOLOGY = Topology.uniform(2, 4)


def trace(steps: int, seed: int = 0) -> NDArray[np.int64]:
    return np.random.default_rng(seed).integers(1, 1000, (steps, 3, 4))


class Notes:
    """A policy that keeps what is in place, and the loads that it was shown."""

    def __init__(self, fails_at: int | None = None) -> None:
        self.seen: list[NDArray[np.float64]] = []
        self.fails_at = fails_at

    def __call__(
        self, load: Load, topology: Topology, committed: Placement | None, constraints: Constraints, budget: Budget
    ) -> tuple[Placement, Explanation]:
        assert committed is not None
        if len(self.seen) == self.fails_at:
            raise TooFewSlots(9, 4, 2, "a test")
        self.seen.append(load.mean)
        return committed, Explanation("notes", 1, None, 0, 0, {})


@pytest.mark.parametrize(
    ("steps", "every", "window", "expected"),
    [(100, None, None, (10, 10)), (100, 30, None, (30, 30)), (100, 30, 7, (30, 7)), (5, None, 99, (1, 5))],
)
def test_a_trace_is_planned_for_at_each_tenth_unless_told_otherwise(
    steps: int, every: int | None, window: int | None, expected: tuple[int, int]
) -> None:
    assert Windows.of(steps, every, window) == Windows(*expected)


@pytest.mark.parametrize(("steps", "every", "field"), [(1, None, "load"), (5, 5, "every"), (5, 0, "every")])
def test_a_trace_that_leaves_no_step_to_judge_a_plan_by_is_refused(steps: int, every: int | None, field: str) -> None:
    with pytest.raises(EplbInputError) as refused:
        Windows.of(steps, every)
    assert refused.value.field == field


def test_a_plan_sees_the_latest_steps_before_it_and_none_after() -> None:
    load, notes, done = trace(11), Notes(), []
    found = replay(load, Planner(notes), TOPOLOGY, start(), Windows(4, 3), done.append)
    assert [plan.step for plan in found.plans] == [4, 8]
    assert np.allclose(notes.seen, [load[1:4].mean(axis=0), load[5:8].mean(axis=0)])
    assert done == [4, 8, 11]


def start() -> Placement:
    return engine_placement(3, 4, TOPOLOGY)


def test_each_step_after_the_first_plan_is_judged_by_the_placement_that_serves_it() -> None:
    load = trace(11)
    found = replay(load, Planner(Notes()), TOPOLOGY, start(), Windows(4, 4))
    of_ranks = load.reshape(11, 3, 2, 2).sum(axis=3)
    expected = (of_ranks.mean(axis=2) / of_ranks.max(axis=2)).mean(axis=1)[4:]
    assert np.allclose(found.balancedness, expected)
    assert [plan.achieved for plan in found.plans] == pytest.approx([expected[:4].mean(), expected[4:].mean()])
    stays = replay(load, None, TOPOLOGY, start(), Windows(4, 4))
    assert stays.plans == [] and np.array_equal(stays.balancedness, found.balancedness)


def test_the_placement_of_a_plan_is_in_place_for_the_next_one() -> None:
    skewed = np.tile(np.array([[[8, 8, 1, 1]]]), (6, 3, 1))
    found = replay(skewed, Planner(policy("deepseek-flat")), TOPOLOGY, start(), Windows(2, 2))
    first, second = found.plans
    assert first.moved_ratio == first.copies / 12 > 0
    assert (second.copies, second.moved_ratio) == (0, 0)  # the load is the same, and so is the plan
    assert first.planned == first.achieved == pytest.approx(1)
    assert all(plan.plan_ns > 0 and plan.stopped == {"replanned": 3} for plan in found.plans)


def test_a_policy_that_fails_keeps_the_plans_that_it_made() -> None:
    found = replay(trace(11), Planner(Notes(fails_at=1)), TOPOLOGY, start(), Windows(4, 4))
    assert isinstance(found.error, TooFewSlots)
    assert [plan.step for plan in found.plans] == [4]
    assert len(found.balancedness) == 4


def test_a_weighted_split_judges_by_the_shares_that_suited_the_window() -> None:
    topology = Topology.uniform(2, slots_per_rank=[3, 2])
    placed = Placement.of([[[0, 1, 2], [3, 0, -1]]] * 3, 4, slots_per_rank=(3, 2))
    load = np.tile(np.array([[[4, 4, 2, 2]]]), (4, 3, 1))
    even = replay(load, Planner(Notes()), topology, placed, Windows(2, 2))
    weighted = replay(load, Planner(Notes(), split="weighted"), topology, placed, Windows(2, 2))
    assert even.balancedness.tolist() == pytest.approx([0.75, 0.75])
    assert weighted.balancedness.tolist() == pytest.approx([1, 1])
