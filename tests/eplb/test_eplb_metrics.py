"""What a Rebalancer tells Prometheus, read back from its text."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from typing import get_args

import numpy as np
import pytest
from msgspec.structs import replace
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from windtunnel.eplb.cluster import Why
from windtunnel.eplb.metrics import METRICS, PREFIX, EplbMetrics
from windtunnel.eplb.placement import Placement
from windtunnel.eplb.rebalancer import RebalanceRecord
from windtunnel.eplb.topology import Topology
from windtunnel.eplb.transaction.instructions import Outcome
from windtunnel.errors import MissingExtra

COMMITTED = RebalanceRecord(
    at_ns=0,
    policy="windtunnel",
    result="committed",
    reason="",
    base_epoch=1,
    epoch=2,
    balancedness_before=0.4,
    balancedness=0.9,
    balancedness_weighted=0.95,
    copies=10,
    bytes_planned=100,
    bytes_moved=100,
    bytes_wasted=0,
    retries=0,
    steps=1,
    plan_s=0.02,
    total_s=1.5,
    stages_s={},
    stopped={},
)


def samples(metrics: EplbMetrics) -> dict[str, float]:
    """Each sample without the prefix, its label's value in brackets."""
    found = {}
    for family in text_string_to_metric_families(metrics.render().decode()):
        for sample in family.samples:
            if not sample.name.endswith(("_created", "_bucket")):
                label = next(iter(sample.labels.values()), None)
                found[sample.name.removeprefix(PREFIX) + (f"[{label}]" if label else "")] = sample.value
    return found


def tell_all(metrics: EplbMetrics) -> None:
    """One of each fact."""
    metrics.set_balancedness(0.5, 0.6)
    metrics.observe_rebalance(COMMITTED)
    metrics.observe_transaction(Outcome(1, 2, True, "retiring"), {"preparing": 1})
    metrics.set_cluster(Placement.of([[[0, 1]]], 2), Topology.uniform(1, 2))
    metrics.set_quarantined_bytes(1)
    metrics.count_eviction("closed")
    metrics.count_join()


def test_every_metric_is_exported_as_its_definition_says_and_none_besides() -> None:
    metrics = EplbMetrics()
    tell_all(metrics)
    told = {
        family.name: (family.type, family.documentation)
        for family in text_string_to_metric_families(metrics.render().decode())
        if not family.name.endswith("_created")
    }
    assert told == {metric.name: (metric.kind, metric.doc) for metric in METRICS}
    for metric in METRICS:
        assert re.fullmatch(r"windtunnel:eplb_[a-z_]+", metric.name)
        assert metric.doc.endswith(".") and metric.kind in ("gauge", "counter", "histogram")


def test_what_is_not_known_yet_is_absent_and_what_did_not_happen_yet_is_0() -> None:
    found = samples(EplbMetrics())
    assert not {"epoch", "min_live_replicas", "quarantined_bytes", "balancedness[even]"} & set(found)
    assert found["rebalances_total[aborted]"] == 0 == found["phase_seconds_count[rolling back]"]
    assert set(found.values()) == {0}


def test_a_rebalance_is_counted_by_its_result_and_shows_its_balance() -> None:
    metrics = EplbMetrics()
    metrics.observe_rebalance(COMMITTED)
    facts = {"balancedness": 0.45, "balancedness_weighted": None, "bytes_planned": 50, "plan_s": 0.03, "total_s": 2.5}
    metrics.observe_rebalance(replace(COMMITTED, result="aborted", **facts))
    found = samples(metrics)
    assert found["rebalances_total[committed]"] == found["rebalances_total[aborted]"] == 1
    assert found["bytes_planned_total"] == 150
    assert found["rebalance_balancedness[before]"] == 0.4 and found["rebalance_balancedness[after]"] == 0.45
    assert found["balancedness[even]"] == 0.45 and found["balancedness[weighted]"] == 0.95
    assert found["plan_seconds_sum"] == 0.05 and found["rebalance_seconds_sum"] == 4


def test_a_dry_run_changes_nothing_but_its_own_count_and_the_time_to_plan() -> None:
    metrics = EplbMetrics()
    metrics.observe_rebalance(replace(COMMITTED, result="dry run"))
    found = {name: value for name, value in samples(metrics).items() if value}
    assert found == {"rebalances_total[dry run]": 1, "plan_seconds_count": 1, "plan_seconds_sum": 0.02}


def test_a_rebalance_without_a_load_leaves_balance_unknown() -> None:
    metrics = EplbMetrics()
    unknown = {"balancedness_before": None, "balancedness": None, "balancedness_weighted": None}
    metrics.observe_rebalance(replace(COMMITTED, **unknown))
    assert not any("balancedness" in name for name in samples(metrics))


def test_bytes_count_as_moved_only_where_the_transaction_was_committed() -> None:
    metrics = EplbMetrics()
    stages_ns = {"idle": 10**9, "preparing": 10**6, "transferring": 2 * 10**9, "publishing": 10**6, "retiring": 10**6}
    done = Outcome(1, 5, True, "retiring", moved_bytes=1000, wasted_bytes=7, retries=2, copies=10)
    metrics.observe_transaction(done, stages_ns)
    failed = Outcome(
        2, 6, False, "transferring", "it rained", (1,), moved_bytes=500, wasted_bytes=500, retries=1, copies=9
    )
    metrics.observe_transaction(failed, {"preparing": 10**6, "transferring": 10**9, "rolling back": 3 * 10**6})
    found = samples(metrics)
    assert found["transactions_total[committed]"] == found["transactions_total[rolled back]"] == 1
    assert (found["bytes_moved_total"], found["bytes_wasted_total"]) == (1000, 507)
    assert (found["copies_total"], found["retries_total"]) == (10, 3)
    assert found["phase_seconds_sum[transferring]"] == 3 and found["phase_seconds_count[transferring]"] == 2
    assert found["phase_seconds_count[rolling back]"] == 1 and "phase_seconds_count[idle]" not in found


def test_the_cluster_shows_what_the_next_death_would_take() -> None:
    metrics = EplbMetrics()
    slots = np.array([[[0, 1], [1, 2], [3, 3], [4, 0]]])
    topology = Topology.uniform(4, 8, nodes=2).without([3])
    metrics.set_cluster(Placement.of(slots, 5, epoch=7), topology)
    found = samples(metrics)
    assert (found["epoch"], found["live_ranks"]) == (7, 3)
    assert (found["min_live_replicas"], found["missing_experts"]) == (0, 1)
    assert (found["experts_at_risk[rank]"], found["experts_at_risk[node]"]) == (1, 3)


def test_evictions_are_counted_by_a_word_for_each_reason() -> None:
    metrics = EplbMetrics()
    for why in ("silent", "closed", "silent"):
        metrics.count_eviction(why)
    found = samples(metrics)
    evictions = {name: value for name, value in found.items() if name.startswith("evictions")}
    assert evictions == {"evictions_total[silent]": 2, "evictions_total[closed]": 1}
    for word in get_args(Why):
        assert word in next(m.doc for m in METRICS if m.key == "evictions")


def test_joins_and_quarantined_bytes_are_told() -> None:
    metrics = EplbMetrics()
    metrics.count_join()
    metrics.set_quarantined_bytes(1 << 20)
    metrics.set_quarantined_bytes(0)
    found = samples(metrics)
    assert found["joins_total"] == 1 and found["quarantined_bytes"] == 0


def test_two_rebalancers_of_a_process_do_not_meet_but_may_use_an_engines_registry() -> None:
    one, other = EplbMetrics(), EplbMetrics()
    one.count_join()
    assert samples(other)["joins_total"] == 0
    registry = CollectorRegistry()
    engines = EplbMetrics(registry)
    engines.count_join()
    assert registry.get_sample_value(f"{PREFIX}joins_total") == 1


def test_a_gauge_that_many_threads_set_first_is_exported_once() -> None:
    metrics = EplbMetrics()
    start = threading.Barrier(8)

    def tell() -> None:
        start.wait()
        for _ in range(50):
            tell_all(metrics)
            metrics.render()

    threads = [threading.Thread(target=tell) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert samples(metrics)["joins_total"] == 400
    assert metrics.render().count(b"# TYPE windtunnel:eplb_epoch gauge") == 1


def test_without_prometheus_client_the_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(MissingExtra) as missing:
        EplbMetrics()
    assert (missing.value.package, missing.value.extra) == ("prometheus-client", "eplb")


def test_the_definitions_are_read_without_prometheus_client() -> None:
    program = "import sys; import windtunnel.eplb.metrics; sys.exit('prometheus_client' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
