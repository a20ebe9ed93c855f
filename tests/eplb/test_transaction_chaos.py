"""Whatever happens in whatever order, what must hold of a cluster holds at every moment, and all ends well."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.eplb.invariants import check_all, check_at_rest
from tests.eplb.rebalances import swapped
from tests.eplb.simulated import LAYERS, SLOTS
from tests.eplb.world import World
from windtunnel.eplb.placement import Placement
from windtunnel.eplb.transaction.table import COORDINATOR, RANK
from windtunnel.eplb.transport.memory import Point, Trouble
from windtunnel.errors import StaleEpoch
from windtunnel.units import NS_PER_MS

RANKS = 3
PICK = st.integers(0, 10**6)
FIRST = Placement.of(np.tile((np.arange(RANKS * SLOTS) % 4).reshape(RANKS, SLOTS), (LAYERS, 1, 1)), 4)


class Chaos(RuleBasedStateMachine):
    """Ranks, a coordinator and their network, and all that can go wrong with them."""

    @initialize(buffers=st.integers(2, 5))
    def begin(self, buffers: int) -> None:
        self.world = World(FIRST, staging_buffers=buffers)

    def rank(self, pick: int) -> Any:
        return self.world.ranks[pick % RANKS]

    # --- what is meant to happen ---

    @rule(seed=PICK)
    def rebalance(self, seed: int) -> None:
        if len(self.world.jobs) < 3:
            self.world.jobs.append(swapped(self.world, seed))

    @rule(rounds=st.integers(1, 12))
    def go_on(self, rounds: int) -> None:
        for _ in range(rounds):
            self.world.step()

    @rule(ms=st.sampled_from([20, 200, 1100, 2500, 6000]))
    def time_passes(self, ms: int) -> None:
        self.world.advance(ms * NS_PER_MS)

    @rule(pick=PICK)
    def bytes_move(self, pick: int) -> None:
        self.rank(pick).step_mover()

    # --- the network ---

    @precondition(lambda self: self.world.flights)
    @rule(pick=PICK, keep=st.booleans())
    def a_message_arrives(self, pick: int, keep: bool) -> None:
        self.world.deliver(pick % len(self.world.flights), keep=keep)

    @precondition(lambda self: self.world.flights)
    @rule(pick=PICK)
    def a_message_is_lost(self, pick: int) -> None:
        self.world.drop(pick % len(self.world.flights))

    @rule(reader=PICK, peer=PICK, after=st.integers(1, 4), trouble=st.sampled_from(list(Trouble)))
    def a_read_will_go_wrong(self, reader: int, peer: int, after: int, trouble: Trouble) -> None:
        names = self.rank(reader).name, self.rank(peer).name
        self.world.fabric.fail_at(Point(*names, self.world.fabric.calls.get(names, 0) + after), trouble)

    @rule()
    def bytes_land_late(self) -> None:
        self.world.fabric.land()

    @rule(broken=st.booleans())
    def the_checkpoint_changes(self, broken: bool) -> None:
        assert self.world.checkpoint
        self.world.checkpoint.broken = broken

    # --- processes ---

    @rule(pick=PICK, transition=st.sampled_from([t.name for t in RANK]), how=st.sampled_from(["kill", "hang"]))
    def a_rank_will_fail(self, pick: int, transition: str, how: str) -> None:
        self.rank(pick).fail_at = (transition, how)

    @rule(transition=st.sampled_from([t.name for t in COORDINATOR]), how=st.sampled_from(["kill", "hang"]))
    def the_coordinator_will_fail(self, transition: str, how: str) -> None:
        self.world.coordinator.fail_at = (transition, how)

    @precondition(lambda self: sum(p.alive for p in self.world.ranks.values()) > 1)
    @rule(pick=PICK)
    def a_rank_dies(self, pick: int) -> None:
        if self.rank(pick).alive:
            self.rank(pick).end()

    @rule(pick=PICK)
    def a_rank_hangs(self, pick: int) -> None:
        if self.rank(pick).runs:
            self.rank(pick).stop()

    @rule(pick=PICK)
    def a_rank_wakes(self, pick: int) -> None:
        if self.rank(pick).stopped and self.rank(pick).alive:
            self.rank(pick).resume()

    @rule(pick=PICK)
    def a_rank_starts_anew(self, pick: int) -> None:
        if not self.rank(pick).alive:
            self.world.start_rank(pick % RANKS)

    @rule()
    def the_coordinator_dies(self) -> None:
        self.world.coordinator.end()

    @precondition(lambda self: self.world.askable())
    @rule()
    def another_coordinator_takes_over(self) -> None:
        self.world.replace_coordinator()

    @rule()
    def the_coordinator_wakes(self) -> None:
        if self.world.coordinator.stopped and self.world.coordinator.alive:
            self.world.coordinator.resume()

    # --- those who use it ---

    @rule(pick=PICK)
    def somebody_routes(self, pick: int) -> None:
        process = [*self.world.ranks.values(), self.world.coordinator][pick % (RANKS + 1)]
        if len(process.pins) < 3:
            self.world.pin_router(process)

    @rule(pick=PICK, back=st.integers(0, 1))
    def somebody_reads(self, pick: int, back: int) -> None:
        rank = self.rank(pick)
        if rank.alive and len(rank.pins) < 3 and rank.views.table:
            try:
                self.world.pin_reader(rank, rank.views.table.epoch - back)
            except StaleEpoch:
                pass

    @rule(pick=PICK)
    def somebody_lets_go(self, pick: int) -> None:
        process = [*self.world.ranks.values(), self.world.coordinator][pick % (RANKS + 1)]
        if process.pins:
            self.world.unpin(process, pick % len(process.pins))

    # --- what must hold ---

    @invariant()
    def all_holds(self) -> None:
        if hasattr(self, "world"):
            check_all(self.world)

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.rest()
            check_at_rest(self.world)


EVERYDAY = settings(
    max_examples=120,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    database=None,
    phases=(Phase.generate,),  # to shrink a failure takes minutes: the long run does it
    suppress_health_check=list(HealthCheck),
)
FOR_LONG = settings(
    max_examples=2000, stateful_step_count=80, deadline=None, database=None, suppress_health_check=list(HealthCheck)
)


@pytest.mark.timeout(600)
def test_whatever_happens_all_holds_at_every_moment_and_ends_well() -> None:
    run_state_machine_as_test(Chaos, settings=EVERYDAY)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_whatever_happens_for_long_all_holds_at_every_moment_and_ends_well() -> None:
    run_state_machine_as_test(Chaos, settings=FOR_LONG)
