"""After a death: the least that must move, whether to try again, and what the next death would cost."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windtunnel.eplb.placement import EMPTY, Placement
from windtunnel.eplb.recovery import RecoveryPolicy, cover, survivability
from windtunnel.eplb.topology import Topology
from windtunnel.eplb.transaction.instructions import Outcome
from windtunnel.errors import EplbInputError, TooFewSlots

quick = settings(max_examples=300, deadline=None)


def placement(*ranks: list[int], experts: int, epoch: int = 4) -> Placement:
    """Of one layer."""
    width = max(map(len, ranks))
    slots = [[*rank, *[EMPTY] * (width - len(rank))] for rank in ranks]
    return Placement.of([slots], experts, slots_per_rank=tuple(map(len, ranks)), epoch=epoch)


def topology_of(held: Placement, *dead: int) -> Topology:
    return Topology.uniform(held.num_ranks, slots_per_rank=held.slots_per_rank).without(dead)


@st.composite
def clusters(draw: st.DrawFn) -> tuple[Placement, Topology]:
    """A placement, a topology in which some ranks have died. Experts may be missing, slots empty."""
    ranks, layers, experts = draw(st.integers(1, 6)), draw(st.integers(1, 3)), draw(st.integers(1, 10))
    widths = tuple(draw(st.lists(st.integers(0, 4), min_size=ranks, max_size=ranks).filter(any)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    slots = rng.integers(draw(st.sampled_from([-1, -1, 0])), experts, (layers, ranks, max(widths)))
    slots[:, np.arange(max(widths)) >= np.asarray(widths)[:, None]] = EMPTY
    share = None
    if draw(st.booleans()):
        share = rng.random(slots.shape) * (slots != EMPTY)
        for layer, expert in itertools.product(range(layers), range(experts)):
            here = slots[layer] == expert
            share[layer][here] /= share[layer][here].sum()
    held = Placement.of(slots, experts, slots_per_rank=widths, share=share, epoch=draw(st.integers(0, 9)))
    dead = draw(st.sets(st.integers(0, ranks - 1), max_size=ranks - 1))
    return held, topology_of(held, *dead)


@quick
@given(clusters())
def test_every_expert_gets_a_home_and_nothing_else_changes(
    cluster: tuple[Placement, Topology],
) -> None:
    held, topology = cluster
    left = held.without_ranks([r for r, live in enumerate(topology.live) if not live], held.epoch)
    if left.missing and topology.num_slots < held.num_experts:
        with pytest.raises(TooFewSlots) as refused:
            cover(held, topology)
        assert (refused.value.needed, refused.value.available) == (held.num_experts, topology.num_slots)
        return
    covered = cover(held, topology)
    assert not covered.missing
    changed = covered.slots != left.slots
    assert changed.sum() == len(left.missing), "one slot for each missing expert, and no other"
    assert sorted(
        (int(layer), int(covered.slots[layer, rank, slot])) for layer, rank, slot in np.argwhere(changed)
    ) == (sorted(left.missing))
    for layer in range(held.num_layers):
        if (changed[layer] & (left.slots[layer] != EMPTY)).any():
            empty = np.arange(covered.slots.shape[2]) < np.asarray(topology.live_slots_per_rank)[:, None]
            assert not (empty & (covered.slots[layer] == EMPTY)).any(), "replicas go only where no slot was empty"
    assert cover(held, topology) == covered, "deterministic"
    assert cover(covered, topology) is covered


@quick
@given(clusters())
def test_shares_stay_but_for_experts_whose_replicas_changed(
    cluster: tuple[Placement, Topology],
) -> None:
    held, topology = cluster
    try:
        covered = cover(held, topology)
    except TooFewSlots:
        return
    even = Placement.of(covered.slots, held.num_experts, slots_per_rank=held.slots_per_rank).share
    for layer, expert in itertools.product(range(held.num_layers), range(held.num_experts)):
        before, after = held.slots[layer] == expert, covered.slots[layer] == expert
        expected = held.share if (before == after).all() else even
        assert np.array_equal(covered.share[layer][after], expected[layer][after])


def test_where_nothing_is_missing_the_placement_itself_comes_back() -> None:
    held = placement([0, 1], [1, 0], experts=2)
    assert cover(held, topology_of(held)) is held


def test_dead_ranks_are_emptied_even_where_nothing_is_missing() -> None:
    held = placement([0, 1], [1, 0], experts=2)
    covered = cover(held, topology_of(held, 1))
    assert covered.slots[0].tolist() == [[0, 1], [EMPTY, EMPTY]] and covered.epoch == 5
    assert covered.share[0].tolist() == [[1, 1], [0, 0]]


def test_an_empty_slot_is_taken_before_any_replica_is_given_up() -> None:
    held = placement([0, 1, 1], [1, EMPTY, 0], [2, 2, 2], experts=3)
    assert cover(held, topology_of(held, 2)).slots[0].tolist() == [[0, 1, 1], [1, 2, 0], [EMPTY] * 3]


def test_of_empty_slots_the_one_on_the_rank_with_the_least_load_is_taken() -> None:
    held = placement([0, EMPTY], [1, EMPTY], [2, 1], [3, 3], experts=4)
    assert cover(held, topology_of(held, 3)).ranks_of(0, 3) == [(1, 1)], "its expert has another replica"


def test_of_the_expert_with_the_most_replicas_one_gives_way_on_the_rank_with_the_least_to_do() -> None:
    # expert 0 has three replicas; expert 1, with two, makes more to do on ranks 0 and 2
    held = placement([0, 1], [0, 2], [0, 1], [4, 3], experts=5)
    covered = cover(held, topology_of(held, 3))
    assert covered.slots[0].tolist() == [[3, 1], [0, 2], [4, 1], [EMPTY] * 2]


def test_each_expert_that_finds_its_place_counts_for_the_next_one() -> None:
    held = placement([0, 1], [1, 2], [2, 4], [0, 2], [3], experts=5)
    covered = cover(held, topology_of(held, 4))
    assert covered.slots[0].tolist() == [[0, 1], [1, 3], [2, 4], [0, 2], [EMPTY] * 2]


def test_a_replica_with_a_twin_on_its_rank_gives_way_first() -> None:
    held = placement([0, 2], [0, 2], [1, 1], [0, 3], experts=4)
    covered = cover(held, topology_of(held, 3))
    assert covered.slots[0].tolist() == [[0, 2], [0, 2], [3, 1], [EMPTY] * 2]


def test_too_few_slots_are_told_with_their_numbers() -> None:
    held = placement([0, 1], [2, 3], [4, 0], experts=5)
    with pytest.raises(TooFewSlots) as refused:
        cover(held, topology_of(held, 1))
    assert refused.value.facts == {
        "needed": 5, "available": 4, "live_ranks": 2, "reason": "one for each of 5 experts"
    }  # fmt: skip


def test_a_topology_of_other_ranks_is_refused() -> None:
    held = placement([0, 1], experts=2)
    for check in (cover, survivability):
        with pytest.raises(EplbInputError, match="topology: "):
            check(held, Topology.uniform(2, 2))


# --- what the next death would cost -------------------------------------------------------------------------------


@quick
@given(clusters(), st.integers(1, 3))
def test_the_cost_of_the_next_death_is_what_that_death_takes(cluster: tuple[Placement, Topology], nodes: int) -> None:
    held, topology = cluster
    nodes = min(nodes, held.num_ranks)
    node_of_rank = Topology.uniform(held.num_ranks, held.num_ranks, nodes=nodes).node_of_rank
    topology = Topology(topology.slots_per_rank, node_of_rank, topology.live)
    cost = survivability(held, topology)
    left = held.without_ranks([r for r, live in enumerate(topology.live) if not live], 0)
    assert cost.missing == len(left.missing)
    assert cost.min_live_replicas == left.replica_counts.min()
    for rank in range(held.num_ranks):
        assert cost.lost_by_rank[rank] == len(left.without_ranks([rank], 0).missing) - cost.missing
    for node in range(nodes):
        dead = [rank for rank in range(held.num_ranks) if node_of_rank[rank] == node]
        assert cost.lost_by_node[node] == len(left.without_ranks(dead, 0).missing) - cost.missing


# --- retry or evict -----------------------------------------------------------------------------------------------

ALIVE = (0, 1, 2, 3, 5)
DECISIONS = [
    # culprits, attempts, evict_stubborn, action, ranks
    ((4,), 1, False, "evict", (4,)),
    ((4, 1), 1, False, "evict", (4,)),
    ((4,), 9, True, "evict", (4,)),
    ((6, 4), 1, False, "evict", (4, 6)),
    ((1,), 1, False, "retry", ()),
    ((1,), 2, True, "retry", ()),
    ((1,), 3, False, "give up", ()),
    ((1,), 3, True, "evict", (1,)),
    ((2, 1), 3, True, "evict", (1, 2)),
    ((1, 2, 3), 3, True, "give up", ()),
    (ALIVE, 3, True, "give up", ()),
    ((), 1, True, "retry", ()),
    ((), 3, True, "give up", ()),
]


@pytest.mark.parametrize(("culprits", "attempts", "stubborn", "action", "ranks"), DECISIONS)
def test_the_decision_follows_from_who_is_to_blame_and_who_is_alive(
    culprits: tuple[int, ...], attempts: int, stubborn: bool, action: str, ranks: tuple[int, ...]
) -> None:
    policy = RecoveryPolicy(retries=2, retry_after_s=0.5, evict_stubborn=stubborn)
    outcome = Outcome(1, 8, False, "transferring", "rank 7: it rained", culprits)
    decision = policy.decide(outcome, ALIVE, attempts)
    assert (decision.action, decision.ranks) == (action, ranks)
    assert decision.after_s == (0.5 if action == "retry" else 0)
    assert decision.reason.endswith(": rank 7: it rained")


def test_a_decision_gives_its_reason_in_words() -> None:
    policy = RecoveryPolicy(retries=1)
    outcome = Outcome(1, 8, False, "transferring", "it rained", (3, 1))
    assert policy.decide(outcome, ALIVE, 1).reason == "try 1 of 2 failed with ranks 1, 3 alive: it rained"
    assert policy.decide(outcome, ALIVE, 2).reason == "2 of 2 tries failed with ranks 1, 3 alive: it rained"
    assert policy.decide(outcome, (1,), 1).reason == "without rank 3 from now on: it rained"
    nobody = Outcome(1, 8, False, "preparing", "it rained")
    assert policy.decide(nobody, ALIVE, 2).reason == "2 of 2 tries failed with no rank to blame: it rained"


def test_without_retries_the_first_failure_decides() -> None:
    outcome = Outcome(1, 8, False, "transferring", "it rained", (1,))
    assert RecoveryPolicy(retries=0).decide(outcome, ALIVE, 1).action == "give up"


@pytest.mark.parametrize("wrong", [{"retries": -1}, {"retry_after_s": -0.1}, {"retry_after_s": float("nan")}])
def test_a_policy_that_makes_no_sense_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(EplbInputError) as refused:
        RecoveryPolicy(**wrong)  # type: ignore[arg-type]
    assert refused.value.field in wrong
