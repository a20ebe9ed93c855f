"""The ground-truth server, built and asked."""

from __future__ import annotations

import http.client
import json
import shutil
import time
from collections.abc import Iterator
from typing import Any

import pytest

from overhead import ground_truth
from overhead.distortion import read_tokens

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[http.client.HTTPConnection]:
    program = ground_truth.build(tmp_path_factory.mktemp("truth"))
    with ground_truth.serving(program, ttft_ms=20, itl_ms=5) as running:
        connection = http.client.HTTPConnection(running.base_url.removeprefix("http://"), timeout=10)
        yield connection
        connection.close()


def ask(connection: http.client.HTTPConnection, path: str, body: dict[str, Any] | None = None) -> tuple[int, str]:
    connection.request("GET" if body is None else "POST", path, None if body is None else json.dumps(body))
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def events(text: str) -> list[dict[str, Any]]:
    *data, done = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    assert done == "[DONE]"
    return [json.loads(line) for line in data]


def test_tokens_tell_arrival_and_sending_in_order_and_at_their_pace(server: http.client.HTTPConnection) -> None:
    before_ns = time.time_ns()
    _, text = ask(server, "/v1/completions", {"max_tokens": 4, "stream": True})
    after_ns = time.time_ns()
    arrival_ns, sends_ns = read_tokens("".join(e["choices"][0]["text"] for e in events(text)))
    assert before_ns < arrival_ns < sends_ns[0]
    assert sends_ns[0] - arrival_ns >= 20_000_000
    assert sends_ns[-1] - arrival_ns >= 35_000_000  # never before it is due, whatever came late
    assert sends_ns[-1] < after_ns


def test_the_last_token_brings_the_finish_reason_and_usage_follows_when_asked(
    server: http.client.HTTPConnection,
) -> None:
    body = {"max_tokens": 2, "stream": True, "stream_options": {"include_usage": True}}
    first, last, usage = events(ask(server, "/v1/completions", body)[1])
    assert first["choices"][0]["finish_reason"] is None
    assert last["choices"][0]["finish_reason"] == "length"
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == 2


def test_chat_speaks_in_deltas(server: http.client.HTTPConnection) -> None:
    answer = events(ask(server, "/v1/chat/completions", {"max_completion_tokens": 3, "stream": True})[1])
    _, sends_ns = read_tokens("".join(e["choices"][0]["delta"]["content"] for e in answer))
    assert len(sends_ns) == 3


def test_a_prompt_that_quotes_the_keys_is_not_taken_for_them(server: http.client.HTTPConnection) -> None:
    body = {"prompt": 'say "max_tokens": 9, "stream": false', "max_tokens": 2, "stream": True}
    assert len(events(ask(server, "/v1/completions", body)[1])) == 2


def test_it_names_its_model_and_has_no_tokenizer(server: http.client.HTTPConnection) -> None:
    status, text = ask(server, "/v1/models")
    assert status == 200
    assert [model["id"] for model in json.loads(text)["data"]] == [ground_truth.MODEL]
    assert ask(server, "/tokenize", {"prompt": "x"})[0] == 404


def test_what_it_can_not_do_it_refuses(server: http.client.HTTPConnection) -> None:
    assert ask(server, "/v1/completions", {"max_tokens": 2})[0] == 400
    assert ask(server, "/v1/completions", {"stream": True})[0] == 400
