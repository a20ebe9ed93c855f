"""Words that are one token each wherever they stand, so that N of them joined are N tokens.

Most tokenizers cut text into words before they look for tokens, and a space begins a word. A token such as ` word`
is then read back as itself whatever stands before and after it. Which tokens of a vocabulary do so is found by
trying:

1. Candidates are the texts of a sample of the vocabulary; of a server, whose vocabulary is not known, made-up
   syllables. Where too few of them serve, less is asked of them: first letters of ASCII, then any letters, then
   anything printable between spaces, then tokens joined without a space.
2. A candidate is kept if it is one token after itself, which tells its id; it may also *open* a prompt, without the
   space, if it is one token alone. (Prompts that begin with a space are shortened by chat templates that trim.)
3. Kept words are joined at random and encoded. Where the answer differs from what was joined, one of the two words
   there gives way to another; that goes on until nothing differs. For byte-pair encoding a pair of words that
   stays apart by itself stays apart in every context: the first merge across a border needs only its two sides.
"""

from __future__ import annotations

import itertools
import re
import string
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from windtunnel.errors import TokenizerError

if TYPE_CHECKING:
    from windtunnel.workload.tokenizer.base import Tokenizer

Row = NDArray[np.int64]
"""A prompt as places in a pool: the first cell is a place among its openers, the others among its words."""

_SAMPLED = 3072
"""Ids that are looked at: milliseconds, and a thousand words or more in a usual vocabulary."""
_ENOUGH = 64
"""Distinct words at which no less demanding candidates are looked for."""
_TRIED_TOKENS = 4096
_ROW_TOKENS = 128
_TOGETHER, _TOGETHER_REMOTELY = 32, 512
"""Candidates that are tried in one text: few enough that one that is misread costs few others; for a server many."""
_OPENERS, _OPENERS_REMOTELY = 256, 8
"""Words that are tried as openers; each costs a server a round trip."""
_ASCII_LETTERS = re.compile("[A-Za-z]+").fullmatch


class Pool:
    """Openers and words, each with its token id and its text (a word's begins with what joins it, mostly a space).

    Arrays: `opener_ids`, `word_ids` int64; `opener_texts`, `word_texts` of str.
    """

    def __init__(self, openers: dict[int, str], words: dict[int, str]) -> None:
        self.opener_ids = np.fromiter(openers, np.int64, len(openers))
        self.opener_texts = np.array([*openers.values(), None], dtype=object)[:-1]
        self.word_ids = np.fromiter(words, np.int64, len(words))
        self.word_texts = np.array([*words.values(), None], dtype=object)[:-1]

    def num_distinct(self) -> int:
        """How many different words there are; 0 when nothing can open a prompt."""
        return len(set(self.word_ids.tolist())) if len(self.opener_ids) else 0

    def text(self, row: Row) -> str:
        """The prompt's text."""
        return str(self.opener_texts[row[0]]) + "".join(self.word_texts[row[1:]])

    def ids(self, row: Row) -> list[int]:
        """The prompt's token ids."""
        return [int(self.opener_ids[row[0]]), *self.word_ids[row[1:]].tolist()]

    def replace(self, dead: set[int], rng: np.random.Generator) -> None:
        """Put live words in the places of dead ones (`id` for a word, `~id` for an opener), so that rows stay valid.

        Nothing is left to put there: the pool is emptied of that kind.
        """
        self.word_ids, self.word_texts = _replaced(self.word_ids, self.word_texts, dead, rng)
        self.opener_ids, self.opener_texts = _replaced(
            self.opener_ids, self.opener_texts, {~key for key in dead if key < 0}, rng
        )


def _replaced(
    ids: NDArray[np.int64], texts: NDArray[np.object_], dead: set[int], rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.object_]]:
    is_dead = np.isin(ids, list(dead))
    live = np.flatnonzero(~is_dead)
    if not len(live):
        return ids[:0], texts[:0]
    source = np.arange(len(ids))
    source[is_dead] = rng.choice(live, size=int(is_dead.sum()))
    return ids[source], texts[source]


def find_pool(tokenizer: Tokenizer, rng: np.random.Generator) -> Pool:
    """A pool of words of this tokenizer.

    Raises TokenizerError when not a single word serves.
    """
    best = Pool({}, {})
    for joint, candidates in _candidates(tokenizer, rng):
        pool = _keep_single_tokens(tokenizer, candidates, joint)
        _keep_apart(tokenizer, pool, rng)
        if pool.num_distinct() > best.num_distinct() or not len(best.opener_ids):
            best = pool
        if best.num_distinct() >= _ENOUGH:
            break
    if not len(best.opener_ids):
        raise TokenizerError(
            tokenizer.name,
            "no text that is one token was found in its vocabulary",
            "Is it a tokenizer for text? --prompt-token-ids sends ids, which need no text.",
        )
    return best


def mismatches(tokenizer: Tokenizer, pool: Pool, rows: Sequence[Row]) -> tuple[list[int], list[tuple[int, int]]]:
    """Which rows are not read back as they were joined, and the pairs of words that don't stay apart there.

    A pair's members are `id` for a word and `~id` for an opener.
    """
    wrong: list[int] = []
    pairs: list[tuple[int, int]] = []
    answers = tokenizer.encode_batch([pool.text(row) for row in rows])
    for place, (row, got) in enumerate(zip(rows, answers, strict=True)):
        expected = pool.ids(row)
        if got != expected:
            wrong.append(place)
            keys = [~expected[0], *expected[1:]]
            pairs += [(keys[i], keys[min(i + 1, len(keys) - 1)]) for i in _divergences(expected, got)]
    return wrong, pairs


def choose_dead(pairs: Sequence[tuple[int, int]]) -> set[int]:
    """Of each pair one: those first that are in most pairs, so that few words are lost."""
    dead: set[int] = set()
    left = list(pairs)
    while left:
        worst = Counter(itertools.chain.from_iterable(left)).most_common(1)[0][0]
        dead.add(worst)
        left = [pair for pair in left if worst not in pair]
    return dead


def _divergences(expected: list[int], got: list[int]) -> Iterator[int]:
    """Places in `expected` at which `got` leaves it; after each, the two are laid beside each other anew."""
    i = j = 0
    while i < len(expected):
        if j < len(got) and expected[i] == got[j]:
            i, j = i + 1, j + 1
            continue
        yield i
        for skipped, passed in itertools.product(range(1, 9), repeat=2):
            ahead = expected[i + skipped : i + skipped + 4]
            if ahead and ahead == got[j + passed : j + passed + 4]:
                i, j = i + skipped, j + passed
                break
        else:
            return


def _candidates(tokenizer: Tokenizer, rng: np.random.Generator) -> Iterator[tuple[str, list[str]]]:
    """What joins words, and texts that may be words; the more wanted ones first."""
    if tokenizer.vocab_size is None:
        yield " ", _syllables(rng)
        yield "", [*string.ascii_letters, *string.digits]
        return
    num = min(tokenizer.vocab_size, _SAMPLED)
    sampled = rng.choice(tokenizer.vocab_size, size=num, replace=False).tolist()
    texts = tokenizer.decode_batch([[i] for i in sampled if i not in tokenizer.special_ids])
    bare = list(dict.fromkeys(text.strip() for text in texts))
    tests: list[Callable[[str], object]] = [_ASCII_LETTERS, str.isalpha, _is_plain]
    for test in tests:
        yield " ", [text for text in bare if test(text)]
    yield "", [text for text in dict.fromkeys(texts) if _is_plain(text)]


def _is_plain(text: str) -> bool:
    """Printable, with no space within, and no character that stands for broken bytes."""
    return bool(text) and text.isprintable() and " " not in text and "\N{REPLACEMENT CHARACTER}" not in text


def _syllables(rng: np.random.Generator) -> list[str]:
    consonants, vowels = "bcdfghjklmnpqrstvwxyz", "aeiou"
    short = [*consonants, *vowels, *map("".join, itertools.product(consonants, vowels))]
    short += map("".join, itertools.product(vowels, consonants))
    long = list(map("".join, itertools.product(consonants, vowels, consonants)))
    return short + [long[i] for i in rng.choice(len(long), size=1024, replace=False)]


def _keep_single_tokens(tokenizer: Tokenizer, texts: list[str], joint: str) -> Pool:
    """Those that are one token after another; and, as openers, those that are one token alone."""
    remote = tokenizer.vocab_size is None
    together = _TOGETHER_REMOTELY if remote else _TOGETHER if joint else 1
    groups = [texts[start : start + together] for start in range(0, len(texts), together)]
    answers = tokenizer.encode_batch([_thrice(group, joint) for group in groups])
    words: dict[int, str] = {}
    for group, ids in zip(groups, answers, strict=True):
        words.update(_singles(group, ids))
    words = {i: text for i, text in words.items() if i not in tokenizer.special_ids}
    num_openers = _OPENERS_REMOTELY if remote else _OPENERS
    may_open = list(words.values()) or texts  # that nothing follows another is no matter where prompts have one token
    may_open = may_open[:: len(may_open) // num_openers + 1]
    openers = _alone(tokenizer, may_open) or _alone(tokenizer, [joint + text for text in may_open])
    return Pool(openers, {i: joint + text for i, text in words.items()})


def _alone(tokenizer: Tokenizer, texts: list[str]) -> dict[int, str]:
    answers = tokenizer.encode_batch(texts)
    found = {ids[0]: text for text, ids in zip(texts, answers, strict=True) if len(ids) == 1}
    return {i: text for i, text in found.items() if i not in tokenizer.special_ids}


def _thrice(texts: list[str], joint: str) -> str:
    """Each text three times; the first once more, since a text's first word may be read otherwise."""
    return joint.join([texts[0], *itertools.chain.from_iterable((text,) * 3 for text in texts)])


def _singles(texts: list[str], ids: list[int]) -> dict[int, str]:
    """Which of the texts that stand three times over are one token; read from the end.

    From there each text is the shortest run of ids that stands three times in a row.
    """
    found: dict[int, str] = {}
    end = len(ids)
    for text in reversed(texts):
        for length in range(1, min(end // 3, 4 * len(text) + 2) + 1):
            run = ids[end - length : end]
            if ids[end - 2 * length : end - length] == run == ids[end - 3 * length : end - 2 * length]:
                break
        else:
            break
        end -= 3 * length
        if length == 1:
            found[ids[end]] = text
    return found


def _keep_apart(tokenizer: Tokenizer, pool: Pool, rng: np.random.Generator) -> None:
    """Replace words that merge with their neighbours, until random rows are read back as they were joined."""
    remote = tokenizer.vocab_size is None
    while len(pool.word_ids) and len(pool.opener_ids):
        num_words = len(pool.word_ids)
        num_tokens = max(2 * num_words, min(2 * num_words**2, _TRIED_TOKENS))
        num_rows = 1 if remote else -(-num_tokens // _ROW_TOKENS)
        cells = rng.integers(0, num_words, size=(num_rows, num_tokens // num_rows + 1))
        cells[:, 0] = rng.integers(0, len(pool.opener_ids), size=num_rows)
        _, pairs = mismatches(tokenizer, pool, list(cells))
        if not pairs:
            return
        pool.replace(choose_dead(pairs), rng)
