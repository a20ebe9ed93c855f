"""Processes of a simulated cluster: real machines, movers, stores and view tables, without threads and sockets.

They carry out instructions as the real shells do, in order, and can end or stop between any two of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from tests.eplb.by_hand import RANK_LIMITS
from windtunnel.eplb.mover import Mover, ReadWeights
from windtunnel.eplb.placement import EMPTY, Placement
from windtunnel.eplb.routing import ViewTable
from windtunnel.eplb.store import ExpertStore, allocate_staging, encode_layout
from windtunnel.eplb.transaction import instructions as do
from windtunnel.eplb.transaction import messages as m
from windtunnel.eplb.transaction.coordinator import LOCAL, Coordinator
from windtunnel.eplb.transaction.rank import RankMachine
from windtunnel.eplb.transport.memory import MemoryTransport

if TYPE_CHECKING:
    from tests.eplb.world import World

LAYERS, EXPERTS, SLOTS = 2, 4, 3
TENSOR_BYTES = ((5, 3), (8, 2, 1))
"""Of each tensor of an expert, by layer."""
GROUP_BYTES = tuple(sum(sizes) for sizes in TENSOR_BYTES)


def expert_tensors(layer: int, expert: int) -> list[NDArray[np.uint8]]:
    """The bytes of an expert: no two experts have a byte in common."""
    return [
        np.full(size, 1 + (layer * EXPERTS + expert) * 8 + index, np.uint8)
        for index, size in enumerate(TENSOR_BYTES[layer])
    ]


@cache
def expert_bytes(layer: int, expert: int) -> bytes:
    """An expert's group as one run of bytes."""
    return b"".join(tensor.tobytes() for tensor in expert_tensors(layer, expert))


DIGESTS = {
    (layer, expert): xxhash.xxh3_128_digest(expert_bytes(layer, expert))
    for layer in range(LAYERS)
    for expert in range(EXPERTS)
}


class Checkpoint:
    """A weight source: a callback that has every expert, unless the test takes it away."""

    def __init__(self) -> None:
        self.broken = False

    def read(self, layer: int, expert: int, into: NDArray[np.uint8]) -> None:
        if self.broken:
            raise OSError("the checkpoint's disk is gone")
        into[:] = np.frombuffer(expert_bytes(layer, expert), np.uint8)


def at_once(weights: Any) -> ReadWeights:
    """Read from a weight source where a `WeightReader` would have its thread do it."""

    def begin(layer: int, expert: int, into: NDArray[np.uint8]) -> Future[None]:
        future: Future[None] = Future()
        try:
            weights.read(layer, expert, into)
        except OSError as error:
            future.set_exception(error)
        else:
            future.set_result(None)
        return future

    return begin


class Process:
    """Carries out instructions in order until it is stopped or ended."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive, self.stopped = True, False
        self.changed_ns = 0
        """When it ended or stopped."""
        self.inbox: deque[Any] = deque()
        self.todo: deque[Any] = deque()
        self.fail_at: tuple[str, str] | None = None
        """A transition, and `kill` or `hang`: what happens when it is made."""
        self.entered: list[str] = []

    @property
    def runs(self) -> bool:
        return self.alive and not self.stopped

    def carry_out(self, instructions: Sequence[Any]) -> None:
        self.todo.extend(instructions)
        while self.todo and self.runs:
            self.todo.extend(self.do(self.todo.popleft()))

    def do(self, instruction: Any) -> Sequence[Any]:
        raise NotImplementedError

    def note(self, transition: Any) -> None:
        self.entered.append(transition.name)
        if self.fail_at and self.fail_at[0] == transition.name:
            how, self.fail_at = self.fail_at[1], None
            self.end() if how == "kill" else self.stop()

    def end(self) -> None:
        self.alive = False

    def stop(self) -> None:
        self.stopped = True

    def resume(self) -> None:
        """Go on where it was stopped."""
        self.stopped = False
        self.carry_out([])


@dataclass(eq=False)
class Pin:
    """Somebody routes by, or reads, a view until the test lets go."""

    block: AbstractContextManager[Any]
    placement: Placement | None = None
    """What is routed by; None for a reader."""
    view: do.View | None = None
    """What is read; None for a router."""


class RankProcess(Process):
    """A rank: what an agent does, without threads and sockets."""

    def __init__(self, world: World, rank: int, generation: int, held: NDArray[np.int32]) -> None:
        super().__init__(f"rank {rank}, started {generation}")
        self.world, self.rank = world, rank
        self.transport = MemoryTransport(self.name, world.fabric)
        self.store = store_of(self.transport, held)
        self.staging = allocate_staging(self.transport, world.staging_buffers, max(GROUP_BYTES))
        read_weights = at_once(world.checkpoint) if world.checkpoint else None
        self.mover = Mover(rank, self.transport, self.store, self.staging, read_weights, piece_bytes=7)
        self.machine = RankMachine(rank, generation, held, world.staging_buffers, RANK_LIMITS)
        self.views = ViewTable(rank)
        self.happened: deque[do.Moved] = deque()
        """What the mover told, and the machine has not heard yet."""
        self.pins: list[Pin] = []
        self.first_epoch: int | None = None
        """The first that this life of the rank routed by."""
        self.missed_epoch = 0
        """Members went over to it while this rank was none: of older ones it will hear that they are stale."""
        self.connected: CoordinatorProcess | None = None

    @property
    def generation(self) -> int:
        return self.machine.generation

    def do(self, instruction: Any) -> Sequence[Any]:
        match instruction:
            case do.Entered(transition=transition):
                self.world.entered(self, transition)
                self.note(transition)
            case do.Send(message=message):
                self.world.send_up(self, message)
            case do.Serve(view=view):
                self.views.serve(view)
            case do.RouteBy(view=view):
                self.views.route_by(view)
                self.first_epoch = view.placement.epoch if self.first_epoch is None else self.first_epoch
                return [*self.let_go(), *self.machine.still_routing(view.number)]
            case do.Withdraw(view=number):
                self.views.withdraw(number)
                return self.let_go()
            case do.Refuse(rejoin=rejoin):
                assert rejoin
                self.views.stop()
                self.machine, out = self.machine.reborn(self.world.next_generation())
                self.todo.clear()
                self.inbox.clear()
                self.connected = self.first_epoch = None
                return out
            case _:
                self.mover.take(instruction)
        return []

    def receive_next(self) -> None:
        if self.inbox and self.runs:
            self.carry_out(self.machine.receive(self.inbox.popleft(), self.world.now_ns))

    def step_mover(self) -> bool:
        """Move bytes on; whether anything happened."""
        if not self.runs:
            return False
        self.happened.extend(self.mover.step())
        moved = bool(self.happened)
        while self.happened and self.runs:
            self.carry_out(self.machine.happened(self.happened.popleft(), self.world.now_ns))
        return moved

    def let_go(self) -> Sequence[Any]:
        """What follows where nobody uses an old view any more."""
        return [out for what in self.views.due() for out in self.machine.happened(what, self.world.now_ns)]

    def tick(self) -> None:
        if not self.runs:
            return
        self.carry_out(self.let_go())
        self.carry_out(self.machine.tick(self.world.now_ns))

    def end(self) -> None:
        super().end()
        self.changed_ns = self.world.now_ns
        self.world.fabric.kill(self.name)

    def stop(self) -> None:
        super().stop()
        self.changed_ns = self.world.now_ns
        self.world.fabric.stop(self.name)

    def resume(self) -> None:
        self.world.fabric.resume(self.name)
        super().resume()

    def bytes_of(self, view: do.View, layer: int, slot: int) -> bytes:
        """What a reader of the view finds in a slot."""
        buffer = view.staged.get((layer, slot))
        if buffer is not None:
            return self.staging[buffer][: GROUP_BYTES[layer]].tobytes()
        return self.home_bytes(layer, slot)

    def home_bytes(self, layer: int, slot: int) -> bytes:
        return b"".join([tensor.tobytes() for tensor in self.store.tensors(layer, slot)])

    def hello(self) -> m.Hello:
        machine = self.machine
        peer = m.Peer(self.rank, machine.generation, self.transport.metadata(), encode_layout(self.store.layout()))
        return m.Hello(
            token="",
            rank=self.rank,
            generation=machine.generation,
            term=machine.term,
            slots=SLOTS,
            group_bytes=GROUP_BYTES,
            num_experts=EXPERTS,
            staging_buffers=self.world.staging_buffers,
            transport="memory",
            peer=peer,
            contents=machine.contents.astype("<i4").tobytes(),
            since=machine.since.astype("<i8").tobytes(),
            digests=b"",
            committed=m.PlacementBytes.of(machine.committed) if machine.committed else None,
            pending=machine.pending(),
            has_weights=self.world.checkpoint is not None,
            pid=0,
            host="",
        )


class CoordinatorProcess(Process):
    """A coordinator's machine, and the routing of its own process."""

    def __init__(self, world: World, machine: Coordinator) -> None:
        super().__init__(f"coordinator of term {machine.term}")
        self.world, self.machine = world, machine
        self.views = ViewTable(LOCAL)
        self.pins: list[Pin] = []

    def do(self, instruction: Any) -> Sequence[Any]:
        match instruction:
            case do.Entered(transition=transition):
                self.world.entered(self, transition)
                self.note(transition)
            case do.SendTo(rank=rank, message=message):
                if isinstance(message, m.Retire):
                    self.world.retired(message.epoch)
                self.world.send_down(self, rank, message)
            case do.Announce(placement=placement):
                return self.announce(placement)
            case do.Stuck(rank=rank):
                self.world.evict(rank, "it does not answer")
            case do.Ended(outcome=outcome):
                self.world.ended(outcome)
        return []

    def announce(self, placement: Placement) -> Sequence[Any]:
        self.views.route_by(do.View(placement.epoch, placement, {}))
        return self.local_drained()

    def local_drained(self) -> Sequence[Any]:
        """What follows where nobody here routes by an old epoch any more."""
        return [out for what in self.views.due() for out in self.machine.local_drained(what.view, self.world.now_ns)]

    def tick(self) -> None:
        if not self.runs:
            return
        self.carry_out(self.local_drained())
        self.carry_out(self.machine.tick(self.world.now_ns))

    def end(self) -> None:
        super().end()
        self.changed_ns = self.world.now_ns


def store_of(transport: MemoryTransport, held: NDArray[np.int32]) -> ExpertStore:
    """A store with the reference bytes of the experts that it is said to hold."""
    groups = [[np.zeros((SLOTS, size), np.uint8) for size in sizes] for sizes in TENSOR_BYTES]
    for (layer, slot), expert in np.ndenumerate(held):
        if expert != EMPTY:
            for tensor, filled in zip(groups[layer], expert_tensors(layer, int(expert)), strict=True):
                tensor[slot] = filled
    for tensor in [tensor for group in groups for tensor in group]:
        transport.register(tensor.ctypes.data, tensor.nbytes)
    return ExpertStore(groups)


def state_of(rank: RankProcess) -> Any:
    """What must be the same after a rollback."""
    machine = rank.machine
    homes = tuple(rank.home_bytes(layer, slot) for layer in range(LAYERS) for slot in range(SLOTS))
    committed = machine.committed.digest if machine.committed else None
    return committed, machine.contents.tobytes(), machine.since.tobytes(), homes, rank.views.table
