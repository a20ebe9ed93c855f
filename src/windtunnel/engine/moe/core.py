"""The engine without its front: generations in, tokens out, while experts move and ranks die.

One thread makes the steps: it plans, computes the dense part, has the ranks compute the experts, and chooses tokens.
The coordinator of eplb has a thread of its own, and so has the front. The front's process is the one part whose death
ends service: it holds prompts, answers and KV cache.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from windtunnel.engine.moe.arithmetic import Integers
from windtunnel.engine.moe.config import ModelConfig
from windtunnel.engine.moe.dispatch import Dispatcher
from windtunnel.engine.moe.fleet import Fleet
from windtunnel.engine.moe.kv import BLOCK_TOKENS, KvCache
from windtunnel.engine.moe.model import Model
from windtunnel.engine.moe.rank import RankConfig
from windtunnel.engine.moe.sampling import Sampling
from windtunnel.engine.moe.scheduler import Chosen, Generation, Scheduler, Work
from windtunnel.engine.moe.tokenizer import forbidden_tokens, read_tokenizer, texts_of
from windtunnel.engine.moe.weights import read_dense, write_model
from windtunnel.eplb.agent import AgentConfig
from windtunnel.eplb.cluster import ClusterConfig, Evicted
from windtunnel.eplb.events import Event, EventLog
from windtunnel.eplb.rebalancer import Rebalancer, RebalancerConfig, RebalanceRecord
from windtunnel.eplb.routing import Routing
from windtunnel.eplb.topology import Topology
from windtunnel.errors import EngineBroken, EngineConfigError, EngineFull, EngineRequestError, WindtunnelError

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

_READY_S = 60.0
_STEPS_PER_RECORD = 16
"""Steps whose counts are one step to eplb: a step has so few tokens here that chance would hide what is uneven."""


@dataclass(frozen=True)
class EngineConfig:
    """What an engine is made of. Raises EngineConfigError, which names the field."""

    model: ModelConfig
    folder: Path
    """Where models' files are kept."""
    ranks: int = 4
    slots_per_rank: int = 6
    transport: Literal["shm", "nixl"] = "shm"
    restart: bool = False
    """Bring a rank back whose process has ended."""
    rebalance_interval_steps: int = 100
    rebalance_threshold: float = 0.95
    """Rebalance where balancedness is below this; 0: only on demand."""
    max_running: int = 256
    max_waiting: int = 1024
    max_step_tokens: int = 512
    kv_tokens: int = 131_072
    hang_s: float = 1.0
    """Silence after which a rank counts as hung."""
    give_up_s: float = 60.0
    """Experts that no rank serves for so long fail the requests that want them."""

    def __post_init__(self) -> None:
        for name in ("ranks", "slots_per_rank", "max_running", "max_waiting", "max_step_tokens"):
            if getattr(self, name) < 1:
                raise EngineConfigError(name, str(getattr(self, name)), "Give at least 1.")
        slots = self.ranks * self.slots_per_rank
        if slots < self.model.num_experts:
            problem = (
                f"{self.ranks} ranks × {self.slots_per_rank} slots are {slots} for {self.model.num_experts} experts"
            )
            raise EngineConfigError("slots_per_rank", problem, "Each expert needs a slot.")
        if self.kv_tokens < self.model.max_context:
            problem = f"{self.kv_tokens} tokens, and a request may have {self.model.max_context}"
            raise EngineConfigError("kv_tokens", problem, "Give at least max_context.")


class Engine:
    """A model that is served. A context manager; `submit` and the rest may be called by any thread."""

    def __init__(
        self,
        config: EngineConfig,
        *,
        on_event: Callable[[Event], None] | None = None,
        registry: CollectorRegistry | None = None,
    ) -> None:
        """`on_event` is told what happens to ranks and experts, by any thread. `registry`: Prometheus', for eplb's
        metrics."""
        self.config = config
        self.events = EventLog("engine", on_event)
        self.failure: BaseException | None = None
        """What has ended the engine's thread, if anything has."""
        self.on_step: Callable[[], object] = lambda: None
        """Called in the engine's thread after each step, when all its tokens are told, and when the thread ends."""
        self.num_steps = 0
        self._dispatcher = Dispatcher(
            config.model.num_layers, config.model.num_experts, give_up_s=config.give_up_s, on_ready=self._rank_is_ready,
            on_lost=self._rank_was_lost,
        )  # fmt: skip
        cluster = ClusterConfig(hang_s=config.hang_s)
        topology = Topology.uniform(config.ranks, config.ranks * config.slots_per_rank)
        rebalancing = RebalancerConfig(
            cluster=cluster,
            interval_steps=max(1, config.rebalance_interval_steps // _STEPS_PER_RECORD),
            threshold=config.rebalance_threshold,
        )
        self.rebalancer = Rebalancer(
            topology, rebalancing, on_publish=self._published, on_evicted=self._evicted, on_event=on_event,
            registry=registry,
        )  # fmt: skip
        self._orders: SimpleQueue[Callable[[], None]] = SimpleQueue()
        """For the scheduler, between steps."""
        self._arriving: deque[Generation] = deque()
        """Those that the scheduler has not been given yet."""
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._begun_ranks: set[int] = set()

    # --- life -----------------------------------------------------------------------------------------------------

    def start(self) -> Engine:
        """Make or find the model, start the ranks, and wait until they serve. Raises WindtunnelError."""
        config = self.config
        warming = threading.Thread(target=self.rebalancer.warm_up, args=(config.model.num_experts,), daemon=True)
        warming.start()  # before anybody is served: compiling would hold up every step
        folder = write_model(config.model, config.folder)
        self.model_folder = folder
        self.rebalancer.start()
        agent = AgentConfig(port=self.rebalancer.address[1])
        places = np.arange(config.ranks * config.slots_per_rank) % config.model.num_experts
        contents = np.tile(places.reshape(config.ranks, 1, -1), (1, config.model.num_layers, 1))
        self.fleet = Fleet(
            [RankConfig(r, config.model, folder, contents[r], config.transport, agent) for r in range(config.ranks)],
            self._dispatcher,
            self.events,
        )
        self.fleet.start()
        self.tokenizer = read_tokenizer(folder)
        self._model = Model(config.model, read_dense(folder), forbidden_tokens(self.tokenizer))
        cache = KvCache(config.model, config.kv_tokens // BLOCK_TOKENS)
        self.scheduler = Scheduler(
            cache, texts_of(self.tokenizer), max_running=config.max_running, max_step_tokens=config.max_step_tokens
        )
        self._thread.start()
        self.rebalancer.wait_ready(_READY_S)
        warming.join()
        return self

    def close(self) -> None:
        """End the ranks. Generations under way are aborted."""
        self._closing.set()
        self._dispatcher.notice()
        if self._thread.is_alive():
            self._thread.join()
        self.rebalancer.close()
        self._dispatcher.close()
        if hasattr(self, "fleet"):
            self.fleet.close()

    def __enter__(self) -> Engine:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- generations ----------------------------------------------------------------------------------------------

    def submit(
        self,
        prompt: list[int],
        sampling: Sampling,
        on_token: Callable[[Chosen], None],
        on_failed: Callable[[WindtunnelError], None],
    ) -> Generation:
        """Begin to answer a prompt. The callbacks are called in the engine's thread; `on_failed` ends the answer.

        Raises EngineRequestError where prompt and answer are no request, EngineFull where too many wait, EngineBroken.
        """
        model = self.config.model
        if not prompt:
            raise EngineRequestError("prompt", "it has no tokens", "Give at least one.")
        if wrong := [token for token in prompt if not 0 <= token < model.vocabulary_size]:
            raise EngineRequestError("prompt", f"token {wrong[0]}", f"Tokens are 0 to {model.vocabulary_size - 1}.")
        if len(prompt) + sampling.max_tokens > model.max_context:
            problem = (
                f"{len(prompt)} tokens and max_tokens {sampling.max_tokens} exceed the context of {model.max_context}"
            )
            raise EngineRequestError("max_tokens", problem, "Shorten the prompt, or ask for fewer tokens.")
        if self.failure is not None:
            raise EngineBroken(f"{type(self.failure).__name__}: {self.failure}")
        if self.num_waiting >= self.config.max_waiting:
            raise EngineFull(self.num_waiting)
        generation = Generation(prompt, sampling, on_token, on_failed)
        self._arriving.append(generation)
        self._order(lambda: self.scheduler.add(self._arriving.popleft()))
        return generation

    def cancel(self, generation: Generation) -> None:
        """Stop answering; its room is free at once."""
        self._order(lambda: self.scheduler.cancel(generation))

    def _order(self, order: Callable[[], None]) -> None:
        self._orders.put(order)
        self._dispatcher.notice()

    @property
    def num_waiting(self) -> int:
        """Generations that have no room yet."""
        return len(self.scheduler.waiting) + len(self._arriving)

    @property
    def num_running(self) -> int:
        """Generations that go through each step."""
        return len(self.scheduler.running)

    # --- ranks ----------------------------------------------------------------------------------------------------

    def rebalance(self) -> Future[RebalanceRecord]:
        """Begin to rebalance, in the background. Raises RanksMissing."""
        return self.rebalancer.submit()

    def _published(self, routing: Routing) -> None:
        self._dispatcher.notice()

    def _evicted(self, evicted: Evicted) -> None:
        table = self.rebalancer.table
        self._dispatcher.evicted(evicted.rank, table.epoch if table else 0)

    def _rank_is_ready(self, rank: int) -> None:
        """In the engine's thread. A rank that came back has empty slots until the next rebalance."""
        self.fleet.became_ready(rank)
        if rank in self._begun_ranks:
            self.rebalancer.submit()
        self._begun_ranks.add(rank)

    def restart_rank(self, rank: int) -> None:
        """Start a rank anew, with empty slots. Raises EngineRequestError where there is no such rank."""
        self.fleet.state(rank)
        self._dispatcher.order(lambda: self.fleet.restart(rank))

    @property
    def num_retried(self) -> int:
        """Pairs of a token and an expert that were sent to a rank again."""
        return self._dispatcher.num_retried

    def _rank_was_lost(self, rank: int) -> None:
        self.fleet.was_lost(rank)
        if self.config.restart and not self._closing.is_set():
            self.fleet.restart(rank)

    # --- the thread -----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._closing.is_set():
                while not self._orders.empty():
                    self._orders.get()()
                planned = self.scheduler.plan()
                self._dispatcher.wait(0 if planned else None)
                if planned:
                    self._step(planned)
        except BaseException as error:
            self.failure = error
            for generation in [*self.scheduler.running, *self.scheduler.waiting]:
                self.scheduler.fail(generation, EngineBroken(f"{type(error).__name__}: {error}"))
            raise
        finally:
            self.on_step()

    def _step(self, planned: list[Work]) -> None:
        try:
            logits = self._model.step(self.scheduler.cache, [work.span for work in planned], self._apply_experts)
        except WindtunnelError as error:
            for work in planned:
                self.scheduler.fail(work.generation, error)
            self.on_step()
            return
        self.scheduler.finish_step(planned, logits)
        self.on_step()
        self.num_steps += 1
        if self.num_steps % _STEPS_PER_RECORD == 0:
            self.rebalancer.record(self._dispatcher.take_counts())
            self.rebalancer.maybe_rebalance()

    def _apply_experts(self, layer: int, activations: Integers, chosen: NDArray[np.intp]) -> Integers:
        return self._dispatcher.apply(self.rebalancer, layer, activations, chosen)
