"""The coordinator as an engine uses it: counts in, placements out, and ranks that come and go meanwhile.

One `Rebalancer` serves a model. It may live in any process, and needs no weights: the ranks' agents move them. Its
thread runs the cluster (`cluster.py`); plans are made in another, so that heartbeats are heard while a policy thinks.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, get_args

import numpy as np
from msgspec import Struct
from numpy.typing import ArrayLike

from windtunnel import clock
from windtunnel.eplb.balance import balancedness, balancedness_weighted
from windtunnel.eplb.cluster import Cluster, ClusterConfig, Evicted, Result
from windtunnel.eplb.events import Event, EventLog
from windtunnel.eplb.faults import FailAt, How
from windtunnel.eplb.limits import require_counts
from windtunnel.eplb.load import LoadWindow
from windtunnel.eplb.metrics import EplbMetrics
from windtunnel.eplb.placement import EMPTY, Placement
from windtunnel.eplb.plan import Plan
from windtunnel.eplb.planning import Planner
from windtunnel.eplb.policies import Budget, Constraints, Explanation, Load, Policy, Split, policy
from windtunnel.eplb.recovery import RecoveryPolicy
from windtunnel.eplb.routing import Routing
from windtunnel.eplb.topology import Topology
from windtunnel.errors import EplbInputError, ExpertLost, RanksMissing, RebalanceAborted, WindtunnelError
from windtunnel.units import NS_PER_S

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

_RECORDS_KEPT = 1000


@dataclass(frozen=True)
class RebalancerConfig:
    """When to rebalance, and how."""

    cluster: ClusterConfig = field(default_factory=ClusterConfig)
    policy: str = "windtunnel"
    split: Split = "even"
    constraints: Constraints = field(default_factory=Constraints)
    budget: Budget = field(default_factory=Budget)
    recovery: RecoveryPolicy = field(default_factory=RecoveryPolicy)
    window_steps: int | None = None
    """Steps of load that are kept; None: as many as LoadWindow's default."""
    decay: float | None = None
    """Instead of a window: the weight of each step against the next one."""
    interval_steps: int = 100
    """`maybe_rebalance` looks at the load after as many steps."""
    threshold: float = 0.95
    """… and rebalances where balancedness is below this."""

    def __post_init__(self) -> None:
        if self.split not in get_args(Split):
            raise EplbInputError("split", f"{self.split!r}", f"There are: {', '.join(get_args(Split))}.")
        require_counts(interval_steps=self.interval_steps)
        if not 0 <= self.threshold <= 1:
            raise EplbInputError("threshold", f"{self.threshold}", "A balancedness is between 0 and 1.")
        LoadWindow(1, 1, window_steps=self.window_steps, decay=self.decay)


class RebalanceRecord(Struct, frozen=True):
    """One rebalance, as it is kept."""

    at_ns: int
    policy: str
    result: str
    """`committed`, `aborted`, `nothing to do`, or `dry run`."""
    reason: str
    base_epoch: int
    epoch: int
    """What serves afterwards."""
    balancedness_before: float | None
    balancedness: float | None
    """Predicted for the placement that serves afterwards, tokens split evenly."""
    balancedness_weighted: float | None
    """The same, tokens split by that placement's own shares; no better split is looked for."""
    copies: int
    bytes_planned: int
    bytes_moved: int
    bytes_wasted: int
    retries: int
    steps: int
    plan_s: float
    total_s: float
    stages_s: Mapping[str, float]
    """Time in each stage of the transactions."""
    stopped: Mapping[str, int]
    """Why the policy stopped, and in how many layers."""


class Rebalancer:
    """Coordinates the ranks of one model. Use it as a context manager, or `start` and `close` it."""

    def __init__(
        self,
        topology: Topology,
        config: RebalancerConfig | None = None,
        *,
        on_publish: Callable[[Routing], None] | None = None,
        on_evicted: Callable[[Evicted], None] | None = None,
        on_event: Callable[[Event], None] | None = None,
        registry: CollectorRegistry | None = None,
        fail_at: FailAt | tuple[str, How] | None = None,
    ) -> None:
        """Prepare to coordinate. Callbacks run on the coordinator's thread and must be quick.

        `registry` is Prometheus' for the metrics; None: one of their own.
        Raises EplbInputError, MissingExtra.
        """
        self.config = config or RebalancerConfig()
        self.events = EventLog("coordinator", on_event)
        self.records: deque[RebalanceRecord] = deque(maxlen=_RECORDS_KEPT)
        """Of the latest rebalances, oldest first."""
        self.metrics = EplbMetrics(registry)
        self._policy: Policy = policy(self.config.policy)
        self._window: LoadWindow | None = None
        self._window_shape = (0, 0)
        self._steps_seen = 0
        self._running: Future[RebalanceRecord] | None = None
        self._futures: set[Future[RebalanceRecord]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._thread: threading.Thread | None = None
        self._begun = threading.Event()
        """It listens, or has failed to."""
        self._failure: BaseException | None = None
        self._cluster = Cluster(
            topology,
            self.config.cluster,
            self.config.recovery,
            self.events,
            self.metrics,
            on_publish=on_publish,
            on_evicted=on_evicted,
            fail_at=fail_at,
        )

    # --- life -----------------------------------------------------------------------------------------------------

    def start(self) -> Rebalancer:
        """Listen for ranks. Raises EplbInputError where the address can't be had."""
        if self._thread or self._loop:
            problem = "it was started already" if self._thread else "it was closed"
            raise EplbInputError("rebalancer", problem, "Make another one; each is started once.")
        self._thread = threading.Thread(target=self._run, name="eplb-coordinator", daemon=True)
        self._thread.start()
        self._begun.wait()
        if self._failure:
            raise self._failure
        return self

    @property
    def address(self) -> tuple[str, int]:
        """Where ranks find it: host and port. Raises EplbInputError before `start`."""
        self._require_loop()
        assert self._cluster.address is not None
        return self._cluster.address

    def wait_ready(self, timeout_s: float = 60.0) -> None:
        """Wait until the ranks are here, an epoch serves all experts, and nothing is left to do.

        Raises RanksMissing, or ExpertLost where that is what stands in the way.
        """
        began_ns = clock.monotonic_ns()
        loop = self._require_loop()
        self._require_other_thread("wait_ready")
        ready = asyncio.run_coroutine_threadsafe(self._cluster.ready.wait(), loop)
        try:
            ready.result(timeout_s)
        except CancelledError:
            raise self._failure or self._closed() from None
        except TimeoutError:
            ready.cancel()
            if self._cluster.members and self._cluster.committed.missing:
                layer, expert = self._cluster.committed.missing[0]
                raise ExpertLost(layer, expert, len(self._cluster.committed.missing)) from None
            waited_s = (clock.monotonic_ns() - began_ns) / NS_PER_S
            raise self._ranks_missing(f"not ready after {waited_s:.1f} s") from None

    def close(self) -> None:
        """Stop coordinating. The ranks serve on, and wait for another coordinator at this address."""
        loop, thread = self._loop, self._thread
        if loop is None or thread is None:
            return
        self._require_other_thread("close")
        try:
            loop.call_soon_threadsafe(self._cancel)
        except RuntimeError:  # it has ended by itself
            pass
        thread.join()
        self._thread = None

    def __enter__(self) -> Rebalancer:
        return self if self._thread else self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- for the engine -------------------------------------------------------------------------------------------

    def warm_up(self, num_experts: int) -> None:
        """Have the policy compiled, or its compiled code loaded, before the first plan is wanted.

        Without it the first plan does that, for some 20 s once after an installation, and else for half a second; what
        serves in the same process runs beside it. May be called by any thread, also before `start`.
        """
        topology = self._cluster.topology
        slots = np.arange(topology.num_slots) % num_experts
        per_rank = topology.slots_per_rank
        starts = np.cumsum((0, *per_rank))
        rows = np.full((1, len(per_rank), max(per_rank)), EMPTY, np.int32)
        for rank, count in enumerate(per_rank):
            rows[0, rank, :count] = slots[starts[rank] : starts[rank] + count]
        load = LoadWindow.of(np.random.default_rng(0).integers(1, 1000, (2, 1, num_experts)))
        placement = Placement.of(rows, num_experts, slots_per_rank=per_rank)
        Planner(self._policy, self.config.constraints, self.config.budget).warm_up(load, topology, placement)

    @property
    def table(self) -> Routing | None:
        """What to route by now; None before the first epoch. Reading it takes no lock."""
        return self._cluster.views.table

    @contextmanager
    def routing(self) -> Iterator[Routing]:
        """Route by the newest epoch until the block ends; no slot that it names is overwritten meanwhile."""
        with self._cluster.views.routing() as table:
            yield table

    @property
    def live_ranks(self) -> list[int]:
        """The ranks that are members."""
        return sorted(self._cluster.members)

    @property
    def topology(self) -> Topology:
        """The topology, with the members alive."""
        return self._cluster.live_topology

    @property
    def window(self) -> LoadWindow | None:
        """The load so far; None before the first `record`."""
        return self._window

    def record(self, *counts: ArrayLike) -> None:
        """Add the tokens that each expert got in one step [layers, experts]; of several ranks, their sum.

        Raises EplbInputError.
        """
        shape = _shape(counts)
        model = (len(self._cluster.group_bytes), self._cluster.num_experts)
        known = self._cluster.coordinator is not None
        if known and shape != model:
            raise EplbInputError("counts", f"shape {shape}", f"The ranks' model has [layers, experts] = {list(model)}.")
        window = self._window
        if window is None or (known and self._window_shape != model):  # it was begun before the ranks told their model
            config = self.config
            window = LoadWindow(*shape, window_steps=config.window_steps, decay=config.decay)
        window.add(*counts)
        self._window, self._window_shape = window, shape
        self._steps_seen += 1

    def maybe_rebalance(self) -> Future[RebalanceRecord] | None:
        """Begin to rebalance where it is due: every `interval_steps`, below `threshold`. Doesn't wait.

        None: it is not due, or one is under way.
        """
        if self._steps_seen < self.config.interval_steps or (self._running and not self._running.done()):
            return None
        self._steps_seen = 0
        table, window = self.table, self._window
        if table is None or window is None:
            return None
        now = balancedness(window.mean, table.placement)
        self.metrics.set_balancedness(now)
        return self.submit() if now < self.config.threshold else None

    def rebalance(self, target: Placement | None = None, *, dry_run: bool = False) -> RebalanceRecord:
        """Rebalance now and wait for the end: to `target`, or to what the policy says.

        A rebalance that is rolled back is no error: the record says so. Raises EplbInputError, TooFewSlots,
        RanksMissing.
        """
        self._require_other_thread("rebalance")
        return self.submit(target, dry_run=dry_run).result()

    def submit(self, target: Placement | None = None, *, dry_run: bool = False) -> Future[RebalanceRecord]:
        """As `rebalance`, without waiting."""
        self._running = self._order(lambda: self._rebalance(target, self._cluster.live_topology, dry_run))
        return self._running

    def remove_rank(self, rank: int) -> RebalanceRecord:
        """Move a rank's experts elsewhere, then let it go: its agent ends.

        Raises EplbInputError, TooFewSlots, RanksMissing, RebalanceAborted.
        """

        async def leave() -> RebalanceRecord:
            if rank not in self._cluster.members:
                raise EplbInputError("rank", f"rank {rank} is no member", f"There are {self.live_ranks}.")
            record = await self._rebalance(None, self._cluster.live_topology.without([rank]), False)
            if record.result == "aborted":
                raise RebalanceAborted(record.base_epoch + 1, record.epoch, "removal", record.reason)
            self._cluster.evict(rank, "removed", "it was removed")
            return record

        self._require_other_thread("remove_rank")
        return self._order(leave).result()

    def _ranks_missing(self, what: str) -> RanksMissing:
        present = self._cluster.present
        missing = [rank for rank in self._cluster.topology.live_ranks if rank not in present]
        return RanksMissing(what, "{}:{}".format(*self.address), str(present), str(missing))

    # --- a rebalance ----------------------------------------------------------------------------------------------

    def _order(self, work: Callable[[], Awaitable[RebalanceRecord]]) -> Future[RebalanceRecord]:
        loop = self._require_loop()
        if self._cluster.coordinator is None:
            raise self._ranks_missing("nothing can be rebalanced yet")
        future: Future[RebalanceRecord] = Future()
        self._futures.add(future)
        future.add_done_callback(self._futures.discard)
        loop.call_soon_threadsafe(self._cluster.submit, lambda: self._work(future, work))
        return future

    async def _work(self, future: Future[RebalanceRecord], work: Callable[[], Awaitable[RebalanceRecord]]) -> None:
        if not future.set_running_or_notify_cancel():  # from now on it can't be cancelled
            return
        try:
            record = await work()
        except WindtunnelError as error:
            self.events.add("rebalance refused", reason=str(error))
            self.metrics.count_refused_rebalance()
            future.set_exception(error)
        except Exception as error:  # a bug: the next one may go well
            self.events.add("rebalance refused", reason=f"{type(error).__name__}: {error}")
            future.set_exception(error)
        else:
            future.set_result(record)

    async def _rebalance(self, target: Placement | None, topology: Topology, dry_run: bool) -> RebalanceRecord:
        cluster = self._cluster
        began_ns = clock.monotonic_ns()
        base = cluster.committed
        while True:
            members = set(cluster.members)
            try:
                planning = asyncio.to_thread(self._plan, target, topology, base)
                placement, explanation, plan = await cluster.meanwhile(planning)
            except WindtunnelError:
                if members == set(cluster.members):
                    raise
            else:
                if members == set(cluster.members) and base is cluster.committed:
                    break
            base, topology = cluster.committed, _without_lost(topology, cluster.live_topology)
        plan_s = (clock.monotonic_ns() - began_ns) / NS_PER_S
        if dry_run or not plan.steps:
            result, kind = Result(True, _ended_by(explanation)), "dry run" if dry_run else "nothing to do"
        else:
            self.events.add("rebalancing", base=base.epoch, copies=len(plan.copies), steps=len(plan.steps))
            result = await cluster.execute(plan)
            kind = "committed" if result.committed else "aborted"
        serving = placement if dry_run else cluster.committed
        record = self._record(kind, result, base, serving, explanation, plan, began_ns, plan_s)
        self.records.append(record)
        self.events.add("rebalanced", result=record.result, epoch=record.epoch, reason=record.reason)
        self.metrics.observe_rebalance(record)
        return record

    def _plan(
        self, target: Placement | None, topology: Topology, base: Placement
    ) -> tuple[Placement, Explanation | None, Plan]:
        explanation = None
        if target is None:
            window = self._window or LoadWindow.of(np.zeros((base.num_layers, base.num_experts)))
            target, explanation = self._placed(window, topology, base)
        return target, explanation, self._cluster.plan_for(target)

    def _placed(self, window: Load, topology: Topology, base: Placement) -> tuple[Placement, Explanation]:
        config, budget = self.config, self.config.budget
        if budget.expert_bytes is None:
            budget = replace(budget, expert_bytes=max(self._cluster.group_bytes))
        planner = Planner(self._policy, config.constraints, budget, config.split)
        placement, explanation, _ = planner.plan(window, topology, base)
        return placement, explanation

    def _record(
        self,
        kind: str,
        result: Result,
        base: Placement,
        serving: Placement,
        explanation: Explanation | None,
        plan: Plan,
        began_ns: int,
        plan_s: float,
    ) -> RebalanceRecord:
        mean = self._window.mean if self._window else None
        return RebalanceRecord(
            at_ns=began_ns,
            policy=self.config.policy if explanation else "given",
            result=kind,
            reason=result.reason,
            base_epoch=base.epoch,
            epoch=self._cluster.committed.epoch,
            balancedness_before=None if mean is None else balancedness(mean, base),
            balancedness=None if mean is None else balancedness(mean, serving),
            balancedness_weighted=None if mean is None else balancedness_weighted(mean, serving),
            copies=len(plan.copies),
            bytes_planned=plan.num_bytes,
            bytes_moved=sum(outcome.moved_bytes for outcome in result.outcomes if outcome.committed),
            bytes_wasted=sum(outcome.wasted_bytes for outcome in result.outcomes),
            retries=sum(outcome.retries for outcome in result.outcomes),
            steps=len(plan.steps),
            plan_s=plan_s,
            total_s=(clock.monotonic_ns() - began_ns) / NS_PER_S,
            stages_s={stage: spent_ns / NS_PER_S for stage, spent_ns in result.stages_ns.items()},
            stopped=dict(explanation.stopped) if explanation else {},
        )

    # --- the thread -----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        except BaseExceptionGroup as group:
            self._failure = group.exceptions[0]
        except BaseException as error:
            self._failure = error
        if self._failure:
            self.events.add("coordinator broke", error=type(self._failure).__name__, reason=str(self._failure))
        self._begun.set()
        for future in [f for f in self._futures if f.running() or f.set_running_or_notify_cancel()]:
            serving = self._cluster.committed.epoch if self._cluster.coordinator else 0
            reason = str(self._failure) if self._failure else "the coordinator was closed"
            future.set_exception(RebalanceAborted(serving + 1, serving, "closing", reason))

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.create_task(self._cluster.run())
        while self._cluster.address is None and not self._task.done():
            await asyncio.sleep(0.001)
        if self._cluster.address is not None:
            self._begun.set()
        try:
            await self._task
        except asyncio.CancelledError:
            pass

    def _cancel(self) -> None:
        if self._task:
            self._task.cancel()

    def _require_loop(self) -> asyncio.AbstractEventLoop:
        if self._failure:
            raise self._failure
        if self._loop is None:
            raise EplbInputError("rebalancer", "it was not started", "Call start, or use it in a with statement.")
        if self._thread is None:
            raise self._closed()
        return self._loop

    @staticmethod
    def _closed() -> EplbInputError:
        return EplbInputError("rebalancer", "it was closed", "Make another one; each is started once.")

    def _require_other_thread(self, what: str) -> None:
        if threading.current_thread() is self._thread:
            problem = "it was called by a callback, which it would wait for"
            raise EplbInputError(what, problem, "Call it in another thread, or `submit` and don't wait.")


def _shape(counts: tuple[ArrayLike, ...]) -> tuple[int, int]:
    try:
        shape = np.shape(counts[0]) if counts else ()
    except ValueError as error:  # rows of different lengths
        raise EplbInputError("counts", str(error), "Its axes are [layers, experts].") from error
    if len(shape) != 2:
        raise EplbInputError("counts", f"{len(shape)} axes", "Its axes are [layers, experts].")
    return shape[0], shape[1]


def _ended_by(explanation: Explanation | None) -> str:
    return f"planning ended by {', '.join(explanation.stopped)}" if explanation else ""


def _without_lost(topology: Topology, live: Topology) -> Topology:
    return replace(topology, live=tuple(a and b for a, b in zip(topology.live, live.live, strict=True)))
