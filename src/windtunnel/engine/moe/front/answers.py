"""Answers as JSON: chunks of a stream and whole answers, as OpenAI's API has them and vLLM writes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from tokenizers import Tokenizer

from windtunnel.engine.moe.front.asked import Asked
from windtunnel.engine.moe.scheduler import Chosen, Generation
from windtunnel.wire.http1 import write_chunk

_NO_LOGPROB = -9999.0
"""In place of minus infinity, which JSON does not have."""


class AnswerWriter:
    """Writes the answer to one request."""

    def __init__(self, asked: Asked, model: str, answer_id: str, created_s: int, tokenizer: Tokenizer) -> None:
        self._asked = asked
        self._tokenizer = tokenizer
        chat = asked.dialect == "chat"
        self._is_chat = chat
        self._head = {"id": answer_id, "object": "", "created": created_s, "model": model}
        self._chunk_kind = "chat.completion.chunk" if chat else "text_completion"
        self._whole_kind = "chat.completion" if chat else "text_completion"
        self._offsets = [0] * (len(asked.prompts) * asked.num_choices)
        """Characters of each choice so far."""

    # --- streams --------------------------------------------------------------------------------------------------

    def roles(self) -> bytes:
        """A chat's first events: who speaks. Nothing for completions."""
        if not self._is_chat:
            return b""
        choices = range(self._asked.num_choices)
        return b"".join(
            self._event([{"index": index, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}])
            for index in choices
        )

    def token(self, index: int, chosen: Chosen, usage: dict[str, Any] | None) -> bytes:
        """The event of one token of a choice."""
        choice: dict[str, Any] = {"index": index}
        if self._is_chat:
            choice["delta"] = {"content": chosen.text}
        else:
            choice["text"] = chosen.text
        choice["logprobs"] = self._logprobs(index, [chosen])
        choice["finish_reason"] = chosen.finish_reason
        if chosen.finish_reason is not None:
            choice["stop_reason"] = chosen.stop_reason
        if self._asked.token_ids:
            choice["token_ids"] = [chosen.token]
        return self._event([choice], usage)

    def usage(self, usage: dict[str, Any]) -> bytes:
        """The event of what the answer has cost."""
        return self._event([], usage)

    def _event(self, choices: list[dict[str, Any]], usage: dict[str, Any] | None = None) -> bytes:
        document = {**self._head, "object": self._chunk_kind, "choices": choices}
        if usage is not None:
            document["usage"] = usage
        return event(msgspec.json.encode(document))

    # --- whole answers --------------------------------------------------------------------------------------------

    def whole(self, choices: Sequence[Sequence[Chosen]], usage: dict[str, Any]) -> bytes:
        """All of an answer: of each choice its tokens."""
        document = {**self._head, "object": self._whole_kind}
        document["choices"] = [self._choice(index, tokens) for index, tokens in enumerate(choices)]
        return msgspec.json.encode({**document, "usage": usage})

    def _choice(self, index: int, tokens: Sequence[Chosen]) -> dict[str, Any]:
        text = "".join(chosen.text for chosen in tokens)
        choice: dict[str, Any] = {"index": index}
        if self._is_chat:
            choice["message"] = {"role": "assistant", "content": text}
        else:
            choice["text"] = text
        choice["logprobs"] = self._logprobs(index, tokens)
        choice["finish_reason"], choice["stop_reason"] = tokens[-1].finish_reason, tokens[-1].stop_reason
        if self._asked.token_ids:
            choice["token_ids"] = [chosen.token for chosen in tokens]
        return choice

    # --- logarithms -----------------------------------------------------------------------------------------------

    def _logprobs(self, index: int, tokens: Sequence[Chosen]) -> dict[str, Any] | None:
        if self._asked.sampling.logprobs is None:
            return None
        if self._is_chat:
            return {"content": [self._chat_entry(chosen) for chosen in tokens]}
        entries = []
        for chosen in tokens:
            entries.append((self._offsets[index], chosen))
            self._offsets[index] += len(chosen.text)
        return {
            "text_offset": [offset for offset, _ in entries],
            "token_logprobs": [_finite(chosen.logprob) for _, chosen in entries],
            "tokens": [self._text(chosen.token) for _, chosen in entries],
            "top_logprobs": [
                {self._text(token): _finite(logprob) for token, logprob in self._with_itself(chosen)}
                for _, chosen in entries
            ],
        }

    @staticmethod
    def _with_itself(chosen: Chosen) -> list[tuple[int, float]]:
        """The likeliest tokens, and the one that was chosen."""
        top = list(chosen.top_logprobs)
        if chosen.logprob is not None and chosen.token not in (token for token, _ in top):
            top.append((chosen.token, chosen.logprob))
        return top

    def _chat_entry(self, chosen: Chosen) -> dict[str, Any]:
        top = [self._named(token, logprob) for token, logprob in chosen.top_logprobs]
        return {**self._named(chosen.token, chosen.logprob), "top_logprobs": top}

    def _named(self, token: int, logprob: float | None) -> dict[str, Any]:
        text = self._text(token)
        return {"token": text, "logprob": _finite(logprob), "bytes": list(text.encode())}

    def _text(self, token: int) -> str:
        text: str = self._tokenizer.decode([token], skip_special_tokens=False)
        return text


def event(data: bytes) -> bytes:
    """A server-sent event as a chunk of a body."""
    return write_chunk(b"data: " + data + b"\n\n")


def usage_of(generations: Sequence[Generation], num_choices: int, num_tokens: int) -> dict[str, Any]:
    """What a request has cost so far: the prompts once, however many answers each has, and `num_tokens` answered."""
    prompts = [generation for at, generation in enumerate(generations) if at % num_choices == 0]
    prompt_tokens = sum(len(generation.prompt) for generation in prompts)
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": num_tokens,
        "total_tokens": prompt_tokens + num_tokens,
        "prompt_tokens_details": {"cached_tokens": sum(generation.num_cached for generation in prompts)},
    }


def _finite(logprob: float | None) -> float | None:
    return logprob if logprob is None else max(logprob, _NO_LOGPROB)
