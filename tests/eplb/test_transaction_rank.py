"""What a rank's machine makes of peers that come and go, of evictions, and of what it is told of its slots."""

from __future__ import annotations

import numpy as np
import pytest

from tests.eplb.by_hand import (
    BASE,
    DIGEST,
    GENERATION,
    ORDER,
    PEER,
    RANK_LIMITS,
    SECOND_NS,
    TARGET,
    TERM,
    TXN,
    prepare,
    rank_at,
)
from windtunnel.eplb.placement import EMPTY, Placement
from windtunnel.eplb.transaction import messages as m
from windtunnel.eplb.transaction.instructions import (
    Abandon,
    Broke,
    Checked,
    Drained,
    Forget,
    Know,
    Landed,
    Overwrite,
    Overwritten,
    Progressed,
    Read,
    ReadersGone,
    Refuse,
    Send,
    Serve,
)
from windtunnel.eplb.transaction.rank import RankMachine
from windtunnel.eplb.transaction.staging import BufferState


def quarantined() -> RankMachine:
    """A rank that gave up a read from rank 1's generation 4."""
    machine = rank_at("transferring")
    machine.receive(m.Abort(TERM, TXN, ""), SECOND_NS)
    assert machine.staging.count(BufferState.QUARANTINED) == 1
    return machine


def left(generation: int, *, gone: bool) -> m.Left:
    return m.Left(TERM, 1, generation, gone)


def test_the_end_of_the_process_that_was_read_from_gives_the_buffer_back() -> None:
    machine = quarantined()
    assert machine.receive(left(4, gone=True), SECOND_NS) == [Forget(1)]
    assert machine.staging.count(BufferState.FREE) == 1


@pytest.mark.parametrize("message", [left(4, gone=False), left(3, gone=True), m.Left(TERM, 2, 4, True)])
def test_the_eviction_of_a_process_that_may_live_or_the_end_of_another_does_not(message: m.Left) -> None:
    machine = quarantined()
    machine.receive(message, SECOND_NS)
    assert machine.staging.count(BufferState.QUARANTINED) == 1
    machine.receive(left(4, gone=True), SECOND_NS)
    assert machine.staging.count(BufferState.FREE) == 1


def test_a_read_that_is_given_up_when_its_peer_has_ended_already_needs_no_quarantine() -> None:
    machine = rank_at("transferring")
    machine.receive(left(4, gone=True), SECOND_NS)
    machine.receive(m.Abort(TERM, TXN, ""), SECOND_NS)
    assert machine.staging.count(BufferState.FREE) == 1


def test_a_buffer_that_has_drained_is_free_and_what_is_said_of_its_earlier_use_means_nothing() -> None:
    machine = quarantined()
    assert machine.happened(Drained(0, 0), SECOND_NS) == [] and machine.staging.count(BufferState.QUARANTINED) == 1
    machine.happened(Drained(0, 1), SECOND_NS)
    assert machine.staging.count(BufferState.FREE) == 1
    machine.receive(prepare(TXN + 1), SECOND_NS)
    (_, read) = machine.receive(m.Transfer(TERM, TXN + 1), SECOND_NS)
    assert isinstance(read, Read) and (read.buffer, read.attempt) == (0, 2)
    for what in (Progressed(0, 1), Landed(0, 1), Broke(0, 1, "lost", ""), Checked(0, 1, DIGEST), Drained(0, 1)):
        assert machine.happened(what, SECOND_NS) == []


@pytest.mark.parametrize(
    ("where", "state"),
    [("transferring", "quarantined"), ("transferring, landed", "free"), ("verified", "free"), ("releasing", "free")],
)
def test_the_next_life_has_empty_slots_and_the_staging_as_the_fabric_left_it(where: str, state: str) -> None:
    heir, out = rank_at(where).reborn(GENERATION + 1)
    assert (heir.contents == EMPTY).all() and heir.committed is None and heir.pending() is None
    assert [buffer.state for buffer in heir.staging.buffers] == [state]
    assert out == ([Abandon(0, 1)] if where == "transferring" else [])


def test_the_next_life_keeps_a_buffer_in_quarantine_until_it_has_drained() -> None:
    heir, _ = quarantined().reborn(GENERATION + 1)
    assert heir.staging.count(BufferState.QUARANTINED) == 1
    heir.happened(Drained(0, 1), SECOND_NS)
    assert heir.staging.count(BufferState.FREE) == 1


def test_the_next_life_obeys_a_coordinator_that_counts_from_the_beginning() -> None:
    heir, _ = rank_at("serving").reborn(GENERATION + 1)
    assert heir.term == 0
    empty = Placement.of([[[EMPTY, EMPTY], [2, 3]]], 4, epoch=2)
    heir.receive(m.Welcome(1, 0, (), m.PlacementBytes.of(empty)), SECOND_NS)
    assert heir.committed == empty


def test_a_peer_is_made_known_once_and_again_under_a_newer_generation_only() -> None:
    machine = rank_at("serving")
    assert machine.receive(m.Joined(TERM, PEER), SECOND_NS) == []
    newer = m.Peer(1, 5, b"metadata", b"layout")
    assert machine.receive(m.Joined(TERM, newer), SECOND_NS) == [Know(newer)]
    assert machine.receive(m.Joined(TERM, PEER), SECOND_NS) == []
    assert machine.receive(left(4, gone=True), SECOND_NS) == [], "that was the earlier one"
    assert machine.receive(left(5, gone=True), SECOND_NS) == [Forget(1)]
    own = m.Peer(0, 99, b"", b"")
    assert machine.receive(m.Joined(TERM, own), SECOND_NS) == []


def test_what_is_said_to_be_in_its_slots_and_is_not_makes_a_rank_no_member() -> None:
    machine = RankMachine(0, GENERATION, np.array([[0, EMPTY]]), 1, RANK_LIMITS)
    (refuse,) = machine.receive(m.Welcome(TERM, 0, (), m.PlacementBytes.of(BASE)), 0)
    assert isinstance(refuse, Refuse) and refuse.rejoin and "slot 1 would hold expert -1" in refuse.reason
    assert machine.committed is None


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"digest": BASE.digest}, "the placement's digest"),
        ({"base_digest": TARGET.digest}, "is not the plan's base"),
        ({"leases": (m.Lease(0, 0, 3, 0),)}, "slot 0 holds expert 0 since epoch 0, not expert 3 since 0"),
        ({"leases": (m.Lease(0, 0, 0, 8),)}, "not expert 0 since 8"),
        ({"orders": ()}, "slot 1 would hold expert 1, not expert 2"),
        ({"orders": (ORDER, ORDER)}, "2 copies do not fit into its 1 staging buffers"),
    ],
)
def test_a_plan_that_does_not_fit_what_the_rank_knows_is_voted_down_with_the_reason(
    changes: dict[str, object], problem: str
) -> None:
    machine = rank_at("serving")
    (_, sent) = machine.receive(prepare(**changes), SECOND_NS)
    assert isinstance(sent, Send) and isinstance(sent.message, m.Failed)
    assert problem in sent.message.fault.facts["reason"]


def test_a_change_that_builds_on_what_the_rank_does_not_have_is_voted_down() -> None:
    machine = rank_at("serving")
    change = m.ChangeBytes.between(TARGET, Placement.of(BASE.slots, 4, epoch=TARGET.epoch + 1))
    message = prepare(target=TARGET, base=TARGET)
    (sent,) = machine.receive(m.Prepare(**{**_fields(message), "target": None, "change": change}), SECOND_NS)
    assert isinstance(sent, Send) and isinstance(sent.message, m.Failed) and sent.message.txn == TXN
    assert machine.pending() is None and machine.phase == "serving"


def test_a_change_is_as_good_as_the_whole_placement() -> None:
    machine = rank_at("serving")
    change = m.ChangeBytes.between(BASE, TARGET)
    assert change.layers == (0,)
    machine.receive(m.Prepare(**{**_fields(prepare()), "target": None, "change": change}), SECOND_NS)
    pending = machine.pending()
    assert machine.phase == "prepared" and pending and pending.target == m.PlacementBytes.of(TARGET)


def _fields(message: m.Prepare) -> dict[str, object]:
    return {name: getattr(message, name) for name in message.__struct_fields__}


def test_a_slots_generation_is_the_epoch_that_filled_it() -> None:
    machine = rank_at("settling, readers gone")
    assert machine.contents.tolist() == [[0, EMPTY]]
    machine.happened(Overwritten(0), SECOND_NS)
    assert machine.contents.tolist() == [[0, 2]] and machine.since.tolist() == [[0, TARGET.epoch]]


def test_a_staged_expert_is_served_in_staging_until_it_is_in_its_slot() -> None:
    machine = rank_at("transferring, landed")
    (_, serve, _) = machine.happened(Checked(0, 1, DIGEST), SECOND_NS)
    assert isinstance(serve, Serve) and dict(serve.view.staged) == {(0, 1): 0}
    machine = rank_at("settling")
    assert machine.happened(ReadersGone(1), SECOND_NS) == [Overwrite(0, ORDER)]
    (_, serve, *_) = machine.happened(Overwritten(0), SECOND_NS)
    assert isinstance(serve, Serve) and dict(serve.view.staged) == {}
    assert machine.staging.count(BufferState.QUARANTINED) == 1, "somebody may read it there"
    machine.happened(ReadersGone(2), SECOND_NS)
    assert machine.staging.count(BufferState.FREE) == 1
