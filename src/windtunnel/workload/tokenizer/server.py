"""The server as tokenizer: its /tokenize and /detokenize. Each call is a round trip."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from windtunnel.errors import TokenizerError, TokenizeUnavailable

if TYPE_CHECKING:
    from windtunnel.workload.tokenizer.base import Messages

Post = Callable[[str, dict[str, Any]], tuple[int, Any]]
"""Post a JSON body to a path of the server; returns the status and the answer's JSON (or text, where it is none)."""

_ATTEMPTS = 3


class ServerTokenizer:
    """A server's own tokenizer, through `post`, for the model of that name.

    Every method raises TokenizeUnavailable for a 4xx, and TokenizerError for a 5xx that stays or an answer that is not
    understood.
    """

    name = "server"
    vocab_size = None
    special_ids: frozenset[int] = frozenset()

    def __init__(self, model: str, post: Post) -> None:
        self._model = model
        self._post = post

    @cached_property
    def num_special(self) -> int:
        """Learned from the server."""
        return self.count("a", special=True) - self.count("a")

    def encode(self, text: str, special: bool = False) -> list[int]:
        """The text's token ids."""
        body = {"model": self._model, "prompt": text, "add_special_tokens": special}
        ids = self._ask("/tokenize", body, "tokens")
        if not isinstance(ids, list) or not all(isinstance(i, int) for i in ids):
            raise _not_understood("/tokenize", "`tokens` is no list of numbers")
        return ids

    def encode_batch(self, texts: Sequence[str], special: bool = False) -> list[list[int]]:
        """The token ids of each text, one round trip each."""
        return [self.encode(text, special) for text in texts]

    def count(self, text: str, special: bool = False) -> int:
        """How many tokens the text is."""
        return len(self.encode(text, special))

    def decode(self, ids: Sequence[int]) -> str:
        """The ids' text."""
        text = self._ask("/detokenize", {"model": self._model, "tokens": list(ids)}, "prompt")
        if not isinstance(text, str):
            raise _not_understood("/detokenize", "`prompt` is no text")
        return text

    def decode_batch(self, sequences: Sequence[Sequence[int]]) -> list[str]:
        """The text of each sequence, one round trip each."""
        return [self.decode(ids) for ids in sequences]

    def apply_chat_template(self, messages: Messages, kwargs: dict[str, Any] | None = None) -> str:
        """Not possible: servers count a rendered conversation, but don't show it."""
        raise TokenizerError(
            self.name,
            "a server doesn't show what its chat template makes of a conversation",
            "--skip-chat-template sends prompts as they are; or give the model's folder or hub name as --tokenizer.",
        )

    def _ask(self, path: str, body: dict[str, Any], key: str) -> Any:
        for _ in range(_ATTEMPTS):
            status, answer = self._post(path, body)
            if status < 500:
                break
        else:
            raise TokenizerError(
                self.name,
                f"{path} answered HTTP {status}, {_ATTEMPTS} times: {_first_words(answer)}",
                "See the server's log, or give a tokenizer of your own with --tokenizer.",
            )
        if status >= 400:
            raise TokenizeUnavailable(path, f"HTTP {status}: {_first_words(answer)}")
        if status != 200 or not isinstance(answer, dict) or key not in answer:
            raise _not_understood(path, f"HTTP {status} without `{key}`: {_first_words(answer)}")
        return answer[key]


def _not_understood(path: str, problem: str) -> TokenizerError:
    return TokenizerError(
        "server",
        f"{path} doesn't answer as vLLM does: {problem}",
        "Give the model's folder or hub name as --tokenizer.",
    )


def _first_words(answer: Any) -> str:
    text = str(answer)
    return text if len(text) <= 200 else text[:200] + "…"
