"""The embedded target's own tokenizer, behind the interface of the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from windtunnel.workload.tokenizer.chat_template import no_template
from windtunnel.workload.words import WordTokenizer

if TYPE_CHECKING:
    from windtunnel.workload.tokenizer.base import Messages

NAME = "windtunnel-words"


class BuiltinTokenizer:
    """One word, one token."""

    name = NAME
    num_special = 0
    special_ids: frozenset[int] = frozenset()

    def __init__(self) -> None:
        self._words = WordTokenizer()
        self.vocab_size = self._words.vocab_size

    def encode(self, text: str, special: bool = False) -> list[int]:
        """The text's token ids."""
        return self._words.encode(text)

    def encode_batch(self, texts: Sequence[str], special: bool = False) -> list[list[int]]:
        """The token ids of each text."""
        return [self._words.encode(text) for text in texts]

    def count(self, text: str, special: bool = False) -> int:
        """How many words the text is."""
        return len(self._words.encode(text))

    def decode(self, ids: Sequence[int]) -> str:
        """The ids' text."""
        return self._words.decode(list(ids))

    def decode_batch(self, sequences: Sequence[Sequence[int]]) -> list[str]:
        """The text of each sequence."""
        return [self._words.decode(list(ids)) for ids in sequences]

    def apply_chat_template(self, messages: Messages, kwargs: dict[str, Any] | None = None) -> str:
        """Not possible: it has none."""
        raise no_template(self.name)
