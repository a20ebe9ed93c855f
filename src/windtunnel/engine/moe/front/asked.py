"""What a client asks for: bodies of OpenAI's API with vLLM's further fields, read and checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

from msgspec import Struct
from tokenizers import Tokenizer

from windtunnel.engine.bodies import (
    BadRequest,
    DetokenizeBody,
    GenerationBody,
    Message,
    StreamOptions,
    TokenizeBody,
    decode,
)
from windtunnel.engine.moe.config import ModelConfig
from windtunnel.engine.moe.sampling import Sampling
from windtunnel.engine.moe.tokenizer import ROLES, chat_tokens
from windtunnel.errors import did_you_mean
from windtunnel.wire.openai import Dialect

_DEFAULT_MAX_TOKENS = 16
"""Of completions, as OpenAI's. A chat's answer may be as long as the context has room."""
_LEAST_TOP_P = 1e-9
_MOST_LOGPROBS = 20
_MOST_CHOICES = 128
_MOST_STOPS = 16
_MOST_CHARACTERS = 500_000
"""Of a text that is tokenized: far more than any context here has room for."""

_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "best_of": (1,),
    "echo": (False,),
    "frequency_penalty": (0,),
    "guided_choice": (),
    "guided_grammar": (),
    "guided_json": (),
    "guided_regex": (),
    "logit_bias": ({},),
    "min_p": (0,),
    "presence_penalty": (0,),
    "prompt_logprobs": (),
    "repetition_penalty": (1,),
    "response_format": ({"type": "text"},),
    "stop_token_ids": ([],),
    "structured_outputs": (),
    "suffix": ("",),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
}
"""Fields that other servers heed and this one does not: what they may say, beside null. A client that asks for more
must not believe that it got it."""


class _Body(GenerationBody):
    min_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    include_stop_str_in_output: bool | None = None
    ignore_eos: bool | None = None
    top_logprobs: int | None = None
    return_token_ids: bool | None = None


class Asked(Struct, frozen=True):
    """One request: prompts, and how each is answered."""

    dialect: Dialect
    prompts: list[list[int]]
    num_choices: int
    """Answers to each prompt."""
    sampling: Sampling
    """Of the first choice; others have other seeds."""
    stream: bool
    usage: bool
    """Usage at a stream's end."""
    usage_each: bool
    """Usage in each chunk."""
    token_ids: bool

    def sampling_of(self, choice: int) -> Sampling:
        """Of one of a prompt's answers."""
        seed = self.sampling.seed
        if seed is None or choice == 0:
            return self.sampling
        return replace(self.sampling, seed=seed + choice)


class RequestReader:
    """Reads bodies for one model."""

    def __init__(self, name: str, model: ModelConfig, tokenizer: Tokenizer) -> None:
        self._name = name
        self._model = model
        self._tokenizer = tokenizer

    def read_generation(self, dialect: Dialect, body: bytes) -> Asked:
        """The body of /v1/completions or /v1/chat/completions. Raises BadRequest."""
        fields = decode(body, _Body)
        self._check_model(fields.model)
        _refuse_what_is_not_heeded(decode(body, dict[str, Any]))
        prompts = self._prompts(fields) if dialect == "completions" else [self._chat(fields.messages)]
        num_choices = _within("n", fields.n, 1, 1, _MOST_CHOICES)
        if len(prompts) * num_choices > _MOST_CHOICES:
            raise BadRequest(f"{len(prompts)} prompts with {num_choices} answers each: at most {_MOST_CHOICES} in all")
        options = fields.stream_options or StreamOptions()
        return Asked(
            dialect,
            prompts,
            num_choices,
            self._sampling(dialect, fields, max(map(len, prompts))),
            bool(fields.stream),
            options.include_usage,
            options.include_usage and options.continuous_usage_stats,
            bool(fields.return_token_ids),
        )

    def tokenize(self, body: bytes) -> dict[str, Any]:
        """The answer of /tokenize, for `prompt` or `messages`. Raises BadRequest."""
        fields = decode(body, TokenizeBody)
        if fields.messages is not None:
            tokens = self._chat(fields.messages)
        elif fields.prompt is not None:
            tokens = self._encode(fields.prompt)
        else:
            raise BadRequest("prompt or messages is needed")
        words = [self._tokenizer.id_to_token(token) for token in tokens] if fields.return_token_strs else None
        return {
            "count": len(tokens), "max_model_len": self._model.max_context, "tokens": tokens, "token_strs": words,
        }  # fmt: skip

    def detokenize(self, body: bytes) -> dict[str, Any]:
        """The answer of /detokenize. Raises BadRequest."""
        tokens = decode(body, DetokenizeBody).tokens
        self._check_tokens(tokens, "tokens")
        return {"prompt": self._tokenizer.decode(tokens, skip_special_tokens=False)}

    def _check_model(self, model: str | None) -> None:
        if model is not None and model != self._name:
            raise BadRequest(f"there is no model {model!r} here, only {self._name!r}", 404, param="model")

    def _prompts(self, fields: _Body) -> list[list[int]]:
        prompt = fields.prompt
        if prompt is None or prompt == []:
            raise BadRequest("prompt is needed: a text, a list of token ids, or a list of those", param="prompt")
        several = prompt if isinstance(prompt, list) and isinstance(prompt[0], str | list) else [prompt]
        return [self._prompt(one) for one in several]

    def _prompt(self, prompt: Any) -> list[int]:
        if isinstance(prompt, str):
            tokens = self._encode(prompt)
        elif isinstance(prompt, list):
            tokens = prompt
            self._check_tokens(tokens, "prompt")
        else:
            raise BadRequest("a prompt is a text or a list of token ids", param="prompt")
        if not tokens:
            raise BadRequest("a prompt is empty", param="prompt")
        return tokens

    def _encode(self, text: str, param: str = "prompt") -> list[int]:
        # the loop, and all streams with it, stands still meanwhile
        if len(text) > _MOST_CHARACTERS:
            raise BadRequest(f"{len(text)} characters are too many: at most {_MOST_CHARACTERS}", 413, param=param)
        tokens: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return tokens

    def _check_tokens(self, tokens: Sequence[Any], param: str) -> None:
        size = self._model.vocabulary_size
        for token in tokens:
            if type(token) is not int or not 0 <= token < size:
                raise BadRequest(f"{token!r} is no token id: they are 0 to {size - 1}", param=param)

    def _chat(self, messages: list[Message] | None) -> list[int]:
        if not messages:
            raise BadRequest("messages is needed: a list of at least one message", param="messages")
        return chat_tokens([(_role(message), self._encode(_text(message), "messages")) for message in messages])

    def _sampling(self, dialect: Dialect, fields: _Body, longest: int) -> Sampling:
        room = self._model.max_context - longest
        wanted = fields.max_completion_tokens if dialect == "chat" else None
        wanted = fields.max_tokens if wanted is None else wanted
        if wanted is None:
            wanted = min(_DEFAULT_MAX_TOKENS, max(room, 1)) if dialect == "completions" else max(room, 1)
        if wanted > room:
            raise BadRequest(
                f"the context is {self._model.max_context} tokens: a prompt of {longest} and max_tokens {wanted} "
                "exceed it",
                param="max_tokens",
            )
        most = _within("max_tokens", wanted, 1, 1)
        top_k = 0 if fields.top_k in (None, -1) else _within("top_k", fields.top_k, 0, 0)
        return Sampling(
            most,
            temperature=_within("temperature", fields.temperature, 1.0, 0),
            top_p=_within("top_p", fields.top_p, 1.0, _LEAST_TOP_P, 1),
            top_k=top_k,
            seed=None if fields.seed is None else fields.seed % 2**64,
            ignore_eos=bool(fields.ignore_eos),
            min_tokens=_within("min_tokens", fields.min_tokens, 0, 0, most),
            stop=_stops(fields.stop),
            include_stop=bool(fields.include_stop_str_in_output),
            logprobs=_logprobs(dialect, fields),
        )


def _role(message: Message) -> str:
    if message.role not in ROLES:
        meant = did_you_mean(message.role, ROLES)
        problem = f"no role is called {message.role!r}, there are {', '.join(ROLES)}{meant}"
        raise BadRequest(problem, param="messages")
    return message.role


def _text(message: Message) -> str:
    if isinstance(message.content, list) and any(part.get("type") != "text" for part in message.content):
        raise BadRequest("this engine reads text only: no images, audio or files", param="messages")
    return message.text()


def _refuse_what_is_not_heeded(fields: dict[str, Any]) -> None:
    for name, neutral in _NEUTRAL.items():
        value = fields.get(name)
        if value is not None and value not in neutral:
            raise BadRequest(f"{name} is not served by this engine", param=name)


_Number = TypeVar("_Number", int, float)


def _within(name: str, value: _Number | None, default: _Number, least: float, most: float = float("inf")) -> _Number:
    if value is None:
        return default
    if not least <= value <= most:
        bound = f"at least {least}" if most == float("inf") else f"from {least} to {most}"
        raise BadRequest(f"{name} must be {bound}, not {value}", param=name)
    return value


def _stops(stop: str | list[str] | None) -> tuple[str, ...]:
    stops = () if stop is None else (stop,) if isinstance(stop, str) else tuple(stop)
    if "" in stops or len(stops) > _MOST_STOPS:
        raise BadRequest(f"stop takes up to {_MOST_STOPS} strings, none of them empty", param="stop")
    return stops


def _logprobs(dialect: Dialect, fields: _Body) -> int | None:
    """How many alternatives to each token are wanted; None: no logarithms at all."""
    if dialect == "completions":
        if isinstance(fields.logprobs, bool):
            return 1 if fields.logprobs else None
        return None if fields.logprobs is None else _within("logprobs", fields.logprobs, 0, 0, _MOST_LOGPROBS)
    if not fields.logprobs:
        return None
    return _within("top_logprobs", fields.top_logprobs, 0, 0, _MOST_LOGPROBS)
