"""The dialects of OpenAI's API: what a request's body says, and what the JSON of an answer means.

A dialect is `completions` or `chat`. Only the fields that a benchmark needs are decoded; msgspec passes over the rest.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Raw, Struct

Dialect = Literal["completions", "chat"]
Prompt = str | list[int] | list[dict[str, Any]]
"""Text, token ids, or (chat only) messages."""

ENDPOINTS: dict[str, str] = {"completions": "/v1/completions", "chat": "/v1/chat/completions"}


def request_body(
    dialect: Dialect,
    model: str,
    prompt: Prompt,
    output_tokens: int | None,
    *,
    stream: bool = True,
    ignore_eos: bool = False,
    logprobs: int | None = None,
    extra: dict[str, Any] | None = None,
) -> bytes:
    """The JSON of one request, with the fields that `vllm bench serve` sends; `extra` is laid over them."""
    body: dict[str, Any] = {"model": model}
    if dialect == "completions":
        body["prompt"] = prompt
        body["repetition_penalty"] = 1.0
        if output_tokens is not None:
            body["max_tokens"] = output_tokens
        if logprobs is not None:
            body["logprobs"] = logprobs
    else:
        body["messages"] = prompt if _is_messages(prompt) else [{"role": "user", "content": prompt}]
        if output_tokens is not None:
            body["max_completion_tokens"] = output_tokens
        if logprobs is not None:
            body["logprobs"] = True
            body["top_logprobs"] = logprobs
    body["stream"] = stream
    if stream:
        body["stream_options"] = {"include_usage": True}
    if ignore_eos:
        body["ignore_eos"] = True
    if extra:
        body.update(extra)
    return msgspec.json.encode(body)


def _is_messages(prompt: Prompt) -> bool:
    return isinstance(prompt, list) and bool(prompt) and isinstance(prompt[0], dict)


class Logprobs(Struct):
    """How many tokens a chunk has, where log probabilities are asked for: one entry a token."""

    tokens: list[Raw] | None = None
    content: list[Raw] | None = None


class Delta(Struct):
    """What a chat chunk adds, and also a whole chat message of an answer that is not streamed."""

    role: str | None = None
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[Raw] | None = None


class Choice(Struct):
    """One choice of a chunk or of a whole answer."""

    index: int = 0
    text: str | None = None
    delta: Delta | None = None
    message: Delta | None = None
    finish_reason: str | None = None
    logprobs: Logprobs | None = None
    token_ids: list[int] | None = None


TokenCount = Annotated[int, Meta(ge=0, le=10_000_000)]
"""What lies outside is nobody's answer, and a figure that would cost the report all memory."""


class Usage(Struct):
    """The server's own count."""

    prompt_tokens: TokenCount | None = None
    completion_tokens: TokenCount | None = None


class Answer(Struct):
    """A chunk of a stream, or a whole answer."""

    choices: list[Choice] | None = None
    usage: Usage | None = None
    error: Any = None
    object: str | None = None
    message: Any = None


_answer_decoder = msgspec.json.Decoder(Answer)
decode_answer = _answer_decoder.decode
"""JSON to `Answer`; raises msgspec.ValidationError (schema) or its base msgspec.DecodeError (JSON)."""


def error_text(answer: Answer) -> str | None:
    """The server's words, where the answer is an error object: OpenAI's, or the older `{"object": "error"}`."""
    value = answer.error
    if value is None and answer.object == "error":
        value = answer.message
    if not value:  # null, false, an empty object: some servers send them beside tokens
        return None
    if isinstance(value, dict):
        message = value.get("message")
        kind = value.get("type") or value.get("code")
        if isinstance(message, str):
            return f"{message} ({kind})" if kind else message
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def error_body(
    message: str, kind: str = "invalid_request_error", code: int | str | None = None, param: str | None = None
) -> bytes:
    """OpenAI's error object, for servers. `param`: the field of the request that is wrong."""
    return msgspec.json.encode({"error": {"message": message, "type": kind, "param": param, "code": code}})
