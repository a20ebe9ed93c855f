"""In which order a rank makes its copies, from which sources, and when it gives up."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.eplb.by_hand import BASE, DIGEST, GENERATION, PEER, RANK_LIMITS, TARGET, TERM, TXN, prepare
from windtunnel.eplb.placement import Placement
from windtunnel.eplb.plan import Copy, Source
from windtunnel.eplb.transaction import messages as m
from windtunnel.eplb.transaction.instructions import Broke, Checked, Drained, Instruction, Landed, Read, Send
from windtunnel.eplb.transaction.rank import RankMachine

SOURCES = (Source(1, 0), Source(2, 0))
INTO_1, INTO_0 = Copy(0, 2, 0, 1, SOURCES, 0), Copy(0, 3, 0, 0, SOURCES, 0)


def transferring(*copies: Copy, max_reads: int = 4) -> tuple[RankMachine, list[Read]]:
    """A rank that begins to read these copies into two buffers; the reads that it began."""
    machine = RankMachine(0, GENERATION, np.array([[0, 1]]), 2, RANK_LIMITS._replace(max_reads=max_reads))
    machine.receive(m.Welcome(TERM, 0, (PEER,), m.PlacementBytes.of(BASE)), 0)
    target = Placement.of([[[3, 2], [2, 3]]], 4, epoch=TARGET.epoch)
    machine.receive(prepare(target=target, orders=tuple(m.Order(copy, 8, DIGEST) for copy in copies)), 0)
    return machine, _reads(machine.receive(m.Transfer(TERM, TXN), 0))


def _reads(out: Sequence[Instruction]) -> list[Read]:
    return [instruction for instruction in out if isinstance(instruction, Read)]


def _finish(machine: RankMachine, read: Read) -> list[Read]:
    machine.happened(Landed(read.buffer, read.attempt), 0)
    return _reads(machine.happened(Checked(read.buffer, read.attempt, DIGEST), 0))


def test_a_rank_that_a_copy_failed_from_is_asked_last_by_the_copies_that_follow() -> None:
    machine, (first,) = transferring(INTO_1, INTO_0, max_reads=1)
    assert first.rank == 1
    (again,) = _reads(machine.happened(Broke(first.buffer, first.attempt, "lost", ""), 0))
    assert (again.order.copy, again.rank) == (INTO_1, 2)
    assert _finish(machine, again) == [], "one buffer is quarantined, the other holds what came"
    (second,) = _reads(machine.happened(Drained(first.buffer, first.attempt), 0))
    assert (second.order.copy, second.rank) == (INTO_0, 2)


def test_copies_are_under_way_at_once_up_to_the_limit() -> None:
    assert len(transferring(INTO_1, INTO_0)[1]) == 2
    assert len(transferring(INTO_1, INTO_0, max_reads=1)[1]) == 1


def test_a_batch_begins_when_the_one_before_it_is_done() -> None:
    later = Copy(0, 3, 0, 0, SOURCES, 1)
    machine, begun = transferring(later, INTO_1)
    assert [read.order.copy for read in begun] == [INTO_1]
    assert [read.order.copy for read in _finish(machine, begun[0])] == [later]


def test_each_source_is_tried_once_and_the_last_ones_error_is_the_rebalances() -> None:
    machine, (first,) = transferring(INTO_1, INTO_0, max_reads=1)
    (again,) = _reads(machine.happened(Broke(first.buffer, first.attempt, "failed", "the first"), 0))
    out = machine.happened(Broke(again.buffer, again.attempt, "failed", "the last"), 0)
    (sent,) = [i.message for i in out if isinstance(i, Send)]
    assert isinstance(sent, m.Failed) and machine.phase == "failed"
    assert (sent.fault.facts["peer"], sent.fault.facts["reason"]) == (2, "the last")
    assert [fault.facts["reason"] for fault in sent.retries] == ["the first"]
