"""The split of tokens over replicas: the best shares for a placement, against reckoning by hand and an exact check."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windtunnel.eplb.balance import balancedness, balancedness_weighted, rank_loads
from windtunnel.eplb.load import LoadWindow
from windtunnel.eplb.placement import EMPTY, Placement
from windtunnel.eplb.policies import Budget, Constraints, policy
from windtunnel.eplb.policies.split import split_tokens
from windtunnel.eplb.topology import Topology
from windtunnel.errors import EplbInputError


def test_the_colder_rank_takes_more_of_a_shared_expert() -> None:
    placement = split_tokens(np.array([[60.0, 30.0, 10.0]]), Placement.of([[[0, 1], [0, 2]]], 3, epoch=3))
    assert placement.share[0] == pytest.approx(np.array([[20 / 60, 1], [40 / 60, 1]]), abs=1e-6)
    assert (placement.epoch, placement.slots.tolist()) == (3, [[[0, 1], [0, 2]]])


def test_load_flows_through_a_chain_of_shared_experts() -> None:
    # only rank 1 can relieve rank 0, and only rank 2 can relieve rank 1
    load = np.array([[30.0, 30.0, 0.0, 21.0]])
    placement = split_tokens(load, Placement.of([[[0, 3], [0, 1], [1, 2]]], 4))
    assert rank_loads(load, placement, weighted=True)[0] == pytest.approx([27, 27, 27], abs=1e-4)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([1, 1e-9, 1e15]))
def test_shares_add_up_and_no_set_of_ranks_could_have_less(seed: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    layers, experts, ranks = 2, 6, 4
    slots = rng.integers(EMPTY, experts, (layers, ranks, 4))
    load = rng.lognormal(0, 2, (layers, experts)) * scale
    load[rng.random(load.shape) < 0.2] = 0
    placement = Placement.of(slots, experts)
    split = split_tokens(load, placement)  # Placement.of checks that shares add up
    most = rank_loads(load, split, weighted=True).max(axis=1)
    assert (most <= rank_loads(load, placement).max(axis=1) * (1 + 1e-5)).all()
    for layer in range(layers):
        # what lives on a set of ranks alone has to be done by them: the densest set is the bound (duality)
        homes = [{rank for rank in range(ranks) if expert in slots[layer, rank]} for expert in range(experts)]
        densest = max(
            sum(load[layer, expert] for expert in range(experts) if homes[expert] and homes[expert] <= ranks_of_set)
            / len(ranks_of_set)
            for ranks_of_set in ({r for r in range(ranks) if bits >> r & 1} for bits in range(1, 2**ranks))
        )
        assert most[layer] == pytest.approx(densest, rel=1e-4)


def test_after_a_drift_the_split_gives_balance_back_without_a_byte() -> None:
    topology = Topology.uniform(8, 80)
    load = np.random.default_rng(1).lognormal(0, 1, (6, 64))
    placement, _ = policy("windtunnel")(LoadWindow.of(load), topology, None, Constraints(), Budget())
    load *= np.random.default_rng(2).lognormal(0, 0.2, load.shape)
    split = split_tokens(load, placement)
    assert np.array_equal(split.slots, placement.slots)
    assert balancedness_weighted(load, split) > balancedness(load, placement) + 0.03
    assert split == split_tokens(load, placement)


def test_without_load_or_replicas_the_split_stays_even() -> None:
    twice = Placement.of([[[0, 1], [0, 2]]], 3)
    assert split_tokens(np.zeros((1, 3)), twice) == twice
    once = Placement.of([[[0, 1], [2, EMPTY]]], 3)
    assert split_tokens(np.ones((1, 3)), once) == once
    on_one_rank = Placement.of([[[0, 0], [1, 2]]], 3)
    assert split_tokens(np.ones((1, 3)), on_one_rank) == on_one_rank


def test_a_load_of_another_shape_or_without_sense_is_refused() -> None:
    placement = Placement.of([[[0, 1], [0, 2]]], 3)
    with pytest.raises(EplbInputError, match=r"load: shape \(1, 2\) for 1 layers of 3 experts"):
        split_tokens(np.ones((1, 2)), placement)
    with pytest.raises(EplbInputError, match="load: layer 0, expert 2 has nan tokens"):
        split_tokens(np.array([[1, 1, np.nan]]), placement)
