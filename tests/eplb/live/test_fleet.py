"""A fleet without faults: joins, rebalances, removals, metrics."""

from __future__ import annotations

import numpy as np

from tests.eplb.live.fleet import Fleet


def test_ranks_join_and_move_experts_while_they_are_read() -> None:
    with Fleet() as fleet:
        fleet.settled({0, 1, 2})
        for seed in range(5):
            fleet.rebalance(seed)
            fleet.settled({0, 1, 2})
        assert fleet.state()["epoch"] > 5


def test_a_plan_of_the_policy_balances_the_load() -> None:
    with Fleet() as fleet:
        counts = np.ones((fleet.model.layers, fleet.model.experts))
        counts[:, 0] = 20
        fleet.ask(("record", counts))
        assert fleet.ask("plan") == "committed"
        assert fleet.ask("plan") == "nothing to do"
        fleet.settled({0, 1, 2})
        assert (fleet.state()["slots"] == 0).sum() >= 2 * fleet.model.layers


def test_a_rank_that_is_removed_leaves_its_experts_behind() -> None:
    with Fleet() as fleet:
        assert fleet.ask(("remove", 2)) == "committed"
        fleet.until(lambda: fleet.state()["live"] == [0, 1], "rank 2 is gone")


def test_a_whole_model_moves_in_one_transaction() -> None:
    with Fleet(coordinator={"layers_per_step": None}) as fleet:
        fleet.rebalance(7)
        fleet.settled({0, 1, 2})


def test_a_rank_that_dawdles_in_mid_transfer_is_waited_for() -> None:
    slow = {1: {"fail_at": ("transferring+copied", "slow", 1, 0.3)}}
    with Fleet(ranks=slow) as fleet:
        assert fleet.ask(("rebalance", 3))["result"] == "committed"
        fleet.settled({0, 1, 2})
