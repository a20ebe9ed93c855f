"""The coordinator's part in transactions, without I/O: answers of ranks and losses of ranks in, instructions out.

It runs one transaction at a time, over the ranks that are members at each moment: one that is lost before the decision
to publish makes it roll back; one that is lost after it is struck off, and the rest finish. Whatever is asked of a rank
is asked again until it has answered, and ranks answer again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from windtunnel.eplb.placement import EMPTY, Placement
from windtunnel.eplb.plan import WEIGHT_SOURCE, Copy
from windtunnel.eplb.transaction import messages as m
from windtunnel.eplb.transaction.instructions import (
    Announce,
    CoordinatorInstruction,
    Ended,
    Entered,
    Outcome,
    SendTo,
    Stuck,
)
from windtunnel.eplb.transaction.table import Stage, apply
from windtunnel.errors import EplbInputError, RebalanceAborted

LOCAL = -1
"""The coordinator's own process, where tokens may be routed as well."""


class CoordinatorLimits(NamedTuple):
    """How patient the coordinator is with ranks that are alive."""

    prepare_deadline_ns: int
    """A transaction that not all have prepared by then is rolled back."""
    stuck_deadline_ns: int
    """A rank that has not answered by then, past the decision or while rolling back, has to be evicted."""
    resend_ns: int = 200_000_000
    """What was not answered is asked again after this."""


@dataclass
class _Transaction:
    txn: int
    target: Placement
    prepares: dict[int, m.Prepare]
    members: set[int]
    """The ranks that have a vote: those that were members at the start and were not lost since."""
    asked_ns: int = 0
    since_ns: int = 0
    """When the present stage began."""
    answered: set[int] = field(default_factory=set)
    waits_ns: dict[int, int] = field(default_factory=dict)
    """When each rank last said that it waits for its readers: it is alive."""
    verified: set[int] = field(default_factory=set)
    reason: str = ""
    culprits: set[int] = field(default_factory=set)
    gave_up_in: str = ""
    moved_bytes: dict[int, int] = field(default_factory=dict)
    wasted_bytes: dict[int, int] = field(default_factory=dict)
    retries: dict[int, tuple[m.Fault, ...]] = field(default_factory=dict)


class Coordinator:
    """One term. Each method returns instructions, to be carried out in order."""

    def __init__(self, term: int, committed: Placement, limits: CoordinatorLimits) -> None:
        """Begin idle, with `committed` serving."""
        self.term = term
        self.stage = Stage.IDLE
        self.committed = committed
        self.members: dict[int, int] = {}
        """Generation by rank."""
        self.contents: NDArray[np.int32] = np.full(committed.slots.shape, EMPTY, np.int32)
        """The expert that is in each slot [layers, ranks, width], as far as the ranks have said."""
        self.since: NDArray[np.int64] = np.zeros(committed.slots.shape, np.int64)
        """The epoch that put it there: the slot's generation."""
        self._informed: set[int] = set()
        """Ranks that are known to have the committed placement: a change is enough for them."""
        self.last_epoch = max(committed.epoch, m.first_epoch(term)) if committed.epoch else 0
        """The newest that was ever proposed; a number is never used again."""
        self._limits = limits
        self._last_txn = m.first_txn(term)
        self._transaction: _Transaction | None = None

    # --- what its shell asks for ----------------------------------------------------------------------------------

    def start(
        self,
        target: Placement,
        copies: Sequence[Copy],
        group_bytes: Sequence[int],
        digests: Mapping[tuple[int, int], bytes],
        now_ns: int,
    ) -> list[CoordinatorInstruction]:
        """Begin to move from the committed placement to `target`, under a new epoch.

        `digests` has the xxh3-128 of an expert's group by (layer, expert), where it is known. Raises EplbInputError
        where a copy is for a rank that is no member, or brings what is there; must not be called while a transaction
        is under way.
        """
        assert self.stage is Stage.IDLE
        for copy in copies:
            if copy.rank not in self.members:
                raise EplbInputError("plan", f"a copy is for rank {copy.rank}", "Only members can receive copies.")
            if self.contents[copy.layer, copy.rank, copy.slot] == copy.expert:
                where = f"layer {copy.layer}, rank {copy.rank}, slot {copy.slot}"
                raise EplbInputError("plan", f"{where} holds expert {copy.expert} already", "Leave the copy out.")
        self.last_epoch += 1
        self._last_txn += 1
        target = target.with_epoch(self.last_epoch)
        prepares = self._prepares(target, copies, group_bytes, digests)
        members = set(self.members)
        self._transaction = _Transaction(self._last_txn, target, prepares, members)
        return [self._enter("start", now_ns), *self._ask(now_ns), *self._advance(now_ns)]

    def resume(self, pending: m.Pending, decided: bool, now_ns: int) -> list[CoordinatorInstruction]:
        """Take over a transaction that another coordinator left: finish it if it was decided, else roll it back."""
        assert self.stage is Stage.IDLE
        target = pending.target.placement()
        self.last_epoch = max(self.last_epoch, target.epoch)
        t = _Transaction(pending.txn, target, {}, set(self.members))
        self._transaction = t
        if decided:
            return [self._enter("finish", now_ns), Announce(target), *self._ask(now_ns)]
        t.reason, t.gave_up_in = "its coordinator was lost before the decision", pending.phase
        return [self._enter("roll_back", now_ns), *self._ask(now_ns), *self._advance(now_ns)]

    def joined(self, rank: int, generation: int, contents: NDArray[np.int32], since: NDArray[np.int64]) -> None:
        """A rank is a member from now on: of the next transaction. `contents` and `since` have axes [layers, slots]."""
        self.members[rank] = generation
        self._informed.discard(rank)
        slots = contents.shape[1]
        self.contents[:, rank], self.since[:, rank] = EMPTY, 0
        self.contents[:, rank, :slots], self.since[:, rank, :slots] = contents, since

    def lost(self, rank: int, why: str, now_ns: int) -> list[CoordinatorInstruction]:
        """A member died, hangs, or left."""
        if self.members.pop(rank, None) is None:
            return []
        t = self._transaction
        if not t or rank not in t.members:
            return []
        t.members.discard(rank)
        if self.stage in (Stage.PREPARING, Stage.TRANSFERRING):
            return self._give_up(f"rank {rank} was lost: {why}", {rank}, now_ns)
        return self._advance(now_ns)

    def receive(self, rank: int, message: m.FromRank, now_ns: int) -> list[CoordinatorInstruction]:
        """Take a member's answer; what is not about the transaction under way is dropped."""
        t = self._transaction
        if isinstance(message, m.Hello | m.Heartbeat) or not t or message.txn != t.txn or rank not in t.members:
            return []
        undecided = self.stage in (Stage.PREPARING, Stage.TRANSFERRING)
        match message:
            case m.Prepared(digest=digest) | m.Verified(digest=digest) if undecided and digest != t.target.digest:
                return self._give_up(f"rank {rank} agreed to another placement", {rank}, now_ns)
            case m.Prepared() if self.stage is Stage.PREPARING:
                t.answered.add(rank)
            case m.Verified() if undecided:
                self._count(t, rank, message)
                t.answered.add(rank)
                t.verified.add(rank)
            case m.Failed() if undecided:
                self._count(t, rank, message)
                return self._give_up(*_blame(rank, message.fault), now_ns)
            case m.Aborted() if undecided:
                return self._give_up(f"rank {rank} has rolled it back", {rank}, now_ns)
            case m.Waiting():
                t.waits_ns[rank] = now_ns
                return []
            case m.Drained() if self.stage is Stage.PUBLISHING:
                t.answered.add(rank)
            case m.Settled() if self.stage in (Stage.PUBLISHING, Stage.RETIRING):
                t.answered.add(rank)
            case m.Aborted(wasted_bytes=wasted) if self.stage is Stage.ROLLING_BACK:
                t.wasted_bytes[rank] = max(wasted, t.wasted_bytes.get(rank, 0))
                t.answered.add(rank)
            case _:
                return []
        return self._advance(now_ns)

    def local_drained(self, epoch: int, now_ns: int) -> list[CoordinatorInstruction]:
        """Nobody in this process routes by an epoch older than `epoch`."""
        t = self._transaction
        if not t or self.stage is not Stage.PUBLISHING or t.target.epoch != epoch:
            return []
        t.answered.add(LOCAL)
        return self._advance(now_ns)

    def tick(self, now_ns: int) -> list[CoordinatorInstruction]:
        """Ask again where an answer is due, and lose patience where it was due for too long."""
        t = self._transaction
        if not t:
            return []
        waiting = sorted(t.members - t.answered)
        waited_ns = now_ns - t.since_ns
        if self.stage is Stage.PREPARING and waited_ns >= self._limits.prepare_deadline_ns:
            waited = f"{waited_ns / 1e9:.1f} s"
            return self._give_up(f"rank {waiting[0]} did not prepare within {waited}", set(waiting), now_ns)
        since_ns = now_ns - self._limits.stuck_deadline_ns
        silent = [rank for rank in waiting if max(t.since_ns, t.waits_ns.get(rank, 0)) <= since_ns]
        if silent and self.stage not in (Stage.PREPARING, Stage.TRANSFERRING):
            return [Stuck(rank, self.stage) for rank in silent]
        return self._ask(now_ns) if now_ns - t.asked_ns >= self._limits.resend_ns else []

    # --- the transaction ------------------------------------------------------------------------------------------

    def _prepares(
        self,
        target: Placement,
        copies: Sequence[Copy],
        group_bytes: Sequence[int],
        digests: Mapping[tuple[int, int], bytes],
    ) -> dict[int, m.Prepare]:
        orders: dict[int, list[m.Order]] = {rank: [] for rank in self.members}
        leases: dict[int, set[tuple[int, int, int]]] = {rank: set() for rank in self.members}
        for copy in copies:
            sources = tuple(s for s in copy.sources if s.rank == WEIGHT_SOURCE or s.rank in self.members)
            live = Copy(copy.layer, copy.expert, copy.rank, copy.slot, sources, copy.batch)
            digest = digests.get((copy.layer, copy.expert), b"")
            orders[copy.rank].append(m.Order(live, group_bytes[copy.layer], digest))
            for source in sources:
                if source.rank != WEIGHT_SOURCE:
                    leases[source.rank].add((copy.layer, source.slot, copy.expert))
        base = self.committed
        change = m.ChangeBytes.between(base, target)
        whole = m.PlacementBytes.of(target) if self.members.keys() - self._informed else None
        return {
            rank: m.Prepare(
                self.term, self._last_txn, base.epoch, base.digest,
                None if rank in self._informed else whole, change if rank in self._informed else None,
                target.digest, tuple(orders[rank]), self._leases(rank, leases[rank]),
            )
            for rank in self.members
        }  # fmt: skip

    def _leases(self, rank: int, wanted: set[tuple[int, int, int]]) -> tuple[m.Lease, ...]:
        return tuple(m.Lease(*lease, int(self.since[lease[0], rank, lease[1]])) for lease in sorted(wanted))

    def _advance(self, now_ns: int) -> list[CoordinatorInstruction]:
        """Go on where all have answered."""
        t = self._transaction
        if not t or not t.members <= t.answered:
            return []
        match self.stage:
            case Stage.PREPARING if not t.members <= t.verified:
                out = [self._enter("all_prepared", now_ns)]
                t.answered = set(t.verified)
                return [*out, *self._ask(now_ns)]
            case Stage.PREPARING | Stage.TRANSFERRING if t.members <= t.verified:
                return self._decide(t, now_ns)
            case Stage.PUBLISHING if LOCAL in t.answered:
                return [self._enter("all_drained", now_ns), *self._ask(now_ns), *self._advance(now_ns)]
            case Stage.RETIRING:
                return self._commit(t, now_ns)
            case Stage.ROLLING_BACK:
                return self._end(t, "all_aborted", committed=False, now_ns=now_ns)
        return []

    def _decide(self, t: _Transaction, now_ns: int) -> list[CoordinatorInstruction]:
        return [self._enter("all_verified", now_ns), *self._ask(now_ns), Announce(t.target)]

    def _commit(self, t: _Transaction, now_ns: int) -> list[CoordinatorInstruction]:
        if t.target.slots is not self.committed.slots:
            for rank in t.members:  # one that came back meanwhile has said itself what it holds
                self.since[:, rank][t.target.slots[:, rank] != self.contents[:, rank]] = t.target.epoch
                self.contents[:, rank] = t.target.slots[:, rank]
        self.committed = t.target
        self._informed = set(t.members)
        return self._end(t, "all_settled", committed=True, now_ns=now_ns)

    def _give_up(self, reason: str, culprits: set[int], now_ns: int) -> list[CoordinatorInstruction]:
        t = self._transaction
        assert t is not None
        t.reason, t.culprits, t.gave_up_in = reason, culprits, self.stage
        return [self._enter("give_up", now_ns), *self._ask(now_ns), *self._advance(now_ns)]

    def _end(self, t: _Transaction, trigger: str, *, committed: bool, now_ns: int) -> list[CoordinatorInstruction]:
        stage = self.stage if committed else t.gave_up_in
        self._transaction = None
        outcome = Outcome(
            t.txn,
            t.target.epoch,
            committed,
            stage,
            t.reason,
            tuple(sorted(t.culprits)),
            moved_bytes=sum(t.moved_bytes.values()),
            wasted_bytes=sum(t.wasted_bytes.values()),
            retries=sum(len(faults) for faults in t.retries.values()),
            copies=sum(len(p.orders) for p in t.prepares.values()),
        )
        return [self._enter(trigger, now_ns), Ended(outcome)]

    def _ask(self, now_ns: int) -> list[CoordinatorInstruction]:
        """What this stage asks of each rank that has not answered."""
        t = self._transaction
        assert t is not None
        t.asked_ns = now_ns
        said: m.FromCoordinator | None = None
        match self.stage:
            case Stage.TRANSFERRING:
                said = m.Transfer(self.term, t.txn)
            case Stage.PUBLISHING:
                said = m.Publish(self.term, t.txn, t.target.epoch)
            case Stage.RETIRING:
                said = m.Retire(self.term, t.txn, t.target.epoch)
            case Stage.ROLLING_BACK:
                said = m.Abort(self.term, t.txn, t.reason)
        return [SendTo(rank, said or t.prepares[rank]) for rank in sorted(t.members - t.answered)]

    def _enter(self, trigger: str, now_ns: int) -> Entered:
        transition = apply("coordinator", self.stage, trigger)
        self.stage = Stage(transition.target)
        if t := self._transaction:
            t.since_ns, t.answered = now_ns, set()
        return Entered(transition)

    @staticmethod
    def _count(t: _Transaction, rank: int, message: m.Verified | m.Failed) -> None:
        t.moved_bytes[rank], t.wasted_bytes[rank] = message.moved_bytes, message.wasted_bytes
        t.retries[rank] = message.retries


def _blame(rank: int, fault: m.Fault) -> tuple[str, set[int]]:
    """Why a rank failed, and which rank is to blame: the peer that it could not read from, or itself."""
    peer = fault.facts.get("peer", rank)
    what = fault.facts["reason"] if fault.code == RebalanceAborted.code else m.to_error(fault)
    return f"rank {rank}: {what}", {rank if peer == WEIGHT_SOURCE else peer}
