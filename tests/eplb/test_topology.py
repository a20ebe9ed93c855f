"""Topologies: what fits together, and what is named where it doesn't."""

from __future__ import annotations

from typing import Any

import pytest

from windtunnel.eplb.topology import Topology
from windtunnel.errors import EplbInputError


def test_ranks_are_laid_over_nodes_and_slots_over_ranks_the_first_ones_getting_more() -> None:
    topology = Topology.uniform(5, 12, nodes=2)
    assert topology.slots_per_rank == (3, 3, 2, 2, 2)
    assert topology.node_of_rank == (0, 0, 0, 1, 1)
    assert (topology.num_ranks, topology.num_nodes, topology.width, topology.num_slots) == (5, 2, 3, 12)


def test_a_rank_that_died_has_no_slots() -> None:
    topology = Topology.uniform(3, slots_per_rank=(4, 2, 1))
    left = topology.without([0])
    assert (left.live_ranks, left.dead_ranks) == ((1, 2), (0,))
    assert left.live_slots_per_rank == (0, 2, 1)
    assert (left.num_slots, left.num_ranks, left.width) == (3, 3, 4)
    assert left == topology.without([0]) != topology and hash(left) == hash(topology.without([0]))


def test_a_rank_may_only_route() -> None:
    assert Topology.uniform(2, slots_per_rank=(0, 3)).num_slots == 3


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"ranks": 0, "slots": 1}, "ranks"),
        ({"ranks": 2, "slots": 4, "nodes": 3}, "nodes"),
        ({"ranks": 2, "slots": 4, "nodes": 0}, "nodes"),
        ({"ranks": 2}, "slots"),
        ({"ranks": 2, "slots": 4, "slots_per_rank": (2, 2)}, "slots"),
        ({"ranks": 2, "slots_per_rank": (2, 2, 2)}, "slots_per_rank"),
        ({"ranks": 2, "slots_per_rank": (2, -1)}, "slots_per_rank"),
        ({"ranks": 2, "slots_per_rank": (2, 10**20)}, "slots_per_rank"),
        ({"ranks": 2, "slots": -1}, "slots"),
        ({"ranks": 2, "slots": 4, "num_groups": 0}, "num_groups"),
    ],
)
def test_counts_that_make_no_sense_are_named(arguments: dict[str, Any], field: str) -> None:
    with pytest.raises(EplbInputError) as error:
        Topology.uniform(**arguments)
    assert error.value.field == field


@pytest.mark.parametrize(
    ("parts", "field"),
    [
        (((), (), ()), "slots_per_rank"),
        (((1, 1), (0,), (True, True)), "node_of_rank"),
        (((1, 1), (0, 0), (True,)), "live"),
        (((1, 1), (0, 2), (True, True)), "node_of_rank"),
        (((1, 1), (-1, 0), (True, True)), "node_of_rank"),
    ],
)
def test_parts_that_do_not_fit_are_named(parts: tuple[Any, Any, Any], field: str) -> None:
    with pytest.raises(EplbInputError) as error:
        Topology(*parts)
    assert error.value.field == field
