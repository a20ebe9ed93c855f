"""What the paced target serves beside generations, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine.serving import CHAT, COMPLETIONS, call, chat, completion, paced
from windtunnel.workload.words import WordTokenizer


def test_the_model_is_listed_with_its_length() -> None:
    with paced("max_model_len=4096") as url:
        (model,) = call(url, "/v1/models").json["data"]
    assert (model["id"], model["max_model_len"]) == ("paced", 4096)


def test_the_model_list_can_be_missing() -> None:
    with paced("models=0") as url:
        assert call(url, "/v1/models").status == 404


@pytest.mark.parametrize(
    ("path", "method"), [("/health", "GET"), ("/start_profile", "POST"), ("/stop_profile", "POST")]
)
def test_health_and_profiling_are_there(path: str, method: str) -> None:
    with paced() as url:
        reply = call(url, path, b"" if method == "POST" else None, method=method)
    assert (reply.status, reply.body) == (200, b"")


def test_before_the_first_request_there_is_no_lateness() -> None:
    with paced() as url:
        stats = call(url, "/stats").json
    assert (stats["started"], stats["late_mean_ms"], stats["late_max_ms"]) == (0, None, None)


def test_text_is_tokenized_and_back() -> None:
    tokenizer = WordTokenizer()
    ids = [5, 0, 4095, 17]
    with paced("max_model_len=4096") as url:
        answer = call(url, "/tokenize", {"model": "m", "prompt": tokenizer.decode(ids), "return_token_strs": True}).json
        assert call(url, "/detokenize", {"model": "m", "tokens": ids}).json == {"prompt": tokenizer.decode(ids)}
    assert (answer["count"], answer["max_model_len"], answer["tokens"]) == (4, 4096, ids)
    assert answer["token_strs"] == tokenizer.decode(ids).split()


def test_messages_are_tokenized_to_what_a_chat_counts() -> None:
    messages = chat()["messages"]
    with paced("template=6") as url:
        answer = call(url, "/tokenize", {"messages": messages}).json
        used = call(url, CHAT, chat(1)).chunks[-1]["usage"]["prompt_tokens"]
    assert answer["count"] == len(answer["tokens"]) == used == 3 + 6


@pytest.mark.parametrize(("value", "status"), [("0", 404), ("400", 400), ("500", 500)])
def test_the_tokenizer_can_be_missing(value: str, status: int) -> None:
    with paced(f"tokenize={value}") as url:
        assert call(url, "/tokenize", {"prompt": "a"}).status == status
        assert call(url, "/detokenize", {"tokens": [1]}).status == status


def test_a_key_is_demanded_under_v1() -> None:
    with paced("key=sk-1") as url:
        for headers in ((), ("authorization: Bearer sk-2",), ("authorization: sk-1",)):
            reply = call(url, COMPLETIONS, completion(1), *headers)
            assert (reply.status, reply.json["error"]["code"]) == (401, 401)
        assert call(url, "/v1/models", None, "authorization: Bearer sk-1").status == 200
        assert len(call(url, COMPLETIONS, completion(1), "Authorization: Bearer sk-1").stamps) == 1
        assert call(url, "/health").status == 200


def test_other_paths_and_methods_are_refused() -> None:
    with paced() as url:
        assert call(url, "/v1/embeddings", {}).status == 404
        assert call(url, COMPLETIONS).status == 405
        assert call(url, "/health", b"").status == 405


def test_head_has_no_body() -> None:
    with paced() as url:
        reply = call(url, "/v1/models", method="HEAD")
    assert reply.raw.endswith(b"\r\n\r\n")
    assert int(reply.response.header("content-length") or 0) > 0


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "not what this endpoint takes"),
        (b"{", "not what this endpoint takes"),
        (b"[]", "not what this endpoint takes"),
        (b'{"prompt": "\xff"}', "not"),
        (completion(prompt=None), "prompt is needed"),
        (completion(prompt=""), "prompt is empty"),
        (completion(prompt=[]), "prompt is empty"),
        (completion(prompt=["a", "b"]), "one text or one list"),
        (completion(prompt=[1, True]), "one text or one list"),
        (completion(prompt=[4096]), "token id 4096 is out of the vocabulary"),
        (completion(prompt=[-1]), "token id -1 is out of the vocabulary"),
        (completion(0), "max_tokens must be at least 1, got 0"),
        (completion(200_000), "maximum context length is 131072 tokens"),
        (completion(n=2), "n must be 1"),
        (completion("ten"), "max_tokens"),  # type: ignore[arg-type]
        (chat(messages=[]), "messages is needed"),
        (chat(messages=[{"content": "a"}]), "role"),
    ],
)
def test_a_bad_body_is_refused_with_openais_error_object(body: dict[str, Any] | bytes, said: str) -> None:
    path = CHAT if isinstance(body, dict) and "messages" in body else COMPLETIONS
    with paced() as url:
        reply = call(url, path, body)
        stats = call(url, "/stats").json
    assert reply.status == 400
    assert said in reply.json["error"]["message"]
    assert stats["started"] == 0


@pytest.mark.parametrize(
    ("path", "body"), [("/tokenize", {}), ("/detokenize", {}), ("/detokenize", {"tokens": [4096]}), ("/tokenize", b"x")]
)
def test_a_bad_tokenizer_request_is_refused(path: str, body: dict[str, Any] | bytes) -> None:
    with paced() as url:
        assert call(url, path, body).status == 400
