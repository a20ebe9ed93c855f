"""Each role ends or stops at each transition that the table names, in the simulated cluster."""

from __future__ import annotations

import pytest

from tests.eplb.invariants import check_at_rest
from tests.eplb.rebalances import OTHER, TO_OTHER, TO_VICTIM, VICTIM, first, moved
from tests.eplb.simulated import EXPERTS, SLOTS
from tests.eplb.world import World
from windtunnel.eplb.transaction.table import COORDINATOR, RANK, Transition
from windtunnel.eplb.transport.memory import Point, Trouble

HOW = ["kill", "hang"]


def named(transition: Transition) -> str:
    return transition.name


def provoke(world: World, transition: Transition) -> None:
    """Let the victim come to make a transition."""
    victim, other = world.ranks[VICTIM], world.ranks[OTHER]
    match transition.name:
        case "serving+prepare_without_copies":
            world.jobs.append(moved(TO_OTHER))
        case "serving+disagree":
            world.coordinator.machine.since[TO_VICTIM[0], VICTIM] += 1
            world.jobs.append(moved((0, OTHER, 0, 1)))  # of which the victim is a source
        case "transferring+copy_failed" | "failed+abort":
            for source in (world.ranks[0].name, other.name):
                world.fabric.fail_at(Point(victim.name, source, 1), Trouble.FAIL)
            assert world.checkpoint
            world.checkpoint.broken = True
            world.jobs.append(moved(TO_VICTIM))
        case "prepared+abort":
            other.fail_at = ("serving+prepare", "kill")
            world.jobs.append(moved(TO_VICTIM, TO_OTHER))
        case "transferring+abort":
            world.fabric.fail_at(Point(victim.name, world.ranks[0].name, 1), Trouble.HANG)
            other.fail_at = ("prepared+transfer", "kill")
            world.jobs.append(moved(TO_VICTIM, TO_OTHER))
        case "verified+abort":
            other.fail_at = ("prepared+transfer", "kill")
            world.jobs.append(moved(TO_OTHER))
        case _:
            world.jobs.append(moved(TO_VICTIM, TO_OTHER))


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("transition", RANK, ids=named)
def test_a_rank_that_fails_at_any_transition_is_evicted_and_the_others_serve_on(
    transition: Transition, how: str
) -> None:
    world = World(first())
    provoke(world, transition)
    victim = world.ranks[VICTIM]
    victim.fail_at = (transition.name, how)
    world.run()

    assert victim.entered[-1] == transition.name and not victim.runs
    assert VICTIM not in world.coordinator.machine.members
    assert not world.coordinator.machine.committed.slots[:, VICTIM].max() >= 0
    assert world.checkpoint
    if len(world.members()) * SLOTS >= EXPERTS and not world.checkpoint.broken:
        assert not world.coordinator.machine.committed.missing
    if how == "kill":
        world.start_rank(VICTIM)
    world.rest()
    check_at_rest(world)
    assert VICTIM in world.coordinator.machine.members


@pytest.mark.parametrize("transition", RANK, ids=named)
def test_a_rank_that_hangs_for_less_than_the_detector_allows_goes_on_as_if_nothing_was(transition: Transition) -> None:
    world = World(first())
    provoke(world, transition)
    victim = world.ranks[VICTIM]
    victim.fail_at = (transition.name, "hang")
    for _ in range(1000):
        world.step()
        if victim.stopped:
            break
    generation = victim.generation
    world.advance()
    if transition.trigger == "disagree":
        world.coordinator.machine.since[TO_VICTIM[0], VICTIM] -= 1
    world.rest()
    check_at_rest(world)
    assert transition.name in victim.entered and victim.generation == generation


COORDINATED = [t for t in COORDINATOR if t.trigger not in ("finish", "roll_back")]


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("transition", COORDINATED, ids=named)
def test_a_coordinator_that_fails_at_any_transition_is_succeeded_without_a_loss(
    transition: Transition, how: str
) -> None:
    world = World(first())
    old = world.coordinator
    if transition.source == "rolling back" or transition.trigger == "give_up":
        come = ("serving+prepare" if transition.source == "preparing" else "prepared+transfer", "kill")
        world.ranks[OTHER].fail_at = come
    empty = transition.name == "preparing+all_verified"
    world.jobs.append((lambda base: base) if empty else moved(TO_VICTIM, TO_OTHER))
    old.fail_at = (transition.name, how)
    for _ in range(1000):
        world.step()
        if not old.runs:
            break
    assert old.entered[-1] == transition.name
    base, under_way = old.machine.committed, old.machine.last_epoch
    published = any(
        rank.machine.committed and rank.machine.committed.epoch == under_way for rank in world.ranks.values()
    )
    world.replace_coordinator()
    world.run()

    committed = world.coordinator.machine.committed
    generations = [rank.generation for rank in world.ranks.values() if rank.alive]
    if transition.name != "retiring+all_settled":
        assert published == (transition.source in ("publishing",))
    assert (committed.epoch >= under_way) if published else (committed.epoch != under_way)
    if not published and world.ranks[OTHER].alive:
        assert committed == base
    world.rest()
    check_at_rest(world)
    assert generations == [rank.generation for rank in world.ranks.values() if rank.alive]


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("trigger", ["finish", "roll_back"])
def test_a_successor_that_fails_as_it_takes_over_is_succeeded(trigger: str, how: str) -> None:
    world = World(first())
    world.jobs.append(moved(TO_VICTIM, TO_OTHER))
    world.coordinator.fail_at = (
        "publishing+all_drained" if trigger == "finish" else "transferring+all_verified",
        "kill",
    )
    while world.coordinator.runs:
        world.step()
    world.successor_fail_at = (f"idle+{trigger}", how)
    world.replace_coordinator()
    assert world.coordinator.entered == [f"idle+{trigger}"] and not world.coordinator.runs
    world.replace_coordinator()
    world.run()
    assert world.coordinator.machine.term == 3
    assert (2 in world.maps) == (trigger == "finish")
    world.rest()
    check_at_rest(world)


def test_all_transitions_of_the_table_are_failed_at() -> None:
    assert {*COORDINATED, *[t for t in COORDINATOR if t.trigger in ("finish", "roll_back")]} == set(COORDINATOR)
