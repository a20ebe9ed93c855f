"""Plans: each way from a placement to another, held against what it must never do and against the best there is."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windtunnel.eplb.links import choose_sources, deal_batches
from windtunnel.eplb.placement import EMPTY, Placement
from windtunnel.eplb.plan import WEIGHT_SOURCE, Copy, LinkSpeeds, Plan, Source, make_plan
from windtunnel.eplb.topology import Topology
from windtunnel.errors import EplbInputError, ExpertLost


def placed(*layers: list[list[int]], experts: int | None = None, **more: Any) -> Placement:
    return Placement.of(list(layers), 1 + max(max(map(max, x)) for x in layers) if experts is None else experts, **more)


def planned(base: Placement, target: Placement, **more: Any) -> Plan:
    options: dict[str, Any] = {
        "topology": Topology.uniform(base.num_ranks, slots_per_rank=base.slots_per_rank),
        "group_bytes": [10] * base.num_layers,
        "staging_buffers": [base.slots.shape[2]] * base.num_ranks,
        **more,
    }
    return make_plan(base, target, options.pop("topology"), **options)


def test_nothing_to_do_is_a_plan_without_steps() -> None:
    base = placed([[0, 1], [2, 0]])
    plan = planned(base, base)
    assert (plan.steps, plan.copies, plan.drops, plan.num_bytes, plan.links, plan.estimated_s) == ((), [], [], 0, [], 0)


def test_a_copy_names_its_group_its_slot_and_its_sources() -> None:
    plan = planned(placed([[0, 1], [2, 0]]), placed([[0, 2], [2, 1]]), weight_source=True)
    assert plan.copies == [
        Copy(0, 2, 0, 1, (Source(1, 0), Source(WEIGHT_SOURCE))),
        Copy(0, 1, 1, 1, (Source(0, 1), Source(WEIGHT_SOURCE))),
    ]
    assert plan.num_bytes == 20
    assert [(link.source, link.target, link.num_bytes) for link in plan.links] == [(0, 1, 10), (1, 0, 10)]


def test_an_expert_that_the_rank_has_already_is_moved_there_without_a_link() -> None:
    plan = planned(placed([[0, 1], [2, 3]]), placed([[1, 0], [2, 3]]))
    assert plan.local_moves == plan.copies
    assert [copy.sources[0].rank for copy in plan.copies] == [0, 0]
    assert plan.links == []


def test_a_replica_that_goes_is_told_and_costs_no_copy() -> None:
    plan = planned(placed([[0, 1], [1, EMPTY]]), placed([[0, EMPTY], [1, EMPTY]]))
    assert [tuple(drop) for drop in plan.drops] == [(0, 1, 0, 1)]
    assert plan.copies == []
    assert plan.steps[-1].target.slots.tolist() == [[[0, EMPTY], [1, EMPTY]]]


def test_a_change_of_shares_alone_is_a_step_without_copies() -> None:
    base = placed([[0], [0]])
    target = placed([[0], [0]], share=[[[0.25], [0.75]]])
    plan = planned(base, target)
    assert [step.copies for step in plan.steps] == [()]
    assert plan.steps[0].target == target.with_epoch(plan.steps[0].target.epoch)


def test_sources_are_ranked_the_rank_itself_then_its_node_then_others_then_the_checkpoint() -> None:
    topology = Topology((2, 2, 2), (0, 1, 1), (True,) * 3)
    base = placed([[3, 1], [3, 2], [0, 3]])
    target = placed([[3, 1], [3, 2], [3, 0]])
    plan = planned(base, target, topology=topology, weight_source=True)
    by_expert = {copy.expert: [source.rank for source in copy.sources] for copy in plan.copies}
    assert by_expert == {3: [2, 1, 0, WEIGHT_SOURCE], 0: [2, WEIGHT_SOURCE]}


def test_a_dead_rank_is_no_source() -> None:
    topology = Topology.uniform(3, 6).without([1])
    plan = planned(
        placed([[0, 1], [2, 0], [2, 1]]), placed([[2, 1], [EMPTY] * 2, [0, 1]], experts=3), topology=topology
    )
    assert {source.rank for copy in plan.copies for source in copy.sources} == {0, 2}


def test_an_expert_without_a_replica_comes_from_the_checkpoint_or_is_named() -> None:
    base, target = placed([[0], [EMPTY]], experts=2), placed([[0], [1]])
    assert planned(base, target, weight_source=True).copies[0].sources == (Source(WEIGHT_SOURCE),)
    with pytest.raises(ExpertLost) as error:
        planned(base, target)
    assert (error.value.layer, error.value.expert, error.value.num_missing) == (0, 1, 1)


def test_layers_go_step_by_step_or_as_many_as_staging_has_room_for() -> None:
    base, target = placed(*[[[0, 1], [2, 3]]] * 4), placed(*[[[0, 2], [1, 3]]] * 4)
    assert [step.layers for step in planned(base, target).steps] == [(0,), (1,), (2,), (3,)]
    assert [step.layers for step in planned(base, target, layers_per_step=3).steps] == [(0, 1), (2, 3)]
    room = {"layers_per_step": None, "staging_buffers": [3, 9]}
    assert [step.layers for step in planned(base, target, **room).steps] == [(0, 1, 2), (3,)]


def test_a_layer_that_staging_has_no_room_for_takes_steps_that_each_cover_all_experts() -> None:
    base, target = placed([[0, 1, 2], [3, 4, 5]]), placed([[3, 4, 5], [0, 1, 2]])
    plan = planned(base, target, staging_buffers=[1, 1])
    assert [len(step.copies) for step in plan.steps] == [2, 2, 2]
    assert all(not step.target.missing for step in plan.steps)


def test_staging_that_no_order_of_steps_can_do_with_is_refused_by_rank_and_layer() -> None:
    base, target = placed([[0, 1], [2, 3]]), placed([[1, 0], [2, 3]])
    with pytest.raises(EplbInputError, match=r"rank 0 has 1, and layer 0 brings it up to 2 experts at once"):
        planned(base, target, staging_buffers=[1, 1])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"target": placed([[0, 1]])}, "does not fit"),
        ({"target": placed([[0, 1], [1, EMPTY]], experts=3)}, "drops the last replica of layer 0, expert 2"),
        ({"topology": Topology.uniform(2, 6)}, "slots_per_rank"),
        ({"topology": Topology.uniform(2, 4).without([1])}, r"ranks \[1\], which are not alive"),
        ({"group_bytes": [1, 2]}, "group_bytes"),
        ({"staging_buffers": [1]}, "staging_buffers"),
        ({"max_peers": 0}, "max_peers"),
        ({"layers_per_step": 0}, "layers_per_step"),
    ],
)
def test_what_does_not_fit_is_named(change: dict[str, Any], says: str) -> None:
    base = placed([[0, 1], [2, 0]])
    with pytest.raises(EplbInputError, match=says):
        planned(base, change.pop("target", base), **change)


def test_the_time_is_that_of_the_rank_that_sends_or_receives_longest() -> None:
    base, target = placed([[0, 1], [2, EMPTY], [3, EMPTY]]), placed([[0, 1], [2, 0], [3, 1]])
    topology = Topology((2, 2, 2), (0, 0, 1), (True,) * 3)
    speeds = LinkSpeeds(within_node=100, between_nodes=10)
    assert planned(base, target, topology=topology, speeds=speeds).estimated_s == pytest.approx(10 / 100 + 10 / 10)


# --- against the best there is ------------------------------------------------------------------------------------


@st.composite
def choices(draw: st.DrawFn) -> tuple[list[int], list[list[tuple[int, int]]], list[int]]:
    ranks = draw(st.integers(2, 4))
    node_of_rank = [rank % draw(st.integers(1, 2)) for rank in range(ranks)]
    copies = draw(
        st.lists(st.tuples(st.integers(0, ranks - 1), st.sets(st.integers(0, ranks - 1), min_size=1)), max_size=6)
    )
    return [target for target, _ in copies], [[(rank, 0) for rank in sorted(at)] for _, at in copies], node_of_rank


@given(choices())
@settings(max_examples=300, deadline=None)
def test_no_choice_of_sources_lets_the_busiest_rank_send_less(
    case: tuple[list[int], list[list[tuple[int, int]]], list[int]],
) -> None:
    targets, places, node = case
    ranked = choose_sources(targets, places, node)
    assert [sorted(at) for at in ranked] == places

    def distance(target: int, rank: int) -> int:
        return 0 if target == rank else 1 if node[target] == node[rank] else 2

    def busiest(senders: tuple[int, ...]) -> int:
        sent = [sender for target, sender in zip(targets, senders, strict=True) if target != sender]
        return max(map(sent.count, sent), default=0)

    nearest = [
        [r for r, _ in at if distance(t, r) == min(distance(t, r) for r, _ in at)]
        for t, at in zip(targets, places, strict=True)
    ]
    chosen = tuple(at[0][0] for at in ranked)
    assert all(sender in near for sender, near in zip(chosen, nearest, strict=True))
    assert busiest(chosen) == min(map(busiest, product(*nearest)), default=0)


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)).filter(lambda p: p[0] != p[1])), st.integers(1, 3))
def test_in_a_batch_no_rank_has_more_peers_than_allowed(pairs: list[tuple[int, int]], most: int) -> None:
    batches = deal_batches(pairs, most)
    assert set(batches) == set(pairs)
    for number in set(batches.values()):
        together = [pair for pair in set(pairs) if batches[pair] == number]
        for rank in range(7):
            assert len({a + b - rank for a, b in together if rank in (a, b)}) <= most
    peers = [len({a + b - rank for a, b in pairs if rank in (a, b)}) for rank in range(7)]
    assert len(set(batches.values())) <= 2 * max(peers) / most + 1


# --- properties of all plans --------------------------------------------------------------------------------------


@st.composite
def ways(draw: st.DrawFn) -> tuple[Placement, Placement, dict[str, Any]]:
    ranks, width, layers = draw(st.integers(1, 4)), draw(st.integers(1, 4)), draw(st.integers(1, 3))
    per_rank = tuple(draw(st.integers(1, width)) for _ in range(ranks))
    experts = draw(st.integers(1, sum(per_rank)))
    places = [(rank, slot) for rank in range(ranks) for slot in range(per_rank[rank])]

    def placement() -> Placement:
        slots = np.full((layers, ranks, max(per_rank)), EMPTY)
        for layer in range(layers):
            extra = draw(
                st.lists(
                    st.integers(EMPTY, experts - 1), min_size=len(places) - experts, max_size=len(places) - experts
                )
            )
            for place, expert in zip(draw(st.permutations(places)), [*range(experts), *extra], strict=True):
                slots[layer, place[0], place[1]] = expert
        return Placement.of(slots, experts, slots_per_rank=per_rank)

    options = {
        "topology": Topology(per_rank, tuple(rank % min(2, ranks) for rank in range(ranks)), (True,) * ranks),
        "staging_buffers": [draw(st.integers(1, width)) for _ in range(ranks)],
        "layers_per_step": draw(st.sampled_from([1, 2, None])),
        "max_peers": draw(st.integers(1, 3)),
        "weight_source": draw(st.booleans()),
    }
    return placement(), placement(), options


@given(ways())
@settings(max_examples=300, deadline=None)
def test_every_step_of_every_plan_can_be_done_and_the_last_one_is_the_target(
    way: tuple[Placement, Placement, dict[str, Any]],
) -> None:
    base, target, options = way
    try:
        plan = planned(base, target, **options)
    except EplbInputError as error:
        assert error.field == "staging_buffers"
        enough = planned(base, target, **options | {"staging_buffers": base.slots_per_rank})
        assert enough.steps
        return
    held = base.slots.copy()
    for step in plan.steps:
        assert not options["layers_per_step"] or len(step.layers) <= options["layers_per_step"]
        arriving = np.bincount([copy.rank for copy in step.copies], minlength=base.num_ranks)
        assert (arriving <= options["staging_buffers"]).all()
        after = held.copy()
        for copy in step.copies:
            from_ranks = [source for source in copy.sources if source.rank != WEIGHT_SOURCE]
            assert from_ranks or options["weight_source"]
            assert all(held[copy.layer, source.rank, source.slot] == copy.expert for source in from_ranks)
            assert (len(copy.sources) > len(from_ranks)) == options["weight_source"]
            after[copy.layer, copy.rank, copy.slot] = copy.expert
        after[step.target.slots == EMPTY] = EMPTY
        assert (after == step.target.slots).all(), "a slot changes that nothing was copied to"
        assert not step.target.missing
        unchanged = (held == step.target.slots).all(axis=(1, 2))
        assert not step.copies or not unchanged[list(step.layers)].any()
        held = after
    assert (held == target.slots).all()
    assert not plan.steps or np.array_equal(plan.steps[-1].target.share, target.share)
    assert len(plan.copies) == int(((base.slots != target.slots) & (target.slots != EMPTY)).sum()), "no copy in vain"
