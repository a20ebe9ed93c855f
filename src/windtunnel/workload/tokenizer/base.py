"""What every tokenizer can do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

Messages = list[dict[str, Any]]
"""A conversation as OpenAI's chat API has it."""


class Tokenizer(Protocol):
    """Text ⇄ token ids. `special` adds what the server adds to a text prompt, such as a begin-of-sequence token."""

    @property
    def name(self) -> str:
        """What it is called in messages and results."""

    @property
    def vocab_size(self) -> int | None:
        """The ids below it are tokens; None: not known, and each call is a round trip (a server)."""

    @property
    def num_special(self) -> int:
        """How many tokens the server adds to a text prompt."""

    @property
    def special_ids(self) -> frozenset[int]:
        """Ids that stand for no text and must not be in a random prompt."""

    def encode(self, text: str, special: bool = False) -> list[int]:
        """The text's token ids."""

    def encode_batch(self, texts: Sequence[str], special: bool = False) -> list[list[int]]:
        """The token ids of each text."""

    def count(self, text: str, special: bool = False) -> int:
        """How many tokens the text is."""

    def decode(self, ids: Sequence[int]) -> str:
        """The ids' text."""

    def decode_batch(self, sequences: Sequence[Sequence[int]]) -> list[str]:
        """The text of each sequence of ids."""

    def apply_chat_template(self, messages: Messages, kwargs: dict[str, Any] | None = None) -> str:
        """The conversation as the model reads it, up to where its answer begins.

        Raises TokenizerError when there is no template, or it doesn't take these messages.
        """
