"""A rank's copies of one transaction, without I/O: what is read next, from which source, and when a read is given up.

A copy is read into a staging buffer from one of its sources and checked there. A read that breaks, makes no progress or
brings other bytes than it should is made anew from the next source; a copy that has none left ends it all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from windtunnel.eplb.plan import WEIGHT_SOURCE, Source
from windtunnel.eplb.transaction import messages as m
from windtunnel.eplb.transaction.instructions import (
    Abandon,
    Broke,
    Check,
    Checked,
    Instruction,
    Landed,
    Progressed,
    Read,
)
from windtunnel.eplb.transaction.staging import Buffer, BufferState, Staging
from windtunnel.errors import PeerLost, TransferError, TransferFailed, TransferTimeout


class RankLimits(NamedTuple):
    """How a rank reads."""

    copy_deadline_ns: int
    """A copy that makes no progress for this long is given up."""
    weights_deadline_ns: int
    """The same for what the weight source is to give, with those that it gives before it."""
    max_reads: int
    """Copies under way at once."""


@dataclass(eq=False)
class _Copy:
    order: m.Order
    untried: list[Source]
    done: bool = False


@dataclass
class _Read:
    copy: _Copy
    source: int
    """The rank."""
    buffer: Buffer
    deadline_ns: int


class Copying:
    """The copies of one transaction. Methods that return instructions want them carried out in order."""

    def __init__(
        self, orders: tuple[m.Order, ...], staging: Staging, peers: Mapping[int, int], limits: RankLimits
    ) -> None:
        """Read into `staging`; `peers` has the generation of each rank that can be read from, as it is at any time."""
        self.orders = orders
        self.staged: dict[tuple[int, int], int] = {}
        """(layer, slot) → buffer of the copies that are done."""
        self.moved_bytes = 0
        self.wasted_bytes = 0
        self.retries: list[m.Fault] = []
        self.error: TransferError | None = None
        """Why a copy can't be made: nothing more is begun, and what is under way is to be abandoned."""
        self._staging = staging
        self._peers = peers
        self._limits = limits
        self._copies = [_Copy(order, list(order.copy.sources)) for order in orders]
        self._reads: dict[int, _Read] = {}
        """By buffer."""
        self._suspects: set[int] = set()
        """Ranks that a copy failed from: others are tried before them."""
        self._starved_ns: int | None = None
        """Since when copies wait while no buffer is free and none is being read into."""

    @property
    def done(self) -> bool:
        """Whether every copy is staged and verified."""
        return all(copy.done for copy in self._copies)

    def begin(self, now_ns: int) -> list[Instruction]:
        """Begin what may begin: copies of the earliest batch that has any left, as buffers and `max_reads` allow."""
        out: list[Instruction] = []
        left = [copy for copy in self._copies if not copy.done]
        batch = min((copy.order.copy.batch for copy in left), default=0)
        reading = {read.copy for read in self._reads.values()}
        waiting = [copy for copy in left if copy not in reading]
        for copy in waiting:
            if copy.order.copy.batch != batch or len(self._reads) >= self._limits.max_reads:
                continue
            read = self._read(copy, now_ns)
            if read is None:
                break
            out.append(read)
        starved = bool(waiting) and not self._reads
        if not starved:
            self._starved_ns = None
        elif self._starved_ns is None:
            self._starved_ns = now_ns
        return out

    def happened(self, what: Progressed | Landed | Broke | Checked, now_ns: int) -> list[Instruction]:
        """Hear of a read; what is said of an earlier use of its buffer is dropped."""
        read = self._reads.get(what.buffer)
        expected = BufferState.LANDED if isinstance(what, Checked) else BufferState.ARMED
        if not read or read.buffer.attempt != what.attempt or read.buffer.state is not expected:
            return []
        match what:
            case Progressed():
                read.deadline_ns = now_ns + self._limits.copy_deadline_ns
                return []
            case Landed():
                read.buffer.state = BufferState.LANDED
                return [Check(what.buffer, what.attempt, read.copy.order)]
            case Broke(kind=kind, reason=reason):
                return self._give_up(read, kind, reason, now_ns)
            case Checked(digest=digest):
                return self._checked(read, digest, now_ns)

    def _checked(self, read: _Read, digest: bytes, now_ns: int) -> list[Instruction]:
        order, buffer = read.copy.order, read.buffer
        del self._reads[buffer.number]
        if order.digest and digest != order.digest:
            self.wasted_bytes += order.num_bytes
            self._staging.free(buffer)
            return self._try_next(read, "failed", f"checksum {digest.hex()} instead of {order.digest.hex()}", now_ns)
        buffer.state = BufferState.VERIFIED
        read.copy.done = True
        self.moved_bytes += order.num_bytes
        self.staged[order.copy.layer, order.copy.slot] = buffer.number
        return self.begin(now_ns)

    def tick(self, now_ns: int) -> list[Instruction]:
        """Give up the reads that made no progress, and wait no longer than that for a buffer."""
        out: list[Instruction] = []
        for read in list(self._reads.values()):
            if read.buffer.state is BufferState.ARMED and now_ns >= read.deadline_ns and not self.error:
                out += self._give_up(read, "timeout", "no byte arrived", now_ns)
        if self._starved_ns is not None and not self.error:
            out += self.begin(now_ns)
            if self._starved_ns is not None and now_ns - self._starved_ns >= self._limits.copy_deadline_ns:
                order = next(copy for copy in self._copies if not copy.done).order
                self.error = self._error(order, order.copy.rank, "failed", self._no_buffer())
        return out

    def abandon(self) -> list[Instruction]:
        """Give up all that is under way. What is staged already stays so."""
        out: list[Instruction] = []
        for number, read in self._reads.items():
            if read.buffer.state is BufferState.LANDED:  # it is being checked; no read is under way
                self._staging.free(read.buffer)
            else:
                self._staging.quarantine(read.buffer)
                out.append(Abandon(number, read.buffer.attempt))
        self._reads.clear()
        return out

    def _read(self, copy: _Copy, now_ns: int) -> Read | None:
        """Begin to read a copy; None: no buffer is free."""
        source = next((s for s in copy.untried if s.rank not in self._suspects), copy.untried[0])
        buffer = self._staging.arm(copy.order, source.rank, self._peers.get(source.rank))
        if buffer is None:
            return None
        copy.untried.remove(source)
        self._reads[buffer.number] = _Read(copy, source.rank, buffer, now_ns + self._deadline_ns(source.rank))
        return Read(buffer.number, buffer.attempt, copy.order, source.rank, source.slot)

    def _deadline_ns(self, source: int) -> int:
        return self._limits.weights_deadline_ns if source == WEIGHT_SOURCE else self._limits.copy_deadline_ns

    def _give_up(self, read: _Read, kind: str, reason: str, now_ns: int) -> list[Instruction]:
        number, attempt = read.buffer.number, read.buffer.attempt
        del self._reads[number]
        self._staging.quarantine(read.buffer)
        return [Abandon(number, attempt), *self._try_next(read, kind, reason, now_ns)]

    def _try_next(self, read: _Read, kind: str, reason: str, now_ns: int) -> list[Instruction]:
        error = self._error(read.copy.order, read.source, kind, reason)
        self._suspects.add(read.source)
        if not read.copy.untried:
            self.error = error
            return []
        self.retries.append(m.to_fault(error))
        return self.begin(now_ns)

    def _error(self, order: m.Order, source: int, kind: str, reason: str) -> TransferError:
        """The one place where a transport's trouble becomes an error that tells peer, layer, expert and bytes."""
        facts = (source, order.copy.layer, order.copy.expert, order.num_bytes, reason)
        match kind:
            case "lost":
                return PeerLost(*facts)
            case "timeout":
                return TransferTimeout(*facts, waited_s=self._deadline_ns(source) / 1e9)
            case _:
                return TransferFailed(*facts)

    def _no_buffer(self) -> str:
        quarantined, total = self._staging.count(BufferState.QUARANTINED), len(self._staging.buffers)
        return f"no staging buffer is free: {quarantined} of {total} are quarantined"
