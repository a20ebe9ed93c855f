"""The engine as clients see it: over real sockets, in a process of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.engine.serving import CHAT, COMPLETIONS, Reply, call, chat, completion, connect, read_until, request_bytes

GREEDY = {"model": "windtunnel-tiny", "temperature": 0}
PROMPT = "the wind in the tunnel"


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=30) as client:
        yield client


def ask(url: str, tokens: int = 6, **fields: Any) -> Reply:
    return call(url, COMPLETIONS, completion(tokens, **{"prompt": PROMPT, **GREEDY, **fields}))


def text(reply: Reply) -> str:
    return "".join(reply.texts)


def test_a_stream_has_a_chunk_for_each_token_then_usage(url: str) -> None:
    reply = ask(url, ignore_eos=True)
    *tokens, last = reply.chunks
    assert reply.events[-1] == b"[DONE]"
    assert len(tokens) == 6
    assert [chunk["choices"][0]["finish_reason"] for chunk in tokens] == [None] * 5 + ["length"]
    assert last["choices"] == []
    assert (last["usage"]["completion_tokens"], last["usage"]["total_tokens"]) == (
        6,
        6 + last["usage"]["prompt_tokens"],
    )


def test_a_whole_answer_is_what_the_stream_says(url: str) -> None:
    streamed = ask(url, 20, ignore_eos=True)
    whole = ask(url, 20, ignore_eos=True, stream=False).json
    assert whole["choices"][0]["text"] == text(streamed)
    assert whole["usage"]["completion_tokens"] == 20


def test_several_prompts_with_several_answers_are_answered_in_order(url: str) -> None:
    one, two = (ask(url, stream=False, prompt=p).json["choices"][0]["text"] for p in ("one", "two"))
    choices = ask(url, stream=False, prompt=["one", "two"], n=2).json["choices"]
    assert [(choice["index"], choice["text"]) for choice in choices] == [(0, one), (1, one), (2, two), (3, two)]


def test_a_stream_of_several_answers_says_whose_each_token_is(url: str) -> None:
    reply = ask(url, prompt=["one", "two"])
    for index, prompt in enumerate(("one", "two")):
        alone = text(ask(url, prompt=prompt))
        mixed = [c["choices"][0]["text"] for c in reply.chunks if c["choices"] and c["choices"][0]["index"] == index]
        assert "".join(mixed) == alone


def test_an_answer_with_a_seed_is_the_same_again_and_another_with_another(url: str) -> None:
    first, again, other = (text(ask(url, 20, temperature=1.0, seed=seed)) for seed in (1, 1, 2))
    assert first == again != other


def test_a_stop_string_ends_the_answer_before_it(url: str) -> None:
    whole = text(ask(url, 30, ignore_eos=True))
    stop = whole[10:14]
    reply = ask(url, 30, ignore_eos=True, stop=stop, stream=False).json["choices"][0]
    assert reply["text"] == whole[: whole.index(stop)]
    assert (reply["finish_reason"], reply["stop_reason"]) == ("stop", stop)


def test_token_ids_are_told_to_those_who_ask(url: str) -> None:
    reply = ask(url, return_token_ids=True)
    tokens = [chunk["choices"][0]["token_ids"][0] for chunk in reply.chunks if chunk["choices"]]
    assert call(url, "/detokenize", {"tokens": tokens}).json["prompt"] == text(reply)


def test_usage_comes_with_each_chunk_where_that_is_asked_for(url: str) -> None:
    reply = ask(url, stream_options={"include_usage": True, "continuous_usage_stats": True})
    counted = [chunk["usage"]["completion_tokens"] for chunk in reply.chunks]
    assert counted == [1, 2, 3, 4, 5, 6, 6]


def test_a_prompt_that_was_seen_is_cached(url: str) -> None:
    prompt = list(range(100, 180))
    first, second = (ask(url, 1, prompt=prompt, stream=False).json for _ in range(2))
    cached = [reply["usage"]["prompt_tokens_details"]["cached_tokens"] for reply in (first, second)]
    assert cached == [0, 64]
    assert first["choices"] == second["choices"]


def test_a_chat_begins_with_its_role(url: str) -> None:
    reply = call(url, CHAT, chat(4, **GREEDY))
    assert reply.chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert [chunk["object"] for chunk in reply.chunks] == ["chat.completion.chunk"] * len(reply.chunks)


def test_what_a_chat_counts_is_what_its_tokens_are(url: str) -> None:
    messages = chat()["messages"]
    count = call(url, "/tokenize", {"messages": messages}).json["count"]
    assert call(url, CHAT, chat(1, **GREEDY)).chunks[-1]["usage"]["prompt_tokens"] == count


def test_text_is_tokenized_and_back(url: str) -> None:
    answer = call(url, "/tokenize", {"prompt": "größer <|end|> 3", "return_token_strs": True}).json
    assert len(answer["token_strs"]) == answer["count"] == len(answer["tokens"])
    assert call(url, "/detokenize", {"tokens": answer["tokens"]}).json == {"prompt": "größer <|end|> 3"}


def test_the_openai_package_lists_streams_and_chats(client: openai.OpenAI) -> None:
    (model,) = client.models.list().data
    asked: dict[str, Any] = {"model": model.id, "temperature": 0, "max_tokens": 8}
    whole = client.completions.create(prompt=PROMPT, **asked)
    stream = client.completions.create(prompt=PROMPT, stream=True, **asked)
    assert "".join(chunk.choices[0].text for chunk in stream) == whole.choices[0].text
    said = client.chat.completions.create(messages=[{"role": "user", "content": "hi"}], **asked)
    assert said.choices[0].message.role == "assistant"
    assert said.usage is not None
    assert said.usage.completion_tokens == 8


def test_the_openai_package_reads_logarithms(client: openai.OpenAI) -> None:
    asked: dict[str, Any] = {"model": "windtunnel-tiny", "temperature": 0, "max_tokens": 3}
    logprobs = client.completions.create(prompt=PROMPT, logprobs=2, **asked).choices[0].logprobs
    assert logprobs is not None
    assert logprobs.top_logprobs is not None
    assert logprobs.token_logprobs is not None
    assert [max(top.values()) for top in logprobs.top_logprobs] == logprobs.token_logprobs  # greedy
    said = client.chat.completions.create(
        messages=[{"role": "user", "content": "hi"}], logprobs=True, top_logprobs=3, **asked
    )
    assert said.choices[0].logprobs is not None
    assert said.choices[0].logprobs.content is not None
    for token in said.choices[0].logprobs.content:
        assert len(token.top_logprobs) == 3
        assert bytes(token.bytes or []).decode() == token.token


def test_the_openai_package_raises_what_was_wrong(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="exceed it") as caught:
        client.completions.create(model="windtunnel-tiny", prompt="a", max_tokens=10_000)
    assert caught.value.param == "max_tokens"
    with pytest.raises(openai.NotFoundError, match="only 'windtunnel-tiny'"):
        client.completions.create(model="gpt", prompt="a")


def test_what_is_no_json_has_openais_error_object(url: str) -> None:
    reply = call(url, COMPLETIONS, b"{")
    assert reply.status == 400
    assert set(reply.json["error"]) == {"message", "type", "param", "code"}


@pytest.mark.parametrize(("path", "method", "status"), [("/v1/nothing", "GET", 404), ("/v1/models", "POST", 405)])
def test_other_paths_and_methods_are_refused(url: str, path: str, method: str, status: int) -> None:
    assert call(url, path, b"" if method == "POST" else None, method=method).status == status


def metrics(url: str) -> dict[str, float]:
    lines = call(url, "/metrics").body.decode().splitlines()
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")}


def test_metrics_have_vllms_names_and_count_what_was_asked(url: str) -> None:
    label = '{model_name="windtunnel-tiny"}'
    before = metrics(url)
    ask(url, 10, ignore_eos=True)
    after = metrics(url)
    assert after[f"vllm:generation_tokens_total{label}"] - before[f"vllm:generation_tokens_total{label}"] == 10
    ends = 'vllm:request_success_total{finished_reason="length",model_name="windtunnel-tiny"}'
    assert after[ends] - before[ends] == 1
    assert after[f"vllm:num_requests_running{label}"] == 0
    assert after["windtunnel:eplb_live_ranks"] == 4


def test_a_client_that_leaves_frees_its_place(url: str) -> None:
    running = 'vllm:num_requests_running{model_name="windtunnel-tiny"}'
    body = completion(450, prompt=PROMPT, ignore_eos=True, **GREEDY)
    with connect(url) as sock:
        sock.sendall(request_bytes(COMPLETIONS, body))
        read_until(sock, b'"text"')
        assert metrics(url)[running] == 1
    while metrics(url)[running]:
        pass
    aborted = 'vllm:request_success_total{finished_reason="abort",model_name="windtunnel-tiny"}'
    assert metrics(url)[aborted] >= 1


def test_a_connection_serves_one_request_after_the_other(url: str) -> None:
    body = completion(2, prompt=PROMPT, **GREEDY)
    with connect(url) as sock:
        for _ in range(3):
            sock.sendall(request_bytes(COMPLETIONS, body))
            read_until(sock, b"[DONE]\n\n\r\n0\r\n\r\n")


def test_the_model_is_listed_with_the_folder_of_its_tokenizer(url: str) -> None:
    from tokenizers import Tokenizer

    (model,) = call(url, "/v1/models").json["data"]
    tokenizer = Tokenizer.from_file(f"{model['root']}/tokenizer.json")
    tokens = call(url, "/tokenize", {"prompt": PROMPT}).json["tokens"]
    assert tokenizer.encode(PROMPT).ids == tokens
    assert "chat_template" in json.loads(Path(model["root"], "tokenizer_config.json").read_text())
