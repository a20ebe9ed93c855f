"""What the coordinator's machine refuses, whom it blames, and what it knows of slots."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.eplb.by_hand import (
    BASE,
    DIGEST,
    FIRST_TXN,
    LIMITS,
    NUM_BYTES,
    ORDER,
    SECOND_NS,
    TARGET,
    TERM,
    coordinator_at,
)
from windtunnel.eplb.placement import EMPTY, Placement
from windtunnel.eplb.plan import WEIGHT_SOURCE, Copy, Source
from windtunnel.eplb.transaction import messages as m
from windtunnel.eplb.transaction.coordinator import Coordinator
from windtunnel.eplb.transaction.instructions import Ended, Outcome, SendTo
from windtunnel.errors import EplbInputError, PeerLost, TransferFailed


def ended(out: Any) -> Outcome:
    (found,) = [instruction.outcome for instruction in out if isinstance(instruction, Ended)]
    return found


def prepared(copy: Copy) -> dict[int, m.Prepare]:
    """What each rank is told of a rebalance of one copy."""
    machine = coordinator_at("idle")
    out = machine.start(TARGET, [copy], (NUM_BYTES,), {(0, 2): DIGEST}, 0)
    return {i.rank: i.message for i in out if isinstance(i, SendTo) and isinstance(i.message, m.Prepare)}


@pytest.mark.parametrize(
    ("copy", "problem"),
    [
        (Copy(0, 2, 5, 1, (Source(1, 0),), 0), "a copy is for rank 5"),
        (Copy(0, 1, 0, 1, (Source(1, 0),), 0), "layer 0, rank 0, slot 1 holds expert 1 already"),
    ],
)
def test_a_copy_that_nobody_can_take_or_that_brings_what_is_there_is_refused(copy: Copy, problem: str) -> None:
    machine = coordinator_at("idle")
    with pytest.raises(EplbInputError, match=problem):
        machine.start(TARGET, [copy], (NUM_BYTES,), {}, 0)
    assert machine.stage == "idle"


def test_each_rank_is_told_its_own_copies_and_which_of_its_slots_others_read() -> None:
    told = prepared(ORDER.copy)
    assert told[0].orders == (ORDER,) and told[0].leases == ()
    assert told[1].orders == () and told[1].leases == (m.Lease(0, 0, 2, 0),)


def test_ranks_that_are_no_members_are_no_sources() -> None:
    copy = Copy(0, 2, 0, 1, (Source(9, 0), Source(1, 0), Source(WEIGHT_SOURCE)), 0)
    assert prepared(copy)[0].orders[0].copy.sources == (Source(1, 0), Source(WEIGHT_SOURCE))


def test_an_epochs_number_is_used_once_even_if_it_was_rolled_back() -> None:
    machine = coordinator_at("rolling back")
    assert ended(machine.lost(1, "it died", 1)).epoch == TARGET.epoch
    machine.start(TARGET, [], (NUM_BYTES,), {}, 0)
    assert machine.last_epoch == TARGET.epoch + 1


def test_a_rank_that_came_back_while_others_finished_is_known_by_what_it_said_itself() -> None:
    machine = coordinator_at("retiring")
    machine.lost(0, "it died", 1)
    machine.joined(0, 8, np.full((1, 2), EMPTY, np.int32), np.zeros((1, 2), np.int64))
    assert ended(machine.receive(1, m.Settled(TERM, FIRST_TXN), 1)).committed
    assert machine.contents.tolist() == [[[EMPTY, EMPTY], [2, 3]]] and machine.since[0, 0].tolist() == [0, 0]
    assert machine.committed == TARGET


def test_what_was_settled_is_known_with_the_epoch_that_put_it_there() -> None:
    machine = coordinator_at("retiring")
    assert ended(machine.receive(1, m.Settled(TERM, FIRST_TXN), 1)).committed
    assert machine.contents.tolist() == TARGET.slots.tolist()
    assert machine.since.tolist() == [[[0, TARGET.epoch], [0, 0]]]


@pytest.mark.parametrize(
    ("fault", "culprits", "reason"),
    [
        (m.to_fault(PeerLost(1, 0, 2, NUM_BYTES, "the link is cut")), (1,), "the link is cut"),
        (m.to_fault(TransferFailed(WEIGHT_SOURCE, 0, 2, NUM_BYTES, "no disk")), (0,), "no disk"),
        (
            m.Fault("WT-EPLB-ABORTED", {"epoch": 1, "serving": 0, "phase": "prepare", "reason": "it won't"}),
            (0,),
            "it won't",
        ),
    ],
)
def test_the_peer_that_could_not_be_read_from_is_to_blame_or_else_the_rank_itself(
    fault: m.Fault, culprits: tuple[int, ...], reason: str
) -> None:
    machine = coordinator_at("transferring")
    machine.receive(0, m.Failed(TERM, FIRST_TXN, fault), 1)
    machine.receive(0, m.Aborted(TERM, FIRST_TXN), 1)
    outcome = ended(machine.receive(1, m.Aborted(TERM, FIRST_TXN), 1))
    assert outcome.culprits == culprits and reason in outcome.reason and "rank 0" in outcome.reason
    assert outcome.stage == "transferring" and not outcome.committed


def test_bytes_are_counted_once_however_often_a_rank_says_them() -> None:
    machine = coordinator_at("transferring")
    said = m.Verified(TERM, FIRST_TXN, TARGET.digest, 30, 4, (m.Fault("WT-EPLB-TRANSFER-FAILED", {}),))
    answers: list[tuple[int, m.FromRank]] = [(0, said), (0, said), (1, m.Verified(TERM, FIRST_TXN, TARGET.digest))]
    answers += [(rank, m.Drained(TERM, FIRST_TXN)) for rank in (0, 1)]
    for rank, message in answers:
        machine.receive(rank, message, 1)
    machine.local_drained(TARGET.epoch, 1)
    machine.receive(0, m.Settled(TERM, FIRST_TXN), 1)
    outcome = ended(machine.receive(1, m.Settled(TERM, FIRST_TXN), 1))
    assert (outcome.moved_bytes, outcome.wasted_bytes, outcome.retries, outcome.copies) == (30, 4, 1, 1)


def test_one_rank_alone_and_none_at_all_commit_what_is_left() -> None:
    for members in ([0], []):
        machine = Coordinator(TERM, BASE, LIMITS)
        for rank in members:
            machine.joined(rank, 1, BASE.slots[:, rank], np.zeros((1, 2), np.int64))
        target = Placement.of(BASE.slots, 4).without_ranks([r for r in (0, 1) if r not in members], 0)
        machine.start(target, [], (NUM_BYTES,), {}, 0)
        for message in (m.Verified, m.Drained, m.Settled):
            for rank in members:
                digest = {"digest": target.with_epoch(machine.last_epoch).digest} if message is m.Verified else {}
                machine.receive(rank, message(term=TERM, txn=FIRST_TXN, **digest), SECOND_NS)
            machine.local_drained(machine.last_epoch, SECOND_NS)
        assert machine.stage == "idle" and machine.committed.slots.tolist() == target.slots.tolist()
