"""The coordinator's side as it runs: connections of ranks, their membership, and one transaction after the other.

Everything here runs in one asyncio loop. `run` is the director: it does one thing at a time, and what is most urgent
first: cover what a death left without a home, let ranks join, do what was asked for. Deaths interrupt whatever runs,
because the coordinator's machine hears of them at once; and while a job only waits for a plan, what is urgent is done.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, TypeVar

from windtunnel import clock
from windtunnel.eplb import control
from windtunnel.eplb.admission import Admission
from windtunnel.eplb.events import EventLog, tell
from windtunnel.eplb.faults import FailAt, Faults, How
from windtunnel.eplb.limits import require_counts, require_seconds
from windtunnel.eplb.membership import FailureDetector
from windtunnel.eplb.metrics import EplbMetrics
from windtunnel.eplb.placement import EMPTY, Placement
from windtunnel.eplb.plan import Copy, Plan, make_plan
from windtunnel.eplb.processes import has_ended
from windtunnel.eplb.recovery import Decision, RecoveryPolicy, cover
from windtunnel.eplb.routing import Routing, ViewTable
from windtunnel.eplb.topology import Topology
from windtunnel.eplb.transaction import messages as m
from windtunnel.eplb.transaction.coordinator import LOCAL, Coordinator, CoordinatorLimits
from windtunnel.eplb.transaction.instructions import (
    Announce,
    CoordinatorInstruction,
    Ended,
    Entered,
    Outcome,
    SendTo,
    Stuck,
    View,
)
from windtunnel.eplb.transaction.takeover import misfit, take_over, will_hold
from windtunnel.errors import EplbInputError, ExpertLost, TooFewSlots, WindtunnelError
from windtunnel.units import NS_PER_S, s_to_ns

_TICK_S = 0.02
_WAIT_S = 0.001
_RESTORE_AGAIN_S = 2.0
_Found = TypeVar("_Found")


@dataclass(frozen=True)
class ClusterConfig:
    """How the coordinator listens, and how patient it is."""

    host: str = "127.0.0.1"
    port: int = 0
    """0: any that is free; `Rebalancer.address` tells."""
    token: str = ""
    """What ranks must know. Needed wherever others can reach the address."""
    heartbeat_s: float = 0.1
    hang_s: float = 1.0
    """A rank that is silent for this long is taken for hung, and evicted."""
    start_timeout_s: float = 300.0
    """How long to wait for all ranks at the very start."""
    takeover_timeout_s: float = 3.0
    """How long a new coordinator waits for ranks that served under another one."""
    prepare_deadline_s: float = 5.0
    stuck_deadline_s: float = 30.0
    """A rank that is alive but does not answer past a decision for this long is evicted."""
    max_peers: int = 4
    """Peers that a rank exchanges experts with at once."""
    layers_per_step: int | None = 1
    """Layers that change in one transaction; None: as many as staging has room for."""

    def __post_init__(self) -> None:
        require_seconds(
            heartbeat_s=self.heartbeat_s,
            hang_s=self.hang_s,
            start_timeout_s=self.start_timeout_s,
            takeover_timeout_s=self.takeover_timeout_s,
            prepare_deadline_s=self.prepare_deadline_s,
            stuck_deadline_s=self.stuck_deadline_s,
        )
        require_counts(max_peers=self.max_peers, layers_per_step=self.layers_per_step)
        require_counts(0, port=self.port)
        if not isinstance(self.token, str):
            raise EplbInputError("token", f"{self.token!r}", "It is a text; none is an empty one.")
        if self.hang_s < 2 * self.heartbeat_s:
            problem = f"{self.hang_s} s, with a heartbeat each {self.heartbeat_s} s"
            raise EplbInputError("hang_s", problem, "Let two heartbeats fit into it.")


@dataclass
class Member:
    """A rank that is connected."""

    hello: m.Hello
    channel: control.Channel

    @property
    def rank(self) -> int:
        """Its number."""
        return self.hello.rank


Why = Literal["closed", "silent", "stuck", "stubborn", "replaced", "removed", "garbage"]
"""In one word, why a rank is a member no longer."""


class Evicted(NamedTuple):
    """A rank that is a member no longer."""

    rank: int
    generation: int
    pid: int
    host: str
    """Where its pid counts; see `processes.host_identity`."""
    why: Why
    reason: str
    """The same in words."""
    ended: bool
    """Its process is known to have ended. If not, it may hang: stop it, so that it can't come back to haunt."""


@dataclass
class Result:
    """What became of a plan."""

    committed: bool
    reason: str = ""
    outcomes: list[Outcome] = field(default_factory=list)
    stages_ns: Counter[str] = field(default_factory=Counter)
    """Time in each stage, of all transactions."""


class Cluster:
    """Ranks under one coordinator."""

    def __init__(
        self,
        topology: Topology,
        config: ClusterConfig,
        recovery: RecoveryPolicy,
        events: EventLog,
        metrics: EplbMetrics,
        *,
        on_publish: Callable[[Routing], None] | None = None,
        on_evicted: Callable[[Evicted], None] | None = None,
        fail_at: FailAt | tuple[str, How] | None = None,
    ) -> None:
        self.topology = topology
        self.views = ViewTable(LOCAL)
        self.members: dict[int, Member] = {}
        self.coordinator: Coordinator | None = None
        self.address: tuple[str, int] | None = None
        self.group_bytes: tuple[int, ...] = ()
        self.num_experts = 0
        self._config = config
        self._recovery = recovery
        self._events = events
        self._metrics = metrics
        self._on_publish = on_publish
        self._on_evicted = on_evicted
        self._faults = Faults("coordinator", fail_at)
        self._detector = FailureDetector(s_to_ns(config.hang_s), s_to_ns(_TICK_S))
        self._arrivals: dict[int, Member] = {}
        self._admission = Admission(topology, config.token)
        self._haunting: list[Evicted] = []
        """Evicted ranks whose processes may still be there."""
        self._jobs: deque[Callable[[], Awaitable[None]]] = deque()
        self._wake = asyncio.Event()
        self._ended: asyncio.Future[Outcome] | None = None
        self._quarantined_bytes: dict[int, int] = {}
        self._restore_at_ns = 0
        self._unrestorable: set[int] = set()
        self._stage_ns: Counter[str] = Counter()
        """Of the transaction under way, or the latest."""
        self._stage_since_ns = 0
        self.idle = asyncio.Event()
        """Set while there is nothing to do, or nothing that can be done."""
        self.ready = asyncio.Event()
        """Set while, besides, ranks are here and all experts can be routed to."""

    # --- the director ---------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Listen, gather the ranks, and direct until cancelled."""
        server = await control.serve(self._config.host, self._config.port, self._attend, token=self._config.token)
        self.address = server.address
        try:
            async with asyncio.TaskGroup() as group:  # one that breaks ends the other
                group.create_task(self._tick())
                group.create_task(self._direct())
        finally:
            leaving = [*self.members.values(), *self._arrivals.values()]
            self.members.clear()  # we leave: none of them is lost
            for member in leaving:
                member.channel.close()
            await server.close()

    async def _direct(self) -> None:
        await self._gather()
        while True:
            self._wake.clear()
            if not await self._do_next():
                await self._wake.wait()

    async def _do_next(self) -> bool:
        """Do the most urgent thing; False: there is none."""
        if await self._do_urgent():
            return True
        if self._jobs:
            await self._jobs.popleft()()
            return True
        self._metrics.set_cluster(self.committed, self.live_topology)
        self.idle.set()
        if self.members and not self.committed.missing:
            self.ready.set()
        return False

    async def _do_urgent(self) -> bool:
        """Do what can't wait for a job to end; False: there is nothing."""
        if self._dead_with_slots():
            await self._mask_dead()
        elif self._may_restore():
            await self._restore()
        elif self._arrivals:
            await self._admit_arrivals()
        else:
            return False
        return True

    async def meanwhile(self, work: Awaitable[_Found]) -> _Found:
        """For jobs: wait for something that takes its time, and do what is urgent meanwhile. Membership and what serves
        may have changed then."""
        task = asyncio.ensure_future(work)
        try:
            while not task.done():
                self._wake.clear()
                if not await self._do_urgent():
                    roused = asyncio.ensure_future(self._wake.wait())
                    await asyncio.wait((task, roused), return_when=asyncio.FIRST_COMPLETED)
                    roused.cancel()
            return task.result()
        finally:
            task.cancel()

    def submit(self, job: Callable[[], Awaitable[None]]) -> None:
        """Do this when nothing more urgent is to be done."""
        self._jobs.append(job)
        self._rouse()

    def _rouse(self) -> None:
        """There is something to do."""
        self.idle.clear()
        self.ready.clear()
        self._wake.set()

    @property
    def machine(self) -> Coordinator:
        """The coordinator's machine; there is one once the ranks have been gathered."""
        assert self.coordinator is not None
        return self.coordinator

    @property
    def committed(self) -> Placement:
        """What serves."""
        return self.machine.committed

    @property
    def present(self) -> list[int]:
        """The ranks that are connected: members, and those that are to become members."""
        return sorted({*self.members, *self._arrivals})

    @property
    def live_topology(self) -> Topology:
        """The topology with the members alive and no others."""
        return self.topology.without(self._absent())

    # --- gathering ------------------------------------------------------------------------------------------------

    async def _gather(self) -> None:
        began_ns = clock.monotonic_ns()
        while not self._gathered((clock.monotonic_ns() - began_ns) / NS_PER_S):
            await asyncio.sleep(_TICK_S)
        members = [self._arrivals.pop(rank) for rank in sorted(self._arrivals)]
        hellos, now_s = [member.hello for member in members], clock.realtime_ns() // NS_PER_S
        takeover = take_over(hellos, self.topology.slots_per_rank, now_s)
        self.coordinator = Coordinator(takeover.term, takeover.committed, self._limits())
        self._events.add("began", term=takeover.term, epoch=takeover.committed.epoch, ranks=[x.rank for x in members])
        for member in members:
            if member.rank in takeover.strays:
                self._refuse(member, "it missed an epoch while there was no coordinator", rejoin=True)
            else:
                self._enlist(member)
        for member in list(self.members.values()):
            self._welcome(member)
        if takeover.pending:
            await self._ending(lambda now_ns: self.machine.resume(takeover.pending, takeover.decided, now_ns))  # type: ignore[arg-type]
        if self.committed.epoch == 0:
            await self._until_committed(lambda: self.committed.without_ranks(self._absent(), 0))
        elif self.views.table is None:
            self._announce(self.committed)

    def _gathered(self, waited_s: float) -> bool:
        here = set(self._arrivals)
        if here >= {rank for rank in self.topology.live_ranks if self.topology.slots_per_rank[rank]}:
            return True
        served = any(member.hello.committed for member in self._arrivals.values())
        patience_s = self._config.takeover_timeout_s if served else self._config.start_timeout_s
        return bool(here) and waited_s >= patience_s

    def _limits(self) -> CoordinatorLimits:
        config = self._config
        return CoordinatorLimits(
            prepare_deadline_ns=s_to_ns(config.prepare_deadline_s), stuck_deadline_ns=s_to_ns(config.stuck_deadline_s)
        )

    # --- membership -----------------------------------------------------------------------------------------------

    async def _attend(self, channel: control.Channel) -> None:
        """One connection, from its first message to its end."""
        try:
            hello = await channel.receive()  # a stranger that says nothing is turned away by the server
        except control.ControlGarbage:
            channel.abort()
            return
        if not isinstance(hello, m.Hello):
            channel.abort()
            return
        member = Member(hello, channel)
        here = [other.hello for other in (*self.members.values(), *self._arrivals.values())]
        if reason := self._admission.why_not(hello, here):
            self._refuse(member, reason, rejoin=False)
            return
        if self._admission.was_evicted(hello):
            self._refuse(member, f"generation {hello.generation} was evicted", rejoin=True)
            return
        channel.admit()
        self._arrived(member)
        why: tuple[Why, str] = ("closed", "its control connection closed")
        try:
            await channel.deliver(lambda message: self._received(member, message))
        except control.ControlGarbage as error:
            why = ("garbage", f"it sent garbage: {error}")
        finally:
            self._lost(member, *why)

    def _refuse(self, member: Member, reason: str, *, rejoin: bool) -> None:
        remedy = (
            "It may rejoin with empty slots." if rejoin else "Give it what the coordinator says, and start it again."
        )
        self._events.add("refused", rank=member.rank, reason=reason)
        member.channel.send(m.Refused(reason, remedy, rejoin))
        member.channel.close()

    def _arrived(self, member: Member) -> None:
        for earlier in (self._arrivals.get(member.rank), self.members.get(member.rank)):
            if earlier:
                self._refuse(earlier, f"generation {earlier.hello.generation} was replaced", rejoin=True)
                self._lost(earlier, "replaced", "another process came for its rank")
        self._admission.learn(member.hello)
        self._arrivals[member.rank] = member
        self._rouse()

    def _enlist(self, member: Member) -> None:
        hello = member.hello
        self.group_bytes, self.num_experts = hello.group_bytes, hello.num_experts
        self.members[member.rank] = member
        self._unrestorable.clear()
        self._detector.heard(member.rank, clock.monotonic_ns())
        self.machine.joined(member.rank, hello.generation, *will_hold(hello))
        self._metrics.count_join()
        self._events.add("joined", rank=member.rank, generation=hello.generation, pid=hello.pid)

    def _welcome(self, member: Member) -> None:
        peers = tuple(other.hello.peer for other in self.members.values() if other is not member)
        told = m.PlacementBytes.of(self.committed) if self.committed.epoch and not member.hello.committed else None
        heartbeat_ns = s_to_ns(self._config.heartbeat_s)
        member.channel.send(m.Welcome(self.machine.term, heartbeat_ns, peers, told))

    async def _admit_arrivals(self) -> None:
        """Let ranks join, between transactions."""
        for rank in sorted(self._arrivals):
            member = self._arrivals.pop(rank)
            if reason := misfit(member.hello, self.committed, self.machine.term):
                self._admission.evict(member.hello)
                self._refuse(member, reason, rejoin=True)
                continue
            for other in self.members.values():
                other.channel.send(m.Joined(self.machine.term, member.hello.peer))
            self._enlist(member)
            self._welcome(member)
            await self._adopt(member)

    async def _adopt(self, member: Member) -> None:
        """A rank that came with experts in its slots brings them in: no byte needs to move."""
        held, _ = will_hold(member.hello)
        slots = self.committed.slots.copy()
        if not (held != EMPTY).any() or (slots[:, member.rank] != EMPTY).any():
            return
        slots[:, member.rank, : held.shape[1]] = held
        target = Placement.of(slots, self.num_experts, slots_per_rank=self.topology.slots_per_rank)
        await self._transact(target, ())

    def _received(self, member: Member, message: m.FromRank) -> None:
        if self.members.get(member.rank) is not member:
            return
        now_ns = clock.monotonic_ns()
        if isinstance(message, m.Heartbeat):
            self._detector.heard(member.rank, now_ns)
            self._note_quarantined(member.rank, message.quarantined_bytes)
        else:
            self._carry_out(self.machine.receive(member.rank, message, now_ns))

    def _note_quarantined(self, rank: int, num_bytes: int) -> None:
        if self._quarantined_bytes.get(rank) != num_bytes:
            self._quarantined_bytes[rank] = num_bytes
            self._metrics.set_quarantined_bytes(sum(self._quarantined_bytes.values()))

    def evict(self, rank: int, why: Why, reason: str) -> None:
        """Make a rank a member no longer; it may come back, unless it was removed."""
        if member := self.members.get(rank):
            told = f"generation {member.hello.generation} was evicted: {reason}"
            self._refuse(member, told, rejoin=why != "removed")
            self._lost(member, why, reason)

    def _lost(self, member: Member, why: Why, reason: str) -> None:
        member.channel.close()
        if self._arrivals.get(member.rank) is member:
            del self._arrivals[member.rank]
            if not self.coordinator:  # what it said of its experts is no measure for others any more
                self._admission.learn_only(other.hello for other in self._arrivals.values())
        if self.members.get(member.rank) is not member:
            return
        hello = member.hello
        self._rouse()
        self._admission.leave(hello)
        self._note_quarantined(member.rank, 0)
        self._metrics.count_eviction(why)
        del self.members[member.rank]
        self._detector.forget(member.rank)
        ended = has_ended(hello.pid, hello.host)
        evicted = Evicted(member.rank, hello.generation, hello.pid, hello.host, why, reason, ended)
        self._events.add("lost", rank=member.rank, reason=reason, ended=ended)
        self._tell_left(evicted)
        if not ended:
            self._haunting.append(evicted)
        if self.coordinator:
            self._carry_out(self.coordinator.lost(member.rank, reason, clock.monotonic_ns()))
        if self._on_evicted:
            tell(self._on_evicted, evicted)

    def _tell_left(self, evicted: Evicted, *, again: bool = False) -> None:
        term = self.machine.term if self.coordinator else 0
        for other in self.members.values():
            other.channel.send(m.Left(term, evicted.rank, evicted.generation, evicted.ended, again))

    def _absent(self) -> list[int]:
        return [rank for rank in range(self.topology.num_ranks) if rank not in self.members]

    # --- recovery -------------------------------------------------------------------------------------------------

    def _dead_with_slots(self) -> list[int]:
        slots = self.committed.slots
        return [rank for rank in self._absent() if (slots[:, rank] != EMPTY).any()]

    async def _mask_dead(self) -> None:
        """Route to the replicas that are left, at once: an epoch without copies."""
        dead = self._dead_with_slots()
        await self._until_committed(lambda: self.committed.without_ranks(self._absent(), 0))
        self._events.add("evicted", ranks=dead, epoch=self.committed.epoch, missing=len(self.committed.missing))
        self._restore_at_ns = 0

    async def _until_committed(self, target: Callable[[], Placement]) -> None:
        """Publish a placement without copies, over whoever is alive; ranks that make it fail again and again go."""
        attempts = 0
        while True:
            outcome = await self._transact(target(), ())
            if outcome.committed:
                return
            attempts += 1
            decision = self._decided(outcome, attempts)
            if attempts > self._recovery.retries:
                for rank in outcome.culprits:
                    self.evict(rank, "stubborn", f"it keeps others from going on: {decision.reason}")
            await asyncio.sleep(0 if not set(outcome.culprits) <= set(self.members) else decision.after_s)

    def _decided(self, outcome: Outcome, attempts: int) -> Decision:
        decision = self._recovery.decide(outcome, set(self.members), attempts)
        self._events.add("decided", action=decision.action, reason=decision.reason, epoch=outcome.epoch)
        return decision

    def _may_restore(self) -> bool:
        """Whether it is time to restore experts that no rank holds, and not known to be in vain."""
        if not self.committed.missing or not self.members:
            return False
        return self._unrestorable != set(self.members) and clock.monotonic_ns() >= self._restore_at_ns

    async def _restore(self) -> None:
        missing, members = len(self.committed.missing), set(self.members)
        try:
            plan = await asyncio.to_thread(lambda: self.plan_for(cover(self.committed, self.live_topology)))
        except (TooFewSlots, ExpertLost) as error:
            self._events.add("can't restore", missing=missing, reason=str(error))
            self._unrestorable = members
            return
        result = await self.execute(plan)
        self._events.add("restored" if result.committed else "restore failed", missing=missing, reason=result.reason)
        if not result.committed:
            self._restore_at_ns = clock.monotonic_ns() + s_to_ns(_RESTORE_AGAIN_S)

    # --- transactions ---------------------------------------------------------------------------------------------

    def plan_for(self, target: Placement) -> Plan:
        """The transfers from what serves to `target`. Raises EplbInputError, ExpertLost."""
        staging = [
            self.members[rank].hello.staging_buffers if rank in self.members else 0
            for rank in range(self.topology.num_ranks)
        ]
        return make_plan(
            self.committed,
            target,
            self.live_topology,
            group_bytes=self.group_bytes,
            staging_buffers=staging,
            max_peers=self._config.max_peers,
            layers_per_step=self._config.layers_per_step,
            weight_source=all(x.hello.has_weights for x in self.members.values()),
        )

    async def execute(self, plan: Plan) -> Result:
        """Carry out a plan, one transaction a step, until it is done or must be given up."""
        result = Result(True)
        for step in plan.steps:
            attempts = 0
            while True:
                if self._dead_with_slots():
                    return replace(result, committed=False, reason="a rank died; it is evicted first")
                try:
                    outcome = await self._transact(step.target, step.copies)
                except WindtunnelError as error:
                    return replace(result, committed=False, reason=str(error))
                result.outcomes.append(outcome)
                result.stages_ns += self._stage_ns
                if outcome.committed:
                    break
                attempts += 1
                decision = self._decided(outcome, attempts)
                if decision.action != "retry":
                    for rank in decision.ranks if decision.action == "evict" else ():
                        self.evict(rank, "stubborn", outcome.reason)
                    return replace(result, committed=False, reason=outcome.reason)
                await asyncio.sleep(decision.after_s)
        return result

    async def _transact(self, target: Placement, copies: Sequence[Copy]) -> Outcome:
        return await self._ending(
            lambda now_ns: self.machine.start(target, copies, self.group_bytes, self._admission.digests, now_ns)
        )

    async def _ending(self, begin: Callable[[int], list[CoordinatorInstruction]]) -> Outcome:
        """Begin a transaction and wait for its end."""
        self._ended = asyncio.get_running_loop().create_future()
        self._stage_ns, self._stage_since_ns = Counter(), clock.monotonic_ns()
        self._carry_out(begin(clock.monotonic_ns()))
        outcome = await self._ended
        self._ended = None
        self._metrics.observe_transaction(outcome, self._stage_ns)
        return outcome

    def _carry_out(self, instructions: Iterable[CoordinatorInstruction]) -> None:
        todo = deque(instructions)
        while todo:
            todo.extend(self._do(todo.popleft()))

    def _do(self, instruction: CoordinatorInstruction) -> list[CoordinatorInstruction]:
        """Carry one out; what follows at once."""
        match instruction:
            case Entered(transition=transition):
                self._note_stage(transition.source)
                self._events.add("entered", transition=transition.name)
                self._faults.entered(transition)
            case SendTo(rank=rank, message=message):
                if member := self.members.get(rank):
                    member.channel.send(message)
            case Announce(placement=placement):
                return self._announce(placement)
            case Stuck(rank=rank, stage=stage):
                self.evict(rank, "stuck", f"it did not answer while {stage}")
            case Ended(outcome=outcome):
                self._events.add("committed" if outcome.committed else "rolled back", **_facts(outcome))
                if self._ended and not self._ended.done():
                    self._ended.set_result(outcome)
        return []

    def _note_stage(self, stage: str) -> None:
        now_ns = clock.monotonic_ns()
        self._stage_ns[stage] += now_ns - self._stage_since_ns
        self._stage_since_ns = now_ns

    def _announce(self, placement: Placement) -> list[CoordinatorInstruction]:
        """Route by a placement in this process too."""
        self.views.route_by(View(placement.epoch, placement, {}))
        self._events.add("published", epoch=placement.epoch)
        if self._on_publish and self.views.table:
            tell(self._on_publish, self.views.table)
        return self._local_drained()

    def _local_drained(self) -> list[CoordinatorInstruction]:
        """What follows where nobody in this process routes by an old epoch any more: here, a view's number is that."""
        now_ns = clock.monotonic_ns()
        return [out for what in self.views.due() for out in self.machine.local_drained(what.view, now_ns)]

    # --- time -----------------------------------------------------------------------------------------------------

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_WAIT_S if self.views.is_waiting else _TICK_S)
            now_ns = clock.monotonic_ns()
            self._carry_out(self._local_drained())
            for rank in self._detector.tick(now_ns):
                if rank in self.members:
                    self.evict(rank, "silent", f"no heartbeat for {self._config.hang_s:.3g} s")
            if self.coordinator:
                self._carry_out(self.coordinator.tick(now_ns))
                if self._may_restore():
                    self._rouse()
            self._look_for_ghosts()

    def _look_for_ghosts(self) -> None:
        """Tell of evicted ranks whose processes have ended by now: what was read from them can be used again."""
        for evicted in list(self._haunting):
            if has_ended(evicted.pid, evicted.host):
                self._haunting.remove(evicted)
                self._events.add("ended", rank=evicted.rank, pid=evicted.pid)
                self._tell_left(evicted._replace(ended=True), again=True)


def _facts(outcome: Outcome) -> dict[str, Any]:
    facts: dict[str, Any] = {"epoch": outcome.epoch, "copies": outcome.copies, "moved_bytes": outcome.moved_bytes}
    return facts if outcome.committed else facts | {"stage": outcome.stage, "reason": outcome.reason}
