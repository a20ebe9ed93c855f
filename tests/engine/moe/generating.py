"""A model whose experts are computed in place, for tests: prompts in, greedy tokens out, in any batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from windtunnel.engine.moe.arithmetic import Integers
from windtunnel.engine.moe.config import CONFIGS, ModelConfig
from windtunnel.engine.moe.kv import KvCache, blocks_for
from windtunnel.engine.moe.model import Model, Span, expert_output
from windtunnel.engine.moe.tokenizer import forbidden_tokens, make_tokenizer
from windtunnel.engine.moe.weights import dense_tensors, expert_tensors

CONFIG = replace(CONFIGS["tiny"], num_layers=2, max_context=512)
NEVER = forbidden_tokens(make_tokenizer(CONFIG.vocabulary_size))


def model_of(config: ModelConfig = CONFIG) -> Model:
    weights = {name: values.astype(np.float32) for name, values in dense_tensors(config).items()}
    return Model(config, weights, np.intersect1d(NEVER, np.arange(config.vocabulary_size)))


class LocalExperts:
    """All experts of a model, in this process."""

    def __init__(self, config: ModelConfig = CONFIG) -> None:
        self.calls: list[tuple[int, int]] = []
        self._experts = [
            [[values.astype(np.float32) for values in expert_tensors(config, layer, expert).values()]
             for expert in range(config.num_experts)]
            for layer in range(config.num_layers)
        ]  # fmt: skip

    def __call__(self, layer: int, activations: Integers, chosen: NDArray[np.intp]) -> Integers:
        outputs = np.empty((*chosen.shape, activations.shape[1]), np.float32)
        for expert in np.unique(chosen):
            rows, places = np.nonzero(chosen == expert)
            outputs[rows, places] = expert_output(activations[rows], *self._experts[layer][expert])
            self.calls.append((layer, int(expert)))
        return outputs


def prompts(count: int, most: int = 60, seed: int = 0) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [rng.integers(0, CONFIG.vocabulary_size, rng.integers(1, most + 1)).tolist() for _ in range(count)]


def pieces(tokens: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    for start in range(0, len(tokens), size):
        yield tokens[start : start + size]


def generated(
    model: Model,
    experts: LocalExperts,
    asked: Sequence[Sequence[int]],
    num_tokens: int,
    *,
    batch: int,
    chunk: int = 512,
) -> list[list[int]]:
    """Greedy tokens for each prompt, `batch` of them at a time, prompts cut into chunks; blocks come in disorder."""
    cache = KvCache(model.config, 256)
    answers: list[list[int]] = []
    for group in pieces(asked, batch):
        tables = [(cache.take(blocks_for(len(prompt) + num_tokens)) or [])[::-1] for prompt in group]
        made: list[list[int]] = [[] for _ in group]
        for prompt, table, answer in zip(group, tables, made, strict=True):
            start = 0
            for piece in pieces(prompt, chunk):
                logits = model.step(cache, [Span(piece, start, table)], experts)
                start += len(piece)
            answer.append(int(logits[0].argmax()))
        for _ in range(num_tokens - 1):
            spans = [
                Span(answer[-1:], len(prompt) + len(answer) - 1, table)
                for prompt, table, answer in zip(group, tables, made, strict=True)
            ]
            for answer, row in zip(made, model.step(cache, spans, experts), strict=True):
                answer.append(int(row.argmax()))
        answers += made
        for table in tables:
            cache.give_back(table)
    return answers
