"""The processes of a live fleet: a rank with real weights, and a coordinator. Both do what they are told over a pipe.

A rank checks all the time, in a thread of its own, what an engine would read: every slot of the epoch that it routes by
must hold its expert, byte for byte. What it finds is told with its state.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from windtunnel.eplb.agent import AgentConfig, RankAgent
from windtunnel.eplb.cluster import ClusterConfig, Evicted
from windtunnel.eplb.placement import Placement
from windtunnel.eplb.plan import Copy, Source
from windtunnel.eplb.rebalancer import Rebalancer, RebalancerConfig
from windtunnel.eplb.recovery import RecoveryPolicy
from windtunnel.eplb.store import ExpertStore, allocate_tensors
from windtunnel.eplb.topology import Topology
from windtunnel.eplb.transport import make_transport
from windtunnel.errors import ExpertLost, WindtunnelError


class Model(NamedTuple):
    """What all processes of a fleet agree on."""

    layers: int = 3
    experts: int = 6
    slots_per_rank: tuple[int, ...] = (4, 4, 4)
    floats: int = 256
    """Of an expert's first tensor; the second has a quarter."""
    transport: str = "shm"
    hang_s: float = 0.8
    token: str = "a secret"
    takeover_timeout_s: float = 1.0

    @property
    def specs(self) -> list[list[tuple[tuple[int, ...], Any]]]:
        return [[((self.floats,), np.float32), ((self.floats // 4,), np.int8)] for _ in range(self.layers)]


def expert_tensors(model: Model, layer: int, expert: int) -> list[NDArray[Any]]:
    """The weights of an expert: the same in every process, other than any other's."""
    rng = np.random.default_rng([layer, expert])
    return [
        rng.standard_normal(model.floats, np.float32),
        rng.integers(-128, 128, model.floats // 4, np.int8),
    ]


def first_contents(model: Model, rank: int) -> NDArray[np.int32]:
    """What a rank's slots hold at the start [layers, slots]: experts in turn, over all slots."""
    before = sum(model.slots_per_rank[:rank])
    slots = np.arange(before, before + model.slots_per_rank[rank]) % model.experts
    return np.tile(slots.astype(np.int32), (model.layers, 1))


class FleetWeights:
    """A checkpoint. `stalled` makes it wait, `broken` fail: for one rank's copies to take long, or not to work."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.stall_s = 0.0
        self.broken = False
        self.reads = 0

    def read(self, layer: int, expert: int, into: NDArray[np.uint8]) -> None:
        self.reads += 1
        time.sleep(self.stall_s)
        if self.broken:
            raise OSError("the checkpoint is gone")
        parts = [tensor.view(np.uint8).ravel() for tensor in expert_tensors(self._model, layer, expert)]
        into[:] = np.concatenate(parts)


def run_rank(pipe: Connection, model: Model, rank: int, port: int, options: dict[str, Any]) -> None:
    """A rank's process."""
    weights = FleetWeights(model)
    weights.stall_s, weights.broken = options.get("stall_s", 0.0), options.get("broken", False)
    moved = make_transport(model.transport, f"rank-{rank}-{time.monotonic_ns()}")
    tensors = allocate_tensors(moved, model.specs, model.slots_per_rank[rank])
    contents = np.full((model.layers, model.slots_per_rank[rank]), -1, np.int32)
    if not options.get("empty"):
        contents = first_contents(model, rank)
        for (layer, slot), expert in np.ndenumerate(contents):
            for into, tensor in zip(tensors[layer], expert_tensors(model, layer, int(expert)), strict=True):
                into[slot] = tensor * tensor.dtype.type(options.get("scale", 1))
    config = AgentConfig(
        port=port,
        token=options.get("token", model.token),
        copy_deadline_s=options.get("copy_deadline_s", 2.0),
        staging_buffers=options.get("staging_buffers"),
    )
    evictions: list[str] = []
    left: list[int] = []
    agent = RankAgent(
        options.get("as_rank", rank),
        ExpertStore(tensors),
        moved,
        contents,
        model.experts,
        config,
        weights=weights if options.get("weights", True) else None,
        on_evicted=evictions.append,
        on_left=left.append,
        fail_at=options.get("fail_at"),
    )
    reader = _Reader(model, rank, agent)
    try:
        agent.start()
    except WindtunnelError as error:
        pipe.send({"error": type(error).__name__, "message": str(error)})
        agent.close()
        return
    pipe.send({"joined": True})
    reader.start()
    try:
        while True:
            _obey_rank(pipe, agent, weights, reader, evictions, left)
    except EOFError:
        pass
    reader.stop()
    agent.close()
    moved.close()


def _obey_rank(
    pipe: Connection, agent: RankAgent, weights: FleetWeights, reader: _Reader, evictions: list[str], left: list[int]
) -> None:
    match pipe.recv():
        case "state":
            table = agent.table
            pipe.send(
                {
                    "epoch": table.epoch if table else None,
                    "digest": table.placement.digest if table else None,
                    "checks": reader.checks,
                    "wrong": list(reader.wrong),
                    "evictions": list(evictions),
                    "events": [(e.what, e.facts) for e in agent.events.all()],
                    "weight_reads": weights.reads,
                    "staging": [b.state.value for b in agent._machine.staging.buffers],
                    "generation": agent.generation,
                }
            )
        case ("route", layer, expert):
            try:
                with agent.routing() as table:
                    pipe.send(table.places(layer, expert))
            except ExpertLost as error:
                pipe.send(f"ExpertLost {error.layer} {error.expert}")
        case "inside":  # for the message of a test that fails
            machine, mover = agent._machine, agent._mover
            transaction = machine._transaction
            pipe.send(
                {
                    "rank": agent.rank,
                    "phase": machine.phase,
                    "buffers": [(b.state.value, b.attempt) for b in machine.staging.buffers],
                    "reads": transaction and {n: r.source for n, r in transaction.copying._reads.items()},
                    "mover": [(n, r.task.rank, r.broken, str(r.read)) for n, r in mover._readings.items()],
                    "abandoned": [(a.buffer, str(read)) for a, read in mover._abandoned],
                    "tasks": agent._tasks.qsize(),
                    "threads": [thread.name for thread in threading.enumerate()],
                }
            )
        case ("weights", stall_s, broken):
            weights.stall_s, weights.broken = stall_s, broken
            pipe.send(True)
        case "pin":
            with agent.routing() as table:
                pipe.send(table.epoch)
                pipe.recv()
            pipe.send(True)
        case ("step that waits for", rank):
            with agent.routing():
                pipe.send("waiting")
                while rank not in left:
                    time.sleep(0.001)
            pipe.send("gave up")
        case other:
            raise ValueError(other)


class _Reader:
    """Reads as an engine does, all the time."""

    def __init__(self, model: Model, rank: int, agent: RankAgent) -> None:
        self._model, self._rank, self._agent = model, rank, agent
        self._random = random.Random(rank)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._known: dict[tuple[int, int], list[NDArray[Any]]] = {}
        self.checks = 0
        self.wrong: list[str] = []

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _read(self) -> None:
        while not self._stopping.is_set():
            if self._agent.table is None:
                self._stopping.wait(0.002)
                continue
            try:
                with self._agent.routing() as table, self._agent.reading(table.epoch) as view:
                    self._check(view)
                    self._stopping.wait(self._random.choice([0, 0, 0.002, 0.01]))
                    self._check(view)
            except WindtunnelError:  # evicted between two lines
                pass

    def _check(self, view: Any) -> None:
        layer = self._random.randrange(self._model.layers)
        for slot, expert in enumerate(
            view.placement.slots[layer, self._rank, : self._model.slots_per_rank[self._rank]]
        ):
            if expert < 0:
                continue
            where = (layer, int(expert))
            if where not in self._known:
                self._known[where] = expert_tensors(self._model, *where)
            found = self._agent.expert(view, layer, slot)
            if not all(np.array_equal(a, b) for a, b in zip(found, self._known[where], strict=True)):
                self.wrong.append(f"epoch {view.placement.epoch}, layer {layer}, slot {slot}: not expert {expert}")
            self.checks += 1


def run_coordinator(pipe: Connection, model: Model, port: int, options: dict[str, Any]) -> None:
    """The coordinator's process."""
    cluster = ClusterConfig(
        port=port,
        token=options.get("token", model.token),
        hang_s=model.hang_s,
        takeover_timeout_s=model.takeover_timeout_s,
        start_timeout_s=options.get("start_timeout_s", 20.0),
        stuck_deadline_s=options.get("stuck_deadline_s", 30.0),
        layers_per_step=options.get("layers_per_step", 1),
    )
    evicted: list[Evicted] = []
    config = RebalancerConfig(cluster=cluster, recovery=RecoveryPolicy(retries=1, retry_after_s=0.05))
    topology = Topology.uniform(len(model.slots_per_rank), slots_per_rank=model.slots_per_rank)
    with Rebalancer(topology, config, on_evicted=evicted.append, fail_at=options.get("fail_at")) as rebalancer:
        pipe.send(rebalancer.address[1])
        try:
            while True:
                pipe.send(_obey_coordinator(pipe.recv(), model, rebalancer, evicted))
        except EOFError:
            pass


def _obey_coordinator(command: Any, model: Model, rebalancer: Rebalancer, evicted: list[Evicted]) -> Any:
    match command:
        case "ready":
            rebalancer.wait_ready(30)
            return True
        case "state":
            return in_loop(rebalancer, lambda: _state(rebalancer, evicted))
        case ("rebalance", seed):
            record = rebalancer.rebalance(shuffled(model, seed, rebalancer.live_ranks))
            return {"result": record.result, "reason": record.reason, "epoch": record.epoch, "copies": record.copies}
        case ("begin", seed):
            rebalancer.submit(shuffled(model, seed, rebalancer.live_ranks))
            return True
        case ("remove", rank):
            return rebalancer.remove_rank(rank).result
        case "metrics":
            return rebalancer.metrics.render()
        case ("record", counts):
            rebalancer.record(counts)
            return True
        case "plan":
            return rebalancer.rebalance().result
        case ("evict", rank):
            cluster = rebalancer._cluster
            rebalancer._require_loop().call_soon_threadsafe(cluster.evict, rank, "stuck", "the test says so")
            return True
        case ("order", copies):
            return _order(rebalancer, copies)
        case other:
            raise ValueError(other)


def in_loop(rebalancer: Rebalancer, look: Callable[[], Any]) -> Any:
    """Look at the cluster where nothing changes meanwhile."""

    async def looked() -> Any:
        return look()

    return asyncio.run_coroutine_threadsafe(looked(), rebalancer._require_loop()).result(30)


def _state(rebalancer: Rebalancer, evicted: list[Evicted]) -> dict[str, Any]:
    table = rebalancer.table
    return {
        "epoch": table.epoch if table else None,
        "digest": table.placement.digest if table else None,
        "missing": table.placement.missing if table else None,
        "slots": table.placement.slots if table else None,
        "live": rebalancer.live_ranks,
        "evicted": [(e.rank, e.reason, e.ended) for e in evicted],
        "events": [(e.at_ns, e.what, e.facts) for e in rebalancer.events.all()],
        "idle": rebalancer._cluster.idle.is_set() and not rebalancer._cluster._jobs,
    }


def _order(rebalancer: Rebalancer, copies: list[tuple[int, int, int, int, list[tuple[int, int]]]]) -> Any:
    """A transaction made by hand: copies as (layer, expert, rank, slot, sources), as no planner would order them."""
    cluster = rebalancer._cluster
    slots = cluster.committed.slots.copy()
    made = []
    for layer, expert, rank, slot, sources in copies:
        slots[layer, rank, slot] = expert
        made.append(Copy(layer, expert, rank, slot, tuple(Source(*source) for source in sources)))
    base = cluster.committed
    target = Placement.of(slots, base.num_experts, slots_per_rank=base.slots_per_rank)

    async def transact() -> Any:
        return await cluster._transact(target, made)

    outcome = rebalancer._order(transact).result(30)
    return {"committed": outcome.committed, "reason": outcome.reason, "stage": outcome.stage}


def shuffled(model: Model, seed: int, live: list[int]) -> Placement:
    """A placement that covers all experts on live ranks, and is otherwise anything."""
    rng = np.random.default_rng(seed)
    width = max(model.slots_per_rank)
    slots = np.full((model.layers, len(model.slots_per_rank), width), -1, np.int32)
    places = [(rank, slot) for rank in live for slot in range(model.slots_per_rank[rank])]
    for layer in range(model.layers):
        experts = [*range(model.experts), *rng.integers(0, model.experts, len(places) - model.experts)]
        for (rank, slot), expert in zip(places, rng.permutation(experts), strict=True):
            slots[layer, rank, slot] = expert
    return Placement.of(slots, model.experts, slots_per_rank=model.slots_per_rank)
