"""Bodies of requests: what is taken, and how what is none is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.engine.moe.generating import CONFIG
from windtunnel.engine.bodies import BadRequest
from windtunnel.engine.moe.front.asked import Asked, RequestReader
from windtunnel.engine.moe.tokenizer import END, ROLES, make_tokenizer
from windtunnel.wire.openai import Dialect

TOKENIZER = make_tokenizer(CONFIG.vocabulary_size)
READER = RequestReader("m", CONFIG, TOKENIZER)
HI = [{"role": "user", "content": "hi"}]


def read(dialect: Dialect = "completions", **fields: Any) -> Asked:
    return READER.read_generation(dialect, json.dumps(fields).encode())


def refused(dialect: Dialect = "completions", **fields: Any) -> BadRequest:
    with pytest.raises(BadRequest) as caught:
        read(dialect, **fields)
    return caught.value


def test_a_text_is_tokens_as_the_tokenizer_has_it() -> None:
    assert read(prompt="hello world").prompts == [TOKENIZER.encode("hello world").ids]


@pytest.mark.parametrize(
    ("prompt", "prompts"), [([5, 6], [[5, 6]]), ([[5], [6, 7]], [[5], [6, 7]])], ids=["ids", "lists of ids"]
)
def test_token_ids_are_taken_as_they_are(prompt: Any, prompts: list[list[int]]) -> None:
    assert read(prompt=prompt).prompts == prompts


def test_several_texts_are_several_prompts() -> None:
    assert len(read(prompt=["a", "b", "c"]).prompts) == 3


def test_a_chat_begins_each_message_with_its_role_and_ends_with_the_assistants() -> None:
    messages = [{"role": "developer", "content": "be"}, {"role": "user", "content": [{"type": "text", "text": "hi"}]}]
    (tokens,) = read("chat", messages=messages).prompts
    assert tokens == [
        ROLES["system"], *TOKENIZER.encode("be").ids, END, ROLES["user"], *TOKENIZER.encode("hi").ids, END,
        ROLES["assistant"],
    ]  # fmt: skip


def test_a_completion_has_16_tokens_and_a_chat_all_that_there_is_room_for() -> None:
    assert read(prompt=[1, 2]).sampling.max_tokens == 16
    asked = read("chat", messages=HI)
    assert asked.sampling.max_tokens == CONFIG.max_context - len(asked.prompts[0])


def test_the_defaults_are_openais() -> None:
    sampling = read(prompt="a").sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.seed) == (1.0, 1.0, 0, None)


def test_what_vllms_clients_send_beside_is_taken() -> None:
    asked = read(
        prompt="a", model="m", repetition_penalty=1.0, best_of=1, frequency_penalty=0, top_k=-1, echo=False,
        logit_bias=None, response_format={"type": "text"}, ignore_eos=True, min_tokens=3, user="x",
    )  # fmt: skip
    assert asked.sampling.ignore_eos
    assert asked.sampling.min_tokens == 3


def test_the_answers_to_one_prompt_have_seeds_of_their_own() -> None:
    asked = read(prompt="a", n=3, seed=7)
    assert [asked.sampling_of(choice).seed for choice in range(3)] == [7, 8, 9]
    assert read(prompt="a", n=2).sampling_of(1).seed is None


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": [[]]}, "prompt"),
        ({"prompt": [1.5]}, "prompt"),
        ({"prompt": [True]}, "prompt"),
        ({"prompt": [-1]}, "prompt"),
        ({"prompt": [CONFIG.vocabulary_size]}, "prompt"),
        ({"prompt": [["a"]]}, "prompt"),
        ({"prompt": ["a", 1]}, "prompt"),
        ({"prompt": "a", "model": "another"}, "model"),
        ({"prompt": "a", "max_tokens": 0}, "max_tokens"),
        ({"prompt": "a", "max_tokens": CONFIG.max_context}, "max_tokens"),
        ({"prompt": [1] * CONFIG.max_context}, "max_tokens"),
        ({"prompt": "a", "min_tokens": 17}, "min_tokens"),
        ({"prompt": "a", "temperature": -1}, "temperature"),
        ({"prompt": "a", "top_p": 1.5}, "top_p"),
        ({"prompt": "a", "top_p": 0}, "top_p"),
        ({"prompt": "a", "top_k": -2}, "top_k"),
        ({"prompt": "a", "n": 0}, "n"),
        ({"prompt": "a", "n": 129}, "n"),
        ({"prompt": "a", "stop": [""]}, "stop"),
        ({"prompt": "a", "stop": ["x"] * 17}, "stop"),
        ({"prompt": "a", "logprobs": 21}, "logprobs"),
        ({"prompt": "a", "echo": True}, "echo"),
        ({"prompt": "a", "repetition_penalty": 1.1}, "repetition_penalty"),
        ({"prompt": "a", "logit_bias": {"5": 100}}, "logit_bias"),
        ({"prompt": "a", "response_format": {"type": "json_object"}}, "response_format"),
        ({"prompt": "a", "stop_token_ids": [7]}, "stop_token_ids"),
    ],
)
def test_what_is_no_completion_is_refused_with_its_field(fields: dict[str, Any], param: str) -> None:
    error = refused(**fields)
    assert (error.param, error.status) == (param, 404 if param == "model" else 400)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "usr", "content": "a"}]}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}, "messages"),
        ({"messages": HI, "top_logprobs": 30, "logprobs": True}, "top_logprobs"),
        ({"messages": HI, "tools": [{"type": "function"}]}, "tools"),
        ({"messages": HI, "max_completion_tokens": 0}, "max_tokens"),
    ],
)
def test_what_is_no_chat_is_refused_with_its_field(fields: dict[str, Any], param: str) -> None:
    assert refused("chat", **fields).param == param


def test_a_role_that_is_nearly_one_is_told() -> None:
    assert "did you mean user?" in str(refused("chat", messages=[{"role": "usr", "content": "a"}]))


@pytest.mark.parametrize("fields", [{"prompt": "a " * 300_000}, {"prompt": ["a", "b " * 300_000]}])
def test_a_text_that_would_hold_everybody_up_is_refused_unread(fields: dict[str, Any]) -> None:
    assert refused(**fields).status == 413
    with pytest.raises(BadRequest, match="600000 characters"):
        READER.tokenize(json.dumps({"prompt": "a " * 300_000}).encode())


def test_a_few_prompts_with_many_answers_each_are_too_many() -> None:
    assert "at most 128" in str(refused(prompt=["a", "b"], n=100))


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff", b'{"prompt": "a", "max_tokens": "3"}', b'{"stop": {}}'])
def test_what_is_no_body_at_all_is_refused(body: bytes) -> None:
    with pytest.raises(BadRequest):
        READER.read_generation("completions", body)
