"""An expert rank: a process that holds experts in slots, computes with them, and lets eplb move them."""

from __future__ import annotations

import signal
import socket
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from windtunnel.engine.moe.config import ModelConfig
from windtunnel.engine.moe.frames import Answer, Frames, Kind, Status, Work, answer_frame, frame, work_of
from windtunnel.engine.moe.model import expert_output
from windtunnel.engine.moe.weights import EXPERT_TENSORS, expert_name, expert_shapes
from windtunnel.eplb.agent import AgentConfig, RankAgent
from windtunnel.eplb.faults import FailAt
from windtunnel.eplb.store import ExpertStore, allocate_tensors
from windtunnel.eplb.transaction.instructions import View
from windtunnel.eplb.transport import make_transport
from windtunnel.eplb.weights import SafetensorsWeights
from windtunnel.errors import StaleEpoch
from windtunnel.units import NS_PER_S

_RECEIVE_BYTES = 1 << 20


@dataclass(frozen=True)
class RankConfig:
    """What a rank's process has to know."""

    rank: int
    model: ModelConfig
    folder: Path
    """The model's files."""
    contents: NDArray[np.int64]
    """[layers, slots]: the expert in each slot at the start, -1 for none."""
    transport: str
    """`shm` or `nixl`."""
    agent: AgentConfig


def serve(config: RankConfig, connection: socket.socket) -> None:
    """Be a rank until the front closes its end of `connection`."""
    for number in (signal.SIGINT, signal.SIGTERM):  # all processes may get them; the front ends its requests first
        signal.signal(number, signal.SIG_IGN)
    memory = make_transport(config.transport, f"rank {config.rank}")
    shapes = [(shape, np.int8) for shape in expert_shapes(config.model)]
    num_layers, num_slots = config.contents.shape
    tensors = allocate_tensors(memory, [shapes] * num_layers, num_slots)
    weights = SafetensorsWeights(
        config.folder, lambda layer, expert: [expert_name(layer, expert, t) for t in EXPERT_TENSORS]
    )
    _load(config, tensors, weights)
    store = ExpertStore(tensors)
    agent = RankAgent(
        config.rank, store, memory, config.contents, config.model.num_experts, config.agent, weights=weights
    )
    with connection, agent:
        agent.wait_serving()
        connection.sendall(frame(Kind.READY))
        _Server(config.rank, agent, connection).run()


def _load(config: RankConfig, tensors: list[list[NDArray[np.int8]]], weights: SafetensorsWeights) -> None:
    shapes = expert_shapes(config.model)
    sizes = [shape[0] * shape[1] for shape in shapes]
    group = np.empty(sum(sizes), np.uint8)
    for (layer, slot), expert in np.ndenumerate(config.contents):
        if expert >= 0:
            weights.read(layer, int(expert), group)
            for part, flat, shape in zip(
                tensors[layer], np.split(group.view(np.int8), [sizes[0]]), shapes, strict=True
            ):
                part[slot] = flat.reshape(shape)


class _Server:
    """Answers the front, one piece of work after the other."""

    def __init__(self, rank: int, agent: RankAgent, connection: socket.socket) -> None:
        self._rank = rank
        self._agent = agent
        self._connection = connection
        self._delay_ns = 0

    def run(self) -> None:
        """Until the front is gone."""
        frames = Frames()
        while data := self._receive():
            for kind, body in frames.feed(data):
                if kind == Kind.WORK:
                    self._connection.sendall(answer_frame(self._answer(work_of(body))))
                elif kind == Kind.SLOW:
                    self._delay_ns = int.from_bytes(body, "little")
                elif kind == Kind.FAIL_AT:
                    transition, how, occurrence = body.decode().split("\n")
                    self._agent.fail_at(FailAt(transition, how, int(occurrence)))  # type: ignore[arg-type]

    def _receive(self) -> bytes:
        try:
            return self._connection.recv(_RECEIVE_BYTES)
        except ConnectionError:
            return b""

    def _answer(self, work: Work) -> Answer:
        if self._delay_ns:
            time.sleep(self._delay_ns / NS_PER_S)
        nothing = np.empty((0, 0), np.int8)
        try:
            with self._agent.reading(work.epoch) as view:
                if not np.array_equal(view.placement.slots[work.layer, self._rank][work.slots], work.experts):
                    return Answer(work.number, Status.ELSEWHERE, nothing)
                return Answer(work.number, Status.DONE, self._computed(view, work))
        except StaleEpoch:
            return Answer(work.number, Status.STALE, nothing)

    def _computed(self, view: View, work: Work) -> NDArray[np.int8]:
        outputs = np.empty_like(work.activations)
        slots, starts = np.unique(work.slots, return_index=True)
        for slot, start, end in zip(slots, starts, [*starts[1:], len(work.slots)], strict=True):
            up, down = (part.astype(np.float32) for part in self._agent.expert(view, work.layer, int(slot)))
            outputs[start:end] = expert_output(work.activations[start:end].astype(np.float32), up, down)
        return outputs
