"""The model: tokens of several sequences in, logits out. What experts do is somebody else's: `ApplyExperts`.

A step takes a *span* of new tokens of each sequence in the batch, one or many: prompts and single tokens go through
together. Shapes: n is the number of tokens of all spans, in their order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import log2, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from windtunnel.engine.moe.arithmetic import (
    GATE_ONE,
    MOST_ACTIVATION,
    MOST_RESIDUAL,
    MOST_WEIGHT,
    Integers,
    chosen_experts,
    exponentials,
    normalized,
    requantized,
    rotary_tables,
    rotated,
    silu,
)
from windtunnel.engine.moe.config import ModelConfig
from windtunnel.engine.moe.kv import BLOCK_TOKENS, KvCache, blocks_for

ApplyExperts = Callable[[int, Integers, NDArray[np.intp]], Integers]
"""(layer, activations [n, hidden], chosen experts [n, top_k]) → each one's activations [n, top_k, hidden]."""

_ATTENTION_ONE = 1 << 12
"""Shares of attention are integers that add up to about this; times values and contexts it stays exact in float32."""
_TYPICAL_ACTIVATION = 32
_TYPICAL_WEIGHT = sqrt(MOST_WEIGHT * (MOST_WEIGHT + 1) / 3)


class Span(NamedTuple):
    """New tokens of a sequence."""

    tokens: Sequence[int]
    start: int
    """Position of the first."""
    blocks: Sequence[int]
    """The sequence's blocks in the KV cache, with room for these tokens."""


def shift_of(inner_size: int) -> int:
    """Brings a product's sums back to the size of activations."""
    return round(log2(sqrt(inner_size) * _TYPICAL_WEIGHT))


def expert_output(activations: Integers, up: Integers, down: Integers) -> Integers:
    """What an expert makes of [n, hidden]: down(silu(gate) · up), activations again."""
    inner = requantized(activations @ up, shift_of(up.shape[0]))
    size = down.shape[0]
    gated = requantized(silu(inner[:, :size]) * inner[:, size:], 6)
    return requantized(gated @ down, shift_of(size) - 1)


class Model:
    """The dense part of a model and its step."""

    def __init__(
        self, config: ModelConfig, weights: dict[str, NDArray[np.float32]], forbidden: NDArray[np.intp]
    ) -> None:
        """`forbidden`: tokens that are never answered."""
        self.config = config
        self._weights = weights
        self._cosines, self._sines = rotary_tables(config.max_context, config.head_size)
        self._gain = np.full(config.hidden_size, 64.0, np.float32)
        self._head_bias = np.zeros(config.vocabulary_size, np.float32)
        self._head_bias[forbidden] = -np.inf
        self._score_shift = max(0, round(log2(sqrt(config.head_size) * _TYPICAL_ACTIVATION**2 / 16 / 1.5)))

    def step(self, cache: KvCache, spans: Sequence[Span], apply_experts: ApplyExperts) -> Integers:
        """Logits [spans, vocabulary] after each span's last token; -inf for tokens that are never answered."""
        tokens = np.concatenate([np.asarray(span.tokens, np.intp) for span in spans])
        positions = np.concatenate([np.arange(span.start, span.start + len(span.tokens)) for span in spans])
        blocks = np.concatenate([np.asarray(span.blocks, np.intp)[_within(span) // BLOCK_TOKENS] for span in spans])
        offsets = positions % BLOCK_TOKENS
        rotary = self._cosines[positions][:, None], self._sines[positions][:, None]
        residual = self._weights["embedding"][tokens]
        for layer in range(self.config.num_layers):
            activations = normalized(residual, self._gain)
            queries, keys, values = self._projected(layer, activations, rotary)
            cache.keys[layer, blocks, offsets] = keys
            cache.values[layer, blocks, offsets] = values
            attended = self._attend(cache, layer, queries, spans)
            residual += requantized(attended @ self._weight(layer, "out"), shift_of(self.config.hidden_size))
            residual += self._experts(layer, normalized(residual, self._gain), apply_experts)
            np.clip(residual, -MOST_RESIDUAL, MOST_RESIDUAL, out=residual)
        last = np.cumsum([len(span.tokens) for span in spans]) - 1
        logits: Integers = normalized(residual[last], self._gain) @ self._weights["head"] + self._head_bias
        return logits

    def _weight(self, layer: int, name: str) -> Integers:
        return self._weights[f"layers.{layer}.{name}"]

    def _projected(
        self, layer: int, activations: Integers, rotary: tuple[Integers, Integers]
    ) -> tuple[Integers, Integers, Integers]:
        """Queries, keys and values [n, heads, head size]; the first two rotated."""
        config = self.config
        joined = requantized(activations @ self._weight(layer, "qkv"), shift_of(config.hidden_size))
        queries, keys, values = joined.reshape(-1, 3, config.num_heads, config.head_size).swapaxes(0, 1)
        return rotated(queries, *rotary), rotated(keys, *rotary), values

    def _experts(self, layer: int, activations: Integers, apply_experts: ApplyExperts) -> Integers:
        """The routed experts' outputs by their shares, and the shared expert's."""
        logits = activations @ self._weight(layer, "router") + self._weight(layer, "router_bias")
        chosen, shares = chosen_experts(logits, self.config.top_k)
        outputs = apply_experts(layer, activations, chosen)
        mixed = requantized(np.einsum("nk,nkh->nh", shares, outputs), GATE_ONE.bit_length() - 1)
        if self.config.shared_size:
            mixed += expert_output(activations, self._weight(layer, "shared.up"), self._weight(layer, "shared.down"))
        return mixed

    def _attend(self, cache: KvCache, layer: int, queries: Integers, spans: Sequence[Span]) -> Integers:
        """Attention [n, hidden]. Spans of one token go together, longer ones each by itself."""
        result = np.empty((len(queries), self.config.hidden_size), np.float32)
        single: list[int] = []
        singles: list[Span] = []
        first = 0
        for span in spans:
            if len(span.tokens) == 1:
                single.append(first)
                singles.append(span)
            else:
                rows = slice(first, first + len(span.tokens))
                result[rows] = self._attend_span(cache, layer, queries[rows], span)
            first += len(span.tokens)
        if single:
            result[single] = self._attend_singles(cache, layer, queries[single], singles)
        return result

    def _attend_span(self, cache: KvCache, layer: int, queries: Integers, span: Span) -> Integers:
        num_keys = span.start + len(span.tokens)
        blocks = list(span.blocks[: blocks_for(num_keys)])
        keys = _joined(cache.keys[layer, blocks])[:num_keys].transpose(1, 2, 0)  # heads, size, keys
        values = _joined(cache.values[layer, blocks])[:num_keys].transpose(1, 0, 2)
        scores = queries.transpose(1, 0, 2) @ keys  # heads, tokens, keys
        hidden = np.arange(num_keys) > (span.start + np.arange(len(span.tokens)))[:, None]
        scores[:, hidden] = -np.inf
        attended = requantized(self._shares(scores) @ values, _ATTENTION_ONE.bit_length() - 1)
        return attended.transpose(1, 0, 2).reshape(len(span.tokens), -1)

    def _attend_singles(self, cache: KvCache, layer: int, queries: Integers, spans: Sequence[Span]) -> Integers:
        ends = np.array([span.start + 1 for span in spans])
        num_blocks = blocks_for(int(ends.max()))
        tables = np.zeros((len(spans), num_blocks), np.intp)  # what is beyond a sequence's end is masked
        for row, span in zip(tables, spans, strict=True):
            used = span.blocks[: blocks_for(span.start + 1)]
            row[: len(used)] = used
        keys = _joined(cache.keys[layer][tables]).transpose(0, 2, 1, 3)  # spans, heads, keys, size
        values = _joined(cache.values[layer][tables]).transpose(0, 2, 1, 3)
        scores = (keys @ queries[..., None])[..., 0]  # spans, heads, keys
        hidden = np.arange(num_blocks * BLOCK_TOKENS) >= ends[:, None]
        scores[np.broadcast_to(hidden[:, None], scores.shape)] = -np.inf
        attended = self._shares(scores)[:, :, None] @ values
        return requantized(attended[:, :, 0], _ATTENTION_ONE.bit_length() - 1).reshape(len(spans), -1)

    def _shares(self, scores: Integers) -> Integers:
        """Softmax over the last axis, in 4096ths; -inf gets nothing."""
        weights = exponentials(scores.max(axis=-1, keepdims=True) - scores, self._score_shift)
        weights *= _ATTENTION_ONE / weights.sum(axis=-1, keepdims=True)
        np.rint(weights, out=weights)
        return weights.astype(np.float32)


def _within(span: Span) -> NDArray[np.intp]:
    return np.arange(span.start, span.start + len(span.tokens))


def _joined(blocks: Integers) -> Integers:
    """[…, blocks, tokens, heads, size] → […, tokens, heads, size]."""
    return blocks.reshape(*blocks.shape[:-4], -1, *blocks.shape[-2:])


assert _ATTENTION_ONE * MOST_ACTIVATION < 1 << 24
