"""The KV cache: keys and values of all layers in blocks of tokens, handed out to sequences."""

from __future__ import annotations

import numpy as np

from windtunnel.engine.moe.arithmetic import Integers
from windtunnel.engine.moe.config import ModelConfig

BLOCK_TOKENS = 16


class KvCache:
    """Blocks for `num_blocks * BLOCK_TOKENS` tokens."""

    def __init__(self, config: ModelConfig, num_blocks: int) -> None:
        shape = (config.num_layers, num_blocks, BLOCK_TOKENS, config.num_heads, config.head_size)
        self.keys: Integers = np.zeros(shape, np.float32)
        self.values: Integers = np.zeros(shape, np.float32)
        """Both [layers, blocks, tokens, heads, head size]."""
        self.num_blocks = num_blocks
        self._free = list(range(num_blocks - 1, -1, -1))

    @property
    def num_free(self) -> int:
        """Blocks that no sequence has."""
        return len(self._free)

    def take(self, num_blocks: int) -> list[int] | None:
        """Hand out blocks; None, and none, where there are too few."""
        if num_blocks > len(self._free):
            return None
        return [self._free.pop() for _ in range(num_blocks)]

    def give_back(self, blocks: list[int]) -> None:
        """Take blocks back."""
        self._free += reversed(blocks)


def blocks_for(num_tokens: int) -> int:
    """Blocks that so many tokens take."""
    return -(-num_tokens // BLOCK_TOKENS)
