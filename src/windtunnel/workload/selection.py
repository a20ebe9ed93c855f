"""Which of a dataset's entries are sent, in what order, and how often: vLLM's rules, with generators of our own."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from windtunnel.workload import seeds
from windtunnel.workload.config import DatasetConfig
from windtunnel.workload.sample import Sample


def order_of(num_entries: int, config: DatasetConfig) -> NDArray[np.int64]:
    """Places of all entries in the order in which they are taken: [num_entries] int64."""
    if not config.shuffle:
        return np.arange(num_entries)
    return seeds.generator(config.seed, seeds.SHUFFLE).permutation(num_entries)


def num_wanted(num_entries: int, config: DatasetConfig) -> int:
    """How many samples are asked for; --num-prompts 0 or below means each entry once."""
    return config.num_prompts if config.num_prompts > 0 else num_entries


def oversample(samples: list[Sample], num: int, config: DatasetConfig) -> list[Sample]:
    """Repeat samples at random where there are fewer than `num`, unless the configuration says not to."""
    missing = num - len(samples)
    if missing <= 0 or not config.oversample:
        return samples
    drawn = seeds.generator(config.seed, seeds.OVERSAMPLE).integers(0, len(samples), size=missing)
    return samples + [samples[i] for i in drawn.tolist()]
