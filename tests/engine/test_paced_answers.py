"""A paced target without oddities answers as vLLM does, each token at its instant."""

from __future__ import annotations

import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import pytest

from tests.engine.serving import (
    CHAT,
    COMPLETIONS,
    Reply,
    ask,
    call,
    chat,
    completion,
    connect,
    paced,
    read_to_end,
    read_until,
    request_bytes,
)
from windtunnel.units import NS_PER_MS


def arrival(reply: Reply) -> int:
    return int("".join(reply.texts).split()[0].partition(":")[0])


def due_in_ns(reply: Reply) -> list[int]:
    """From the request's arrival to each token's instant."""
    return [stamp - arrival(reply) for stamp in reply.stamps]


def test_a_completion_streams_a_chunk_a_token_then_usage_then_done() -> None:
    reply = ask("", completion(4))
    assert (reply.status, reply.ended, reply.complete) == (200, "fin", True)
    assert reply.response.header("content-type") == "text/event-stream; charset=utf-8"
    assert len(reply.stamps) == len(reply.texts) == 4
    assert reply.finish_reasons == [None, None, None, "length"]
    assert reply.chunks[-1]["choices"] == []
    assert reply.chunks[-1]["usage"] == {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
    assert reply.events[-1] == b"[DONE]"
    assert {(chunk["object"], chunk["model"]) for chunk in reply.chunks} == {("text_completion", "m")}


def test_a_chat_begins_with_a_role_chunk_that_comes_before_the_first_token_is_due() -> None:
    with paced("ttft=100ms") as url, connect(url) as sock:
        sock.sendall(request_bytes(CHAT, chat(3), "connection: close"))
        early = sock.recv(65536)
        while b'"role"' not in early:
            early += sock.recv(65536)
        read_ns = time.time_ns()
        reply = Reply(early + read_to_end(sock).raw, "fin")
    assert reply.chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert read_ns < reply.stamps[0]
    assert len(reply.stamps) == 3
    assert reply.finish_reasons == [None, None, None, "length"]
    assert reply.chunks[-1]["usage"] == {"prompt_tokens": 3 + 5, "completion_tokens": 3, "total_tokens": 11}
    assert {chunk["object"] for chunk in reply.chunks} == {"chat.completion.chunk"}


def test_no_token_is_early_and_delays_do_not_add_up() -> None:
    reply = ask("ttft=20ms,itl=2ms", completion(50))
    gaps = due_in_ns(reply)
    assert all(gap >= (20 + 2 * token) * NS_PER_MS for token, gap in enumerate(gaps))
    # were each token due a gap after the one before was sent, lateness could only grow
    lateness = [gap - (20 + 2 * token) * NS_PER_MS for token, gap in enumerate(gaps)]
    assert any(later < earlier for earlier, later in pairwise(lateness))


def test_the_stamps_grow_and_lie_between_the_request_and_its_end() -> None:
    before_ns = time.time_ns()
    reply = ask("", completion(20))
    assert before_ns < arrival(reply) < reply.stamps[0]
    assert all(first < second for first, second in pairwise(reply.stamps))
    assert reply.stamps[-1] < time.time_ns()


def test_a_chunk_of_several_tokens_comes_each_so_many_latencies() -> None:
    reply = ask("ttft=5ms,itl=2ms,tokens=3", completion(8))
    assert [len(text.split()) for text in reply.texts] == [3, 3, 2]
    first_of_chunk = [int(text.split()[0].rpartition(":")[2]) - arrival(reply) for text in reply.texts]
    assert all(gap >= (5 + 6 * chunk) * NS_PER_MS for chunk, gap in enumerate(first_of_chunk))


@pytest.mark.parametrize(
    ("body", "path"), [(completion(5, stream=False), COMPLETIONS), (chat(5, stream=False), CHAT)], ids=["text", "chat"]
)
def test_without_streaming_the_whole_answer_comes_when_the_last_token_is_due(body: dict[str, Any], path: str) -> None:
    reply = ask("ttft=20ms,itl=2ms", body, path)
    assert reply.response.header("content-type") == "application/json"
    (choice,) = reply.json["choices"]
    words = (choice["text"] if "text" in choice else choice["message"]["content"]).split()
    arrived, sent = words[0].split(":")
    assert len(words) == 5
    assert int(sent) - int(arrived) >= 28 * NS_PER_MS
    assert choice["finish_reason"] == "length"
    assert reply.json["usage"]["completion_tokens"] == 5


@pytest.mark.parametrize("prompt", [[1, 2, 3, 4], [[1, 2, 3, 4]], "a b c d", ["a b c d"]])
def test_the_prompt_is_counted_as_text_or_as_ids(prompt: Any) -> None:
    assert ask("", completion(1, prompt=prompt)).chunks[-1]["usage"]["prompt_tokens"] == 4


def test_messages_are_counted_with_their_template_and_parts() -> None:
    parts = [{"type": "text", "text": "two words"}, {"type": "image_url", "image_url": {"url": "data:,"}}]
    messages = [{"role": "system", "content": "be brief now"}, {"role": "user", "content": parts}]
    usage = ask("template=7", chat(1, messages=messages)).chunks[-1]["usage"]
    assert usage["prompt_tokens"] == 3 + 2 + 2 * 7


def test_without_a_number_16_tokens_come() -> None:
    body = completion()
    del body["max_tokens"]
    assert len(ask("", body).stamps) == 16


def test_no_usage_comes_unless_it_is_asked_for() -> None:
    reply = ask("", completion(3, stream_options=None))
    assert [chunk["usage"] for chunk in reply.chunks] == [None] * 3


def test_log_probabilities_come_one_a_token() -> None:
    for reply in (ask("tokens=2", completion(4, logprobs=1)), ask("tokens=2", chat(4, logprobs=True))):
        with_tokens = [
            chunk["choices"][0] for chunk in reply.chunks if chunk["choices"] and chunk["choices"][0]["logprobs"]
        ]
        assert len(with_tokens) == 2
        for choice in with_tokens:
            logprobs = choice["logprobs"]
            tokens = logprobs.get("tokens") or [entry["token"] for entry in logprobs["content"]]
            assert "".join(tokens) == (choice["text"] if "text" in choice else choice["delta"]["content"])
            assert len(tokens) == 2


def test_the_answer_has_the_id_that_the_request_was_given() -> None:
    with paced() as url:
        reply = call(url, COMPLETIONS, completion(1), "x-request-id: run-7")
    assert {chunk["id"] for chunk in reply.chunks} == {"cmpl-run-7"}


def test_a_connection_serves_request_after_request() -> None:
    with paced() as url, connect(url) as sock:
        for tokens in (1, 2, 3):
            sock.sendall(request_bytes(COMPLETIONS, completion(tokens)))
            data = b""
            while not data.endswith(b"0\r\n\r\n"):
                data += sock.recv(65536)
            assert len(Reply(data, "").stamps) == tokens


def test_three_hundred_streams_at_once_get_every_token_in_time_order() -> None:
    num = 300
    ready = threading.Barrier(4)

    def some(url: str) -> list[Reply]:
        socks = [connect(url) for _ in range(num // 3)]
        ready.wait()
        for sock in socks:
            sock.sendall(request_bytes(COMPLETIONS, completion(10), "connection: close"))
        replies = [read_to_end(sock) for sock in socks]
        for sock in socks:
            sock.close()
        return replies

    with paced("ttft=200ms,itl=5ms") as url, ThreadPoolExecutor(3) as pool:
        futures = [pool.submit(some, url) for _ in range(3)]
        ready.wait()
        replies = [reply for future in futures for reply in future.result()]
        stats = call(url, "/stats").json
    assert all(len(reply.stamps) == 10 and reply.complete for reply in replies)
    assert all(gap >= (200 + 5 * token) * NS_PER_MS for reply in replies for token, gap in enumerate(due_in_ns(reply)))
    assert (stats["started"], stats["completed"], stats["left"], stats["in_flight"]) == (num, num, 0, 0)
    assert stats["max_in_flight"] > num // 3
    assert 0 < stats["late_mean_ms"] <= stats["late_max_ms"]


def test_an_answer_without_pace_comes_as_fast_as_it_can() -> None:
    reply = ask("ttft=0,itl=0", completion(2000))
    assert len(reply.stamps) == 2000


def test_an_answer_waits_for_a_client_that_does_not_read_and_comes_whole_in_the_end() -> None:
    tokens = 60_000  # 12 MB: more than the kernel keeps between the two
    with paced("ttft=0,itl=0") as url, connect(url) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        sock.sendall(request_bytes(COMPLETIONS, completion(tokens), "connection: close"))
        with connect(url) as other:
            for _ in range(1500):  # in each turn the answer could grow by dozens of tokens
                other.sendall(request_bytes("/stats"))
                stats = json.loads(read_until(other, b"}").partition(b"\r\n\r\n")[2])
                assert stats["late_count"] < tokens
        reply = read_to_end(sock)
    assert len(reply.stamps) == tokens
