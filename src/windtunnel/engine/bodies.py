"""Bodies of requests: what both embedded targets read alike, and how a request is refused."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from msgspec import Struct


class BadRequest(Exception):
    """A request can't be served: `status`, and the words for OpenAI's error object."""

    def __init__(self, message: str, status: int = 400, *, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.param = param
        """The field of the body that is wrong."""


class Message(Struct):
    """A message of a chat."""

    role: str
    content: str | list[dict[str, Any]] | None = None

    def text(self) -> str:
        """The text of the content; parts of other kinds count nothing."""
        if isinstance(self.content, list):
            return " ".join(part["text"] for part in self.content if isinstance(part.get("text"), str))
        return self.content or ""


class StreamOptions(Struct):
    """What comes beside the tokens of a stream."""

    include_usage: bool = False
    continuous_usage_stats: bool = False


class GenerationBody(Struct):
    """What is read of /v1/completions and /v1/chat/completions by whoever answers them."""

    model: str | None = None
    prompt: str | list[Any] | None = None
    messages: list[Message] | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    logprobs: int | bool | None = None
    n: int | None = None


class TokenizeBody(Struct):
    """Of /tokenize."""

    model: str | None = None
    prompt: str | None = None
    messages: list[Message] | None = None
    return_token_strs: bool | None = None


class DetokenizeBody(Struct):
    """Of /detokenize."""

    tokens: list[int]
    model: str | None = None


_T = TypeVar("_T")


def decode(body: bytes, kind: type[_T]) -> _T:
    """A body's JSON. Raises BadRequest, which says where it is wrong."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError as error:
        raise BadRequest(f"the body is not what this endpoint takes: {error}") from None
    except UnicodeDecodeError:
        raise BadRequest("the body is not UTF-8") from None
