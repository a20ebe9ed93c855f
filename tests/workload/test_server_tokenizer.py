"""The server's /tokenize and /detokenize as a tokenizer."""

from __future__ import annotations

from typing import Any

import pytest

from tests.workload.trained import trained
from windtunnel.errors import TokenizerError, TokenizeUnavailable
from windtunnel.workload.tokenizer.load import load_tokenizer
from windtunnel.workload.tokenizer.server import Post, ServerTokenizer

TEXT = "lan ton"


def serve(kind: str, calls: list[tuple[str, dict[str, Any]]]) -> Post:
    """What a server answers that has a tokenizer of this kind."""
    tokenizer = trained(kind)

    def post(path: str, body: dict[str, Any]) -> tuple[int, Any]:
        calls.append((path, body))
        if path == "/detokenize":
            return 200, {"prompt": tokenizer.decode(body["tokens"])}
        ids = tokenizer.encode(body["prompt"], body["add_special_tokens"])
        return 200, {"count": len(ids), "max_model_len": 4096, "tokens": ids}

    return post


def answer(*answers: tuple[int, Any]) -> ServerTokenizer:
    left = list(answers)
    return ServerTokenizer("m", lambda path, body: left.pop(0))


def test_the_server_counts_for_the_model_that_is_asked() -> None:
    calls: list[tuple[str, dict[str, Any]]] = []
    tokenizer = load_tokenizer("server", post=serve("llama3", calls), model="m")
    ids = trained("llama3").encode(TEXT)
    assert tokenizer.encode(TEXT) == ids
    assert tokenizer.count(TEXT, special=True) == len(ids) + 1
    assert tokenizer.decode(ids) == TEXT
    assert tokenizer.encode_batch([TEXT, "a"]) == trained("llama3").encode_batch([TEXT, "a"])
    assert tokenizer.decode_batch([ids]) == [TEXT]
    assert {body["model"] for _, body in calls} == {"m"}


@pytest.mark.parametrize(("kind", "added"), [("gpt2", 0), ("llama3", 1), ("wordpiece", 2)])
def test_what_the_server_adds_is_learned_from_it_once(kind: str, added: int) -> None:
    calls: list[tuple[str, dict[str, Any]]] = []
    tokenizer = ServerTokenizer("m", serve(kind, calls))
    assert [tokenizer.num_special, tokenizer.num_special] == [added, added]
    assert len(calls) == 2


@pytest.mark.parametrize("status", [400, 401, 404, 405, 422])
def test_any_4xx_means_that_it_is_not_available(status: int) -> None:
    with pytest.raises(TokenizeUnavailable, match=f"/tokenize is not available: HTTP {status}: no"):
        answer((status, "no")).encode(TEXT)
    with pytest.raises(TokenizeUnavailable, match="/detokenize"):
        answer((status, "no")).decode([1])


def test_a_5xx_is_tried_again() -> None:
    assert answer((503, "busy"), (500, "busy"), (200, {"tokens": [1, 2]})).encode(TEXT) == [1, 2]


def test_a_5xx_that_stays_is_a_failure() -> None:
    with pytest.raises(TokenizerError, match="HTTP 502, 3 times: bad gateway"):
        answer(*[(502, "bad gateway")] * 3).encode(TEXT)


@pytest.mark.parametrize("body", ["<html>", {"count": 3}, {"tokens": "three"}, {"tokens": ["a"]}, None])
def test_an_answer_of_another_kind_is_a_failure(body: object) -> None:
    with pytest.raises(TokenizerError, match="doesn't answer as vLLM does"):
        answer((200, body)).encode(TEXT)


def test_a_text_of_another_kind_is_a_failure() -> None:
    with pytest.raises(TokenizerError, match="no text"):
        answer((200, {"prompt": 3})).decode([1])


def test_its_chat_template_can_not_be_had() -> None:
    with pytest.raises(TokenizerError, match="chat template") as caught:
        answer().apply_chat_template([{"role": "user", "content": "hi"}])
    assert "--skip-chat-template" in caught.value.advice
