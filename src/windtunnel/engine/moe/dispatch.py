"""Sends tokens to the ranks that hold their experts, and again to others where a rank dies, hangs or has moved on.

Theory of operation. Each layer's work is routed within `Rebalancer.routing()`: no slot that the epoch names is
overwritten until the block is left. So nothing may be waited for in it that might never come: a rank that closes its
connection, or is evicted, is given up at once, and what it owed is routed anew by the next epoch. What a rank answers
is an integer for each activation, so whoever computes it, the token is the same.
"""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Callable
from contextlib import AbstractContextManager
from queue import Empty, SimpleQueue
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from windtunnel.clock import monotonic_ns
from windtunnel.engine.moe.arithmetic import Integers
from windtunnel.engine.moe.frames import Answer, Frames, Kind, Status, Work, answer_of, frame, work_frame
from windtunnel.eplb.routing import Routing
from windtunnel.errors import ExpertsUnavailable
from windtunnel.units import NS_PER_S

_RECEIVE_BYTES = 1 << 20
_RETRY_MS = 2
"""A pause where the table is not yet what it must become; news ends it sooner."""


class Tables(Protocol):
    """Where the routing comes from: a Rebalancer."""

    def routing(self) -> AbstractContextManager[Routing]:
        """Route by the newest epoch until the block ends."""


class _Line:
    """The front's end of a rank's connection."""

    def __init__(self, rank: int, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.rank = rank
        self.socket = connection
        self.frames = Frames()
        self.outgoing = bytearray()
        self.ready = False

    def send(self, data: bytes) -> None:
        self.outgoing += data
        self.flush()

    def flush(self) -> None:
        """Raises ConnectionError where the rank is gone."""
        while self.outgoing:
            try:
                del self.outgoing[: self.socket.send(self.outgoing)]
            except BlockingIOError:
                return

    def receive(self) -> list[tuple[Kind, bytes]]:
        """What has come. Raises ConnectionError where the rank is gone."""
        try:
            data = self.socket.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return []
        if not data:
            raise ConnectionResetError("closed")
        return self.frames.feed(data)


class _Owed(NamedTuple):
    """An answer that is waited for."""

    line: _Line
    pairs: NDArray[np.intp]


class Dispatcher:
    """Applies experts in the ranks. One thread calls `apply` and `wait`; the other methods are for any."""

    def __init__(
        self,
        num_layers: int,
        num_experts: int,
        *,
        give_up_s: float = 60.0,
        on_ready: Callable[[int], None] | None = None,
        on_lost: Callable[[int], None] | None = None,
    ) -> None:
        """`give_up_s`: an expert that nobody serves for so long fails the step. `on_lost`: a connection has closed."""
        self.num_retried = 0
        """Pairs of a token and an expert that were sent again."""
        self._counts: NDArray[np.int64] = np.zeros((num_layers, num_experts), np.int64)
        self._give_up_ns = round(give_up_s * NS_PER_S)
        self._on_ready = on_ready
        self._on_lost = on_lost
        self._lines: dict[int, _Line] = {}
        self._gone: dict[int, int] = {}
        """Evicted ranks, and the epoch that served then: no table up to it is a reason to send them anything."""
        self._orders: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._number = 0
        self._poll = select.poll()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poll.register(self._wake, select.POLLIN)

    # --- for any thread -------------------------------------------------------------------------------------------

    def connect(self, rank: int, connection: socket.socket) -> None:
        """Take a rank's connection; one that it had before is closed."""
        self.order(lambda: self._connect(rank, connection))

    def tell(self, rank: int, kind: Kind, body: bytes) -> None:
        """Send a rank something that has no answer; nothing happens where it is not connected."""
        self.order(lambda: self._tell(rank, kind, body))

    def evicted(self, rank: int, epoch: int) -> None:
        """Wait for nothing more of a rank that has left; `epoch` served then."""
        self.order(lambda: self._gone.update({rank: epoch}))

    def order(self, order: Callable[[], None]) -> None:
        """Let `order` be called soon, by the thread that applies and waits."""
        self._orders.put(order)
        self.notice()

    def notice(self) -> None:
        """End a wait: something has changed."""
        os.eventfd_write(self._wake, 1)

    # --- for the engine's thread ----------------------------------------------------------------------------------

    def take_counts(self) -> NDArray[np.int64]:
        """Tokens of each expert since the last time [layers, experts]."""
        taken, self._counts = self._counts, np.zeros_like(self._counts)
        return taken

    def wait(self, timeout_ms: float | None = None) -> None:
        """See to connections and orders until something happens, or the time is over."""
        self._see_to(timeout_ms)

    def close(self) -> None:
        """Close all connections: the ranks end."""
        for line in list(self._lines.values()):
            self._disconnect(line)
        os.close(self._wake)

    def apply(self, tables: Tables, layer: int, activations: Integers, chosen: NDArray[np.intp]) -> Integers:
        """Activations of each token's experts [tokens, top_k, hidden]. Raises ExpertsUnavailable."""
        num_tokens, top_k = chosen.shape
        experts = chosen.ravel()
        self._counts[layer] += np.bincount(experts, minlength=self._counts.shape[1])
        outputs = np.empty((num_tokens * top_k, activations.shape[1]), np.float32)
        compact = np.repeat(activations.astype(np.int8), top_k, axis=0)
        pairs = np.arange(num_tokens * top_k)
        began_ns = monotonic_ns()
        while True:
            with tables.routing() as table:
                owed = self._send_out(table, layer, compact, experts, pairs)
                done = self._gather(table.epoch, owed, outputs)
            if len(done) == len(pairs):
                return outputs.reshape(num_tokens, top_k, -1)
            pairs = np.setdiff1d(pairs, done, assume_unique=True)
            self.num_retried += len(pairs)
            waited_ns = monotonic_ns() - began_ns
            if waited_ns > self._give_up_ns:
                missing = ", ".join(map(str, sorted(set(experts[pairs].tolist()))))
                raise ExpertsUnavailable(layer, missing, waited_ns / NS_PER_S)
            self._see_to(_RETRY_MS)

    def _send_out(
        self,
        table: Routing,
        layer: int,
        activations: NDArray[np.int8],
        experts: NDArray[np.intp],
        pairs: NDArray[np.intp],
    ) -> dict[int, _Owed]:
        """Send each pair to a replica of its expert, as far as there is one that can be reached."""
        self._carry_out_orders()
        replicas = table.replicas[layer, experts[pairs]]
        num_replicas = np.maximum((replicas >= 0).sum(axis=1), 1)
        places = replicas[np.arange(len(pairs)), pairs % num_replicas]  # -1: nobody has it now
        by_slot = np.argsort(places, kind="stable")
        places, pairs = places[by_slot], pairs[by_slot]
        owed: dict[int, _Owed] = {}
        for rank, line in list(self._lines.items()):
            first, end = np.searchsorted(places, (rank * table.width, (rank + 1) * table.width))
            if first == end or not line.ready or table.epoch <= self._gone.get(rank, -1):
                continue
            mine, slots = pairs[first:end], (places[first:end] - rank * table.width).astype(np.uint16)
            self._number += 1
            work = Work(self._number, table.epoch, layer, slots, experts[mine].astype(np.uint16), activations[mine])
            if self._send(line, work_frame(work)):
                owed[self._number] = _Owed(line, mine)
        return owed

    def _gather(self, epoch: int, owed: dict[int, _Owed], outputs: Integers) -> NDArray[np.intp]:
        """Wait for all answers that can still come, and put them where they belong; the pairs that are done."""
        done: list[NDArray[np.intp]] = [np.empty(0, np.intp)]
        while owed:
            for answer in self._see_to(None):
                expected = owed.pop(answer.number, None)
                if expected is not None and answer.status == Status.DONE:
                    outputs[expected.pairs] = answer.activations
                    done.append(expected.pairs)
            for number, (line, _) in list(owed.items()):
                if self._lines.get(line.rank) is not line or epoch <= self._gone.get(line.rank, -1):
                    del owed[number]
        return np.concatenate(done)

    # --- connections ----------------------------------------------------------------------------------------------

    def _see_to(self, timeout_ms: float | None) -> list[Answer]:
        """Wait for news of any kind and take it; the answers that came."""
        answers: list[Answer] = []
        lines = {line.socket.fileno(): line for line in self._lines.values()}
        for descriptor, happened in self._poll.poll(timeout_ms):
            if descriptor == self._wake:
                os.eventfd_read(self._wake)
                self._carry_out_orders()
            elif (line := lines.get(descriptor)) is not None and self._lines.get(line.rank) is line:
                answers += self._serve(line, happened)
        return answers

    def _serve(self, line: _Line, happened: int) -> list[Answer]:
        answers: list[Answer] = []
        try:
            if happened & select.POLLOUT:
                line.flush()
            for kind, body in line.receive():
                if kind == Kind.READY:
                    self._become_ready(line)
                elif kind == Kind.ANSWER:
                    answers.append(answer_of(body))
        except ConnectionError:
            self._disconnect(line)
        else:
            self._watch(line)
        return answers

    def _carry_out_orders(self) -> None:
        while True:
            try:
                order = self._orders.get_nowait()
            except Empty:
                return
            order()

    def _connect(self, rank: int, connection: socket.socket) -> None:
        if rank in self._lines:
            self._disconnect(self._lines[rank])
        self._lines[rank] = line = _Line(rank, connection)
        self._poll.register(line.socket, select.POLLIN)

    def _disconnect(self, line: _Line) -> None:
        del self._lines[line.rank]
        self._poll.unregister(line.socket)
        line.socket.close()
        if self._on_lost:
            self._on_lost(line.rank)

    def _become_ready(self, line: _Line) -> None:
        line.ready = True
        if self._on_ready:
            self._on_ready(line.rank)

    def _tell(self, rank: int, kind: Kind, body: bytes) -> None:
        if line := self._lines.get(rank):
            self._send(line, frame(kind, body))

    def _send(self, line: _Line, data: bytes) -> bool:
        """Whether the rank is still there."""
        try:
            line.send(data)
        except ConnectionError:
            self._disconnect(line)
            return False
        self._watch(line)
        return True

    def _watch(self, line: _Line) -> None:
        self._poll.modify(line.socket, select.POLLIN | (select.POLLOUT if line.outgoing else 0))
