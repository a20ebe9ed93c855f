"""Every role is killed and stopped at every transition that the table names, in real processes.

Whatever happens: the ranks that are left serve one epoch that has all experts, and never read a wrong byte.
"""

from __future__ import annotations

import signal
from typing import Any

import pytest

from tests.eplb.live.actor import Model
from tests.eplb.live.fleet import Fleet, is_stopped
from windtunnel.eplb.plan import WEIGHT_SOURCE
from windtunnel.eplb.transaction.table import COORDINATOR, RANK, Transition

VICTIM = 1
HOW = ["kill", "hang"]
IN_ANY_TRANSACTION = {
    "verified+publish",
    "published+routers_gone",
    "drained+retire",
    "settling+overwritten",
    "releasing+readers_gone",
}
"""The very first transaction publishes what the ranks hold, and makes these too; the second is the rebalance."""
ABORTS = [t for t in RANK if t.trigger == "abort"]
FAILURES = [t for t in RANK if t.trigger in ("disagree", "copy_failed")]
ROLLING_BACK = [t for t in COORDINATOR if t.trigger in ("give_up", "all_aborted")]
IN_ANY_TRANSACTION_OF_THE_COORDINATOR = ("idle+start", "publishing+all_drained", "retiring+all_settled")
FORWARD = [t for t in RANK if t not in ABORTS and t not in FAILURES and t.trigger != "prepare_without_copies"]


def named(transition: Transition) -> str:
    return transition.name


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("transition", FORWARD, ids=named)
def test_a_rank_that_fails_on_the_way_to_a_new_epoch_is_survived(
    transition: Transition, how: str, transport: str
) -> None:
    occurrence = 2 if transition.name in IN_ANY_TRANSACTION else 1
    with Fleet(Model(transport=transport), ranks={VICTIM: {"fail_at": (transition.name, how, occurrence)}}) as fleet:
        fleet.ask(("begin", 3))
        _survived(fleet, how)


@pytest.mark.parametrize("how", HOW)
def test_a_rank_that_fails_where_it_has_nothing_to_copy_is_survived(how: str, transport: str) -> None:
    with Fleet(
        Model(transport=transport), ranks={VICTIM: {"fail_at": ("serving+prepare_without_copies", how, 1)}}, ready=False
    ) as fleet:
        fleet.await_ranks(0, 2)
        _survived(fleet, how, said_joined=False)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("transition", FAILURES, ids=named)
def test_a_rank_that_fails_as_it_votes_no_is_survived(transition: Transition, how: str, transport: str) -> None:
    with Fleet(
        Model(transport=transport), ranks={VICTIM: {"fail_at": (transition.name, how, 1), "broken": True}}
    ) as fleet:
        if transition.trigger == "disagree":  # somebody is to read from it an expert that it doesn't have
            copies: list[Any] = [(0, 5, 0, 0, [(VICTIM, 0)])]
        else:
            copies = [(0, 0, VICTIM, 0, [(WEIGHT_SOURCE, -1)])]
        assert not fleet.ask(("order", copies))["committed"]
        fleet.ranks[0].ask(("weights", 0.0, False))
        _survived(fleet, how)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("transition", ABORTS, ids=named)
def test_a_rank_that_fails_while_rolling_back_is_survived(transition: Transition, how: str, transport: str) -> None:
    """Another rank makes the transaction fail when the victim has come as far as the transition asks."""
    mine: dict[str, Any] = {"fail_at": (transition.name, how, 1)}
    to_victim = (0, 0, VICTIM, 0, [(0, 0)])
    to_other = (0, 4, 2, 1, [(WEIGHT_SOURCE, -1)])
    other: dict[str, Any] = {"broken": True}
    match transition.source:
        case "prepared":  # all others prepare at once; the one that can't makes it fail before the transfer
            copies = [to_victim, (0, 5, 0, 1, [(2, 0)])]
        case "transferring":
            mine["stall_s"] = 1.0
            copies = [(0, 0, VICTIM, 0, [(WEIGHT_SOURCE, -1)]), to_other]
        case "verified":
            other["stall_s"] = 0.3
            copies = [to_victim, to_other]
        case _:
            mine["broken"] = True
            copies = [(0, 0, VICTIM, 0, [(WEIGHT_SOURCE, -1)])]
            other = {}
    with Fleet(Model(transport=transport), ranks={VICTIM: mine, 2: other}) as fleet:
        assert not fleet.ask(("order", copies))["committed"]
        fleet.ranks[2].ask(("weights", 0.0, False))
        _survived(fleet, how)


@pytest.mark.parametrize("transition", [t for t in COORDINATOR if t.trigger not in ("finish", "roll_back")], ids=named)
def test_a_coordinator_that_dies_is_succeeded(transition: Transition, transport: str) -> None:
    occurrence = 2 if transition.name in IN_ANY_TRANSACTION_OF_THE_COORDINATOR else 1
    ranks: dict[int, dict[str, Any]] = {VICTIM: {"broken": True}} if transition in ROLLING_BACK else {}
    with Fleet(
        Model(transport=transport),
        ranks=ranks,
        coordinator={"fail_at": (transition.name, "kill", occurrence)},
        ready=False,
    ) as fleet:
        fleet.await_ranks(0, 1, 2)
        try:
            fleet.ask("ready")
            fleet.ask(_what_leads_to(transition))
        except (EOFError, BrokenPipeError):
            pass
        assert fleet.coordinator
        fleet.coordinator.process.join(30)
        assert fleet.coordinator.process.exitcode == -signal.SIGKILL
        _succeed(fleet)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("transition", [t for t in COORDINATOR if t.trigger in ("finish", "roll_back")], ids=named)
def test_a_successor_that_fails_as_it_takes_over_is_survived(transition: Transition, how: str, transport: str) -> None:
    first = "transferring+all_verified" if transition.trigger == "roll_back" else "publishing+all_drained"
    occurrence = 1 if transition.trigger == "roll_back" else 2
    with Fleet(Model(transport=transport), coordinator={"fail_at": (first, "kill", occurrence)}) as fleet:
        with pytest.raises(EOFError):
            fleet.ask(("rebalance", 3))
        assert fleet.coordinator
        fleet.coordinator.end()
        fleet.start_coordinator(fail_at=(transition.name, how, 1))
        if how == "kill":
            with pytest.raises((EOFError, BrokenPipeError)):
                fleet.ask("ready")
            _succeed(fleet)
            return
        fleet.coordinator.pipe.send("ready")
        fleet.until(lambda: fleet.coordinator is not None and is_stopped(fleet.coordinator.pid), "it hangs")
        for rank in (0, 1, 2):
            fleet.check(rank)
        fleet.coordinator.signal(signal.SIGCONT)
        assert fleet.coordinator.hear()
        fleet.settled({0, 1, 2})


@pytest.mark.parametrize("transition", [t for t in COORDINATOR if t.trigger not in ("finish", "roll_back")], ids=named)
def test_a_coordinator_that_hangs_is_no_loss_to_readers_and_goes_on(transition: Transition, transport: str) -> None:
    """The ranks serve on meanwhile; when it goes on it makes no more of the pause than that ranks seem to have hung."""
    occurrence = 2 if transition.name in IN_ANY_TRANSACTION_OF_THE_COORDINATOR else 1
    ranks: dict[int, dict[str, Any]] = {VICTIM: {"broken": True}} if transition in ROLLING_BACK else {}
    with Fleet(
        Model(transport=transport),
        ranks=ranks,
        coordinator={"fail_at": (transition.name, "hang", occurrence)},
        ready=False,
    ) as fleet:
        fleet.await_ranks(0, 1, 2)
        assert fleet.coordinator
        fleet.coordinator.pipe.send("ready")
        in_the_first = transition.name == "preparing+all_verified"  # which has no copies
        if not in_the_first:
            assert fleet.coordinator.hear()
            fleet.coordinator.pipe.send(_what_leads_to(transition))
        fleet.until(lambda: fleet.coordinator is not None and is_stopped(fleet.coordinator.pid), "it hangs")
        for rank in () if in_the_first else (0, 1, 2):
            fleet.check(rank)
        fleet.coordinator.signal(signal.SIGCONT)
        assert fleet.coordinator.hear()
        fleet.settled({0, 1, 2})
        fleet.ranks[VICTIM].ask(("weights", 0.0, False))
        fleet.rebalance(11)
        fleet.settled({0, 1, 2})


def _what_leads_to(transition: Transition) -> Any:
    """What to ask of a coordinator so that it makes this transition."""
    if transition.name == "preparing+give_up":  # the victim does not hold what is to be read there
        return ("order", [(0, 0, VICTIM, 0, [(0, 3)])])
    if transition in ROLLING_BACK:  # it can't read its checkpoint
        return ("order", [(0, 0, VICTIM, 0, [(WEIGHT_SOURCE, -1)])])
    return ("rebalance", 3)


def _survived(fleet: Fleet, how: str, *, said_joined: bool = True) -> None:
    """The victim is evicted; the others serve on, and the victim comes back."""
    fleet.until(lambda: VICTIM not in fleet.state()["live"], "the victim is evicted")
    fleet.settled({0, 2})
    if how == "hang":
        fleet.go_on(VICTIM)
        if not said_joined:
            fleet.await_ranks(VICTIM)
    else:
        fleet.ranks[VICTIM].process.join(30)
        assert fleet.ranks[VICTIM].process.exitcode == -signal.SIGKILL
        fleet.ranks[VICTIM].end()
        fleet.start_rank(VICTIM, empty=True)
        fleet.await_ranks(VICTIM)
    fleet.until(lambda: VICTIM in fleet.state()["live"], "the victim is back")
    fleet.rebalance(11)
    fleet.settled({0, 1, 2})


def _succeed(fleet: Fleet) -> None:
    """Another coordinator takes over: the ranks lose nothing, and can be rebalanced again."""
    assert fleet.coordinator
    fleet.coordinator.end()
    for rank in (0, 1, 2):
        state = fleet.ranks[rank].ask("state")
        assert state["wrong"] == []
    fleet.start_coordinator()
    fleet.ask("ready")
    fleet.settled({0, 1, 2})
    fleet.rebalance(11)
    fleet.settled({0, 1, 2})
    for rank in (0, 1, 2):  # nobody was evicted, but for what a busy machine does
        assert all("no heartbeat" in reason for reason in fleet.ranks[rank].ask("state")["evictions"])


def test_the_victims_are_all_transitions() -> None:
    assert {*FORWARD, *FAILURES, *ABORTS} == {t for t in RANK if t.trigger != "prepare_without_copies"}
    assert Model().slots_per_rank[VICTIM]
