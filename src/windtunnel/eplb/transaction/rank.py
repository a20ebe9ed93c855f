"""A rank's part in transactions, without I/O: messages and what became of instructions in, instructions out.

The machine owns the facts: which expert each slot holds and since which epoch, what each staging buffer is used for,
which epoch is committed, and in which phase of which transaction the rank is. How copies are made is `copying.py`'s;
bytes and sockets are its shell's.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from windtunnel.eplb.placement import EMPTY, Placement
from windtunnel.eplb.transaction import messages as m
from windtunnel.eplb.transaction.copying import Copying, RankLimits
from windtunnel.eplb.transaction.instructions import (
    Drained,
    Entered,
    Forget,
    Happened,
    Instruction,
    Know,
    Overwrite,
    Overwritten,
    ReadersGone,
    Refuse,
    RouteBy,
    RoutersGone,
    Send,
    Serve,
    View,
    Withdraw,
)
from windtunnel.eplb.transaction.staging import BufferState, Staging
from windtunnel.eplb.transaction.table import Phase, apply
from windtunnel.errors import RebalanceAborted


@dataclass
class _Transaction:
    txn: int
    target: Placement
    copying: Copying
    same_slots: bool = False
    """As in the epoch before, and no copies: what the slots hold is neither to be checked nor changed."""
    view: View | None = None
    withdrawn: int | None = None
    """The view of the old epoch, until nobody reads it any more."""
    unsettled: set[int] = field(default_factory=set)
    """Buffers that are not in their slots yet."""
    fault: m.Fault | None = None


class RankMachine:
    """One life (generation) of one rank. Each method returns instructions, to be carried out in order."""

    def __init__(
        self,
        rank: int,
        generation: int,
        contents: NDArray[np.int32],
        staging_buffers: int,
        limits: RankLimits,
    ) -> None:
        """Begin with `contents` [layers, slots]: the expert in each slot, -1 where it is empty."""
        self.rank = rank
        self.generation = generation
        self.term = 0
        self.phase = Phase.SERVING
        self.contents = contents.astype(np.int32)
        self.since: NDArray[np.int64] = np.zeros(contents.shape, np.int64)
        self.staging = Staging(staging_buffers)
        self.committed: Placement | None = None
        self._limits = limits
        self._transaction: _Transaction | None = None
        self._peers: dict[int, int] = {}
        """Generation by rank."""
        self._closed_txn = 0
        """The newest transaction that is over here."""
        self._settled_txn = 0
        self._view: View | None = None
        self._views = 0

    # --- what the coordinator says --------------------------------------------------------------------------------

    def receive(self, message: m.FromCoordinator, now_ns: int) -> list[Instruction]:
        """Take a message; one of an older term than the newest seen is dropped."""
        if isinstance(message, m.Refused):
            return [Refuse(message.reason, message.remedy, message.rejoin)]
        if message.term < self.term:
            return []
        self.term = message.term
        match message:
            case m.Welcome():
                return self._welcome(message)
            case m.Joined(peer=peer):
                return self._know(peer)
            case m.Left():
                return self._left(message, now_ns)
            case m.Prepare():
                return self._prepare(message)
            case m.Transfer(txn=txn):
                return self._transfer(txn, now_ns)
            case m.Publish(txn=txn, epoch=epoch):
                return self._publish(txn, epoch)
            case m.Retire(txn=txn, epoch=epoch):
                return self._retire(txn, epoch)
            case m.Abort(txn=txn):
                return self._abort(txn)

    def happened(self, what: Happened, now_ns: int) -> list[Instruction]:
        """Hear what became of an instruction; what is about an earlier transaction is dropped."""
        match what:
            case RoutersGone(view=view):
                return self._routers_gone(view)
            case ReadersGone(view=view):
                return self._readers_gone(view, now_ns)
            case Drained(buffer=buffer, attempt=attempt):
                return self._drained(buffer, attempt, now_ns)
            case Overwritten(buffer=buffer):
                return self._overwritten(buffer)
        t = self._transferring()
        return self._went_on(t, t.copying.happened(what, now_ns)) if t else []

    def pending(self) -> m.Pending | None:
        """The transaction that this rank is in, for a new coordinator."""
        t = self._transaction
        return m.Pending(t.txn, self.phase, m.PlacementBytes.of(t.target)) if t else None

    def reborn(self, generation: int) -> tuple[RankMachine, list[Instruction]]:
        """This rank's next life, after it was evicted: with empty slots, and the staging as it is.

        Nobody here may read any view of this life any more when the next one begins.
        """
        out = self._transaction.copying.abandon() if self._transaction else []
        heir = RankMachine(self.rank, generation, np.full_like(self.contents, EMPTY), 0, self._limits)
        heir.staging, heir._views, heir._peers = self.staging, self._views, self._peers
        for buffer in self.staging.buffers:
            if buffer.state is not BufferState.QUARANTINED or buffer.view is not None:
                self.staging.free(buffer)
        return heir, out

    def _welcome(self, message: m.Welcome) -> list[Instruction]:
        out = [known for peer in message.peers for known in self._know(peer)]
        if message.placement is None or self.committed is not None or self._transaction:
            return out
        placement = message.placement.placement()
        if problem := self._not_held(placement, ()):
            return [*out, Refuse(problem, "It may rejoin once its slots are known to be empty.", True)]
        self.committed = placement
        self._view = self._new_view(placement, {})
        return [*out, Serve(self._view), RouteBy(self._view)]

    def _know(self, peer: m.Peer) -> list[Instruction]:
        """Know a peer that is not known yet: reads from one that is known would be lost by knowing it anew."""
        if peer.rank == self.rank or peer.generation <= self._peers.get(peer.rank, -1):
            return []
        self._peers[peer.rank] = peer.generation
        return [Know(peer)]

    def _left(self, message: m.Left, now_ns: int) -> list[Instruction]:
        rank, generation = message.rank, message.generation
        if message.gone:
            self.staging.free_of_peer(rank, generation)
        if self._peers.get(rank) != generation:  # another process has its rank by now
            return self._begin_reads(now_ns)
        del self._peers[rank]
        return [Forget(rank), *self._begin_reads(now_ns)]

    # --- prepare --------------------------------------------------------------------------------------------------

    def _prepare(self, message: m.Prepare) -> list[Instruction]:
        t = self._transaction
        if t and message.txn == t.txn:
            return self._answer()
        if message.txn <= self._closed_txn or (t and message.txn < t.txn):
            return [Send(m.Aborted(self.term, message.txn))] if message.txn != self._settled_txn else []
        if t:
            if self._is_decided():
                return self._catch_up(t, message)
            return [*self._roll_back(), *self._prepare(message)]
        target = self._target(message)
        if isinstance(target, m.Failed):
            return [Send(target)]
        copying = Copying(message.orders, self.staging, self._peers, self._limits)
        self._transaction = t = _Transaction(message.txn, target, copying)
        t.same_slots = not message.orders and self.committed is not None and target.slots is self.committed.slots
        if problem := self._disagreement(message, t):
            t.fault = m.to_fault(RebalanceAborted(target.epoch, message.base_epoch, "prepare", problem))
            return [self._enter("disagree"), *self._answer()]
        if not message.orders:
            self._make_view(t)
            return [self._enter("prepare_without_copies"), Serve(t.view), *self._answer()]  # type: ignore[arg-type]
        return [self._enter("prepare"), *self._answer()]

    def _catch_up(self, t: _Transaction, message: m.Prepare) -> list[Instruction]:
        """A transaction that builds on the one that is open here says that the latter is over elsewhere: settle it.

        The Prepare will come again.
        """
        if self.phase is not Phase.DRAINED or message.base_digest != t.target.digest:
            return []
        return self._retire(t.txn, t.target.epoch)

    def _target(self, message: m.Prepare) -> Placement | m.Failed:
        """What is to be served; a No where this rank doesn't have what the change builds on."""
        if message.target:
            return message.target.placement()
        if message.change and self.committed and self.committed.digest == message.base_digest:
            return message.change.apply(self.committed)
        error = RebalanceAborted(message.base_epoch + 1, message.base_epoch, "prepare", self._off_base(message))
        return m.Failed(self.term, message.txn, m.to_fault(error))

    def _off_base(self, message: m.Prepare) -> str:
        serves = f"epoch {self.committed.epoch}" if self.committed else "no epoch"
        return f"it serves {serves}, which is not the plan's base, epoch {message.base_epoch}"

    def _disagreement(self, message: m.Prepare, t: _Transaction) -> str:
        """Why this rank can't take part; empty where it can."""
        if t.target.digest != message.digest:
            return "the placement's digest is not that of its bytes"
        if self.committed is not None and self.committed.digest != message.base_digest:
            return self._off_base(message)
        for lease in message.leases:
            held, since = int(self.contents[lease.layer, lease.slot]), int(self.since[lease.layer, lease.slot])
            if (held, since) != (lease.expert, lease.since):
                where = f"layer {lease.layer}, slot {lease.slot}"
                return f"{where} holds expert {held} since epoch {since}, not expert {lease.expert} since {lease.since}"
        for order in message.orders:
            if not order.copy.sources:
                return f"layer {order.copy.layer}, expert {order.copy.expert}: no source is left to read it from"
        if not t.same_slots and (problem := self._not_held(t.target, message.orders)):
            return problem
        buffers = len(self.staging.buffers)
        if len(message.orders) > buffers:
            return f"{len(message.orders)} copies do not fit into its {buffers} staging buffers"
        if message.orders and not self.staging.count(BufferState.FREE):
            return f"all {buffers} staging buffers are in use or quarantined"
        return ""

    def _not_held(self, placement: Placement, orders: tuple[m.Order, ...]) -> str:
        """Which slot here the placement is wrong about, even when the orders are done; empty: none."""
        held = self.contents.copy()
        for order in orders:
            held[order.copy.layer, order.copy.slot] = order.copy.expert
        said = placement.slots[:, self.rank, : held.shape[1]]
        wrong = (said != EMPTY) & (said != held)
        if not wrong.any():
            return ""
        layer, slot = np.argwhere(wrong)[0]
        return f"layer {layer}, slot {slot} would hold expert {held[layer, slot]}, not expert {said[layer, slot]}"

    # --- transfer -------------------------------------------------------------------------------------------------

    def _transfer(self, txn: int, now_ns: int) -> list[Instruction]:
        t = self._transaction
        if not t or t.txn != txn:
            return self._answer_closed(txn)
        if self.phase is Phase.PREPARED:
            return [self._enter("transfer"), *self._begin_reads(now_ns)]
        return self._answer() if self.phase in (Phase.VERIFIED, Phase.FAILED) else []

    def _drained(self, buffer: int, attempt: int, now_ns: int) -> list[Instruction]:
        found = self.staging.find(buffer, attempt)
        if found and found.state is BufferState.QUARANTINED and found.view is None:
            self.staging.free(found)
            return self._begin_reads(now_ns)
        return []

    def tick(self, now_ns: int) -> list[Instruction]:
        """Give up the copies that made no progress."""
        t = self._transferring()
        return self._went_on(t, t.copying.tick(now_ns)) if t else []

    def _transferring(self) -> _Transaction | None:
        return self._transaction if self.phase is Phase.TRANSFERRING else None

    def _begin_reads(self, now_ns: int) -> list[Instruction]:
        t = self._transferring()
        return t.copying.begin(now_ns) if t else []

    def _went_on(self, t: _Transaction, out: list[Instruction]) -> list[Instruction]:
        """What the copies want done, and the vote once they are done or one of them can't be made."""
        if t.copying.error:
            t.fault = m.to_fault(t.copying.error)
            return [*out, self._enter("copy_failed"), *t.copying.abandon(), *self._answer()]
        if t.copying.done:
            return [*out, self._enter("copied"), Serve(self._make_view(t)), *self._answer()]
        return out

    # --- publish, retire ------------------------------------------------------------------------------------------

    def _publish(self, txn: int, epoch: int) -> list[Instruction]:
        t = self._transaction
        if not t or t.txn != txn:
            return [Send(m.Drained(self.term, txn))] if self._is_past(epoch) else []
        if self.phase is not Phase.VERIFIED or not t.view:
            return self._answer() if self.phase in (Phase.PUBLISHED, Phase.DRAINED) else []
        self.committed = t.target
        return [self._enter("publish"), RouteBy(t.view)]

    def _routers_gone(self, view: int) -> list[Instruction]:
        t = self._transaction
        if not t or self.phase is not Phase.PUBLISHED or not t.view or t.view.number != view:
            return []
        return [self._enter("routers_gone"), *self._answer()]

    def still_routing(self, view: int) -> list[Instruction]:
        """The new view is routed by, and somebody still uses an older one: say so meanwhile."""
        t = self._transaction
        return self._answer() if t and self.phase is Phase.PUBLISHED and t.view and t.view.number == view else []

    def _is_past(self, epoch: int) -> bool:
        """Whether this epoch was settled here, or the rank became a member when it was published already."""
        return self.committed is not None and self.committed.epoch >= epoch and not self._is_decided()

    def _is_decided(self) -> bool:
        """Whether this rank is in a transaction that can't be taken back."""
        return self.phase in (Phase.PUBLISHED, Phase.DRAINED, Phase.SETTLING, Phase.RELEASING)

    def _retire(self, txn: int, epoch: int) -> list[Instruction]:
        t = self._transaction
        if not t or t.txn != txn:
            return [Send(m.Settled(self.term, txn))] if self._is_past(epoch) else []
        if self.phase is not Phase.DRAINED:
            return self._answer() if self.phase in (Phase.SETTLING, Phase.RELEASING) else []
        entered = self._enter("retire")
        old, self._view = self._view, t.view
        t.unsettled = set(t.copying.staged.values())
        if old is None:
            return [entered, *self._settle(t)]
        t.withdrawn = old.number
        return [entered, Withdraw(old.number)]

    def _readers_gone(self, view: int, now_ns: int) -> list[Instruction]:
        self.staging.free_of_view(view)
        t = self._transaction
        if t and self.phase is Phase.SETTLING and view == t.withdrawn:
            t.withdrawn = None
            return self._settle(t)
        if t and self.phase is Phase.RELEASING and t.view and view == t.view.number:
            return self._end(t)
        return self._begin_reads(now_ns)

    def _settle(self, t: _Transaction) -> list[Instruction]:
        """The old epoch is over here: its slots may be overwritten."""
        if not t.same_slots:
            self._adopt_contents(t.target)
        if not t.copying.staged:
            return [self._enter("overwritten"), *self._end(t)]
        orders = {(order.copy.layer, order.copy.slot): order for order in t.copying.orders}
        return [Overwrite(buffer, orders[where]) for where, buffer in t.copying.staged.items()]

    def _adopt_contents(self, target: Placement) -> None:
        """Slots change hands: what an overwritten slot holds is known when it is done, until then nothing is."""
        slots = self.contents.shape[1]
        mine = target.slots[:, self.rank, :slots]
        changed = mine != self.contents
        self.contents[changed] = EMPTY

    def _overwritten(self, buffer: int) -> list[Instruction]:
        t, found = self._transaction, self.staging.buffers[buffer]
        if not t or self.phase is not Phase.SETTLING or buffer not in t.unsettled or not found.order:
            return []
        copy = found.order.copy
        self.contents[copy.layer, copy.slot] = copy.expert
        self.since[copy.layer, copy.slot] = t.target.epoch
        t.unsettled.discard(buffer)
        if t.unsettled or not t.view:
            return []
        entered = self._enter("overwritten")
        self._view = self._new_view(t.target, {})
        for number in t.copying.staged.values():
            self.staging.quarantine(self.staging.buffers[number], view=t.view.number)
        return [entered, Serve(self._view), RouteBy(self._view), Withdraw(t.view.number)]

    def _end(self, t: _Transaction) -> list[Instruction]:
        entered = self._enter("readers_gone")
        self._settled_txn = t.txn
        self._closed_txn = max(self._closed_txn, t.txn)
        self._transaction = None
        return [entered, Send(m.Settled(self.term, t.txn))]

    # --- abort ----------------------------------------------------------------------------------------------------

    def _abort(self, txn: int) -> list[Instruction]:
        t = self._transaction
        if not t or t.txn != txn:
            older = t is not None and t.txn < txn and not self._is_decided()  # superseded before this one came here
            out = self._roll_back() if older else []
            self._closed_txn = max(self._closed_txn, txn)
            return [*out, *self._answer_closed(txn)]
        if self._is_decided():
            return []  # whoever aborts it does not know yet
        wasted = t.copying.wasted_bytes + t.copying.moved_bytes
        return [*self._roll_back(), Send(m.Aborted(self.term, txn, wasted))]

    def _roll_back(self) -> list[Instruction]:
        t = self._transaction
        assert t is not None
        out: list[Instruction] = [self._enter("abort"), *t.copying.abandon()]
        for number in t.copying.staged.values():
            buffer = self.staging.buffers[number]
            if t.view:
                self.staging.quarantine(buffer, view=t.view.number)
            else:
                self.staging.free(buffer)
        if t.view:
            out.append(Withdraw(t.view.number))
        self._closed_txn = max(self._closed_txn, t.txn)
        self._transaction = None
        return out

    # --- shared ---------------------------------------------------------------------------------------------------

    def _answer_closed(self, txn: int) -> list[Instruction]:
        if txn == self._settled_txn or txn > self._closed_txn:
            return []
        return [Send(m.Aborted(self.term, txn))]

    def _answer(self) -> list[Instruction]:
        """What this rank has to say of its transaction: said anew whenever it is asked."""
        t = self._transaction
        assert t is not None
        counted = (t.copying.moved_bytes, t.copying.wasted_bytes, tuple(t.copying.retries))
        match self.phase:
            case Phase.PREPARED:
                return [Send(m.Prepared(self.term, t.txn, t.target.digest))]
            case Phase.VERIFIED:
                return [Send(m.Verified(self.term, t.txn, t.target.digest, *counted))]
            case Phase.FAILED:
                assert t.fault is not None
                return [Send(m.Failed(self.term, t.txn, t.fault, *counted))]
            case Phase.PUBLISHED | Phase.RELEASING:
                return [Send(m.Waiting(self.term, t.txn))]
            case Phase.SETTLING if t.withdrawn is not None:
                return [Send(m.Waiting(self.term, t.txn))]
            case Phase.DRAINED:
                return [Send(m.Drained(self.term, t.txn))]
            case _:
                return []

    def _enter(self, trigger: str) -> Entered:
        transition = apply("rank", self.phase, trigger)
        self.phase = Phase(transition.target)
        return Entered(transition)

    def _make_view(self, t: _Transaction) -> View:
        t.view = self._new_view(t.target, dict(t.copying.staged))
        return t.view

    def _new_view(self, placement: Placement, staged: dict[tuple[int, int], int]) -> View:
        self._views += 1
        return View(self._views, placement, staged)
