"""The embedded targets' own tokenizer: one word is one token.

A benchmark against an embedded target needs token counts that are exact on both sides, without a file to load and
without a library to import. Both sides make the same vocabulary by the same rule and agree by construction.
"""

from __future__ import annotations

import zlib

_ONSETS = "bdfghjklmnprstvz"
_VOWELS = "aeio"


def _make_words() -> list[str]:
    """All words of two syllables, each an onset and a vowel: 4,096 distinct ones, `baba` to `zozo`."""
    syllables = [onset + vowel for onset in _ONSETS for vowel in _VOWELS]
    return [first + second for first in syllables for second in syllables]


class WordTokenizer:
    """Counts, encodes and decodes text in which whitespace separates the tokens.

    - Every word is one token, whatever its characters. Words of the vocabulary have the id of their place in it;
      any other has an id by a hash that is the same in each process. Decoding such an id gives a word of the
      vocabulary, not the word that went in: lossy in letters, exact in count.
    - `decode` joins words with single spaces, so `encode(decode(ids)) == ids`.
    - Texts joined with a space have the sum of their counts; there are no special tokens.
    """

    def __init__(self) -> None:
        self._words = _make_words()
        self._id_of = {word: index for index, word in enumerate(self._words)}

    @property
    def vocab_size(self) -> int:
        """Ids run from 0 to one below it."""
        return len(self._words)

    def encode(self, text: str) -> list[int]:
        """The ids of the text's words."""
        known = self._id_of
        return [known[word] if word in known else self._hash(word) for word in text.split()]

    def decode(self, ids: list[int]) -> str:
        """The words of these ids, joined by single spaces.

        Raises IndexError for an id that is not in the vocabulary.
        """
        if ids and min(ids) < 0:
            raise IndexError(f"token id {min(ids)} is below 0")
        return " ".join([self._words[index] for index in ids])

    def count(self, text: str) -> int:
        """`len(encode(text))`, without making the ids."""
        return len(text.split())

    def _hash(self, word: str) -> int:
        return zlib.crc32(word.encode("utf-8", "surrogatepass")) % len(self._words)
