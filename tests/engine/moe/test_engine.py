"""A real engine: rank processes that are killed, stopped and started anew, and tokens that do not change."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.engine.moe.generating import CONFIG, LocalExperts, generated, model_of, prompts
from windtunnel.engine.moe.core import Engine, EngineConfig
from windtunnel.engine.moe.sampling import Sampling
from windtunnel.engine.moe.scheduler import Chosen, Generation
from windtunnel.eplb.events import Event
from windtunnel.eplb.faults import FailAt
from windtunnel.eplb.placement import Placement
from windtunnel.eplb.policies import Explanation, Load, incremental
from windtunnel.eplb.topology import Topology
from windtunnel.errors import EngineConfigError, EngineFull, EngineRequestError, ExpertsUnavailable, WindtunnelError

ASKED = prompts(6, most=40)
NUM_TOKENS = 150
SAMPLING = Sampling(max_tokens=NUM_TOKENS, ignore_eos=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def undisturbed(engine_config: EngineConfig) -> list[list[int]]:
    with Engine(engine_config) as engine:
        return Client(engine).answers()


@pytest.fixture(scope="module")
def engine_config(folder: Path) -> EngineConfig:
    # without rebalancing: its policy would be compiled
    return EngineConfig(CONFIG, folder, slots_per_rank=6, rebalance_threshold=0, hang_s=0.5, give_up_s=20)


class Client:
    """Asks an engine for all of ASKED at once."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.num_tokens = 0
        self.errors: list[WindtunnelError] = []
        self._changed = threading.Condition()
        self.generations: list[Generation] = []

    def begin(self) -> None:
        self.generations = [self.engine.submit(prompt, SAMPLING, self._token, self._failed) for prompt in ASKED]

    def _token(self, _: Chosen) -> None:
        with self._changed:
            self.num_tokens += 1
            self._changed.notify_all()

    def _failed(self, error: WindtunnelError) -> None:
        with self._changed:
            self.errors.append(error)
            self._changed.notify_all()

    def wait_for(self, condition: Callable[[], bool], timeout_s: float = 60) -> None:
        with self._changed:
            assert self._changed.wait_for(condition, timeout_s)

    def wait_for_tokens(self, num_tokens: int) -> None:
        self.wait_for(lambda: self.num_tokens >= num_tokens)

    def answers(self) -> list[list[int]]:
        if not self.generations:
            self.begin()
        self.wait_for_tokens(len(ASKED) * NUM_TOKENS)
        assert not self.errors
        return [generation.answer for generation in self.generations]


@pytest.fixture
def engine(engine_config: EngineConfig) -> Iterator[Engine]:
    with Engine(engine_config) as engine:
        yield engine


def test_ranks_compute_what_one_process_computes(undisturbed: list[list[int]]) -> None:
    assert undisturbed == generated(model_of(), LocalExperts(), ASKED, NUM_TOKENS, batch=len(ASKED))


def test_a_rank_that_is_killed_changes_no_token_and_comes_back(engine: Engine, undisturbed: list[list[int]]) -> None:
    client = Client(engine)
    client.begin()
    client.wait_for_tokens(100)
    engine.fleet.kill(1)
    assert client.answers() == undisturbed
    engine.rebalancer.wait_ready()
    assert engine.rebalancer.live_ranks == [0, 2, 3]
    assert engine.fleet.state(1) == "ended"
    engine.restart_rank(1)
    assert Client(engine).answers() == undisturbed


def test_a_rank_that_hangs_changes_no_token_and_rejoins(engine: Engine, undisturbed: list[list[int]]) -> None:
    client = Client(engine)
    client.begin()
    client.wait_for_tokens(100)
    engine.fleet.hang(2)
    assert client.answers() == undisturbed
    assert engine.fleet.state(2) == "stopped"
    assert engine.rebalancer.live_ranks == [0, 1, 3]
    engine.fleet.resume(2)
    assert Client(engine).answers() == undisturbed


def test_a_rank_that_is_slow_changes_no_token(engine: Engine, undisturbed: list[list[int]]) -> None:
    engine.fleet.slow(3, 0.001)
    assert Client(engine).answers() == undisturbed


def test_a_rank_that_dies_while_experts_move_changes_no_token(engine: Engine, undisturbed: list[list[int]]) -> None:
    client = Client(engine)
    client.begin()
    engine.fleet.fail_at(0, FailAt("transferring+copied", "kill"))
    client.wait_for_tokens(50)
    table = engine.rebalancer.table
    assert table is not None
    opposite = table.placement.slots[:, ::-1]  # every rank gets what another one has
    record = engine.rebalancer.submit(Placement.of(opposite, CONFIG.num_experts)).result(60)
    assert record.result == "aborted"
    assert client.answers() == undisturbed
    assert engine.rebalancer.live_ranks == [1, 2, 3]


@pytest.mark.parametrize(
    ("prompt", "sampling", "field"),
    [
        ([], SAMPLING, "prompt"),
        ([1, CONFIG.vocabulary_size], SAMPLING, "prompt"),
        ([1] * 400, SAMPLING, "max_tokens"),
    ],
)
def test_what_is_no_request_is_refused(
    engine_config: EngineConfig, prompt: list[int], sampling: Sampling, field: str
) -> None:
    engine = Engine(engine_config)
    with pytest.raises(EngineRequestError) as caught:
        engine.submit(prompt, sampling, ignore, ignore)
    assert caught.value.field == field
    engine.close()


def ignore(_: object) -> None:
    pass


def test_more_requests_than_may_wait_are_refused(engine_config: EngineConfig) -> None:
    with Engine(replace(engine_config, max_running=1, max_waiting=2)) as engine:
        with pytest.raises(EngineFull):
            for _ in range(10):
                engine.submit([1, 2], SAMPLING, ignore, ignore)
        assert engine.num_waiting <= 2


def test_a_request_whose_experts_nobody_serves_any_more_fails_and_the_next_one_is_answered(
    engine_config: EngineConfig,
) -> None:
    with Engine(replace(engine_config, ranks=2, slots_per_rank=8, give_up_s=0.3)) as engine:
        client = Client(engine)
        client.begin()
        client.wait_for_tokens(20)
        engine.fleet.kill(0)  # 8 slots are left for 16 experts
        client.wait_for(lambda: len(client.errors) == len(ASKED))
        assert {type(error) for error in client.errors} == {ExpertsUnavailable}
        engine.restart_rank(0)
        engine.rebalancer.wait_ready()
        assert Client(engine).answers()


def test_a_rank_that_ends_is_started_again_where_that_is_asked_for(
    engine_config: EngineConfig, undisturbed: list[list[int]]
) -> None:
    with Engine(replace(engine_config, restart=True)) as engine:
        client = Client(engine)
        client.begin()
        client.wait_for_tokens(50)
        pid = engine.fleet.pid(1)
        engine.fleet.kill(1)
        assert client.answers() == undisturbed
        client.wait_for(lambda: engine.fleet.pid(1) != pid and engine.fleet.state(1) == "serving")


def test_a_cancelled_generation_gives_its_blocks_back(engine: Engine) -> None:
    client = Client(engine)
    client.begin()
    client.wait_for_tokens(20)
    for generation in client.generations:
        engine.cancel(generation)
    assert Client(engine).answers()
    assert engine.scheduler.cache.num_available == engine.scheduler.cache.num_blocks


def test_too_few_slots_are_told_before_anything_is_started(folder: Path) -> None:
    with pytest.raises(EngineConfigError, match=r"2 ranks × 7 slots are 14 for 16 experts"):
        EngineConfig(CONFIG, folder, ranks=2, slots_per_rank=7)


def test_a_rank_that_dies_while_a_policy_thinks_is_evicted_at_once(
    engine_config: EngineConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, thinks, may_end, restored = (threading.Event() for _ in range(4))

    def ponderous(load: Load, topology: Topology, committed: Placement, *_: object) -> tuple[Placement, Explanation]:
        if started.is_set():
            thinks.set()
            assert may_end.wait(60)
        return committed, Explanation("ponderous", 1.0, 1.0, 0, 0.0, {})

    def note(event: Event) -> None:
        if event.what == "restored":
            restored.set()

    monkeypatch.setattr(incremental, "plan", ponderous)
    with Engine(engine_config, on_event=note) as engine:
        started.set()
        future = engine.rebalance()
        assert thinks.wait(30)
        engine.fleet.kill(1)
        assert restored.wait(30)
        assert engine.rebalancer.live_ranks == [0, 2, 3]
        assert not future.done()
        may_end.set()
        assert future.result(30).result in ("nothing to do", "committed")
