"""Input that other balancers drop experts for, or fail on without a word: a right answer, or an error that names it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from windtunnel.eplb.balance import holders, rank_loads
from windtunnel.eplb.placement import EMPTY, Placement
from windtunnel.eplb.policies import Budget, Constraints, Explanation, policy
from windtunnel.eplb.topology import Topology
from windtunnel.errors import EplbInputError, TooFewSlots, WindtunnelError

POLICIES = ("windtunnel", "deepseek", "deepseek-flat")
BOTH_DEEPSEEKS = POLICIES[1:]


@dataclass(frozen=True)
class Window:
    mean: NDArray[Any]
    noise: NDArray[Any]


def planned(
    name: str,
    load: Any,
    topology: Topology,
    committed: Placement | None = None,
    constraints: Constraints | None = None,
    budget: Budget | None = None,
    noise: Any = None,
) -> tuple[Placement, Explanation]:
    mean = np.asarray(load)
    window = Window(mean, np.zeros(mean.shape) if noise is None else np.asarray(noise))
    return policy(name)(window, topology, committed, constraints or Constraints(), budget or Budget())


def skewed(layers: int = 2, experts: int = 16) -> NDArray[np.float64]:
    return np.random.default_rng(1).lognormal(0, 1, (layers, experts))


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize(
    ("load", "topology"),
    [
        pytest.param(np.zeros((2, 16)), Topology.uniform(4, 24), id="no load at all"),
        pytest.param(np.eye(1, 16) * 1e6, Topology.uniform(4, 24), id="all load on one expert"),
        pytest.param(np.full((1, 16), 7), Topology.uniform(4, 24), id="whole numbers"),
        pytest.param(np.full((1, 16), 2**62, np.uint64), Topology.uniform(4, 24), id="large whole numbers"),
        pytest.param(skewed().astype(np.float16), Topology.uniform(4, 24), id="half precision"),
        pytest.param(skewed(), Topology.uniform(4, 16), id="no spare slot"),
        pytest.param(skewed(), Topology.uniform(1, 16), id="one rank"),
        pytest.param(skewed(1, 1), Topology.uniform(3, 3), id="one expert"),
        pytest.param(skewed(), Topology.uniform(16, 16), id="a slot a rank"),
        pytest.param(skewed(), Topology.uniform(4, slots_per_rank=(8, 0, 8, 0)), id="ranks that only route"),
        pytest.param(skewed(), Topology.uniform(4, 32).without([0]), id="survivors with room"),
    ],
)
def test_every_expert_is_placed_and_predictions_are_finite(name: str, load: Any, topology: Topology) -> None:
    placement, explanation = planned(name, load, topology)
    assert not placement.missing
    assert 0 < explanation.balancedness <= 1 + 1e-9
    again, _ = planned(name, load, topology)
    assert placement == again


def test_all_load_on_one_expert_is_spread_over_all_ranks() -> None:
    placement, explanation = planned("windtunnel", np.eye(1, 16), Topology.uniform(4, 24))
    assert placement.replica_counts[0, 0] == 4
    assert explanation.balancedness == pytest.approx(1)


def test_with_room_for_everything_everywhere_each_rank_has_everything_and_nothing_twice() -> None:
    exactly, _ = planned("windtunnel", skewed(2, 8), Topology.uniform(4, 32))
    assert holders(exactly).all()
    more, _ = planned("windtunnel", skewed(2, 8), Topology.uniform(4, 40))
    assert holders(more).all()
    assert (more.slots == EMPTY).sum() == 2 * 8


def test_slots_that_do_not_divide_are_used_by_ours_and_refused_by_deepseeks() -> None:
    topology = Topology.uniform(5, 23, nodes=2)
    placement, explanation = planned("windtunnel", skewed(), topology)
    assert placement.slots_per_rank == (5, 5, 5, 4, 4)
    assert 2 * 20 < (placement.slots != EMPTY).sum() <= 2 * 23
    assert explanation.balancedness > 0.9
    for name in BOTH_DEEPSEEKS:
        with pytest.raises(EplbInputError, match="slots_per_rank: ranks have 4 and 5 slots"):
            planned(name, skewed(), topology)


def test_a_rank_with_more_slots_gets_more_experts_and_no_more_tokens() -> None:
    topology = Topology.uniform(3, slots_per_rank=(12, 6, 3))
    load = skewed(4, 16)
    placement, _ = planned("windtunnel", load, topology)
    loads = rank_loads(load, placement)
    assert (loads.max(axis=1) / loads.mean(axis=1) < 1.08).all()


def test_groups_that_do_not_divide_are_named_where_they_matter() -> None:
    topology = Topology.uniform(4, 24, nodes=2, num_groups=6)
    for name, constraints in (("windtunnel", Constraints(keep_groups=True)), ("deepseek", Constraints())):
        with pytest.raises(EplbInputError, match="num_groups: 16 experts in 6 groups do not divide"):
            planned(name, skewed(), topology, None, constraints)
    planned("windtunnel", skewed(), topology)  # they are not asked to stay together


def test_deepseek_is_flat_where_groups_do_not_divide_by_nodes() -> None:
    topology = Topology.uniform(6, 24, nodes=3, num_groups=4)
    assert planned("deepseek", skewed(), topology)[0] == planned("deepseek-flat", skewed(), topology)[0]


WRONG_LOADS: dict[str, Any] = {
    "layer 1, expert 2 has nan tokens": [[1.0] * 16, [1.0, 1.0, np.nan] + [1.0] * 13],
    "layer 0, expert 0 has inf tokens": [[np.inf] + [1.0] * 15],
    "layer 0, expert 3 has -2.0 tokens": [[1.0, 1.0, 1.0, -2.0] + [1.0] * 12],
    "shape": [1.0] * 16,
    "dtype": [["x"] * 16],
}


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("words", WRONG_LOADS)
def test_a_load_that_makes_no_sense_is_refused(name: str, words: str) -> None:
    with pytest.raises(EplbInputError, match=f"load: .*{words}"):
        planned(name, WRONG_LOADS[words], Topology.uniform(4, 24), noise=np.zeros((1, 16)))


@pytest.mark.parametrize("name", POLICIES)
def test_fewer_slots_than_experts_are_refused_with_both_numbers(name: str) -> None:
    with pytest.raises(TooFewSlots, match=r"16 slots are needed in each layer .* 12 are there on 4 live ranks"):
        planned(name, skewed(), Topology.uniform(4, 12))
    with pytest.raises(TooFewSlots, match=r"15 are there on 3 live ranks"):
        planned(name, skewed(), Topology.uniform(4, 20).without([1]))
    with pytest.raises(WindtunnelError):
        planned(name, skewed(), Topology.uniform(2, 40).without([0, 1]))


REFUSED: dict[str, tuple[Constraints, Budget]] = {
    "min_replicas: 5 replicas on different ranks, and 4 have slots": (Constraints(min_replicas=5), Budget()),
    "min_replicas: 3 replicas on different nodes, and 2 have slots": (
        Constraints(min_replicas=3, spread="node"),
        Budget(),
    ),
    "min_replicas: 0 replicas": (Constraints(min_replicas=0), Budget()),
    "pinned: there is no expert 16": (Constraints(pinned={16: (0,)}), Budget()),
    "pinned: expert 1 is pinned to rank 4": (Constraints(pinned={1: (4,)}), Budget()),
    "pinned: 10 experts for the 9 slots of rank 2": (Constraints(pinned=dict.fromkeys(range(10), (2,))), Budget()),
    "pinned: group 0 is pinned to nodes 0 and 1": (Constraints(pinned={0: (0,), 1: (3,)}, keep_groups=True), Budget()),
    "keep_groups: a group stays on one node, and has replicas on 2": (
        Constraints(min_replicas=2, spread="node", keep_groups=True),
        Budget(),
    ),
    "moved_ratio: -0.1": (Constraints(), Budget(moved_ratio=-0.1)),
    "tolerance: nan": (Constraints(), Budget(tolerance=float("nan"))),
    "bytes_per_rank: -1": (Constraints(), Budget(bytes_per_rank=-1, expert_bytes=1)),
    "expert_bytes: bytes_per_rank is given, and an expert has None bytes": (Constraints(), Budget(bytes_per_rank=9)),
}


@pytest.mark.parametrize("words", REFUSED)
def test_constraints_and_budgets_that_make_no_sense_name_their_field(words: str) -> None:
    topology = Topology.uniform(4, 36, nodes=2, num_groups=4)
    with pytest.raises(EplbInputError, match=f"^{words}"):
        planned("windtunnel", skewed(), topology, None, *REFUSED[words])


def test_too_few_slots_for_the_replicas_asked_for_say_so() -> None:
    with pytest.raises(
        TooFewSlots, match=r"32 slots are needed .*2 for each expert, on different ranks.* 30 are there"
    ):
        planned("windtunnel", skewed(), Topology.uniform(5, 30), None, Constraints(min_replicas=2))
    uneven = Topology.uniform(4, nodes=2, slots_per_rank=(16, 16, 4, 4))
    with pytest.raises(TooFewSlots, match="2 for each expert, on different nodes"):
        planned("windtunnel", skewed(), uneven, None, Constraints(min_replicas=2, spread="node"))
    one_group = Topology.uniform(4, 36, nodes=4)
    with pytest.raises(TooFewSlots, match="groups of 16 experts stay on one node each"):
        planned("windtunnel", skewed(), one_group, None, Constraints(keep_groups=True))


DEEPSEEK_CANNOT: dict[str, Callable[[], tuple[Constraints, Budget]]] = {
    "min_replicas": lambda: (Constraints(min_replicas=2), Budget()),
    "pinned": lambda: (Constraints(pinned={0: (1,)}), Budget()),
    "moved_ratio": lambda: (Constraints(), Budget(moved_ratio=0.1)),
    "bytes_per_rank": lambda: (Constraints(), Budget(bytes_per_rank=10, expert_bytes=1)),
    "full_replan": lambda: (Constraints(), Budget(full_replan=False)),
}


@pytest.mark.parametrize("name", BOTH_DEEPSEEKS)
@pytest.mark.parametrize("field", DEEPSEEK_CANNOT)
def test_deepseeks_policies_refuse_what_they_can_not_keep_to(name: str, field: str) -> None:
    with pytest.raises(EplbInputError, match=f"^{field}: the policy {name} can't keep to it"):
        planned(name, skewed(), Topology.uniform(4, 24), None, *DEEPSEEK_CANNOT[field]())


def test_a_placement_of_another_model_or_other_ranks_is_refused() -> None:
    topology = Topology.uniform(4, 24)
    committed, _ = planned("windtunnel", skewed(), topology)
    for load, ranks in ((skewed(3), 4), (skewed(2, 12), 4), (skewed(), 6)):
        with pytest.raises(EplbInputError, match=r"^committed: 2 layers, 4 ranks, 16 experts, and the load"):
            planned("windtunnel", load, Topology.uniform(ranks, 24), committed)


def test_a_noise_of_another_shape_is_refused() -> None:
    with pytest.raises(EplbInputError, match=r"^noise: shape \(2, 15\) for a load of \(2, 16\)"):
        planned("windtunnel", skewed(), Topology.uniform(4, 24), noise=np.zeros((2, 15)))
    with pytest.raises(EplbInputError, match=r"^noise: layer 0, expert 0 has nan tokens"):
        planned("windtunnel", skewed(), Topology.uniform(4, 24), noise=np.full((2, 16), np.nan))


def test_a_load_that_spans_many_orders_of_magnitude_is_balanced_like_any_other() -> None:
    topology = Topology.uniform(4, 24)
    plain, _ = planned("windtunnel", skewed(), topology)
    for scale in (1e-300, 1e300):
        assert np.array_equal(planned("windtunnel", skewed() * scale, topology)[0].slots, plain.slots)
