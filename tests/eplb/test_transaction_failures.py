"""What goes wrong in a transaction, one trouble at a time, in the simulated cluster."""

from __future__ import annotations

from typing import Any

import pytest

from tests.eplb.by_hand import LIMITS
from tests.eplb.invariants import check_at_rest
from tests.eplb.rebalances import OTHER, TO_OTHER, TO_VICTIM, VICTIM, first, moved
from tests.eplb.simulated import EXPERTS, GROUP_BYTES, LAYERS, SLOTS
from tests.eplb.world import TICK_NS, World
from windtunnel.eplb.placement import EMPTY, Placement
from windtunnel.eplb.transaction import messages as m
from windtunnel.eplb.transaction.staging import BufferState
from windtunnel.eplb.transport.memory import Point, Trouble
from windtunnel.errors import ExpertLost, StaleEpoch

READ = GROUP_BYTES[TO_VICTIM[0]]


def begun(**facts: Any) -> World:
    """The victim is to get an expert from rank 0, or else from rank 2, or else from the checkpoint."""
    world = World(first(), **facts)
    world.jobs.append(moved(TO_VICTIM))
    return world


def trouble(world: World, source: int, call: int, kind: Trouble) -> None:
    world.fabric.fail_at(Point(world.ranks[VICTIM].name, world.ranks[source].name, call), kind)


def holds_it(world: World) -> bool:
    layer, rank, slot, expert = TO_VICTIM
    return bool(world.coordinator.machine.committed.slots[layer, rank, slot] == expert)


EVERYWHERE = (TO_VICTIM, TO_OTHER, (1, VICTIM, 2, 2), (0, 0, 1, 3))
"""A rebalance in which each rank reads, and is read from."""


@pytest.mark.parametrize("kind", list(Trouble))
def test_whatever_goes_wrong_at_any_one_point_of_a_rebalance_is_made_good_from_the_next_source(kind: Trouble) -> None:
    """The points are all polls of all reads, as a run without trouble counts them."""
    smooth = World(first())
    smooth.jobs.append(moved(*EVERYWHERE))
    smooth.run()
    points = [(reader, peer, n + 1) for (reader, peer), count in smooth.fabric.calls.items() for n in range(count)]
    assert len({reader for reader, _, _ in points}) == 3 and len(points) > 10
    needed = sum(GROUP_BYTES[layer] for layer, *_ in EVERYWHERE)
    for point in points:
        world = World(first())
        world.jobs.append(moved(*EVERYWHERE))
        world.fabric.fail_at(Point(*point), kind)
        world.run()
        assert not world.fabric.troubles, "the point was reached"
        outcome = world.outcomes[-1]
        assert outcome.committed and outcome.retries >= 1 and outcome.moved_bytes == needed
        assert (outcome.wasted_bytes > 0) == (kind is Trouble.CORRUPT)
        assert world.coordinator.machine.committed.slots.tolist() == smooth.coordinator.machine.committed.slots.tolist()
        world.rest()
        check_at_rest(world)


def test_a_copy_that_no_source_can_give_is_rolled_back_with_the_last_ones_error() -> None:
    world = begun()
    for source in (0, OTHER):
        trouble(world, source, 1, Trouble.CORRUPT)
    assert world.checkpoint
    world.checkpoint.broken = True
    while len(world.outcomes) < 2:
        world.step()
    outcome = world.outcomes[-1]
    assert not outcome.committed and "the checkpoint's disk is gone" in outcome.reason
    assert (outcome.retries, outcome.wasted_bytes, outcome.culprits) == (2, 2 * READ, (VICTIM,))
    world.rest()
    check_at_rest(world)


def test_bytes_that_are_not_the_experts_are_caught_by_their_checksum() -> None:
    world = begun()
    trouble(world, 0, 1, Trouble.CORRUPT)
    seen = []
    while not world.outcomes[1:]:
        world.step()
        seen += [f for f in map(_decoded, world.flights) if isinstance(f, m.Verified) and f.retries]
    assert [(fault.code, fault.facts["peer"]) for fault in seen[0].retries] == [("WT-EPLB-TRANSFER-FAILED", 0)]
    assert "checksum" in seen[0].retries[0].facts["reason"]


def test_a_copy_that_makes_no_progress_is_given_up_after_its_deadline_and_not_before() -> None:
    world = begun(staging_buffers=2)
    trouble(world, 0, 1, Trouble.HANG)
    victim = world.ranks[VICTIM]
    while victim.machine.phase != "transferring":
        world.step()
    began_ns = world.now_ns
    while victim.machine.staging.count(BufferState.QUARANTINED) == 0:
        world.step()
    assert 2_000_000_000 <= world.now_ns - began_ns <= 2_000_000_000 + 2 * TICK_NS
    world.run()
    assert world.outcomes[-1].committed and holds_it(world)
    assert victim.machine.staging.count(BufferState.QUARANTINED) == 1


def test_a_buffer_is_quarantined_until_the_process_that_was_read_from_has_ended() -> None:
    world = begun(staging_buffers=2)
    trouble(world, 0, 1, Trouble.HANG)
    victim = world.ranks[VICTIM]
    world.run()
    quarantined = [b.number for b in victim.machine.staging.buffers if b.state is BufferState.QUARANTINED]
    world.fabric.land()
    assert victim.staging[quarantined[0]].any(), "bytes land late"
    world.ranks[0].end()
    world.run()
    assert {b.state for b in victim.machine.staging.buffers} == {BufferState.FREE}


def test_late_bytes_reach_neither_a_slot_nor_a_buffer_that_is_in_use() -> None:
    world = begun(staging_buffers=2)
    trouble(world, 0, 1, Trouble.HANG)
    world.run()
    for _ in range(3):  # each takes a buffer beside the quarantined one; the world checks all bytes at each step
        world.jobs.append(moved((0, VICTIM, 1, len(world.outcomes) % 2)))
        world.fabric.land(2)
        world.run()
    assert all(outcome.committed for outcome in world.outcomes)


def test_where_all_of_staging_is_quarantined_the_rebalance_is_given_up_and_the_old_epoch_serves_on() -> None:
    world = begun(staging_buffers=1)
    trouble(world, 0, 1, Trouble.HANG)
    before = world.coordinator.machine.committed
    world.run()
    reasons = [outcome.reason for outcome in world.outcomes[1:]]
    assert "no staging buffer is free: 1 of 1 are quarantined" in reasons[0]
    assert "all 1 staging buffers are in use or quarantined" in reasons[1]
    assert world.coordinator.machine.committed == before
    world.rest()
    check_at_rest(world)


def test_a_plan_with_more_copies_for_a_rank_than_it_has_buffers_is_refused_at_once() -> None:
    world = World(first(), staging_buffers=1)
    world.jobs.append(moved(TO_VICTIM, (1, VICTIM, 1, 2)))
    world.run()
    assert "2 copies do not fit into its 1 staging buffers" in world.outcomes[1].reason
    assert world.outcomes[1].stage == "preparing"


def test_a_rebalance_without_copies_takes_three_rounds() -> None:
    world = World(first())
    world.deliveries = 0
    world.jobs.append(lambda base: base)
    world.run()
    assert world.deliveries == 3 * 2 * 3, "three ranks, three questions and answers"


def test_no_rebalance_copies_what_is_there() -> None:
    world = begun()
    world.run()
    assert (world.outcomes[-1].copies, world.outcomes[-1].moved_bytes) == (1, READ)
    world.jobs.append(lambda base: base)
    world.run()
    assert (world.outcomes[-1].copies, world.outcomes[-1].moved_bytes) == (0, 0)


@pytest.mark.parametrize("where", ["rank", "coordinator"])
def test_somebody_who_routes_by_the_old_epoch_holds_up_the_slots_that_it_names(where: str) -> None:
    world = begun()
    process = world.ranks[OTHER] if where == "rank" else world.coordinator
    world.pin_router(process)
    victim = world.ranks[VICTIM]
    for _ in range(200):
        world.step()
    assert victim.machine.phase == "drained" and world.coordinator.machine.stage == "publishing"
    assert victim.machine.contents[0, 1] == 0, "the old expert is still in its slot"
    world.unpin(process)
    world.run()
    assert world.outcomes[-1].committed and victim.machine.contents[0, 1] == TO_VICTIM[3]


def test_somebody_who_reads_the_old_epoch_holds_up_the_slots_of_its_rank_only() -> None:
    world = World(first())
    world.jobs.append(moved(TO_VICTIM, TO_OTHER))
    victim, other = world.ranks[VICTIM], world.ranks[OTHER]
    world.pin_reader(victim, 1)
    for _ in range(200):
        world.step()
    assert (victim.machine.phase, other.machine.phase) == ("settling", "serving")
    with pytest.raises(StaleEpoch):
        world.pin_reader(other, 1)
    world.unpin(victim)
    world.run()
    assert world.outcomes[-1].committed


def test_somebody_who_reads_in_staging_holds_up_the_buffer() -> None:
    world = begun()
    victim = world.ranks[VICTIM]
    while victim.machine.phase != "verified":
        world.step()
    world.pin_reader(victim, 2)
    for _ in range(200):
        world.step()
    assert victim.machine.phase == "releasing"
    assert BufferState.FREE not in {b.state for b in victim.machine.staging.buffers if b.order}
    world.unpin(victim)
    world.run()
    check_at_rest(world)


def test_a_rank_whose_readers_stay_is_waited_for_however_long_it_takes() -> None:
    world = begun()
    world.pin_router(world.ranks[OTHER])
    patience_over_ns = world.now_ns + 3 * LIMITS.stuck_deadline_ns
    while world.now_ns < patience_over_ns:
        world.step()
    assert world.coordinator.machine.stage == "publishing"
    assert OTHER in world.coordinator.machine.members
    world.unpin(world.ranks[OTHER])
    world.run()
    assert holds_it(world)
    assert world.outcomes[-1].committed


def test_an_expert_that_no_rank_holds_is_named_before_a_token_is_routed_to_it() -> None:
    world = World(first(), checkpoint=None)
    for rank in (VICTIM, OTHER):
        world.ranks[rank].end()
    world.run()
    assert world.coordinator.machine.committed.missing
    for process in (world.ranks[0], world.coordinator):
        with process.views.routing() as table:
            assert table.has_missing
            for layer, expert in table.placement.missing:
                with pytest.raises(ExpertLost) as raised:
                    table.places(layer, expert)
                assert (raised.value.layer, raised.value.expert) == (layer, expert)
            for slot in range(SLOTS):
                assert table.places(0, slot) == [(0, slot)]


def test_an_expert_that_was_lost_comes_back_from_the_checkpoint_when_there_is_room() -> None:
    world = World(first())
    for rank in (VICTIM, OTHER):
        world.ranks[rank].end()
    world.run()
    assert len(world.coordinator.machine.committed.missing) == 2
    world.start_rank(VICTIM)
    world.run()
    assert not world.coordinator.machine.committed.missing


def test_a_generation_that_was_evicted_is_refused_and_comes_back_with_empty_slots() -> None:
    world = World(first())
    victim = world.ranks[VICTIM]
    evicted = victim.generation
    victim.stop()
    world.run()
    assert world.evicted == {VICTIM: evicted}
    before = world.coordinator.machine.committed
    victim.resume()
    assert victim.views.table is not None, "it does not know yet"
    world.run()
    assert victim.generation > evicted and world.coordinator.machine.members[VICTIM] == victim.generation
    assert (victim.machine.contents == EMPTY).all()
    assert victim.machine.committed == world.coordinator.machine.committed == before


def test_what_a_rank_said_in_an_earlier_life_counts_no_more() -> None:
    world = World(first())
    victim = world.ranks[VICTIM]
    world.jobs.append(moved(TO_OTHER))
    while victim.machine.phase != "verified":
        world.step()
    late = [flight for flight in world.flights if flight.up and flight.rank == VICTIM]
    victim.stop()
    world.flights = [flight for flight in world.flights if flight not in late]
    world.run()
    victim.resume()
    world.run()
    world.jobs.append(moved(TO_OTHER))
    world.advance()
    stage = world.coordinator.machine.stage
    world.flights += late
    for flight in late:
        world.deliver(world.flights.index(flight))
    assert world.coordinator.machine.stage == stage
    world.rest()
    check_at_rest(world)


def test_a_successor_is_obeyed_and_its_predecessor_is_not() -> None:
    world = begun()
    while world.ranks[VICTIM].machine.phase != "verified":
        world.step()
    old = world.coordinator
    world.replace_coordinator()
    world.run()
    assert world.ranks[VICTIM].machine.term == world.coordinator.machine.term > old.machine.term
    before = world.ranks[VICTIM].machine.committed
    assert before
    for message in (
        m.Publish(old.machine.term, world.outcomes[-1].txn, 2),
        m.Abort(old.machine.term, world.outcomes[-1].txn + 5, ""),
        m.Left(old.machine.term, 0, world.ranks[0].generation, True),
    ):
        world.send_down(old, VICTIM, message)
    world.run()
    assert world.ranks[VICTIM].machine.committed == before and world.ranks[VICTIM].mover.busy is False


def test_epochs_of_a_successor_are_none_that_its_predecessor_can_have_published() -> None:
    """All who knew of the predecessor's last epoch hang as the successor asks."""
    world = World(first())
    for rank in (VICTIM, OTHER):
        world.ranks[rank].stop()
    world.run()
    alone = world.coordinator.machine.committed.epoch
    world.ranks[0].stop()
    for rank in (VICTIM, OTHER):
        world.ranks[rank].resume()
    world.coordinator.end()
    world.flights.clear()
    world.replace_coordinator()
    world.run()
    assert alone == 2 and world.coordinator.machine.committed.epoch > 1000
    world.rest()
    check_at_rest(world)


def test_a_rank_that_comes_between_transactions_with_one_half_done_is_known_by_what_it_will_hold() -> None:
    """An epoch empties the victim's slots; it hangs before it has settled that, and the coordinator is succeeded."""
    world = World(first())
    victim = world.ranks[VICTIM]
    generation = victim.generation
    world.jobs.append(moved(*[(layer, VICTIM, slot, EMPTY) for layer in range(LAYERS) for slot in range(SLOTS)]))
    world.pin_reader(victim, 1)
    for _ in range(200):
        world.step()
    victim.stop()
    assert victim.machine.phase == "settling" and (victim.machine.contents != EMPTY).all()
    world.coordinator.end()
    world.replace_coordinator()
    world.run()
    assert VICTIM not in world.coordinator.machine.members and world.coordinator.machine.committed.epoch == 2
    victim.resume()
    world.run()
    assert world.coordinator.machine.members[VICTIM] == generation and victim.machine.phase == "settling"
    assert (world.coordinator.machine.contents[:, VICTIM] == EMPTY).all()
    world.unpin(victim)
    world.jobs.append(moved((0, VICTIM, 1, 0)))  # what is in that slot until the old epoch is settled
    world.run()
    assert world.outcomes[-1].committed and victim.machine.contents[0, 1] == 0
    world.rest()
    check_at_rest(world)


@pytest.mark.parametrize("keep", [True, False])
def test_each_message_of_a_rebalance_may_come_twice_or_be_lost_once(keep: bool) -> None:
    """One run for each message: the n-th to arrive comes twice, or not at all."""
    world = begun()
    world.deliveries = 0
    world.run()
    for number in range(world.deliveries):
        world = begun()
        world.advance()
        for _ in range(number):
            world.deliver() if world.flights else world.step()
        if world.flights and keep:
            world.deliver(keep=True)
        elif world.flights:
            world.drop(0)
        world.run()
        assert world.outcomes[-1].committed and holds_it(world)
        world.rest()
        check_at_rest(world)


def _decoded(flight: Any) -> Any:
    return m.decode_from_rank(flight.payload) if flight.up else m.decode_from_coordinator(flight.payload)


def test_the_first_epoch_takes_what_the_ranks_hold_as_it_is() -> None:
    world = World(Placement.of(first().slots[:, ::-1], EXPERTS))
    world.run()
    assert world.outcomes[0].moved_bytes == 0
    assert (world.coordinator.machine.committed.slots == world.first.slots).all()
