"""What a Rebalancer tells Prometheus. vLLM exports nothing of the kind: it logs balancedness, as mean ÷ max of the sums
over layers; here it is the mean over layers of mean ÷ max.

`METRICS` is the one definition: the collectors are made from it, and so is the reference.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from windtunnel.eplb.placement import Placement
from windtunnel.eplb.recovery import survivability
from windtunnel.eplb.topology import Topology
from windtunnel.eplb.transaction.instructions import Outcome
from windtunnel.eplb.transaction.table import Stage
from windtunnel.errors import MissingExtra
from windtunnel.units import NS_PER_S

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from windtunnel.eplb.rebalancer import RebalanceRecord

PREFIX = "windtunnel:eplb_"
RESULTS = ("committed", "aborted", "nothing to do", "dry run", "refused")
_PHASES = tuple(str(stage) for stage in Stage if stage is not Stage.IDLE)
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 60)


class Metric(NamedTuple):
    """One metric as Prometheus sees it; samples of a counter end in `_total`."""

    key: str
    kind: Literal["gauge", "counter", "histogram"]
    label: str
    """The name of its label; empty: it has none."""
    values: tuple[str, ...]
    """Values of the label that are there from the start; others may come."""
    doc: str

    @property
    def name(self) -> str:
        """As it is exported."""
        return PREFIX + self.key


METRICS = (
    Metric("balancedness", "gauge", "split", (),
           "Mean over layers of mean rank load / maximum rank load, of what serves, under the recent load; tokens are "
           "split evenly over replicas (even), or by the shares of what serves (weighted)."),
    Metric("rebalance_balancedness", "gauge", "moment", (),
           "Balancedness (even split) before and after the latest rebalance, under the load that it was planned for."),
    Metric("rebalances", "counter", "result", RESULTS, "Rebalances by result."),
    Metric("transactions", "counter", "result", ("committed", "rolled back"),
           "Transactions by result: the steps of rebalances, evictions, joins and restorations."),
    Metric("bytes_planned", "counter", "", (), "Bytes of weights that rebalances set out to move."),
    Metric("bytes_moved", "counter", "", (), "Bytes of weights that committed transactions moved."),
    Metric("bytes_wasted", "counter", "", (),
           "Bytes that were moved in vain: by failed copies and rolled-back transactions."),
    Metric("copies", "counter", "", (), "Experts that committed transactions copied, one layer's weights each."),
    Metric("retries", "counter", "", (), "Copies that were read again from another source."),
    Metric("plan_seconds", "histogram", "", (), "Time to plan a rebalance."),
    Metric("rebalance_seconds", "histogram", "", (), "Time of a rebalance, from its order to its end; dry runs apart."),
    Metric("phase_seconds", "histogram", "phase", _PHASES, "Time of each phase of a transaction."),
    Metric("quarantined_bytes", "gauge", "", (),
           "Staging memory that waits until a peer that was given up can write into it no more."),
    Metric("epoch", "gauge", "", (), "The epoch that serves."),
    Metric("live_ranks", "gauge", "", (), "Ranks that are members."),
    Metric("min_live_replicas", "gauge", "", (), "Live replicas of the expert that has the fewest, in any layer."),
    Metric("missing_experts", "gauge", "", (), "Experts that no live rank holds, over all layers."),
    Metric("experts_at_risk", "gauge", "domain", (),
           "Experts, over all layers, that would be lost with one rank, or with one node: with the worst one."),
    Metric("evictions", "counter", "why", (),
           "Ranks that became members no longer: closed, silent, stuck, stubborn, replaced, removed or garbage."),
    Metric("joins", "counter", "", (), "Ranks that became members."),
)  # fmt: skip


class EplbMetrics:
    """Collectors in a registry, and a method for each fact. Safe to be called from several threads."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        """Register in `registry`, or in one of its own. Raises MissingExtra without prometheus_client."""
        try:
            import prometheus_client as prometheus
        except ImportError as error:
            raise MissingExtra("the Rebalancer's metrics", "prometheus-client", "eplb") from error
        self.registry = registry if registry is not None else prometheus.CollectorRegistry()
        self._expose = prometheus.generate_latest
        self._collectors = {metric.key: self._make(metric, prometheus) for metric in METRICS}
        self._unset = {metric.key for metric in METRICS if metric.kind == "gauge"}

    def _make(self, metric: Metric, prometheus: Any) -> Any:
        labels = [metric.label] if metric.label else []
        if metric.kind == "gauge":
            # it joins the registry with its first value: what is not known is absent, not 0
            return prometheus.Gauge(metric.name, metric.doc, labels, registry=None)
        if metric.kind == "counter":
            collector = prometheus.Counter(metric.name, metric.doc, labels, registry=self.registry)
        else:
            collector = prometheus.Histogram(metric.name, metric.doc, labels, registry=self.registry, buckets=_SECONDS)
        for value in metric.values:
            collector.labels(value)
        return collector

    def set_balancedness(self, even: float, weighted: float | None = None) -> None:
        """How balanced is what serves, under the recent load."""
        self._set("balancedness", even, "even")
        if weighted is not None:
            self._set("balancedness", weighted, "weighted")

    def observe_rebalance(self, rebalance: RebalanceRecord) -> None:
        """A rebalance has ended, or was only planned."""
        count = self._collectors
        count["rebalances"].labels(rebalance.result).inc()
        count["plan_seconds"].observe(rebalance.plan_s)
        if rebalance.result == "dry run":
            return
        count["rebalance_seconds"].observe(rebalance.total_s)
        count["bytes_planned"].inc(rebalance.bytes_planned)
        if rebalance.balancedness_before is not None:
            self._set("rebalance_balancedness", rebalance.balancedness_before, "before")
        if rebalance.balancedness is not None:
            self._set("rebalance_balancedness", rebalance.balancedness, "after")
            self.set_balancedness(rebalance.balancedness, rebalance.balancedness_weighted)

    def observe_transaction(self, outcome: Outcome, stages_ns: Mapping[str, int]) -> None:
        """A transaction has ended; `stages_ns` is the time that it spent in each stage."""
        count = self._collectors
        count["transactions"].labels("committed" if outcome.committed else "rolled back").inc()
        count["bytes_wasted"].inc(outcome.wasted_bytes)
        count["retries"].inc(outcome.retries)
        if outcome.committed:
            count["bytes_moved"].inc(outcome.moved_bytes)
            count["copies"].inc(outcome.copies)
        for stage in _PHASES:
            if stage in stages_ns:
                count["phase_seconds"].labels(stage).observe(stages_ns[stage] / NS_PER_S)

    def set_cluster(self, placement: Placement, topology: Topology) -> None:
        """What serves, and which ranks are alive."""
        at_risk = survivability(placement, topology)
        self._set("epoch", placement.epoch)
        self._set("live_ranks", len(topology.live_ranks))
        self._set("min_live_replicas", at_risk.min_live_replicas)
        self._set("missing_experts", at_risk.missing)
        self._set("experts_at_risk", int(at_risk.lost_by_rank.max()), "rank")
        self._set("experts_at_risk", int(at_risk.lost_by_node.max()), "node")

    def set_quarantined_bytes(self, num_bytes: int) -> None:
        """How much staging memory is quarantined, over all ranks."""
        self._set("quarantined_bytes", num_bytes)

    def count_eviction(self, why: str) -> None:
        """A rank became a member no longer; `why` is a word of `cluster.Why`."""
        self._collectors["evictions"].labels(why).inc()

    def count_refused_rebalance(self) -> None:
        """A rebalance was asked for that can't be planned."""
        self._collectors["rebalances"].labels("refused").inc()

    def count_join(self) -> None:
        """A rank became a member."""
        self._collectors["joins"].inc()

    def render(self) -> bytes:
        """All metrics of the registry in Prometheus' text format."""
        return self._expose(self.registry)

    def _set(self, key: str, value: float, label: str | None = None) -> None:
        gauge = self._collectors[key]
        (gauge if label is None else gauge.labels(label)).set(value)
        try:
            self._unset.remove(key)  # of several threads, one succeeds
        except KeyError:
            return
        self.registry.register(gauge)
