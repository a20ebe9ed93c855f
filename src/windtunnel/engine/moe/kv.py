"""The KV cache: keys and values of all layers in blocks of tokens, shared by sequences that begin alike.

A full block is known by a digest of its tokens and all tokens before them. When nobody uses it any more it is kept
until its room is needed, so a prompt that begins as an earlier one did finds what was computed (a prefix cache, as
vLLM's).
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence

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
        self._users = [0] * num_blocks
        self._known: dict[bytes, int] = {}
        self._key_of: dict[int, bytes] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()
        """Known blocks without users, the one that was left longest ago first."""

    @property
    def num_available(self) -> int:
        """Blocks that nobody uses."""
        return len(self._free) + len(self._idle)

    def take(self, num_blocks: int) -> list[int] | None:
        """Hand out blocks; None, and none, where there are too few."""
        if num_blocks > self.num_available:
            return None
        taken = [self._free.pop() if self._free else self._forget_idle() for _ in range(num_blocks)]
        for block in taken:
            self._users[block] = 1
        return taken

    def _forget_idle(self) -> int:
        block, _ = self._idle.popitem(last=False)
        del self._known[self._key_of.pop(block)]
        return block

    def give_back(self, blocks: Sequence[int]) -> None:
        """End one use of each block. The last ones of a sequence go first, when room is needed."""
        for block in reversed(blocks):
            self._users[block] -= 1
            if not self._users[block]:
                if block in self._key_of:
                    self._idle[block] = None
                else:
                    self._free.append(block)

    def remember(self, blocks: Sequence[int], index: int, tokens: Sequence[int]) -> None:
        """Make a sequence's block known, once its tokens, and all before them, are computed."""
        before = self._key_of.get(blocks[index - 1]) if index else b""
        key = before is not None and _digest(before, tokens)
        if key and blocks[index] not in self._key_of and key not in self._known:
            self._known[key], self._key_of[blocks[index]] = blocks[index], key

    def take_known(self, tokens: Sequence[int]) -> list[int]:
        """Use the known blocks that `tokens` begin with; at least one token is left to compute."""
        found: list[int] = []
        key = b""
        for start in range(0, len(tokens) - BLOCK_TOKENS, BLOCK_TOKENS):
            key = _digest(key, tokens[start : start + BLOCK_TOKENS])
            if key not in self._known:
                break
            block = self._known[key]
            found.append(block)
            self._users[block] += 1
            self._idle.pop(block, None)
        return found


def _digest(before: bytes, tokens: Sequence[int]) -> bytes:
    return hashlib.blake2b(before + np.asarray(tokens, np.int64).tobytes(), digest_size=16).digest()


def blocks_for(num_tokens: int) -> int:
    """Blocks that so many tokens take."""
    return -(-num_tokens // BLOCK_TOKENS)
