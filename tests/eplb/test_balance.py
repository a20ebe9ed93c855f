"""Rank loads, balancedness and copies: small placements whose figures are reckoned by hand."""

from __future__ import annotations

import numpy as np
import pytest

from windtunnel.eplb.balance import (
    arrivals,
    balancedness,
    balancedness_weighted,
    checked_load,
    copies_between,
    explained,
    holders,
    rank_loads,
)
from windtunnel.eplb.placement import Placement
from windtunnel.eplb.topology import Topology
from windtunnel.errors import EplbInputError

LOAD = np.array([[60.0, 20.0, 10.0], [0.0, 0.0, 0.0]])
SLOTS = [[[0, 1], [0, 2]], [[0, 1], [2, -1]]]


def test_an_even_split_gives_each_replica_the_same() -> None:
    assert rank_loads(LOAD, Placement.of(SLOTS, 3)).tolist() == [[50, 40], [0, 0]]


def test_a_weighted_split_follows_the_shares() -> None:
    share = [[[0.25, 1], [0.75, 1]], [[1, 1], [1, 0]]]
    placement = Placement.of(SLOTS, 3, share=share)
    assert rank_loads(LOAD, placement, weighted=True).tolist() == [[35, 55], [0, 0]]
    assert rank_loads(LOAD, placement).tolist() == [[50, 40], [0, 0]]
    assert balancedness_weighted(LOAD[:1], Placement.of(SLOTS[:1], 3, share=share[:1])) == pytest.approx(45 / 55)


def test_balancedness_is_the_mean_over_layers_and_a_layer_without_load_is_balanced() -> None:
    assert balancedness(LOAD, Placement.of(SLOTS, 3)) == pytest.approx((45 / 50 + 1) / 2)


def test_ranks_without_any_expert_do_not_count() -> None:
    dead = [[[0, 1], [-1, -1], [0, 2]]]
    assert balancedness(LOAD[:1], Placement.of(dead, 3)) == pytest.approx(45 / 50)
    assert balancedness(LOAD[:1], Placement.of(np.full((1, 2, 2), -1), 3)) == 1


def test_only_what_is_new_to_a_rank_is_a_copy() -> None:
    before = Placement.of([[[0, 1], [0, 2]]], 3)
    assert copies_between(before, Placement.of([[[1, 0], [2, 0]]], 3)) == 0  # other slots of the same rank
    assert copies_between(before, Placement.of([[[0, 1], [2, -1]]], 3)) == 0  # dropped
    assert copies_between(before, Placement.of([[[0, 2], [1, 2]]], 3)) == 2
    assert copies_between(before, Placement.of([[[0, 1], [1, 1]]], 3)) == 1  # twice on a rank is sent once
    assert arrivals(before, Placement.of([[[0, 2], [1, 1]]], 3)).tolist() == [1, 1]
    assert holders(before).tolist() == [[[True, True, False], [True, False, True]]]


def test_an_explanation_counts_live_slots_only() -> None:
    topology = Topology.uniform(3, 6).without([1])
    before = Placement.of([[[0, 1], [-1, -1], [0, 2]]], 3)
    after = Placement.of([[[0, 2], [-1, -1], [0, 1]]], 3)
    told = explained("mine", LOAD[:1], topology, before, after, {"tolerance": 1})
    assert (told.copies, told.moved_ratio) == (2, 0.5)
    assert (told.balancedness_before, told.balancedness) == (pytest.approx(45 / 50), pytest.approx(45 / 50))
    first = explained("mine", LOAD[:1], topology, None, after, {})
    assert (first.copies, first.moved_ratio, first.balancedness_before) == (0, 0, None)


@pytest.mark.parametrize(
    ("load", "words"),
    [
        ([[1.0, np.nan]], "layer 0, expert 1 has nan tokens"),
        ([[1.0], [np.inf]], "layer 1, expert 0 has inf tokens"),
        ([[-1, 2]], "layer 0, expert 0 has -1 tokens"),
        ([[1e308, 1e308]], r"layer 0, expert 0 has 1e\+308 tokens"),
        ([1.0, 2.0], r"shape \(2,\)"),
        (np.zeros((0, 4)), r"shape \(0, 4\)"),
        ([["many"]], "dtype"),
    ],
)
def test_a_load_that_makes_no_sense_is_refused_by_its_first_place(load: object, words: str) -> None:
    with pytest.raises(EplbInputError, match=f"^load: .*{words}"):
        checked_load(load)  # type: ignore[arg-type]


def test_whole_numbers_are_a_load() -> None:
    checked = checked_load([[2**62, 3]])
    assert checked.dtype == np.float64 and checked[0, 0] == 2**62
