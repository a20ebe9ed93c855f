"""What a client asks for: the bodies of its requests, read and checked."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from windtunnel.engine.bodies import (
    BadRequest,
    DetokenizeBody,
    GenerationBody,
    Message,
    StreamOptions,
    TokenizeBody,
    decode,
)
from windtunnel.wire.openai import Dialect
from windtunnel.workload.words import WordTokenizer

_DEFAULT_OUTPUT_TOKENS = 16


class Asked(Struct, frozen=True):
    """One generation, as far as a server that makes its tokens up has to know it."""

    dialect: Dialect
    model: str
    prompt_tokens: int
    output_tokens: int
    stream: bool
    usage: bool
    """Usage at the stream's end."""
    usage_each: bool
    """Usage in each chunk."""
    logprobs: bool


class RequestReader:
    """Reads bodies, counting with the embedded targets' tokenizer."""

    def __init__(self, *, model: str, max_model_len: int, template_tokens: int) -> None:
        self._tokenizer = WordTokenizer()
        self._model = model
        self._max_model_len = max_model_len
        self._template_tokens = template_tokens

    def read_generation(self, dialect: Dialect, body: bytes) -> Asked:
        """The body of /v1/completions or /v1/chat/completions. Raises BadRequest."""
        fields = decode(body, GenerationBody)
        prompt_tokens = self._count_prompt(fields) if dialect == "completions" else self._count_messages(fields)
        output_tokens = fields.max_completion_tokens if dialect == "chat" else None
        if output_tokens is None:
            output_tokens = fields.max_tokens if fields.max_tokens is not None else _DEFAULT_OUTPUT_TOKENS
        if output_tokens < 1:
            raise BadRequest(f"max_tokens must be at least 1, got {output_tokens}")
        if prompt_tokens + output_tokens > self._max_model_len:
            raise BadRequest(
                f"this model's maximum context length is {self._max_model_len} tokens, but {output_tokens} output "
                f"tokens were asked for after a prompt of {prompt_tokens}"
            )
        if fields.n not in (None, 1):
            raise BadRequest(f"n must be 1, got {fields.n}")
        options = fields.stream_options or StreamOptions()
        return Asked(
            dialect,
            fields.model or self._model,
            prompt_tokens,
            output_tokens,
            bool(fields.stream),
            options.include_usage,
            options.include_usage and options.continuous_usage_stats,
            fields.logprobs is not None and fields.logprobs is not False,
        )

    def tokenize(self, body: bytes) -> bytes:
        """The answer of /tokenize, for `prompt` or `messages`. Raises BadRequest."""
        fields = decode(body, TokenizeBody)
        if fields.messages is not None:
            ids = self._encode_messages(fields.messages)
        elif fields.prompt is not None:
            ids = self._tokenizer.encode(fields.prompt)
        else:
            raise BadRequest("prompt or messages is needed")
        words = [self._tokenizer.decode([token]) for token in ids] if fields.return_token_strs else None
        return msgspec.json.encode(
            {"count": len(ids), "max_model_len": self._max_model_len, "tokens": ids, "token_strs": words}
        )

    def detokenize(self, body: bytes) -> bytes:
        """The answer of /detokenize. Raises BadRequest."""
        tokens = decode(body, DetokenizeBody).tokens
        self._check_ids(tokens)
        return msgspec.json.encode({"prompt": self._tokenizer.decode(tokens)})

    def _count_prompt(self, fields: GenerationBody) -> int:
        prompt = fields.prompt
        if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
            prompt = prompt[0]
        if isinstance(prompt, str):
            count = self._tokenizer.count(prompt)
        elif isinstance(prompt, list):
            self._check_ids(prompt)
            count = len(prompt)
        else:
            raise BadRequest("prompt is needed: a text or a list of token ids")
        if count == 0:
            raise BadRequest("prompt is empty")
        return count

    def _check_ids(self, ids: list[Any]) -> None:
        size = self._tokenizer.vocab_size
        for token in ids:
            if type(token) is not int:
                raise BadRequest("a prompt is one text or one list of token ids, in each request")
            if not 0 <= token < size:
                raise BadRequest(f"token id {token} is out of the vocabulary (0 to {size - 1})")

    def _count_messages(self, fields: GenerationBody) -> int:
        if not fields.messages:
            raise BadRequest("messages is needed: a list of at least one message")
        return sum(self._template_tokens + self._tokenizer.count(message.text()) for message in fields.messages)

    def _encode_messages(self, messages: list[Message]) -> list[int]:
        ids: list[int] = []
        for message in messages:
            ids += [0] * self._template_tokens
            ids += self._tokenizer.encode(message.text())
        return ids
