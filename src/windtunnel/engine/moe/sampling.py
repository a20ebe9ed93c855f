"""From logits to a token: the greatest, or one that is drawn."""

from __future__ import annotations

from dataclasses import dataclass
from math import log

import numpy as np
from numpy.typing import NDArray

LOGIT_SCALE = 1 / 512
"""What a step of the model's logits, which are integers, is worth."""


@dataclass(frozen=True)
class Sampling:
    """How tokens are chosen, and when an answer ends."""

    max_tokens: int
    temperature: float = 0.0
    """0: always the greatest logit, the lower token of two."""
    top_p: float = 1.0
    top_k: int = 0
    """0: of all."""
    seed: int | None = None
    ignore_eos: bool = False
    min_tokens: int = 0
    stop: tuple[str, ...] = ()
    include_stop: bool = False
    """The stop string stays in the text."""
    logprobs: int | None = None
    """So many alternatives to each token with their logarithms."""


def log_probabilities(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    """Of each token [vocabulary], at temperature 1."""
    scaled = logits.astype(np.float64) * LOGIT_SCALE
    scaled -= scaled.max()
    with np.errstate(divide="ignore"):
        result: NDArray[np.float64] = scaled - log(np.exp(scaled).sum())
    return result


def choose(logits: NDArray[np.float32], sampling: Sampling, rng: np.random.Generator) -> int:
    """A token for logits [vocabulary]. `rng` is asked once for each token that is drawn."""
    if sampling.temperature <= 0:
        return int(logits.argmax())
    order = np.argsort(-logits, kind="stable")
    scaled = logits[order].astype(np.float64) * (LOGIT_SCALE / sampling.temperature)
    weights = np.exp(scaled - scaled[0])
    if sampling.top_k:
        weights[sampling.top_k :] = 0
    sums = np.cumsum(weights)
    if sampling.top_p < 1:
        kept = int(np.searchsorted(sums, sampling.top_p * sums[-1])) + 1
        sums = sums[:kept]
    drawn = int(np.searchsorted(sums, rng.random() * sums[-1], side="right"))
    return int(order[min(drawn, len(sums) - 1)])
