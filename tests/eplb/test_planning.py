"""Planning outside of an engine: figures of a placement counted by hand, and what a plan moves."""

from __future__ import annotations

import numpy as np
import pytest

from windtunnel.eplb.load import LoadWindow
from windtunnel.eplb.placement import Placement
from windtunnel.eplb.planning import Planner, engine_placement, figures, node_crossing_ratio, planned
from windtunnel.eplb.policies import Budget, Constraints, Explanation, Load, policy
from windtunnel.eplb.topology import Topology
from windtunnel.errors import EplbInputError, TooFewSlots

LOAD = np.array([[4.0, 4, 2, 2]])
PLACED = Placement.of([[[0, 1, 2], [3, 0, -1]]], 4, slots_per_rank=(3, 2))
"""Rank 0 has 2 + 4 + 2 tokens of 12, rank 1 has 2 + 2."""


def keeps_all(
    load: Load, topology: Topology, committed: Placement | None, constraints: Constraints, budget: Budget
) -> tuple[Placement, Explanation]:
    """A policy that moves nothing."""
    layers, experts = load.mean.shape
    placement = committed or engine_placement(layers, experts, topology)
    return placement, Explanation("keeps all", 1.0, None, 0, 0.0, {"nothing to do": layers})


def swaps(
    load: Load, topology: Topology, committed: Placement | None, constraints: Constraints, budget: Budget
) -> tuple[Placement, Explanation]:
    """A policy that lets neighbouring ranks swap what they hold."""
    placement, explanation = keeps_all(load, topology, committed, constraints, budget)
    return Placement.of(placement.slots[:, ::-1], placement.num_experts, epoch=placement.epoch + 1), explanation


def test_the_figures_of_a_placement_are_what_is_counted_by_hand() -> None:
    topology = Topology.uniform(2, slots_per_rank=[3, 2])
    found = figures(LOAD, PLACED, topology)
    assert found.balancedness == pytest.approx(6 / 8)
    assert found.balancedness_weighted == pytest.approx(1)  # all of expert 0 goes to rank 1
    assert (found.min_replicas, found.lost_experts_max) == (1, 2)
    assert found.lost_experts_mean == pytest.approx(1.5)
    assert found.node_crossing_ratio is None


def test_tokens_cross_nodes_where_a_group_is_spread_over_them() -> None:
    topology = Topology.uniform(2, slots_per_rank=[3, 2], nodes=2, num_groups=2)
    # group 0: 6 tokens on node 0, 2 on node 1; group 1: 2 and 2
    assert node_crossing_ratio(LOAD, PLACED, topology) == pytest.approx((2 + 2) / 12)
    kept = Placement.of([[[0, 1], [2, 3]]], 4)
    assert node_crossing_ratio(LOAD, kept, Topology.uniform(2, 4, nodes=2, num_groups=2)) == 0
    assert node_crossing_ratio(np.zeros((1, 4)), kept, Topology.uniform(2, 4, nodes=2, num_groups=2)) == 0


@pytest.mark.parametrize(("nodes", "groups"), [(1, 2), (2, 1), (2, 3)])
def test_without_nodes_or_groups_nothing_is_said_of_crossing(nodes: int, groups: int) -> None:
    topology = Topology.uniform(2, slots_per_rank=[3, 2], nodes=nodes, num_groups=groups)
    assert node_crossing_ratio(LOAD, PLACED, topology) is None


def test_a_plan_is_told_with_what_it_moves_and_what_was_before() -> None:
    topology = Topology.uniform(2, 4)
    before = Placement.of([[[0, 1], [2, 3]]], 4, epoch=3)
    found = planned(Planner(swaps), LoadWindow.of(LOAD), topology, before)
    assert found.before is not None and found.before.balancedness == found.after.balancedness == pytest.approx(6 / 8)
    assert found.arrivals is not None and found.arrivals.tolist() == [2, 2]
    assert found.moved_ratio == 1
    assert found.plan_ns > 0 and found.num_restored == 0
    still = planned(Planner(keeps_all), LoadWindow.of(LOAD), topology, before)
    assert still.moved_ratio == 0 and still.placement == before


def test_where_nothing_was_in_place_nothing_is_said_of_moves() -> None:
    found = planned(Planner(keeps_all), LoadWindow.of(LOAD), Topology.uniform(2, 4), None)
    assert (found.before, found.arrivals, found.moved_ratio) == (None, None, None)


def test_experts_that_died_with_their_rank_are_counted_as_restored() -> None:
    topology = Topology.uniform(2, 8).without([1])
    left = Placement.of([[[0, 1, -1, -1], [2, 3, -1, -1]]], 4).without_ranks([1], 1)
    found = planned(Planner(policy("windtunnel")), LoadWindow.of(LOAD), topology, left)
    assert found.num_restored == 2
    assert found.placement.missing == () and not (found.placement.slots[:, 1] >= 0).any()
    assert found.moved_ratio == pytest.approx(2 / 4)


def test_a_weighted_split_changes_shares_and_no_slot() -> None:
    topology = Topology.uniform(2, slots_per_rank=[3, 2])
    even = planned(Planner(keeps_all), LoadWindow.of(LOAD), topology, PLACED)
    weighted = planned(Planner(keeps_all, split="weighted"), LoadWindow.of(LOAD), topology, PLACED)
    assert np.array_equal(weighted.placement.slots, even.placement.slots)
    assert weighted.placement.share[0, 1, 1] == pytest.approx(1) and even.placement.share[0, 1, 1] == 0.5
    assert weighted.after == even.after  # both balances are told, whichever is in use


def test_a_policy_s_error_comes_through_the_plan_and_not_through_the_warm_up() -> None:
    planner = Planner(policy("deepseek-flat"), Constraints(min_replicas=2))
    window, topology = LoadWindow.of(LOAD), Topology.uniform(2, 4)
    planner.warm_up(window, topology, None)
    with pytest.raises(EplbInputError, match="min_replicas"):
        planned(planner, window, topology, None)


def test_engines_begin_with_the_experts_in_order_over_the_live_slots() -> None:
    topology = Topology.uniform(3, slots_per_rank=[3, 2, 2]).without([1])
    assert engine_placement(2, 4, topology).slots.tolist() == [[[0, 1, 2], [-1, -1, -1], [3, 0, -1]]] * 2
    with pytest.raises(TooFewSlots):
        engine_placement(2, 6, topology)
