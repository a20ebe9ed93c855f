"""A rank's agent: lives in the rank's process, owns its slots, its staging and its transport, and answers for them.

Two threads. The *protocol* thread speaks with the coordinator, sends heartbeats and drives the rank's machine; the
*mover* thread moves bytes. Threads of the engine only read: `routing` for what to route by, `reading` for the experts.
A coordinator that dies is no loss: the rank serves on, and keeps trying to reach its successor.
"""

from __future__ import annotations

import asyncio
import os
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from windtunnel import clock
from windtunnel.eplb import control
from windtunnel.eplb.events import EventLog, tell
from windtunnel.eplb.faults import FailAt, Faults, How
from windtunnel.eplb.limits import require_counts, require_seconds
from windtunnel.eplb.mover import Mover, WeightReader, Weights
from windtunnel.eplb.placement import DIGEST_BYTES, EMPTY, Placement
from windtunnel.eplb.processes import host_identity
from windtunnel.eplb.routing import Routing, ViewTable
from windtunnel.eplb.store import ExpertStore, allocate_staging, encode_layout
from windtunnel.eplb.transaction import messages as m
from windtunnel.eplb.transaction.copying import RankLimits
from windtunnel.eplb.transaction.instructions import (
    Abandon,
    Broke,
    Check,
    Entered,
    Forget,
    Instruction,
    Know,
    Moved,
    Overwrite,
    Read,
    Refuse,
    RouteBy,
    Send,
    Serve,
    View,
    Withdraw,
)
from windtunnel.eplb.transaction.rank import RankMachine
from windtunnel.eplb.transaction.staging import BufferState
from windtunnel.eplb.transport import Transport
from windtunnel.errors import CoordinatorUnreachable, EplbInputError, RankRefused, WindtunnelError
from windtunnel.units import NS_PER_S, s_to_ns

_TICK_S = 0.02
_WAIT_S = 0.001
"""How often readers that stand in the way are looked for."""
_RECONNECT_S = (0.02, 1.0)


@dataclass(frozen=True)
class AgentConfig:
    """How a rank takes part."""

    host: str = "127.0.0.1"
    port: int = 0
    """The coordinator's."""
    token: str = ""
    """The coordinator's; it refuses ranks that don't know it."""
    staging_buffers: int | None = None
    """Experts that a step of a rebalance may bring here; None: as many as this rank has slots in a layer. Each takes
    the bytes of the largest layer's expert: that bounds staging memory, together with `spare_buffers`."""
    spare_buffers: int = 2
    """Buffers beyond that, for copies that are tried again while the buffer of the first try is quarantined."""
    copy_deadline_s: float = 2.0
    """A copy that makes no progress for this long is given up, and read from the next source."""
    weights_deadline_s: float = 60.0
    """An expert that the weight source has not given within this time is given up; it is asked for one at a time."""
    max_reads: int = 4
    """Copies under way at once."""
    connect_timeout_s: float = 30.0
    """How long `start` waits to become a member."""

    def __post_init__(self) -> None:
        require_seconds(
            copy_deadline_s=self.copy_deadline_s,
            weights_deadline_s=self.weights_deadline_s,
            connect_timeout_s=self.connect_timeout_s,
        )
        require_counts(staging_buffers=self.staging_buffers, max_reads=self.max_reads)
        require_counts(0, spare_buffers=self.spare_buffers, port=self.port)
        if not isinstance(self.token, str):
            raise EplbInputError("token", f"{self.token!r}", "It is a text; none is an empty one.")


class RankAgent:
    """Takes part in transactions for one rank. Use it as a context manager, or `start` and `close` it."""

    def __init__(
        self,
        rank: int,
        store: ExpertStore,
        transport: Transport,
        contents: ArrayLike,
        num_experts: int,
        config: AgentConfig,
        *,
        weights: Weights | None = None,
        on_publish: Callable[[Routing], None] | None = None,
        on_evicted: Callable[[str], None] | None = None,
        on_left: Callable[[int], None] | None = None,
        on_event: Callable[[Any], None] | None = None,
        fail_at: FailAt | tuple[str, How] | None = None,
    ) -> None:
        """Prepare a rank whose slots hold `contents` [layers, slots]: the expert in each, -1 for an empty one.

        Callbacks run on the protocol thread and must be quick. `on_left` names a rank that was evicted: a step that
        waits for it has to give up, or nobody can route around it. Raises EplbInputError.
        """
        self.rank = rank
        self.store = store
        self.events = EventLog(f"rank {rank}", on_event)
        self.views = ViewTable(rank)
        self._config = config
        self._num_experts = num_experts
        self._transport = transport
        self._on_publish = on_publish
        self._on_evicted = on_evicted
        self._on_left = on_left
        self._faults = Faults("rank", fail_at)
        held = _contents(contents, store, num_experts)
        count = store.slots if config.staging_buffers is None else config.staging_buffers
        self._buffers = count
        self._staging = allocate_staging(transport, count + config.spare_buffers, max(store.group_bytes))
        deadlines = s_to_ns(config.copy_deadline_s), s_to_ns(config.weights_deadline_s)
        limits = RankLimits(*deadlines, config.max_reads)
        self._machine = RankMachine(rank, clock.realtime_ns(), held, len(self._staging), limits)
        self._weights = None if weights is None else WeightReader(weights)
        read_weights = None if self._weights is None else self._weights.begin
        self._mover = Mover(rank, transport, store, self._staging, read_weights)
        self._tasks: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._known_digests: dict[tuple[int, int], bytes] = {}
        self._channel: control.Channel | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        """Takes part; it is cancelled by `close`."""
        self._is_welcome = False
        """On the connection that there is."""
        self._closing = threading.Event()
        self._member = threading.Event()
        self._serving = threading.Event()
        self._failure: WindtunnelError | None = None
        self._bug: BaseException | None = None
        """What a callback of the loop raised."""
        self._last_trouble = "nothing was tried yet"
        self._threads: list[threading.Thread] = []

    # --- for the engine -------------------------------------------------------------------------------------------

    def start(self, *, wait: bool = True) -> RankAgent:
        """Connect, and wait until this rank is a member. Raises RankRefused, CoordinatorUnreachable.

        Where it raises, this rank has left again, and the agent is of no more use.
        """
        if self._threads or self._closing.is_set():
            problem = "it was started already" if self._threads else "it was closed"
            raise EplbInputError("agent", problem, "Make another one; each is started once.")
        for name, run in (("protocol", self._run_protocol), ("mover", self._run_mover)):
            thread = threading.Thread(target=run, name=f"eplb-{name}-{self.rank}", daemon=True)
            thread.start()
            self._threads.append(thread)
        if wait:
            try:
                self._wait(self._member, self._config.connect_timeout_s)
            except WindtunnelError:
                self.close()
                raise
        return self

    def wait_serving(self, timeout_s: float = 30.0) -> None:
        """Wait until an epoch is published here. Raises as `start` does."""
        self._wait(self._serving, timeout_s)

    @property
    def table(self) -> Routing | None:
        """What to route by now; None before the first epoch, and once evicted. Reading it takes no lock."""
        return self.views.table

    @contextmanager
    def routing(self) -> Iterator[Routing]:
        """Route by the newest epoch until the block ends; no slot that it names is overwritten meanwhile."""
        with self.views.routing() as table:
            yield table

    @contextmanager
    def reading(self, epoch: int) -> Iterator[View]:
        """Answer for an epoch until the block ends: give the view to `expert`. Raises StaleEpoch."""
        with self.views.reading(epoch) as view:
            yield view

    def expert(self, view: View, layer: int, slot: int) -> list[Any]:
        """The tensors of the expert in a slot, as they are in this view: in staging for a time, else in the slot."""
        buffer = view.staged.get((layer, slot))
        return self.store.tensors(layer, slot) if buffer is None else self.store.staged(layer, self._staging[buffer])

    @property
    def generation(self) -> int:
        """Of this life of the rank."""
        return self._machine.generation

    @property
    def staging_bytes(self) -> int:
        """Memory that staging takes here: the bound."""
        return sum(buffer.nbytes for buffer in self._staging)

    def fail_at(self, fault: FailAt | None) -> None:
        """Fail at a transition from now on; None: at none. Raises EplbInputError where a rank has no such one."""
        self._faults = Faults("rank", fault)

    def close(self) -> None:
        """Leave: the coordinator sees this rank go, and its experts live on elsewhere."""
        if threading.current_thread() in self._threads:
            problem = "it was called by a callback, which it would wait for"
            raise EplbInputError("close", problem, "Call it in another thread.")
        self._closing.set()
        self._post(self._leave)
        self._tasks.put(None)
        if self._weights:
            self._weights.close()
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    def __enter__(self) -> RankAgent:
        return self if self._threads else self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _wait(self, event: threading.Event, timeout_s: float) -> None:
        began_ns = clock.monotonic_ns()
        while not event.wait(0.05):
            if self._failure:
                raise self._failure
            waited_s = (clock.monotonic_ns() - began_ns) / NS_PER_S
            if waited_s >= timeout_s:
                address = f"{self._config.host}:{self._config.port}"
                raise CoordinatorUnreachable(address, waited_s, self._last_trouble)
        if self._failure:
            raise self._failure

    # --- the mover thread -----------------------------------------------------------------------------------------

    def _run_mover(self) -> None:
        try:
            self._move()
        except BaseException as error:
            self._fail(f"the mover thread broke: {type(error).__name__}: {error}")
            raise

    def _move(self) -> None:
        pause_s = 0.0
        while not self._closing.is_set():
            try:
                task = self._tasks.get(timeout=pause_s) if self._mover.busy and pause_s else self._next_task()
                if task is None:
                    return
                self._mover.take(task)
            except queue.Empty:
                pass
            happened = self._mover.step()
            pause_s = 0.0 if happened else min(max(pause_s * 2, 20e-6), 1e-3)
            if happened:
                self._post(self._take_happened, happened)

    def _next_task(self) -> Any:
        return self._tasks.get_nowait() if self._mover.busy else self._tasks.get()

    def _post(self, function: Callable[..., None], *arguments: Any) -> None:
        loop = self._loop
        if loop is not None:
            try:
                loop.call_soon_threadsafe(function, *arguments)
            except RuntimeError:  # closed: nobody asks any more
                pass

    def _fail(self, reason: str) -> None:
        remedy = "The rank has left, its experts live on elsewhere. Start its process again to rejoin."
        self._failure = RankRefused(self.rank, self.generation, reason, remedy)
        was_serving = self.views.table is not None
        self.views.stop()
        self._closing.set()
        self._post(self._leave)
        if was_serving and self._on_evicted:
            tell(self._on_evicted, reason)

    # --- the protocol thread --------------------------------------------------------------------------------------

    def _run_protocol(self) -> None:
        try:
            asyncio.run(self._take_part())
        except asyncio.CancelledError:
            pass  # by `_leave`
        except BaseException as error:
            self._fail(f"the protocol thread broke: {type(error).__name__}: {error}")
            raise

    async def _take_part(self) -> None:
        self._task = asyncio.current_task()
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._broke)
        self._loop = loop
        async with asyncio.TaskGroup() as group:
            ticking = group.create_task(self._tick())
            await self._connect_again_and_again()
            ticking.cancel()
        if self._bug:
            raise self._bug

    def _broke(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """A callback of this loop raised: a bug. A rank that goes on with half of it done is worse than none."""
        loop.default_exception_handler(context)
        self._bug = context.get("exception") or RuntimeError(context["message"])
        self._closing.set()
        self._close_channel()

    async def _connect_again_and_again(self) -> None:
        pause_s = _RECONNECT_S[0]
        while not self._closing.is_set():
            try:
                pause_s = await self._be_member() or min(pause_s * 2, _RECONNECT_S[1])
            except (OSError, control.ControlGarbage) as error:
                self._last_trouble = str(error) or type(error).__name__
                pause_s = min(pause_s * 2, _RECONNECT_S[1])
            if not self._closing.is_set():
                await asyncio.sleep(pause_s)

    async def _be_member(self) -> float | None:
        """One connection, from its Hello to its end; the pause before the next, where it is known."""
        while self._machine.committed is None and self.views.is_used():
            if self._closing.is_set():
                return None
            await asyncio.sleep(_WAIT_S)  # somebody still reads what an earlier life served
        channel = await control.connect(self._config.host, self._config.port, m.decode_from_coordinator)
        self._channel, self._is_welcome = channel, False
        beating: asyncio.Task[None] | None = None

        def take(message: m.FromCoordinator) -> None:
            nonlocal beating
            if isinstance(message, m.Welcome) and beating is None:
                beating = asyncio.create_task(self._beat(channel, message.heartbeat_ns))
                self._is_welcome = True
                self._member.set()
                self.events.add("joined", generation=self.generation, term=message.term)
            if isinstance(message, m.Refused):
                self._last_trouble = message.reason
            if isinstance(message, m.Left) and not message.again and self._on_left:
                tell(self._on_left, message.rank)
            self._carry_out(self._machine.receive(message, clock.monotonic_ns()))

        try:
            channel.send(self._hello())
            await channel.deliver(take)
            self._last_trouble = "the coordinator closed the connection"
            return _RECONNECT_S[0] if beating else None
        finally:
            if beating:
                beating.cancel()
            channel.close()
            self._channel = None

    async def _beat(self, channel: control.Channel, every_ns: int) -> None:
        while True:
            quarantined = self._machine.staging.count(BufferState.QUARANTINED)
            channel.send(m.Heartbeat(clock.monotonic_ns(), quarantined * max(self.store.group_bytes)))
            await asyncio.sleep(every_ns / NS_PER_S)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_WAIT_S if self.views.is_waiting else _TICK_S)
            self._carry_out(self._let_go())
            self._carry_out(self._machine.tick(clock.monotonic_ns()))

    def _hello(self) -> m.Hello:
        machine = self._machine
        metadata = self._transport.metadata()
        peer = m.Peer(self.rank, machine.generation, metadata, encode_layout(self.store.layout()))
        return m.Hello(
            token=self._config.token,
            rank=self.rank,
            generation=machine.generation,
            term=machine.term,
            slots=self.store.slots,
            group_bytes=tuple(self.store.group_bytes),
            num_experts=self._num_experts,
            staging_buffers=self._buffers,
            transport=type(self._transport).__name__,
            peer=peer,
            contents=machine.contents.astype("<i4").tobytes(),
            since=machine.since.astype("<i8").tobytes(),
            digests=self._digests(),
            committed=m.PlacementBytes.of(machine.committed) if machine.committed else None,
            pending=machine.pending(),
            has_weights=self._weights is not None,
            pid=os.getpid(),
            host=host_identity(),
        )

    def _digests(self) -> bytes:
        slots = np.ndenumerate(self._machine.contents)
        return b"".join(self._digest(layer, slot, int(expert)) for (layer, slot), expert in slots)

    def _digest(self, layer: int, slot: int, expert: int) -> bytes:
        if expert == EMPTY:
            return bytes(DIGEST_BYTES)
        if (layer, expert) not in self._known_digests:
            self._known_digests[layer, expert] = self.store.digest(layer, slot)
        return self._known_digests[layer, expert]

    # --- carrying out ---------------------------------------------------------------------------------------------

    def _carry_out(self, instructions: Iterable[Instruction]) -> None:
        todo = deque(instructions)
        while todo:
            todo.extend(self._do(todo.popleft()))

    def _do(self, instruction: Instruction) -> list[Instruction]:
        """Carry one out; what follows at once."""
        match instruction:
            case Entered(transition=transition):
                self.events.add("entered", transition=transition.name)
                self._faults.entered(transition)
            case Send(message=message):
                if self._channel:
                    self._channel.send(message)
            case Read() | Check() | Abandon() | Overwrite() | Know() | Forget():
                self._tasks.put(instruction)
            case Serve(view=view):
                self.views.serve(view)
            case RouteBy(view=view):
                self._route_by(view)
                return [*self._let_go(), *self._machine.still_routing(view.number)]
            case Withdraw(view=number):
                self.views.withdraw(number)
                return self._let_go()
            case Refuse(reason=reason, remedy=remedy, rejoin=rejoin):
                self._refused(reason, remedy, rejoin)
        return []

    def _route_by(self, view: View) -> None:
        before = self.views.table
        self.views.route_by(view)
        table = self.views.table
        if table is not None and table is not before:
            self.events.add("published", epoch=table.epoch)
            if self._on_publish:
                tell(self._on_publish, table)
        self._serving.set()

    def _let_go(self) -> list[Instruction]:
        """What follows where nobody uses an old view any more."""
        return [out for what in self.views.due() for out in self._machine.happened(what, clock.monotonic_ns())]

    def _take_happened(self, happened: list[Moved]) -> None:
        for what in happened:
            if isinstance(what, Broke):
                self.events.add("read failed", error=what.kind, reason=what.reason)
            self._carry_out(self._machine.happened(what, clock.monotonic_ns()))

    def _refused(self, reason: str, remedy: str, rejoin: bool) -> None:
        was_serving = self.views.table is not None
        if was_serving and not rejoin and not self._is_welcome:  # by a coordinator that it never was a member of
            self.events.add("waiting", reason=f"the coordinator at this address does not know this rank: {reason}")
            self._close_channel()
            return
        self.views.stop()
        self._serving.clear()
        self.events.add("refused", reason=reason, rejoin=rejoin)
        if was_serving and self._on_evicted:
            tell(self._on_evicted, reason)
        if not rejoin:
            self._failure = RankRefused(self.rank, self.generation, reason, remedy)
            self._closing.set()
        else:
            self._machine, out = self._machine.reborn(clock.realtime_ns())
            self._carry_out(out)
        self._close_channel()

    def _leave(self) -> None:
        if self._task:
            self._task.cancel()

    def _close_channel(self) -> None:
        if self._channel:
            self._channel.close()


def _contents(contents: ArrayLike, store: ExpertStore, num_experts: int) -> NDArray[np.int32]:
    held = np.asarray(contents)
    shape = (store.num_layers, store.slots)
    if held.shape != shape:
        raise EplbInputError("contents", f"shape {held.shape}", f"One expert for each layer and slot: {shape}.")
    return np.array(Placement.of(held[:, None, :], num_experts).slots[:, 0])
