"""Machines brought by hand to each phase and stage of the transition table, and all that can happen then."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from windtunnel.eplb.placement import Placement
from windtunnel.eplb.plan import Copy, Source
from windtunnel.eplb.transaction import instructions as do
from windtunnel.eplb.transaction import messages as m
from windtunnel.eplb.transaction.coordinator import Coordinator, CoordinatorLimits
from windtunnel.eplb.transaction.copying import RankLimits
from windtunnel.eplb.transaction.rank import RankMachine
from windtunnel.eplb.transaction.table import Stage

TERM, GENERATION, NUM_BYTES, DIGEST = 3, 7, 8, b"d" * 16
TXN = m.first_txn(TERM) + 5
BASE = Placement.of([[[0, 1], [2, 3]]], 4, epoch=10)
TARGET = Placement.of([[[0, 2], [2, 3]]], 4, epoch=m.first_epoch(TERM) + 1)
"""Rank 0 gets expert 2 in place of expert 1, from rank 1."""
ORDER = m.Order(Copy(0, 2, 0, 1, (Source(1, 0),), 0), NUM_BYTES, DIGEST)
PEER = m.Peer(1, 4, b"metadata", b"layout")
SECOND_NS = 1_000_000_000
RANK_LIMITS = RankLimits(copy_deadline_ns=2 * SECOND_NS, weights_deadline_ns=2 * SECOND_NS, max_reads=4)
LIMITS = CoordinatorLimits(prepare_deadline_ns=5 * SECOND_NS, stuck_deadline_ns=30 * SECOND_NS)


def prepare(
    txn: int = TXN,
    target: Placement = TARGET,
    orders: tuple[m.Order, ...] = (ORDER,),
    base: Placement = BASE,
    **changes: Any,
) -> m.Prepare:
    facts: dict[str, Any] = {
        "term": TERM, "txn": txn, "base_epoch": base.epoch, "base_digest": base.digest,
        "target": m.PlacementBytes.of(target), "change": None, "digest": target.digest,
        "orders": orders, "leases": (m.Lease(0, 0, 0, 0),),
    }  # fmt: skip
    return m.Prepare(**(facts | changes))


class Event(NamedTuple):
    """What can happen to a rank's machine."""

    name: str
    happens: Callable[[RankMachine], Sequence[do.Instruction]]


def _told(name: str, message: m.FromCoordinator) -> Event:
    return Event(name, lambda machine: machine.receive(message, SECOND_NS))


def _next_on_top(machine: RankMachine) -> Sequence[do.Instruction]:
    return machine.receive(
        prepare(TXN + 1, Placement.of(TARGET.slots, 4, epoch=TARGET.epoch + 1), (), TARGET), SECOND_NS
    )


MESSAGES = [
    _told("prepare", prepare()),
    _told("prepare without copies", prepare(orders=(), target=Placement.of(BASE.slots, 4, epoch=TARGET.epoch))),
    _told("prepare on another base", prepare(base=TARGET)),
    _told("an older prepare", prepare(TXN - 1)),
    _told("the next prepare", prepare(TXN + 1)),
    Event("the prepare that builds on it", _next_on_top),
    _told("transfer", m.Transfer(TERM, TXN)),
    _told("publish", m.Publish(TERM, TXN, TARGET.epoch)),
    _told("retire", m.Retire(TERM, TXN, TARGET.epoch)),
    _told("abort", m.Abort(TERM, TXN, "")),
    _told("an older abort", m.Abort(TERM, TXN - 1, "")),
    _told("a newer abort", m.Abort(TERM, TXN + 1, "")),
]
FACTS = [
    Event("landed", lambda machine: machine.happened(do.Landed(0, 1), SECOND_NS)),
    Event("checked", lambda machine: machine.happened(do.Checked(0, 1, DIGEST), SECOND_NS)),
    Event("checked wrong", lambda machine: machine.happened(do.Checked(0, 1, b"x" * 16), SECOND_NS)),
    Event("read failed", lambda machine: machine.happened(do.Broke(0, 1, "failed", "why"), SECOND_NS)),
    Event("drained", lambda machine: machine.happened(do.Drained(0, 1), SECOND_NS)),
    Event("landed in an earlier use", lambda machine: machine.happened(do.Landed(0, 0), SECOND_NS)),
    Event("routers gone", lambda machine: machine.happened(do.RoutersGone(2), SECOND_NS)),
    Event("old readers gone", lambda machine: machine.happened(do.ReadersGone(1), SECOND_NS)),
    Event("new readers gone", lambda machine: machine.happened(do.ReadersGone(2), SECOND_NS)),
    Event("overwritten", lambda machine: machine.happened(do.Overwritten(0), SECOND_NS)),
    Event("the copy's deadline", lambda machine: machine.tick(10 * SECOND_NS)),
]


def rank_at(where: str) -> RankMachine:
    """A rank's machine in a phase; `settling` and `transferring` have two parts each."""
    machine = RankMachine(0, GENERATION, np.array([[0, 1]]), 1, RANK_LIMITS)
    steps: list[Callable[[], Sequence[do.Instruction]]] = [
        lambda: machine.receive(m.Welcome(TERM, 0, (PEER,), m.PlacementBytes.of(BASE)), 0)
    ]
    path = {
        "prepared": "prepare", "transferring": "transfer", "transferring, landed": "landed", "verified": "checked",
        "published": "publish", "drained": "routers gone", "settling": "retire",
        "settling, readers gone": "old readers gone", "releasing": "overwritten",
    }  # fmt: skip
    events = {event.name: event for event in MESSAGES + FACTS}
    if where == "failed":
        names = ["prepare", "transfer", "read failed"]
    elif where == "serving":
        names = []
    else:
        names = list(path.values())[: list(path).index(where) + 1]
    steps += [lambda name=name: events[name].happens(machine) for name in names]  # type: ignore[misc]
    for step in steps:
        step()
    assert machine.phase == where.partition(",")[0], machine.phase
    return machine


RANK_PLACES = [
    "serving", "prepared", "transferring", "transferring, landed", "verified", "failed", "published", "drained",
    "settling", "settling, readers gone", "releasing",
]  # fmt: skip


def outline(instructions: Sequence[Any]) -> str:
    """Instructions in few words: `→ phase` for a transition, the message's name for what is sent."""
    words = []
    for instruction in instructions:
        match instruction:
            case do.Entered(transition=transition):
                words.append(f"→{transition.target}")
            case do.Send(message=message):
                words.append(f"{type(message).__name__}!")
            case do.SendTo(rank=rank, message=message):
                words.append(f"{type(message).__name__}@{rank}")
            case do.Ended(outcome=outcome):
                words.append("Committed" if outcome.committed else "RolledBack")
            case do.Stuck(rank=rank):
                words.append(f"Stuck@{rank}")
            case _:
                words.append(type(instruction).__name__)
    return " ".join(words)


# --- the coordinator --------------------------------------------------------------------------------------------------


def coordinator_at(where: str) -> Coordinator:
    """A coordinator of ranks 0 and 1 in a stage, rank 0 having answered what is asked there, and rank 1 not."""
    machine = Coordinator(TERM, BASE, LIMITS)
    for rank in (0, 1):
        machine.joined(rank, GENERATION, BASE.slots[:, rank], np.zeros((1, 2), np.int64))
    if where == Stage.IDLE:
        return machine
    machine.start(TARGET, [ORDER.copy], (NUM_BYTES,), {(0, 2): DIGEST}, 0)
    prepared, verified = m.Prepared(TERM, FIRST_TXN, TARGET.digest), m.Verified(TERM, FIRST_TXN, TARGET.digest)
    drained, settled = m.Drained(TERM, FIRST_TXN), m.Settled(TERM, FIRST_TXN)
    told: dict[str, list[tuple[int, m.FromRank]]] = {
        "preparing": [(0, prepared)],
        "preparing, verified": [(0, verified)],
        "transferring": [(0, prepared), (1, prepared), (0, verified)],
        "publishing": [(0, verified), (1, verified), (0, drained)],
        "retiring": [(0, verified), (1, verified), (0, drained), (1, drained), (0, settled)],
        "rolling back": [(0, m.Failed(TERM, FIRST_TXN, FAULT)), (0, m.Aborted(TERM, FIRST_TXN))],
    }
    for rank, message in told[where]:
        machine.receive(rank, message, 0)
        machine.local_drained(machine.last_epoch, 0)
    assert machine.stage == where.partition(",")[0]
    return machine


FIRST_TXN = m.first_txn(TERM) + 1
FAULT = m.Fault("WT-EPLB-ABORTED", {"epoch": 11, "serving": 10, "phase": "prepare", "reason": "it can't"})
STAGES = ["idle", "preparing", "preparing, verified", "transferring", "publishing", "retiring", "rolling back"]
ANSWERS: dict[str, Callable[[Coordinator], Sequence[do.CoordinatorInstruction]]] = {
    "prepared": lambda c: c.receive(1, m.Prepared(TERM, FIRST_TXN, TARGET.digest), 1),
    "verified": lambda c: c.receive(1, m.Verified(TERM, FIRST_TXN, TARGET.digest), 1),
    "failed": lambda c: c.receive(1, m.Failed(TERM, FIRST_TXN, FAULT), 1),
    "verified another placement": lambda c: c.receive(1, m.Verified(TERM, FIRST_TXN, BASE.digest), 1),
    "waiting": lambda c: c.receive(1, m.Waiting(TERM, FIRST_TXN), 1),
    "drained": lambda c: c.receive(1, m.Drained(TERM, FIRST_TXN), 1),
    "settled": lambda c: c.receive(1, m.Settled(TERM, FIRST_TXN), 1),
    "aborted": lambda c: c.receive(1, m.Aborted(TERM, FIRST_TXN), 1),
    "an answer to another transaction": lambda c: c.receive(1, m.Aborted(TERM, FIRST_TXN - 1), 1),
    "a stranger's answer": lambda c: c.receive(2, m.Verified(TERM, FIRST_TXN, TARGET.digest), 1),
    "a heartbeat": lambda c: c.receive(1, m.Heartbeat(1), 1),
    "a rank is lost": lambda c: c.lost(1, "it died", 1),
    "a stranger is lost": lambda c: c.lost(2, "it died", 1),
    "asked again": lambda c: c.tick(SECOND_NS // 4),
    "patience is over": lambda c: c.tick(60 * SECOND_NS),
}
