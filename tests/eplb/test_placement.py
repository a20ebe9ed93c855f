"""Placements: what is checked, what is derived, and that a change keeps both right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windtunnel.eplb.placement import EMPTY, Placement
from windtunnel.errors import EplbInputError


def test_replicas_are_listed_in_order_and_padded_by_minus_one_never_by_an_expert() -> None:
    placement = Placement.of([[[0, 1], [0, 2]], [[1, 0], [2, EMPTY]]], 3)
    assert placement.replicas.tolist() == [[[0, 2], [1, -1], [3, -1]], [[1, -1], [0, -1], [2, -1]]]
    assert placement.replica_counts.tolist() == [[2, 1, 1], [1, 1, 1]]
    assert placement.ranks_of(0, 0) == [(0, 0), (1, 0)]


def test_tokens_are_split_evenly_unless_shares_say_otherwise() -> None:
    slots = [[[0, 1], [0, EMPTY]]]
    assert Placement.of(slots, 2).share.tolist() == [[[0.5, 1], [0.5, 0]]]
    assert Placement.of(slots, 2, share=[[[0.25, 1], [0.75, 0]]]).share.tolist() == [[[0.25, 1], [0.75, 0]]]


def test_a_placement_can_not_be_changed() -> None:
    slots = np.array([[[0, 1]]], np.int64)
    placement = Placement.of(slots, 2)
    slots[:] = 1
    assert placement.slots.tolist() == [[[0, 1]]]
    for array in (placement.slots, placement.share, placement.replicas):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_experts_that_no_slot_holds_are_told() -> None:
    placement = Placement.of([[[0, EMPTY]], [[1, EMPTY]]], 2)
    assert placement.missing == ((0, 1), (1, 0))


def test_ranks_that_are_gone_leave_empty_slots_and_even_shares() -> None:
    placement = Placement.of([[[0, 1], [0, 1]]], 2, share=[[[0.1, 0.9], [0.9, 0.1]]]).without_ranks([0], 7)
    assert (placement.slots.tolist(), placement.share.tolist()) == ([[[EMPTY, EMPTY], [0, 1]]], [[[0, 0], [1, 1]]])
    assert placement.epoch == 7


@pytest.mark.parametrize(
    ("slots", "more", "field", "says"),
    [
        ([[0, 1]], {}, "placement", "2 axes"),
        ([[[0.0, 1.0]]], {}, "placement", "dtype float64"),
        (np.zeros((1, 0, 2), int), {}, "placement", r"shape \(1, 0, 2\)"),
        ([[[0, 2**40]]], {}, "placement", "values from 0 to"),
        ([[[0, 1]], [[0, 5]]], {}, "placement", "layer 1, rank 0, slot 1 holds expert 5"),
        ([[[0, -2]]], {}, "placement", "layer 0, rank 0, slot 1 holds expert -2"),
        ([[[0, 1], [1, 0]]], {"slots_per_rank": (2, 1)}, "placement", "rank 1: slot 1 is used, but the rank has 1"),
        ([[[0, 1]]], {"slots_per_rank": (3,)}, "slots_per_rank", r"\[3\]"),
        ([[[0, 1]]], {"slots_per_rank": (1, 1)}, "slots_per_rank", r"\[1, 1\]"),
        ([[[0, 1]]], {"share": [[1, 1]]}, "share", "shape"),
        ([[[0, 1]]], {"share": [[[1, 1.5]]]}, "share", "between 0 and 1"),
        ([[[0, 1]]], {"share": [[[1, float("nan")]]]}, "share", "between 0 and 1"),
        ([[[0, EMPTY]]], {"share": [[[1, 0.5]]]}, "share", "empty slot"),
        ([[[0, 0]], [[1, 1]]], {"share": [[[0.5, 0.5]], [[0.5, 0.2]]]}, "share", "layer 1, expert 1 add up to 0.7"),
    ],
)
def test_the_first_thing_that_is_wrong_is_named(slots: Any, more: dict[str, Any], field: str, says: str) -> None:
    with pytest.raises(EplbInputError, match=says) as error:
        Placement.of(slots, 3 if field != "num_experts" else 0, **more)
    assert error.value.field == field


def test_a_layer_has_at_least_one_expert() -> None:
    with pytest.raises(EplbInputError, match="num_experts"):
        Placement.of([[[EMPTY]]], 0)


def test_a_digest_tells_epoch_slots_and_shares_apart() -> None:
    slots = [[[0, 1], [0, EMPTY]]]
    base = Placement.of(slots, 2)
    others = [
        base.with_epoch(1),
        Placement.of([[[0, 1], [EMPTY, 0]]], 2),
        Placement.of(slots, 3),
        Placement.of(slots, 2, slots_per_rank=(2, 1)),
        Placement.of(slots, 2, share=[[[0.25, 1], [0.75, 0]]]),
        Placement.of([[[0, 1]], [[0, EMPTY]]], 2),
    ]
    assert len({base.digest, *(other.digest for other in others)}) == len(others) + 1
    assert {len(base.digest)} == {16}
    assert base == Placement.of(slots, 2) == base.with_epoch(1).with_epoch(0)
    assert len({base, Placement.of(slots, 2)}) == 1


@st.composite
def changes(draw: st.DrawFn) -> tuple[Placement, list[int], Any, bool]:
    layers, ranks, width = draw(st.integers(1, 4)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    experts = draw(st.integers(1, 4))
    values = st.integers(EMPTY, experts - 1)

    def slots(count: int) -> Any:
        flat = draw(st.lists(values, min_size=count * ranks * width, max_size=count * ranks * width))
        return np.array(flat, int).reshape(count, ranks, width)

    changed = draw(st.lists(st.integers(0, layers - 1), unique=True))
    return Placement.of(slots(layers), experts, epoch=3), changed, slots(len(changed)), draw(st.booleans())


@given(changes())
@settings(deadline=None)
def test_a_changed_placement_is_the_one_that_would_be_made_anew(case: tuple[Placement, list[int], Any, bool]) -> None:
    base, layers, slots, use_first = case
    if use_first:  # whether something was derived before makes no difference
        _ = base.replicas, base.digest
    whole = base.slots.copy()
    whole[layers] = slots
    anew = Placement.of(whole, base.num_experts, epoch=4)
    changed = base.with_layers(layers, slots, anew.share[layers], 4)
    assert changed == anew
    assert changed.layer_digests == anew.layer_digests
    for name in ("slots", "share", "replicas", "replica_counts"):
        assert np.array_equal(getattr(changed, name), getattr(anew, name)), name
        assert not getattr(changed, name).flags.writeable
    assert changed.missing == anew.missing


@pytest.mark.parametrize(
    ("layers", "slots"), [([2], [[[0]]]), ([0, 0], [[[0]]] * 2), ([-1], [[[0]]]), ([0], [[[0, 0]]])]
)
def test_a_change_of_layers_that_are_not_there_is_refused(layers: list[int], slots: Any) -> None:
    with pytest.raises(EplbInputError):
        Placement.of([[[0]], [[0]]], 1).with_layers(layers, slots, np.ones(np.shape(slots)), 1)
