"""The JSON of answers: chunks of a stream, and whole answers. Send instants are left open as `MARK`.

A mark is as long as the instant that takes its place, so whatever is built around it, lengths included, stays right.
"""

from __future__ import annotations

from typing import Any

import msgspec

from windtunnel.clock import ClockPair
from windtunnel.engine.paced.asked import Asked
from windtunnel.engine.paced.config import PacedConfig

MARK = "{send instant (ns)}"
"""Stands for a CLOCK_REALTIME instant in nanoseconds: 19 digits, until the year 2286."""

_LOGPROB = -0.6931471805599453
_WIDE = "é世🌬"
_encode = msgspec.json.encode


class ChunkWriter:
    """Writes the JSON of one answer."""

    def __init__(
        self, config: PacedConfig, asked: Asked, answer_id: str, arrived: ClockPair, output_tokens: int
    ) -> None:
        self._config = config
        self._asked = asked
        self._chat = asked.dialect == "chat"
        self._id = answer_id
        self._arrived = arrived
        self._output_tokens = output_tokens
        self._written = 0
        self.reasoning_tokens = min(config.reasoning, output_tokens) if self._chat else 0

    @property
    def vary(self) -> bool:
        """Each chunk differs from the one before in more than its instants."""
        return self._config.id == "changing" or self.usage_each

    @property
    def usage_each(self) -> bool:
        """Each chunk has usage."""
        return self._config.usage == "each" or (self._asked.usage_each and self._config.usage != "none")

    def text(self, token: int) -> str:
        """One word: the instant it is sent at; the first has the request's arrival before it."""
        arrival = f"{self._arrived.realtime_ns}:" if token == 0 else ""
        return f" {arrival}{MARK}{_WIDE if self._config.utf8 else ''}"

    def tokens(self, first: int, last: int, *, finish_reason: str | None) -> bytes:
        """A chunk that carries the tokens from `first` up to, not with, `last`: all reasoning, or none."""
        texts = [self.text(token) for token in range(first, last)]
        logprobs = self._logprobs(texts) if self._asked.logprobs else None
        if self._chat:
            delta = self._delta(first, "".join(texts))
            choice = {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}
            if finish_reason:
                choice["stop_reason"] = None
        else:
            choice = self._text_choice("".join(texts), logprobs, finish_reason)
        return self._chunk([choice], sent_tokens=last)

    def role(self) -> bytes:
        """Chat's first chunk: a role and no token."""
        choice = {"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}
        return self._chunk([choice], sent_tokens=0)

    def finish(self, reason: str) -> bytes:
        """A chunk that has a finish reason and no token."""
        if not self._chat:
            return self._chunk([self._text_choice("", None, reason)], sent_tokens=self._output_tokens)
        choice = {"index": 0, "delta": {}, "logprobs": None, "finish_reason": reason, "stop_reason": None}
        return self._chunk([choice], sent_tokens=self._output_tokens)

    def empty(self) -> bytes:
        """A chunk without choices, in mid-stream."""
        return self._chunk([], sent_tokens=0)

    def usage(self) -> bytes:
        """The stream's last chunk."""
        return self._chunk([], usage=self._usage(self._output_tokens))

    def whole(self, finish_reason: str | None) -> bytes:
        """The answer to a request that asked for no stream."""
        texts = [self.text(token) for token in range(self._output_tokens)]
        logprobs = self._logprobs(texts) if self._asked.logprobs else None
        if self._chat:
            message = self._message(texts)
            choice = {"index": 0, "message": message, "logprobs": logprobs, "finish_reason": finish_reason}
        else:
            choice = self._text_choice("".join(texts), logprobs, finish_reason)
        answer = self._frame("chat.completion" if self._chat else "text_completion")
        answer["choices"] = [choice]
        answer["usage"] = None if self._config.usage == "none" else self._usage(self._output_tokens)
        return _encode(answer)

    def _frame(self, kind: str) -> dict[str, Any]:
        changing = f"-{self._written}" if self._config.id == "changing" else ""
        frame: dict[str, Any] = {} if self._config.id == "none" else {"id": self._id + changing}
        frame |= {"object": kind, "created": self._arrived.realtime_ns // 10**9, "model": self._asked.model}
        if self._config.null_error:
            frame["error"] = None
        return frame

    def _chunk(
        self, choices: list[dict[str, Any]], *, sent_tokens: int = 0, usage: dict[str, int] | None = None
    ) -> bytes:
        chunk = self._frame("chat.completion.chunk" if self._chat else "text_completion")
        self._written += 1
        chunk["choices"] = choices
        if usage is None and self.usage_each:
            usage = self._usage(sent_tokens)
        if usage is not None or not self._chat:
            chunk["usage"] = usage
        return _encode(chunk)

    def _usage(self, output_tokens: int) -> dict[str, int]:
        prompt_tokens = self._asked.prompt_tokens
        if self._config.usage == "wrong":
            prompt_tokens, output_tokens = prompt_tokens + 3, output_tokens * 2 + 1
        total = prompt_tokens + output_tokens
        return {"prompt_tokens": prompt_tokens, "total_tokens": total, "completion_tokens": output_tokens}

    def _text_choice(self, text: str, logprobs: Any, finish_reason: str | None) -> dict[str, Any]:
        return {
            "index": 0,
            "text": text,
            "logprobs": logprobs,
            "finish_reason": finish_reason,
            "stop_reason": None,
        }

    def _delta(self, first: int, text: str) -> dict[str, Any]:
        if first < self.reasoning_tokens:
            return {self._config.reasoning_key: text}
        if not self._config.tools:
            return {"content": text}
        call: dict[str, Any] = {"index": 0, "function": {"arguments": text}}
        if first == self.reasoning_tokens:
            call |= {"id": f"call-{self._id}", "type": "function"}
            call["function"] = {"name": "measure", "arguments": text}
        return {"tool_calls": [call]}

    def _message(self, texts: list[str]) -> dict[str, Any]:
        reasoning, output = "".join(texts[: self.reasoning_tokens]), "".join(texts[self.reasoning_tokens :])
        message: dict[str, Any] = {"role": "assistant", "content": output}
        if self.reasoning_tokens:
            message[self._config.reasoning_key] = reasoning
        if self._config.tools:
            message["content"] = None
            function = {"name": "measure", "arguments": output}
            message["tool_calls"] = [{"id": f"call-{self._id}", "type": "function", "function": function}]
        return message

    def _logprobs(self, texts: list[str]) -> dict[str, Any]:
        if self._chat:
            return {
                "content": [{"token": text, "logprob": _LOGPROB, "bytes": None, "top_logprobs": []} for text in texts]
            }
        return {
            "text_offset": [0] * len(texts),
            "token_logprobs": [_LOGPROB] * len(texts),
            "tokens": texts,
            "top_logprobs": [{text: _LOGPROB} for text in texts],
        }
