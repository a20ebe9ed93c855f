"""The `random` dataset: prompts of random words whose tokens the server counts exactly as they were asked for.

Prompts are rows of a pool of words (`word_pool`), whose tokens stay apart wherever they stand. That is then verified on
the prompts themselves. Encoding costs more than all the rest (20,000 prompts of 1,024 tokens: 13 s, against 1.5 s for
making them), so beyond `_VERIFIED_TOKENS` a random part of the prompts stands for all of them. As soon as one of them
is not read back as it was meant, all are encoded, and the words at fault give way to others everywhere, until every
prompt is right. Each round costs the pool at least one word, so the search ends.

Lengths are drawn as vLLM's client draws them: with one --seed, both ask for the same lengths.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from windtunnel.errors import ConfigurationError, TokenizerError
from windtunnel.workload import seeds
from windtunnel.workload.progress import Progress, unheard
from windtunnel.workload.sample import Sample
from windtunnel.workload.word_pool import Pool, Row, choose_dead, find_pool, mismatches

if TYPE_CHECKING:
    from windtunnel.workload.config import DatasetConfig
    from windtunnel.workload.tokenizer.base import Tokenizer

DEFAULT_OUTPUT_LEN = 128
_VERIFIED_TOKENS = 2**18
_VERIFIED_REMOTELY = 8
"""Prompts that a server is asked about, one round trip each."""
_AT_ONCE = 512


def random_samples(
    tokenizer: Tokenizer | None,
    config: DatasetConfig,
    *,
    template_tokens: int = 0,
    on_progress: Progress | None = None,
) -> list[Sample]:
    """Random prompts of exactly the lengths asked for.

    Args:
        tokenizer: the server's.
        config: lengths, prefix, seed, and whether prompts are text or token ids.
        template_tokens: what a chat template adds to each prompt in all, its begin-of-sequence token included; 0: the
            prompt is sent as it is, and the server adds only the tokenizer's special tokens.
        on_progress: told how many prompts are verified, of how many.

    Raises ConfigurationError for lengths that make no sense, TokenizerError when they can't be met.
    """
    if tokenizer is None:
        raise ConfigurationError(
            "--skip-tokenizer-init",
            "random prompts of a given length need a tokenizer",
            "Leave the flag out; --tokenizer server lets the server count. Or give prompts with --dataset-name custom.",
        )
    # a server adds nothing to token ids
    overhead = template_tokens or (0 if config.prompt_token_ids else tokenizer.num_special)
    input_lens, output_lens = draw_lengths(config, overhead)
    asked = zip((input_lens + config.prefix_len + overhead).tolist(), output_lens.tolist(), strict=True)
    make: Callable[..., Sequence[str | list[int]]] = _random_ids if config.prompt_token_ids else _random_texts
    prompts = make(tokenizer, config, input_lens, on_progress or unheard)
    return [Sample(prompt, num_in, num_out) for prompt, (num_in, num_out) in zip(prompts, asked, strict=True)]


def draw_lengths(config: DatasetConfig, overhead: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Input lengths (without prefix and overhead) and output lengths of all prompts: [num_prompts] int64 each.

    Lengths are uniform over whole numbers within ± the range ratio. `overhead` tokens are taken off --random-input-len.

    Raises ConfigurationError, naming the flag.
    """
    output_len = DEFAULT_OUTPUT_LEN if config.output_len is None else config.output_len
    _check(config, output_len)
    content = max(0, config.input_len - overhead)
    low, high = _bounds(content, config.input_range_ratio)
    if low + config.prefix_len < 1:
        taken = f", of which {overhead} are the server's own," if overhead else ""
        raise ConfigurationError(
            "--random-input-len",
            f"{config.input_len} tokens{taken} with a range ratio of {config.input_range_ratio:g} and a prefix of "
            f"{config.prefix_len} leave prompts that may be empty",
            f"Give at least {overhead + 1}, a smaller --random-range-ratio, or a --random-prefix-len.",
        )
    rng = seeds.generator(config.seed, seeds.LENGTHS)
    input_lens = rng.integers(low, high + 1, size=config.num_prompts)
    low, high = _bounds(output_len, config.output_range_ratio)
    return input_lens, rng.integers(max(low, 1), max(high, 1) + 1, size=config.num_prompts)


def _bounds(length: int, ratio: float) -> tuple[int, int]:
    return math.floor(length * (1 - ratio)), math.ceil(length * (1 + ratio))


def _check(config: DatasetConfig, output_len: int) -> None:
    if config.num_prompts < 1:
        raise ConfigurationError("--num-prompts", f"{config.num_prompts} is no number of prompts", "Give 1 or more.")
    for what, ratio in (("input", config.input_range_ratio), ("output", config.output_range_ratio)):
        if not 0 <= ratio < 1:
            problem = f"the {what} range ratio {ratio:g} lies outside [0, 1)"
            raise ConfigurationError("--random-range-ratio", problem, "0.3 draws lengths within ±30 %.")
    lengths = {"input": config.input_len, "output": output_len, "prefix": config.prefix_len}
    for what, length in lengths.items():
        if length < 0:
            raise ConfigurationError(f"--random-{what}-len", f"{length} is negative", "Give a number of tokens.")


def _random_ids(
    tokenizer: Tokenizer, config: DatasetConfig, input_lens: NDArray[np.int64], on_progress: Progress
) -> list[list[int]]:
    """Ids from the whole vocabulary, save special ones; of a server, whose vocabulary is not known, words' ids."""
    if tokenizer.vocab_size is None:
        allowed = np.unique(find_pool(tokenizer, seeds.generator(config.seed, seeds.WORDS)).word_ids)
    else:
        allowed = np.setdiff1d(np.arange(tokenizer.vocab_size), list(tokenizer.special_ids))
    # ids are shared between prompts: 8 bytes a token, not 36
    shared = np.array([*allowed.tolist(), None], dtype=object)
    rows = _draw_rows(config, input_lens, num_words=len(allowed), num_openers=len(allowed))
    prompts = [shared[row].tolist() for row in rows]
    on_progress(len(prompts), len(prompts))
    return prompts


def _random_texts(
    tokenizer: Tokenizer, config: DatasetConfig, input_lens: NDArray[np.int64], on_progress: Progress
) -> list[str]:
    rng = seeds.generator(config.seed, seeds.WORDS)
    pool = find_pool(tokenizer, rng)
    if not len(pool.word_ids):
        if (longest := int(input_lens.max()) + config.prefix_len) > 1:
            raise _impossible(tokenizer, longest)
        pool.word_ids, pool.word_texts = pool.opener_ids, pool.opener_texts  # no prompt has a second token
    rows = _draw_rows(config, input_lens, num_words=len(pool.word_ids), num_openers=len(pool.opener_ids))
    sample = _to_verify(tokenizer, rows, rng)
    if not _all_right(tokenizer, pool, rows, sample, on_progress):
        _mend(tokenizer, pool, rows, rng, on_progress)
    return [pool.text(row) for row in rows]


def _draw_rows(config: DatasetConfig, input_lens: NDArray[np.int64], *, num_words: int, num_openers: int) -> list[Row]:
    """Each prompt as places in a pool: the prefix that all share, then its own words. The first cell is an opener's."""
    prefix_rng = seeds.generator(config.seed, seeds.PREFIX)
    prefix = prefix_rng.integers(0, num_words, size=config.prefix_len, dtype=np.int32)
    prefix[:1] = prefix_rng.integers(0, num_openers, size=len(prefix[:1]))
    rng = seeds.generator(config.seed, seeds.CONTENTS)
    cells = rng.integers(0, num_words, size=int(input_lens.sum()), dtype=np.int32)
    ends = np.cumsum(input_lens)
    if config.prefix_len:
        return [np.concatenate((prefix, row)) for row in np.split(cells, ends[:-1])]
    cells[ends - input_lens] = rng.integers(0, num_openers, size=len(ends))
    return np.split(cells, ends[:-1])


def _to_verify(tokenizer: Tokenizer, rows: Sequence[Row], rng: np.random.Generator) -> list[int]:
    """All prompts, or as many random ones as may be encoded without being felt."""
    order = rng.permutation(len(rows))
    if tokenizer.vocab_size is None:
        return [int(i) for i in order[:_VERIFIED_REMOTELY]]
    lengths = np.array([len(rows[i]) for i in order])
    num = int(np.searchsorted(np.cumsum(lengths), _VERIFIED_TOKENS)) + 1
    return [int(i) for i in order[:num]]


def _all_right(
    tokenizer: Tokenizer, pool: Pool, rows: Sequence[Row], sample: Sequence[int], on_progress: Progress
) -> bool:
    for start in range(0, len(sample), _AT_ONCE):
        wrong, _ = mismatches(tokenizer, pool, [rows[i] for i in sample[start : start + _AT_ONCE]])
        if wrong:
            return False
        on_progress(min(start + _AT_ONCE, len(sample)), len(sample))
    return True


def _mend(
    tokenizer: Tokenizer, pool: Pool, rows: Sequence[Row], rng: np.random.Generator, on_progress: Progress
) -> None:
    """Replace words in the pool, and so in all prompts, until each prompt is read back as it was meant."""
    open_ = list(range(len(rows)))
    while open_:
        wrong: list[int] = []
        pairs: list[tuple[int, int]] = []
        for start in range(0, len(open_), _AT_ONCE):
            part = open_[start : start + _AT_ONCE]
            places, found = mismatches(tokenizer, pool, [rows[i] for i in part])
            wrong += [part[place] for place in places]
            pairs += found
        on_progress(len(rows) - len(wrong), len(rows))
        if not wrong:
            return
        dead = choose_dead(pairs)
        words, openers = _places_of(pool, dead)
        touched = {i for i, row in enumerate(rows) if row[0] in openers or not words.isdisjoint(row[1:].tolist())}
        pool.replace(dead, rng)
        if not len(pool.word_ids) or not len(pool.opener_ids):
            raise _impossible(tokenizer, max(len(rows[i]) for i in wrong))
        open_ = sorted(touched.union(wrong))


def _places_of(pool: Pool, dead: set[int]) -> tuple[set[int], set[int]]:
    words = np.flatnonzero(np.isin(pool.word_ids, list(dead)))
    openers = np.flatnonzero(np.isin(pool.opener_ids, [~key for key in dead]))
    return set(words.tolist()), set(openers.tolist())


def _impossible(tokenizer: Tokenizer, length: int) -> TokenizerError:
    return TokenizerError(
        tokenizer.name,
        f"no text of exactly {length} tokens was found: whatever is joined, tokens merge",
        "--prompt-token-ids sends ids instead of text.",
    )
