"""The transition table: it is connected, and each event in each phase is answered as these tables say."""

from __future__ import annotations

from collections import defaultdict
from itertools import product

import pytest

from tests.eplb import by_hand
from tests.eplb.by_hand import ANSWERS, FACTS, MESSAGES, RANK_PLACES, STAGES, TERM, coordinator_at, outline, rank_at
from windtunnel.eplb.transaction import messages as m
from windtunnel.eplb.transaction.instructions import Entered
from windtunnel.eplb.transaction.table import COORDINATOR, RANK, TRANSITIONS, Phase, Stage, Transition, apply

RANKS_ANSWER: dict[str, dict[str, str]] = {
    "serving": {
        "prepare": "→prepared Prepared!",
        "prepare without copies": "→verified Serve Verified!",
        "prepare on another base": "→failed Failed!",
        "an older prepare": "→prepared Prepared!",
        "the next prepare": "→prepared Prepared!",
        "the prepare that builds on it": "→failed Failed!",
        "abort": "Aborted!",
        "an older abort": "Aborted!",
        "a newer abort": "Aborted!",
    },
    "prepared": {
        "prepare": "Prepared!",
        "prepare without copies": "Prepared!",
        "prepare on another base": "Prepared!",
        "an older prepare": "Aborted!",
        "the next prepare": "→serving →prepared Prepared!",
        "the prepare that builds on it": "→serving →failed Failed!",
        "transfer": "→transferring Read",
        "abort": "→serving Aborted!",
        "an older abort": "Aborted!",
        "a newer abort": "→serving Aborted!",
    },
    "transferring": {
        "an older prepare": "Aborted!",
        "the next prepare": "→serving Abandon →failed Failed!",
        "the prepare that builds on it": "→serving Abandon →failed Failed!",
        "abort": "→serving Abandon Aborted!",
        "an older abort": "Aborted!",
        "a newer abort": "→serving Abandon Aborted!",
        "landed": "Check",
        "read failed": "Abandon →failed Failed!",
        "the copy's deadline": "Abandon →failed Failed!",
    },
    "transferring, landed": {
        "an older prepare": "Aborted!",
        "the next prepare": "→serving →prepared Prepared!",
        "the prepare that builds on it": "→serving →failed Failed!",
        "abort": "→serving Aborted!",
        "an older abort": "Aborted!",
        "a newer abort": "→serving Aborted!",
        "checked": "→verified Serve Verified!",
        "checked wrong": "→failed Failed!",
    },
    "verified": {
        "prepare": "Verified!",
        "prepare without copies": "Verified!",
        "prepare on another base": "Verified!",
        "an older prepare": "Aborted!",
        "the next prepare": "→serving Withdraw →failed Failed!",
        "the prepare that builds on it": "→serving Withdraw →failed Failed!",
        "transfer": "Verified!",
        "publish": "→published RouteBy",
        "abort": "→serving Withdraw Aborted!",
        "an older abort": "Aborted!",
        "a newer abort": "→serving Withdraw Aborted!",
    },
    "failed": {
        "prepare": "Failed!",
        "prepare without copies": "Failed!",
        "prepare on another base": "Failed!",
        "an older prepare": "Aborted!",
        "the next prepare": "→serving →failed Failed!",
        "the prepare that builds on it": "→serving →failed Failed!",
        "transfer": "Failed!",
        "abort": "→serving Aborted!",
        "an older abort": "Aborted!",
        "a newer abort": "→serving Aborted!",
    },
    "published": {
        "prepare": "Waiting!",
        "prepare without copies": "Waiting!",
        "prepare on another base": "Waiting!",
        "an older prepare": "Aborted!",
        "publish": "Waiting!",
        "an older abort": "Aborted!",
        "a newer abort": "Aborted!",
        "routers gone": "→drained Drained!",
    },
    "drained": {
        "prepare": "Drained!",
        "prepare without copies": "Drained!",
        "prepare on another base": "Drained!",
        "an older prepare": "Aborted!",
        "the prepare that builds on it": "→settling Withdraw",
        "publish": "Drained!",
        "retire": "→settling Withdraw",
        "an older abort": "Aborted!",
        "a newer abort": "Aborted!",
    },
    "settling": {
        "prepare": "Waiting!",
        "prepare without copies": "Waiting!",
        "prepare on another base": "Waiting!",
        "retire": "Waiting!",
        "an older prepare": "Aborted!",
        "an older abort": "Aborted!",
        "a newer abort": "Aborted!",
        "old readers gone": "Overwrite",
        "overwritten": "→releasing Serve RouteBy Withdraw",
    },
    "settling, readers gone": {
        "an older prepare": "Aborted!",
        "an older abort": "Aborted!",
        "a newer abort": "Aborted!",
        "overwritten": "→releasing Serve RouteBy Withdraw",
    },
    "releasing": {
        "prepare": "Waiting!",
        "prepare without copies": "Waiting!",
        "prepare on another base": "Waiting!",
        "retire": "Waiting!",
        "an older prepare": "Aborted!",
        "an older abort": "Aborted!",
        "a newer abort": "Aborted!",
        "new readers gone": "→serving Settled!",
    },
}
"""What a rank does about an event in a phase: `→` a transition, `!` a message to the coordinator. Else: nothing."""

COORDINATORS_ANSWER: dict[str, dict[str, str]] = {
    "idle": {},
    "preparing": {
        "prepared": "→transferring Transfer@0 Transfer@1",
        "verified": "→transferring Transfer@0",
        "failed": "→rolling back Abort@0 Abort@1",
        "verified another placement": "→rolling back Abort@0 Abort@1",
        "aborted": "→rolling back Abort@0 Abort@1",
        "a rank is lost": "→rolling back Abort@0",
        "asked again": "Prepare@1",
        "patience is over": "→rolling back Abort@0 Abort@1",
    },
    "preparing, verified": {
        "prepared": "→transferring Transfer@1",
        "verified": "→publishing Publish@0 Publish@1 Announce",
        "failed": "→rolling back Abort@0 Abort@1",
        "verified another placement": "→rolling back Abort@0 Abort@1",
        "aborted": "→rolling back Abort@0 Abort@1",
        "a rank is lost": "→rolling back Abort@0",
        "asked again": "Prepare@1",
        "patience is over": "→rolling back Abort@0 Abort@1",
    },
    "transferring": {
        "verified": "→publishing Publish@0 Publish@1 Announce",
        "failed": "→rolling back Abort@0 Abort@1",
        "verified another placement": "→rolling back Abort@0 Abort@1",
        "aborted": "→rolling back Abort@0 Abort@1",
        "a rank is lost": "→rolling back Abort@0",
        "asked again": "Transfer@1",
        "patience is over": "Transfer@1",
    },
    "publishing": {
        "drained": "→retiring Retire@0 Retire@1",
        "settled": "→retiring Retire@0 Retire@1",
        "a rank is lost": "→retiring Retire@0",
        "asked again": "Publish@1",
        "patience is over": "Stuck@1",
    },
    "retiring": {
        "settled": "→idle Committed",
        "a rank is lost": "→idle Committed",
        "asked again": "Retire@1",
        "patience is over": "Stuck@1",
    },
    "rolling back": {
        "aborted": "→idle RolledBack",
        "a rank is lost": "→idle RolledBack",
        "asked again": "Abort@1",
        "patience is over": "Stuck@1",
    },
}
"""What the coordinator does about an event of rank 1, after rank 0 has answered. Else: nothing."""


@pytest.mark.parametrize("event", MESSAGES + FACTS, ids=lambda event: event.name)
@pytest.mark.parametrize("where", RANK_PLACES)
def test_a_rank_answers_each_event_in_each_phase_as_stated(where: str, event: by_hand.Event) -> None:
    machine = rank_at(where)
    assert outline(event.happens(machine)) == RANKS_ANSWER[where].get(event.name, "")


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("where", STAGES)
def test_the_coordinator_takes_each_answer_in_each_stage_as_stated(where: str, answer: str) -> None:
    machine = coordinator_at(where)
    assert outline(ANSWERS[answer](machine)) == COORDINATORS_ANSWER[where].get(answer, "")


@pytest.mark.parametrize("event", MESSAGES, ids=lambda event: event.name)
@pytest.mark.parametrize("where", RANK_PLACES)
def test_what_is_said_under_an_older_term_changes_nothing(where: str, event: by_hand.Event) -> None:
    machine = rank_at(where)
    phase = machine.phase
    machine.receive(m.Left(TERM + 1, 5, 1, False), 0)
    assert (event.happens(machine), machine.phase) == ([], phase)


@pytest.mark.parametrize("event", MESSAGES, ids=lambda event: event.name)
@pytest.mark.parametrize("where", RANK_PLACES)
def test_a_message_that_comes_twice_makes_no_transition_more_than_one_that_comes_once(
    where: str, event: by_hand.Event
) -> None:
    machine = rank_at(where)
    event.happens(machine)
    phase = machine.phase
    again = [word for word in outline(event.happens(machine)).split() if word.startswith("→")]
    assert (again, machine.phase) == ([], phase)


def test_every_transition_of_a_rank_is_made_by_some_event() -> None:
    made = set()
    for where, event in product(RANK_PLACES, MESSAGES + FACTS):
        made |= {i.transition for i in event.happens(rank_at(where)) if isinstance(i, Entered)}
    assert made == set(RANK)


def test_every_transition_of_the_coordinator_is_made_by_some_event() -> None:
    made = {Transition("coordinator", *way) for way in [("idle", "start", "preparing")]}
    for where, answer in product(STAGES, ANSWERS):
        made |= {i.transition for i in ANSWERS[answer](coordinator_at(where)) if isinstance(i, Entered)}
    pending = m.Pending(1, "verified", m.PlacementBytes.of(by_hand.TARGET))
    for decided in (False, True):
        out = coordinator_at("idle").resume(pending, decided, 0)
        made |= {i.transition for i in out if isinstance(i, Entered)}
    assert made == set(COORDINATOR)


def test_every_phase_can_be_reached_and_left() -> None:
    for states, start, table in ((Phase, Phase.SERVING, RANK), (Stage, Stage.IDLE, COORDINATOR)):
        ways = defaultdict(set)
        for transition in table:
            ways[transition.source].add(transition.target)
        for state in states:
            assert state in _reachable(str(start), ways) and start in _reachable(str(state), ways)


def _reachable(start: str, ways: dict[str, set[str]]) -> set[str]:
    found, todo = {start}, [start]
    while todo:
        new = ways[todo.pop()] - found
        found |= new
        todo += new
    return found


def test_one_source_and_trigger_have_one_target_and_a_name_that_says_both() -> None:
    keys = [(t.role, t.source, t.trigger) for t in TRANSITIONS]
    names = [(t.role, t.name) for t in TRANSITIONS]
    assert len(set(keys)) == len(set(names)) == len(TRANSITIONS)
    assert all(" " not in name and name.count("+") == 1 for _, name in names)


def test_a_transition_that_the_table_does_not_have_is_a_bug() -> None:
    assert apply("rank", Phase.VERIFIED, "publish") in RANK
    with pytest.raises(KeyError):
        apply("rank", Phase.PREPARED, "publish")


def test_nothing_leads_back_from_a_decision_but_through_its_end() -> None:
    """Once a rank has published, no trigger but the transaction's own end brings it to serving again."""
    decided = [Phase.PUBLISHED, Phase.DRAINED, Phase.SETTLING, Phase.RELEASING]
    assert {t.trigger for t in RANK if t.source in decided} == {"routers_gone", "retire", "overwritten", "readers_gone"}
    assert {t.target for t in COORDINATOR if t.source in (Stage.PUBLISHING, Stage.RETIRING)} == {
        Stage.RETIRING,
        Stage.IDLE,
    }
