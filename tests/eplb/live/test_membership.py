"""Ranks that die one after the other, all at once, or with the only copy of an expert; and ranks that don't belong."""

from __future__ import annotations

import signal
from typing import Any

import numpy as np
import pytest

from tests.eplb.live.actor import Model
from tests.eplb.live.fleet import Actor, Fleet


def test_two_ranks_that_die_at_once_are_evicted_and_what_both_held_is_restored() -> None:
    with Fleet(Model(slots_per_rank=(6, 4, 4))) as fleet:
        fleet.kill(1)
        fleet.kill(2)
        fleet.settled({0})
        assert fleet.ranks[0].ask("state")["weight_reads"] == 0, "rank 0 holds all experts itself"


def test_an_expert_whose_last_replica_died_is_restored_from_the_checkpoint() -> None:
    with Fleet(Model(experts=8)) as fleet:
        fleet.kill(1)
        fleet.settled({0, 2})
        assert sum(fleet.ranks[rank].ask("state")["weight_reads"] for rank in (0, 2)) >= fleet.model.layers


def test_an_expert_that_can_not_be_restored_is_named_before_a_token_is_routed_to_it() -> None:
    with Fleet(Model(experts=8), ranks={rank: {"weights": False} for rank in range(3)}) as fleet:
        fleet.kill(1)
        fleet.until(lambda: bool(fleet.state()["missing"]), "experts are missing")
        layer, expert = fleet.state()["missing"][0]
        fleet.until(
            lambda: fleet.ranks[0].ask(("route", layer, expert)) == f"ExpertLost {layer} {expert}", "it is named"
        )
        fleet.check(0)
        fleet.ranks[1].end()
        fleet.start_rank(1)
        fleet.await_ranks(1)
        fleet.settled({0, 1, 2})


def test_where_a_rank_has_no_weight_source_nothing_is_restored_and_the_coordinator_lives_on() -> None:
    with Fleet(Model(experts=8), ranks={2: {"weights": False}}) as fleet:
        fleet.kill(1)
        fleet.until(lambda: any(what == "can't restore" for _, what, _ in fleet.state()["events"]), "it says so")
        assert fleet.state()["missing"]
        fleet.ranks[1].end()
        fleet.start_rank(1)
        fleet.await_ranks(1)
        fleet.settled({0, 1, 2})


def test_a_rank_that_comes_back_with_its_experts_brings_them_in_without_a_byte_moving() -> None:
    with Fleet() as fleet:
        fleet.kill(1)
        fleet.settled({0, 2})
        reads = [fleet.ranks[rank].ask("state")["weight_reads"] for rank in (0, 2)]
        fleet.ranks[1].end()
        fleet.start_rank(1)
        fleet.await_ranks(1)
        fleet.settled({0, 1, 2})
        assert (fleet.state()["slots"][:, 1] >= 0).all()
        assert [fleet.ranks[rank].ask("state")["weight_reads"] for rank in (0, 2)] == reads
        assert fleet.ranks[1].ask("state")["weight_reads"] == 0


def test_all_ranks_may_die_and_come_back() -> None:
    with Fleet() as fleet:
        for rank in (0, 1, 2):
            fleet.kill(rank)
        fleet.until(lambda: fleet.state()["live"] == [], "all are evicted")
        for rank in (0, 1, 2):
            fleet.ranks[rank].end()
            fleet.start_rank(rank)
        fleet.await_ranks(0, 1, 2)
        fleet.settled({0, 1, 2})
        fleet.rebalance(1)


def test_a_rank_that_dies_while_another_is_being_evicted_is_evicted_too() -> None:
    fails: dict[str, Any] = {"fail_at": ("serving+prepare_without_copies", "kill", 2)}
    with Fleet(Model(slots_per_rank=(6, 4, 4)), ranks={2: fails}) as fleet:
        fleet.kill(1)
        fleet.settled({0})


def test_a_coordinator_and_a_rank_may_die_together() -> None:
    with Fleet() as fleet:
        assert fleet.coordinator
        fleet.coordinator.pipe.send(("rebalance", 3))
        fleet.kill(1)
        fleet.coordinator.signal(signal.SIGKILL)
        fleet.coordinator.end()
        fleet.start_coordinator()
        fleet.ask("ready")
        fleet.settled({0, 2})


def test_a_reader_that_takes_long_holds_retirement_up_and_is_never_read_over() -> None:
    with Fleet() as fleet:
        pinned = fleet.ranks[0]
        pinned.pipe.send("pin")
        epoch = pinned.hear()
        fleet.ask(("begin", 3))
        fleet.until(
            lambda: any(
                what == "entered" and facts["transition"] == "transferring+all_verified"
                for _, what, facts in fleet.state()["events"]
            ),
            "the next epoch is decided",
        )
        assert fleet.state()["epoch"] == epoch + 1
        assert not fleet.state()["idle"]
        pinned.pipe.send("go on")
        assert pinned.hear()
        fleet.settled({0, 1, 2})


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"token": "guessed"}, "its token is not the coordinator's"),
        ({"as_rank": 7}, "the topology has ranks 0 to 2"),
        ({"model": Model(slots_per_rank=(4, 5, 4))}, "it has 5 slots; the topology says 4"),
        ({"model": Model(floats=128)}, "group_bytes"),
        ({"model": Model(experts=5)}, "num_experts"),
        ({"scale": 2.0}, "has other bytes than on the other ranks"),
    ],
)
def test_a_process_that_does_not_belong_is_refused_with_the_reason_and_harms_nobody(
    options: dict[str, Any], says: str
) -> None:
    with Fleet() as fleet:
        fleet.kill(1)
        fleet.settled({0, 2})
        stranger = fleet.stranger(1, **options)
        heard = stranger.hear()
        assert heard["error"] == "RankRefused"
        assert says in heard["message"]
        stranger.end()
        fleet.settled({0, 2})


def test_counts_that_are_recorded_become_metrics_and_a_record() -> None:
    with Fleet() as fleet:
        counts = np.ones((fleet.model.layers, fleet.model.experts))
        counts[:, 0] = 20
        fleet.ask(("record", counts))
        assert fleet.ask("plan") == "committed"
        fleet.kill(1)
        fleet.settled({0, 2})
        metrics = fleet.ask("metrics").decode()
        for name in ("balancedness", "bytes_moved", "evictions", "joins", "quarantined_bytes", "min_live_replicas"):
            assert name in metrics, metrics


def test_another_process_for_a_rank_takes_its_place() -> None:
    """An orchestrator that starts a rank again knows better than a connection that is still open."""
    with Fleet() as fleet:
        former: Actor = fleet.ranks[1]
        fleet.start_rank(1, empty=True)
        fleet.await_ranks(1)
        fleet.until(lambda: former.ask("state")["evictions"] != [], "the former one knows")
        former.end()
        fleet.settled({0, 1, 2})


def test_a_step_that_takes_long_costs_its_rank_nothing_but_time() -> None:
    with Fleet(coordinator={"stuck_deadline_s": 0.5}) as fleet:
        pinned = fleet.ranks[0]
        pinned.pipe.send("pin")
        epoch = pinned.hear()
        fleet.ask(("begin", 3))
        pinned.process.join(2)  # four times the coordinator's patience
        assert fleet.state()["live"] == [0, 1, 2]
        assert fleet.state()["epoch"] == epoch + 1
        pinned.pipe.send("go on")
        assert pinned.hear()
        fleet.settled({0, 1, 2})


def test_a_step_that_waits_for_a_dead_rank_is_told_of_its_death_and_then_nothing_stands_still() -> None:
    """As in an all-to-all: the others wait, within their blocks, for a rank that dies while an epoch is published."""
    with Fleet(ranks={1: {"fail_at": ("published+routers_gone", "kill", 2)}}) as fleet:
        for rank in (0, 2):
            fleet.ranks[rank].pipe.send(("step that waits for", 1))
            assert fleet.ranks[rank].hear() == "waiting"
        fleet.ask(("begin", 3))
        for rank in (0, 2):
            assert fleet.ranks[rank].hear() == "gave up"
        fleet.settled({0, 2})


def test_whoever_sits_at_the_coordinator_s_address_can_not_stop_the_ranks_from_serving() -> None:
    with Fleet() as fleet:
        assert fleet.coordinator
        fleet.coordinator.signal(signal.SIGKILL)
        fleet.coordinator.end()
        fleet.start_coordinator(token="a typo")
        for rank in (0, 1, 2):
            fleet.until(lambda rank=rank: fleet.heard_of(rank, "waiting"), "the rank is refused")
            fleet.check(rank)
        fleet.coordinator.end()
        fleet.start_coordinator()
        fleet.ask("ready")
        fleet.settled({0, 1, 2})


def test_a_rank_that_was_removed_stays_away() -> None:
    with Fleet() as fleet:
        assert fleet.ask(("remove", 2)) == "committed"
        fleet.until(lambda: fleet.heard_of(2, "refused"), "its agent has ended")
        fleet.rebalance(1)
        assert fleet.state()["live"] == [0, 1]
        assert (fleet.state()["slots"][:, 2] == -1).all()


def test_a_checkpoint_that_is_slow_is_waited_for() -> None:
    slow = {rank: {"stall_s": 1.1, "copy_deadline_s": 1.0} for rank in range(3)}
    with Fleet(Model(experts=8), ranks=slow) as fleet:
        fleet.kill(1)
        fleet.settled({0, 2})
