"""DeepSeek's policy, slot for slot what the published program answers: its answers are `published_deepseek.json`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from windtunnel.eplb.load import LoadWindow
from windtunnel.eplb.placement import EMPTY, Placement
from windtunnel.eplb.policies import Budget, Constraints, policy
from windtunnel.eplb.topology import Topology

CASES: list[dict[str, Any]] = json.loads(Path(__file__).with_name("published_deepseek.json").read_text())


def name_of(case: dict[str, Any]) -> str:
    return f"{case['load']}-{len(case['weights'][0])}-{case['groups']}-{case['nodes']}-{case['ranks']}"


def planned(name: str, case: dict[str, Any], slots: int) -> Placement:
    topology = Topology.uniform(case["ranks"], slots, nodes=case["nodes"], num_groups=case["groups"])
    return policy(name)(LoadWindow.of(case["weights"]), topology, None, Constraints(), Budget())[0]


def shares(slots: NDArray[Any], weights: NDArray[np.float32]) -> NDArray[np.float32]:
    """What each slot of a layer carries."""
    counts = np.bincount(slots, minlength=len(weights)).astype(np.float32)
    return np.asarray((weights / counts)[slots])


@pytest.mark.parametrize("case", CASES, ids=name_of)
@pytest.mark.parametrize(("name", "field"), [("deepseek", "hierarchical"), ("deepseek-flat", "flat")])
def test_slots_are_those_of_the_published_program(name: str, field: str, case: dict[str, Any]) -> None:
    published = np.array(case[field])
    layers = planned(name, case, published.shape[1]).slots.reshape(published.shape)
    for mine, theirs, weights in zip(layers, published, np.array(case["weights"], np.float32), strict=True):
        assert np.array_equal(shares(mine, weights), shares(theirs, weights))
        per_expert = shares(np.arange(len(weights)), weights) / np.bincount(theirs, minlength=len(weights))
        if len(theirs) <= 16 or len(np.unique(per_expert)) == len(weights):
            # of more than 16 that are alike, the published program's sort takes any first
            assert np.array_equal(mine, theirs)


def test_dead_ranks_are_passed_over() -> None:
    load = LoadWindow.of(CASES[0]["weights"])
    whole = Topology.uniform(4, 24)
    left, _ = policy("deepseek-flat")(load, whole.without([2]), None, Constraints(), Budget())
    three, _ = policy("deepseek-flat")(load, Topology.uniform(3, 18), None, Constraints(), Budget())
    assert (left.slots[:, 2] == EMPTY).all()
    assert np.array_equal(left.slots[:, [0, 1, 3]], three.slots)


def test_ranks_of_a_node_need_not_be_numbered_in_a_row() -> None:
    load = LoadWindow.of(CASES[0]["weights"])
    in_a_row = Topology.uniform(4, 24, nodes=2, num_groups=4)
    crossed = Topology((6,) * 4, (0, 1, 0, 1), (True,) * 4, 4)
    there, _ = policy("deepseek")(load, in_a_row, None, Constraints(), Budget())
    here, _ = policy("deepseek")(load, crossed, None, Constraints(), Budget())
    assert np.array_equal(here.slots[:, [0, 2, 1, 3]], there.slots)


def test_it_counts_its_copies_against_what_is_committed_and_says_that_it_starts_over() -> None:
    load = LoadWindow.of(CASES[0]["weights"])
    topology = Topology.uniform(4, 24)
    first, told = policy("deepseek-flat")(load, topology, None, Constraints(), Budget())
    assert (told.copies, told.balancedness_before) == (0, None)
    again, told = policy("deepseek-flat")(load, topology, first, Constraints(), Budget())
    assert np.array_equal(again.slots, first.slots)
    assert (again.epoch, told.copies, told.moved_ratio) == (1, 0, 0)
    assert told.stopped == {"replanned": first.num_layers}
    assert told.balancedness == told.balancedness_before
