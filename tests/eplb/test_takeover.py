"""What a new coordinator makes of what ranks say of themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.eplb.by_hand import LIMITS
from windtunnel.eplb.placement import EMPTY, Placement
from windtunnel.eplb.transaction import messages as m
from windtunnel.eplb.transaction.coordinator import Coordinator
from windtunnel.eplb.transaction.takeover import (
    assemble,
    check_same_model,
    contents,
    misfit,
    since,
    take_over,
    will_hold,
)
from windtunnel.errors import EplbInputError

WIDTHS = (2, 2, 2)
SLOTS = [[[0, 1], [1, 2], [2, 0]]]


def epoch(number: int, slots: Any = SLOTS) -> Placement:
    return Placement.of(slots, 3, epoch=number)


OLD, NEW = epoch(5), epoch(6, [[[0, 2], [1, 2], [1, 0]]])


def pending(target: Placement = NEW, txn: int = 9, phase: str = "verified") -> m.Pending:
    return m.Pending(txn, phase, m.PlacementBytes.of(target))


def hello(rank: int, committed: Placement | None = OLD, *, term: int = 1, **facts: Any) -> m.Hello:
    held = np.array((committed or OLD).slots[:, rank]) if "held" not in facts else np.array(facts.pop("held"))
    told: dict[str, Any] = {
        "token": "", "rank": rank, "generation": 1, "term": term, "slots": 2, "group_bytes": (8,), "num_experts": 3,
        "staging_buffers": 1, "transport": "shm", "peer": m.Peer(rank, 1, b"", b""),
        "contents": held.astype("<i4").tobytes(), "since": np.zeros((1, 2), "<i8").tobytes(), "digests": b"",
        "committed": m.PlacementBytes.of(committed) if committed else None, "pending": None, "has_weights": False,
        "pid": 1, "host": "",
    }  # fmt: skip
    return m.Hello(**(told | facts))


NOTHING = [[EMPTY, EMPTY]]


def decided(*hellos: m.Hello) -> tuple[int, int | None, bool, tuple[int, ...]]:
    found = take_over(hellos, WIDTHS, 0)
    return found.committed.epoch, found.pending.txn if found.pending else None, found.decided, found.strays


CASES = {
    "nobody has served: what the slots hold is epoch 0": ([hello(r, None) for r in range(3)], (0, None, False, ())),
    "all serve one epoch": ([hello(0), hello(1), hello(2)], (5, None, False, ())),
    "one has prepared: rolled back": (
        [hello(0, pending=pending(phase="prepared")), hello(1), hello(2)],
        (5, 9, False, ()),
    ),
    "all have voted yes, nobody has published: rolled back": (
        [hello(rank, pending=pending()) for rank in range(3)],
        (5, 9, False, ()),
    ),
    "one has published: finished": (
        [hello(0, NEW, pending=pending(phase="published")), hello(1, pending=pending()), hello(2, pending=pending())],
        (6, 9, True, ()),
    ),
    "one has settled, one not published: finished": (
        [hello(0, NEW), hello(1, pending=pending()), hello(2, NEW, pending=pending(phase="drained"))],
        (6, 9, True, ()),
    ),
    "all have settled: nothing is left": ([hello(r, NEW) for r in range(3)], (6, None, False, ())),
    "one slept through an epoch: it has to come back": (
        [hello(0, NEW), hello(1, NEW), hello(2)],
        (6, None, False, (2,)),
    ),
    "one slept through it, and was in an older transaction": (
        [hello(0, NEW), hello(1, NEW), hello(2, pending=pending(epoch(6), 7))],
        (6, None, False, (2,)),
    ),
    "one is new and has nothing; the epoch does not name it": (
        [hello(0, epoch(5, [[[0, 1], [1, 2], [-1, -1]]])), hello(2, None, term=0, held=NOTHING)],
        (5, None, False, ()),
    ),
    "one is new and has nothing; the epoch names it": (
        [hello(0), hello(2, None, held=NOTHING)],
        (5, None, False, (2,)),
    ),
    "one is new and brings experts that the epoch does not name": (
        [hello(0, epoch(5, [[[0, 1], [1, 2], [-1, -1]]])), hello(2, None)],
        (5, None, False, (2,)),
    ),
    "an older transaction of one rank is left to the next": (
        [hello(0, pending=pending(txn=8)), hello(1, pending=pending(epoch(7), 9))],
        (5, 9, False, ()),
    ),
    "a later coordinator has overruled what one has published, and it alone": (
        [hello(0, NEW), hello(1, term=2), hello(2, term=2)],
        (5, None, False, (0,)),
    ),
    "a later coordinator was heard of, and did not come to overrule it": (
        [hello(0, NEW), hello(1, term=2, pending=pending()), hello(2, term=2, pending=pending())],
        (6, 9, True, ()),
    ),
    "it was overruled, and one rank has not heard that yet": (
        [hello(0, NEW), hello(1, term=2), hello(2, term=2, pending=pending())],
        (5, 9, False, (0,)),
    ),
    "before the first epoch, one transaction is under way": (
        [hello(0, None, pending=pending(epoch(1))), hello(1, None)],
        (0, 9, False, ()),
    ),
    "the first epoch is published by one": (
        [hello(0, epoch(1), pending=pending(epoch(1))), hello(1, None, pending=pending(epoch(1)))],
        (1, 9, True, ()),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_an_epoch_that_a_rank_has_published_is_finished_and_all_else_is_rolled_back(case: str) -> None:
    hellos, expected = CASES[case]
    assert decided(*hellos) == decided(*reversed(hellos)) == expected


def test_a_term_is_newer_than_any_that_was_heard_of_and_than_the_clock() -> None:
    assert take_over([hello(0, term=4), hello(1, term=7)], WIDTHS, 3).term == 8
    assert take_over([hello(0, term=4)], WIDTHS, 100).term == 100


def test_epochs_of_a_successor_begin_where_no_predecessor_can_have_come() -> None:
    assert Coordinator(1, Placement.of(SLOTS, 3), LIMITS).last_epoch == 0
    first, second = Coordinator(1000, OLD, LIMITS), Coordinator(1001, OLD, LIMITS)
    assert OLD.epoch < first.last_epoch < second.last_epoch - 1000


def test_epoch_0_is_what_the_slots_hold() -> None:
    found = assemble([hello(0, None), hello(2, None)], WIDTHS)
    assert found.epoch == 0 and found.slots.tolist() == [[[0, 1], [-1, -1], [2, 0]]]


@pytest.mark.parametrize("facts", [{"num_experts": 4}, {"group_bytes": (9,)}, {"transport": "nixl"}])
def test_ranks_of_different_models_are_told_which_field_differs(facts: dict[str, Any]) -> None:
    with pytest.raises(EplbInputError) as raised:
        check_same_model(hello(0), hello(1, **facts))
    assert raised.value.field == next(iter(facts)) and "rank 1" in str(raised.value)


def test_a_rank_that_settles_is_known_by_what_it_will_hold() -> None:
    half = hello(2, NEW, pending=pending(phase="settling"), held=[[EMPTY, 0]])
    held, epochs = will_hold(half)
    assert (held.tolist(), epochs.tolist()) == ([[1, 0]], [[6, 0]])
    assert contents(half).tolist() == [[EMPTY, 0]]


def test_a_rank_that_has_not_published_is_known_by_what_it_holds() -> None:
    voted = hello(2, OLD, pending=pending())
    held, epochs = will_hold(voted)
    assert (held.tolist(), epochs.tolist()) == (contents(voted).tolist(), since(voted).tolist()) == ([[2, 0]], [[0, 0]])


def test_a_rank_that_comes_later_fits_if_it_serves_what_serves_and_obeyed_nobody_newer() -> None:
    assert misfit(hello(0), OLD, 1) == misfit(hello(0, None, held=NOTHING), OLD, 1) == ""
    assert "epoch 6 is not what serves, epoch 5" in misfit(hello(0, NEW), OLD, 1)
    assert misfit(hello(0, epoch(5, NEW.slots)), OLD, 1), "another placement under the same number"
    assert "term 3" in misfit(hello(0, term=3), OLD, 2)
