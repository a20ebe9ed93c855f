"""A simulated cluster: processes (see `simulated`) over a network and a clock that obey the test.

The network delivers what the test picks: late, twice, out of order, never. `direct` does what a director does:
route around the dead, restore, admit, rebalance; one transaction after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.eplb.by_hand import LIMITS
from tests.eplb.invariants import check_all
from tests.eplb.rebalances import copies_between, restored, swapped
from tests.eplb.simulated import (
    DIGESTS,
    GROUP_BYTES,
    LAYERS,
    SLOTS,
    Checkpoint,
    CoordinatorProcess,
    Pin,
    Process,
    RankProcess,
    state_of,
)
from windtunnel.eplb.placement import EMPTY, Placement
from windtunnel.eplb.routing import Routing
from windtunnel.eplb.transaction import instructions as do
from windtunnel.eplb.transaction import messages as m
from windtunnel.eplb.transaction.coordinator import Coordinator
from windtunnel.eplb.transaction.table import Transition
from windtunnel.eplb.transaction.takeover import misfit, take_over, will_hold
from windtunnel.eplb.transport.memory import Fabric
from windtunnel.units import NS_PER_MS, NS_PER_S

DEATH_NOTICED_NS = 5 * NS_PER_MS
HANG_NOTICED_NS = NS_PER_S
TICK_NS = 20 * NS_PER_MS


@dataclass(eq=False)
class Flight:
    """A message under way, on a connection between a coordinator and one life of a rank."""

    coordinator: CoordinatorProcess
    rank: int
    generation: int
    up: bool
    payload: bytes

    @property
    def reliable(self) -> bool:
        """Membership is told once; what belongs to a transaction is asked again until it is answered."""
        return not self.up and isinstance(
            m.decode_from_coordinator(self.payload), m.Welcome | m.Joined | m.Left | m.Refused
        )


@dataclass
class World:
    """The cluster, and everything that may happen to it as a method."""

    first: Placement
    staging_buffers: int = 4
    slice_bytes: int = 6
    checkpoint: Checkpoint | None = field(default_factory=Checkpoint)
    now_ns: int = 0
    flights: list[Flight] = field(default_factory=list)
    outcomes: list[do.Outcome] = field(default_factory=list)
    jobs: list[Callable[[Placement], Placement]] = field(default_factory=list)
    """Rebalances to be done: each makes a target from what serves."""
    deliveries: int = 0

    def __post_init__(self) -> None:
        self.fabric = Fabric(self.slice_bytes)
        self._generation = self._starts = 0
        self.ranks: dict[int, RankProcess] = {}
        self.ghosts: list[tuple[RankProcess, int]] = []
        """Evicted, and not known to have ended: with the generation that was evicted."""
        self.evicted: dict[int, int] = {}
        self.published: dict[int, set[tuple[int, int]]] = {}
        """Which lives of ranks have published a transaction."""
        self.snapshot: dict[tuple[int, int], Any] = {}
        """Lives of ranks as they were when the newest transaction was begun."""
        self.snapshot_txn: int | None = None
        """That transaction; a successor may still have to do with an older one."""
        self.violations: list[str] = []
        self.needed_bytes: dict[int, int] = {}
        """What each transaction has to move, by its epoch."""
        self.maps: dict[int, bytes] = {}
        """The digest of each epoch that a member ever routed by."""
        self.entered_by: dict[str, int] = {}
        """How often each transition was made."""
        self.successor_fail_at: tuple[str, str] | None = None
        """When the next coordinator is to fail; it may be as it takes over."""
        self._job: Callable[[Placement], Placement] | None = None
        self._urgent = True
        """The transaction under way is one that has to be done, not a job."""
        self._tries = 0
        for rank in range(self.first.num_ranks):
            self.start_rank(rank, self.first.slots[:, rank])
        self.coordinator = self._new_coordinator(restart=False)
        self.run()

    # --- processes ------------------------------------------------------------------------------------------------

    def next_generation(self) -> int:
        self._generation += 1
        return self._generation

    def start_rank(self, rank: int, held: NDArray[np.int32] | None = None) -> RankProcess:
        """A process for a rank, with empty slots unless told otherwise; it joins when the director lets it."""
        held = np.full((LAYERS, SLOTS), EMPTY, np.int32) if held is None else np.asarray(held)
        process = self.ranks[rank] = RankProcess(self, rank, self.next_generation(), held)
        return process

    def members(self) -> dict[int, RankProcess]:
        """Ranks that the coordinator counts on, and that live."""
        known = self.coordinator.machine.members
        return {r: p for r, p in self.ranks.items() if p.alive and known.get(r) == p.generation}

    def replace_coordinator(self) -> None:
        """A successor asks all ranks that answer; what the predecessor sent is still under way."""
        self.coordinator.end()
        self.coordinator = self._new_coordinator(restart=True)

    def askable(self) -> list[RankProcess]:
        """Ranks that would say Hello to a coordinator now."""
        return [p for p in self.ranks.values() if p.runs and not p.todo and not self._is_haunted(p)]

    def _new_coordinator(self, restart: bool) -> CoordinatorProcess:
        asked = self.askable()
        hellos = [p.hello() for p in asked]
        self._starts += 1  # the wall clock: no two coordinators start in one second
        takeover = take_over(hellos, self.first.slots_per_rank, self._starts)
        found = [takeover.committed, *([takeover.pending.target.placement()] if takeover.pending else [])]
        if not found[0].epoch or any(self.maps.get(p.epoch, p.digest) != p.digest for p in found):
            self.maps = {}  # nobody knows of any epoch, or only of those before such a beginning: all begins anew
        machine = Coordinator(takeover.term, takeover.committed, LIMITS)
        self.evicted, self._tries, self._job = {}, 0, None
        self.coordinator = process = CoordinatorProcess(self, machine)
        process.fail_at, self.successor_fail_at = self.successor_fail_at, None
        for rank, hello in zip(asked, hellos, strict=True):
            rank.connected = process
            if rank.rank in takeover.strays:
                rank.connected = None
                self._fly(Flight(process, rank.rank, rank.generation, False, m.encode(m.Refused("stray", "", True))))
            else:
                self._enlist(rank, hello)
        for rank in list(self.members().values()):
            self._welcome(rank)
        if takeover.pending:
            process.carry_out(machine.resume(takeover.pending, takeover.decided, self.now_ns))
        if restart and process.views.table is None:
            process.announce(takeover.committed)
        return process

    def _enlist(self, rank: RankProcess, hello: m.Hello) -> None:
        self.coordinator.machine.joined(rank.rank, rank.generation, *will_hold(hello))

    def _welcome(self, rank: RankProcess) -> None:
        peers = tuple(p.hello().peer for p in self.members().values() if p is not rank)
        committed = self.coordinator.machine.committed
        told = m.PlacementBytes.of(committed) if committed.epoch and not rank.machine.committed else None
        self.send_down(self.coordinator, rank.rank, m.Welcome(self.coordinator.machine.term, 0, peers, told))

    def evict(self, rank: int, why: str) -> None:
        """A member is one no longer."""
        machine = self.coordinator.machine
        if rank not in machine.members:
            return
        generation, process = machine.members[rank], self.ranks[rank]
        self.evicted[rank] = generation
        ended = not process.alive
        if not ended:
            self._fly(Flight(self.coordinator, rank, generation, False, m.encode(m.Refused(why, "", True))))
            self.ghosts.append((process, generation))
        out = machine.lost(rank, why, self.now_ns)
        for other in machine.members:
            self.send_down(self.coordinator, other, m.Left(machine.term, rank, generation, ended))
        self.coordinator.carry_out(out)

    def detect(self) -> None:
        """What the failure detector finds: ends at once, stops after a while, ghosts that have ended."""
        if not self.coordinator.runs:
            return
        for rank, generation in list(self.coordinator.machine.members.items()):
            process, since_ns = self.ranks[rank], self.now_ns - self.ranks[rank].changed_ns
            if process.generation != generation or (not process.alive and since_ns >= DEATH_NOTICED_NS):
                self.evict(rank, "its control connection closed")
            elif process.stopped and since_ns >= HANG_NOTICED_NS:
                self.evict(rank, "no heartbeat")
        for ghost in [g for g in self.ghosts if not g[0].alive]:
            self.ghosts.remove(ghost)
            for other in self.coordinator.machine.members:
                left = m.Left(self.coordinator.machine.term, ghost[0].rank, ghost[1], True)
                self.send_down(self.coordinator, other, left)

    # --- the network ----------------------------------------------------------------------------------------------

    def send_down(self, coordinator: CoordinatorProcess, rank: int, message: m.FromCoordinator) -> None:
        self._fly(Flight(coordinator, rank, self.ranks[rank].generation, False, m.encode(message)))

    def send_up(self, rank: RankProcess, message: m.FromRank) -> None:
        if rank.connected:
            self._fly(Flight(rank.connected, rank.rank, rank.generation, True, m.encode(message)))

    def _fly(self, flight: Flight) -> None:
        self.flights.append(flight)

    def deliver(self, index: int = 0, *, keep: bool = False) -> None:
        """One message arrives; with `keep`, it will arrive once more."""
        flight = self.flights[index] if keep else self.flights.pop(index)
        self.deliveries += 1
        rank = self.ranks[flight.rank]
        if not flight.up:
            if rank.alive and rank.generation == flight.generation and self._hears(rank, flight):
                rank.inbox.append(m.decode_from_coordinator(flight.payload))
                rank.receive_next()
        elif flight.coordinator is self.coordinator and self.coordinator.runs:
            machine = self.coordinator.machine
            if machine.members.get(flight.rank) == flight.generation:
                message = m.decode_from_rank(flight.payload)
                self.coordinator.carry_out(machine.receive(flight.rank, message, self.now_ns))

    @staticmethod
    def _hears(rank: RankProcess, flight: Flight) -> bool:
        """A connection that was replaced brings nothing more, but for what the term fences; a new one brings a Hello's
        answer first."""
        old = flight.coordinator.machine.term < rank.machine.term and not flight.reliable
        return old or rank.connected in (flight.coordinator, None)

    def drop(self, index: int) -> None:
        """A message that is asked for again gets lost."""
        if not self.flights[index].reliable:
            del self.flights[index]

    # --- what happens ---------------------------------------------------------------------------------------------

    def advance(self, by_ns: int = TICK_NS) -> None:
        """Time passes; everyone looks at the clock."""
        self.now_ns += by_ns
        for rank in list(self.ranks.values()):
            if rank.runs:
                for _ in range(len(rank.inbox)):
                    rank.receive_next()
                rank.tick()
        self.coordinator.tick()
        self.detect()
        gone_ns = self.now_ns - self.coordinator.changed_ns
        if not self.coordinator.alive and gone_ns >= HANG_NOTICED_NS and self.askable():
            self.replace_coordinator()
        self.direct()

    def direct(self) -> None:
        """If no transaction is under way: begin the most urgent thing."""
        process, machine = self.coordinator, self.coordinator.machine
        if not process.runs or process.todo or machine.stage != "idle":
            return
        committed = machine.committed
        absent = [r for r in range(committed.num_ranks) if r not in machine.members]
        self._urgent = True
        if not self._is_masked():
            self.begin(committed.without_ranks(absent, 0))
        elif arrivals := [p for p in self.ranks.values() if self._may_join(p)]:
            self._admit(arrivals[0])
        elif self.can_restore:
            self.begin(restored(committed, list(machine.members), self.staging_buffers))
        elif self._job or self.jobs:
            self._urgent, self._job = False, self._job or self.jobs.pop(0)
            self.begin(self._job(committed).without_ranks(absent, 0))

    def _is_masked(self) -> bool:
        """Whether an epoch is published that names members only."""
        machine = self.coordinator.machine
        absent = [r for r in range(machine.committed.num_ranks) if r not in machine.members]
        return machine.committed.epoch > 0 and not (machine.committed.slots[:, absent] != EMPTY).any()

    @property
    def can_restore(self) -> bool:
        """Whether a missing expert can be had, and there is room for it."""
        committed = self.coordinator.machine.committed
        if not committed.missing or not self.checkpoint or self.checkpoint.broken:
            return False
        target = restored(committed, list(self.coordinator.machine.members), self.staging_buffers)
        return bool((target.slots != committed.slots).any())

    def _may_join(self, rank: RankProcess) -> bool:
        machine = self.coordinator.machine
        member = machine.members.get(rank.rank) == rank.generation
        return rank.runs and not member and not self._is_haunted(rank) and not rank.todo

    @staticmethod
    def _is_haunted(rank: RankProcess) -> bool:
        """Whether somebody still reads what an earlier life served: it connects when they have let go."""
        return rank.machine.committed is None and rank.views.is_used()

    def _admit(self, rank: RankProcess) -> None:
        machine, hello = self.coordinator.machine, rank.hello()
        rank.connected = self.coordinator
        if misfit(hello, machine.committed, machine.term) or rank.generation <= self.evicted.get(rank.rank, -1):
            self.evicted[rank.rank] = rank.generation
            refused = m.encode(m.Refused("stale", "", True))
            if not any(f.payload == refused and f.generation == rank.generation for f in self.flights):
                self._fly(Flight(self.coordinator, rank.rank, rank.generation, False, refused))
            return
        for other in machine.members:
            self.send_down(self.coordinator, other, m.Joined(machine.term, hello.peer))
        self._enlist(rank, hello)
        self._welcome(rank)

    def begin(self, target: Placement) -> None:
        """Start a transaction."""
        machine = self.coordinator.machine
        copies = copies_between(machine.committed, target, list(machine.members), self.checkpoint is not None)
        base = machine.committed if machine.committed.epoch else None
        whole = [p for p in self.members().values() if not p.machine.pending() and p.machine.committed == base]
        self.snapshot = {(p.rank, p.generation): state_of(p) for p in whole}
        self.needed_bytes[machine.last_epoch + 1] = sum(GROUP_BYTES[copy.layer] for copy in copies)
        out = machine.start(target, copies, GROUP_BYTES, DIGESTS, self.now_ns)
        self.snapshot_txn = next((asked.message.txn for asked in out if isinstance(asked, do.SendTo)), None)
        self.coordinator.carry_out(out)

    def entered(self, process: Process, transition: Transition) -> None:
        """A process makes a transition."""
        self.entered_by[transition.name] = self.entered_by.get(transition.name, 0) + 1
        if isinstance(process, RankProcess) and transition.trigger == "publish":
            pending = process.machine.pending()
            assert pending is not None
            self.published.setdefault(pending.txn, set()).add((process.rank, process.generation))

    def retired(self, epoch: int) -> None:
        """Members go over to an epoch for good; what others route by is no concern of theirs."""
        for rank in self.ranks.values():
            if self.coordinator.machine.members.get(rank.rank) != rank.generation:
                rank.missed_epoch = max(rank.missed_epoch, epoch)

    def ended(self, outcome: do.Outcome) -> None:
        """A transaction is over."""
        self.outcomes.append(outcome)
        if outcome.committed:
            self._tries, self._job = 0, self._job if self._urgent else None
            if outcome.copies and outcome.moved_bytes > self.needed_bytes[outcome.epoch]:
                self.violations.append(f"{outcome} moved more than {self.needed_bytes[outcome.epoch]} bytes")
            return
        self._check_untouched(outcome)
        self._tries += 1
        if self._tries > 3 and self._urgent:
            for rank in outcome.culprits:
                self.evict(rank, "it keeps others from going on")
        elif self._tries > 3:
            self._tries, self._job = 0, None

    def _check_untouched(self, outcome: do.Outcome) -> None:
        """Whoever lives and took part is as before."""
        living = {(p.rank, p.generation): p for p in self.members().values()}
        for life in self.published.get(outcome.txn, set()) & set(living):
            self.violations.append(f"transaction {outcome.txn:x} was rolled back; rank {life[0]} had published it")
        for life, before in self.snapshot.items() if outcome.txn == self.snapshot_txn else ():
            if life in living and living[life].runs and not living[life].todo and state_of(living[life]) != before:
                self.violations.append(f"rank {life[0]} is not as it was before transaction {outcome.txn:x}")

    def pin_router(self, process: RankProcess | CoordinatorProcess) -> None:
        """Somebody in this process routes by the newest epoch until unpinned."""
        if process.alive and process.views.table is not None:
            block = process.views.routing()
            table: Routing = block.__enter__()
            process.pins.append(Pin(block, placement=table.placement))

    def pin_reader(self, rank: RankProcess, epoch: int) -> None:
        """Somebody reads an epoch's experts in this process until unpinned. Raises StaleEpoch."""
        block = rank.views.reading(epoch)
        view = block.__enter__()
        rank.pins.append(Pin(block, view=view))

    def unpin(self, process: RankProcess | CoordinatorProcess, index: int = 0) -> None:
        process.pins.pop(index).block.__exit__(None, None, None)

    # --- runs -----------------------------------------------------------------------------------------------------

    @property
    def quiet(self) -> bool:
        """Nothing is under way, and nothing is left to do."""
        machine = self.coordinator.machine
        running = [p for p in self.ranks.values() if p.runs]
        return (
            self.coordinator.runs
            and machine.stage == "idle"
            and not (self.flights or self.jobs or self._job)
            and set(machine.members) == {p.rank for p in self.members().values() if p.runs}
            and self._is_masked()
            and not any(self._may_join(p) for p in self.ranks.values())
            and not any(p.todo or p.inbox or p.happened for p in running)
            and not self.can_restore
        )

    def calm(self) -> None:
        """Nothing goes wrong any more: what is stopped goes on, readers let go, disks are mended."""
        for process in [*self.ranks.values(), self.coordinator]:
            process.fail_at = None
            while process.pins:
                self.unpin(process)
            if process.alive and process.stopped:
                process.resume()
        for rank in self.ranks.values():
            self.fabric.resume(rank.name)
        self.fabric.troubles.clear()
        if self.checkpoint:
            self.checkpoint.broken = False

    def rest(self) -> None:
        """Nothing goes wrong any more, all comes to an end, and one more rebalance is made."""
        self.calm()
        if not any(p.alive for p in self.ranks.values()):
            self.start_rank(0)
        if not self.coordinator.runs:
            self.replace_coordinator()
        self.run()
        self.jobs.append(swapped(self, 1))
        self.run()
        for _ in range(100):
            if not any(rank.mover.busy for rank in self.ranks.values() if rank.alive):
                break
            self.step()

    def step(self) -> None:
        """One fair round: what is under way arrives, bytes move, and if nothing happens, time passes."""
        moved = bool(self.flights)
        for _ in range(len(self.flights)):
            self.deliver(0)
            check_all(self)
        for rank in list(self.ranks.values()):
            moved |= rank.step_mover()
        check_all(self)
        if not moved:
            self.advance()
            check_all(self)

    def run(self, limit_s: float = 60.0) -> None:
        """Fair rounds until all is quiet. An AssertionError if that is not so within simulated time."""
        end_ns, rounds = self.now_ns + int(limit_s * NS_PER_S), 0
        while not self.quiet:
            self.step()
            rounds += 1
            assert self.now_ns < end_ns and rounds < 100_000, f"no end within {limit_s} s: {describe(self)}"


def describe(world: World) -> str:
    """Where everyone is."""
    coordinator = world.coordinator
    ranks = [
        f"rank {p.rank}.{p.generation} {'alive' if p.runs else 'stopped' if p.alive else 'ended'} {p.machine.phase} "
        f"{[b.state.value for b in p.machine.staging.buffers]} waits {p.views.is_waiting} busy {p.mover.busy}"
        for p in world.ranks.values()
    ]
    head = f"term {coordinator.machine.term} {coordinator.machine.stage}, runs {coordinator.runs}"
    flights = [m.decode_from_rank(f.payload) if f.up else m.decode_from_coordinator(f.payload) for f in world.flights]
    return "\n".join([head, f"members {coordinator.machine.members}", *ranks, *map(str, flights)])
