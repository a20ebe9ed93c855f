"""The rebalancer where no rank is: what it says then, and how it begins and ends."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import windtunnel.eplb as eplb
from windtunnel.eplb import ClusterConfig, Rebalancer, RebalancerConfig, Topology
from windtunnel.errors import EplbInputError, RanksMissing

TOPOLOGY = Topology.uniform(3, 12)


def test_what_needs_ranks_names_those_that_are_missing() -> None:
    with Rebalancer(TOPOLOGY) as rebalancer:
        with pytest.raises(
            RanksMissing, match=r"not ready after 0\.\d s: ranks \[0, 1, 2\] have not joined 127\.0\.0\.1:\d+"
        ):
            rebalancer.wait_ready(0.05)
        for ask in (rebalancer.rebalance, rebalancer.submit, lambda: rebalancer.remove_rank(1)):
            with pytest.raises(RanksMissing, match="nothing can be rebalanced yet"):
                ask()
        assert rebalancer.table is None
        assert rebalancer.live_ranks == []
        assert rebalancer.maybe_rebalance() is None


def test_before_it_is_started_and_after_it_was_closed_it_says_so() -> None:
    rebalancer = Rebalancer(TOPOLOGY)
    with pytest.raises(EplbInputError, match="it was not started"):
        rebalancer.rebalance()
    rebalancer.close()
    with rebalancer:
        pass
    rebalancer.close()
    with pytest.raises(EplbInputError, match="it was closed"):
        rebalancer.rebalance()


def test_it_can_not_be_started_twice() -> None:
    with Rebalancer(TOPOLOGY) as rebalancer, pytest.raises(EplbInputError, match="started already"):
        rebalancer.start()


def test_an_address_that_is_taken_is_named() -> None:
    with Rebalancer(TOPOLOGY) as first:
        config = RebalancerConfig(cluster=ClusterConfig(port=first.address[1]))
        with pytest.raises(EplbInputError, match=r"can't listen on 127\.0\.0\.1"):
            Rebalancer(TOPOLOGY, config).start()


def test_threads_end_with_it() -> None:
    before = set(threading.enumerate())
    with Rebalancer(TOPOLOGY):
        pass
    assert set(threading.enumerate()) <= before


def test_an_unknown_policy_is_named_before_anything_begins() -> None:
    with pytest.raises(EplbInputError, match="did you mean windtunnel"):
        Rebalancer(TOPOLOGY, RebalancerConfig(policy="windtunel"))


@pytest.mark.parametrize("counts", [np.ones(3), np.ones((2, 3, 4)), 5])
def test_counts_of_other_axes_are_refused(counts: object) -> None:
    with Rebalancer(TOPOLOGY) as rebalancer, pytest.raises(EplbInputError, match="counts"):
        rebalancer.record(counts)  # type: ignore[arg-type]


def test_the_package_s_names_can_be_had_and_are_listed() -> None:
    assert set(eplb.__all__) == set(dir(eplb))
    for name in eplb.__all__:
        assert getattr(eplb, name).__name__
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        eplb.nothing  # noqa: B018
