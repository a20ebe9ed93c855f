"""Each oddity of the field, as bytes on the wire."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Any

import pytest

from tests.engine.serving import COMPLETIONS, Reply, ask, chat, completion, connect, paced, read_to_end, request_bytes
from windtunnel.units import NS_PER_MS


def test_lines_end_with_crlf() -> None:
    reply = ask("crlf")
    assert reply.body.count(b"\r\n\r\n") == 8
    assert not re.search(rb"(?<!\r)\n", reply.body)
    assert len(reply.stamps) == 6


def test_lines_end_with_cr() -> None:
    reply = ask("cr")
    assert reply.body.count(b"\r\r") == 8
    assert b"\n" not in reply.body
    assert len(reply.stamps) == 6


def test_comments_come_before_the_first_token_and_between_tokens() -> None:
    body = ask("pings", completion(3, stream_options=None)).body
    shape = re.sub(rb"data: \{.*?\}\n\n", b"<token>\n", body)
    assert shape == b": ping\n\n:\n\n: ping\n\n<token>\n:\n\n<token>\n: ping\n\n<token>\ndata: [DONE]\n\n"


def test_there_is_no_space_after_data() -> None:
    reply = ask("nospace")
    assert b"data: " not in reply.body
    assert reply.body.count(b"data:{") == 7


def test_other_fields_stand_beside_data() -> None:
    reply = ask("fields", completion(2))
    for number, event in enumerate(reply.body.strip().split(b"\n\n")):
        assert event.split(b"\n")[:3] == [b"event: message", b"id: %d" % number, b"retry: 3000"]
    assert len(reply.stamps) == 2


def test_the_json_of_an_event_spans_several_data_lines() -> None:
    reply = ask("multiline", completion(2))
    events = reply.body.strip().split(b"\n\n")
    assert all(event.count(b"\ndata: ") > 3 for event in events[:-1])
    assert all(line.startswith(b"data: ") for event in events for line in event.split(b"\n"))
    assert len(reply.stamps) == 2


@pytest.mark.parametrize("size", [1, 7])
def test_writes_come_in_pieces(size: int) -> None:
    with paced(f"split={size},utf8") as url, connect(url) as sock:
        sock.sendall(request_bytes(COMPLETIONS, completion(2), "connection: close"))
        reply = read_to_end(sock)
    assert len(reply.texts) == 2
    # how many pieces one read brings is up to the kernel, but some writes must have been seen in part
    assert any(len(piece) <= size for piece in reply.pieces)
    assert len(reply.pieces) > 5


def test_several_events_come_in_one_write_each_so_many_latencies() -> None:
    reply = ask("burst=3,ttft=5ms,itl=2ms", completion(8, stream_options=None))
    assert len(reply.texts) == 8
    assert [len(set(reply.stamps[start : start + 3])) for start in (0, 3, 6)] == [1, 1, 1]
    arrived = int(reply.texts[0].split(":")[0])
    assert all(stamp - arrived >= (5 + token // 3 * 6) * NS_PER_MS for token, stamp in enumerate(reply.stamps))
    assert reply.raw.count(b"\r\ndata: ") == 3 + 1  # HTTP chunks: three writes and [DONE]


def test_tokens_have_characters_of_several_bytes() -> None:
    reply = ask("utf8", completion(2))
    for text in reply.texts:
        assert re.fullmatch(r" [\d:]+é世🌬", text)
        assert len(text.split()) == 1
    assert "é世🌬".encode() in reply.body


def test_chat_can_go_without_the_role_chunk() -> None:
    reply = ask("role=0", chat(2))
    assert [set(chunk["choices"][0]["delta"]) for chunk in reply.chunks[:2]] == [{"content"}, {"content"}]
    assert len(reply.texts) == 2


@pytest.mark.parametrize("key", ["reasoning_content", "reasoning"])
def test_the_first_tokens_are_reasoning(key: str) -> None:
    reply = ask(f"reasoning=3,reasoning_key={key},tokens=2", chat(7))
    deltas = [chunk["choices"][0]["delta"] for chunk in reply.chunks if chunk["choices"]]
    kinds = [(next(iter(delta)), len(text.split())) for delta, text in zip(deltas, reply.texts, strict=True)]
    assert kinds == [("role", 0), (key, 2), (key, 1), ("content", 1), ("content", 2), ("content", 1)]


def test_tool_calls_come_instead_of_content() -> None:
    reply = ask("tools,reasoning=1", chat(5))
    deltas = [chunk["choices"][0]["delta"] for chunk in reply.chunks if chunk["choices"]]
    assert [next(iter(delta)) for delta in deltas] == ["role", "reasoning_content"] + ["tool_calls"] * 4
    calls = [delta["tool_calls"][0] for delta in deltas[2:]]
    assert [call.get("type") for call in calls] == ["function", None, None, None]
    assert [call["function"].get("name") for call in calls] == ["measure", None, None, None]
    assert reply.finish_reasons[-1] == "tool_calls"
    assert len(reply.stamps) == 5


@pytest.mark.parametrize("body", [completion(2), chat(2)], ids=["text", "chat"])
def test_the_finish_reason_has_a_chunk_of_its_own(body: dict[str, Any]) -> None:
    reply = ask("finish=separate", body)
    assert reply.finish_reasons[-2:] == [None, "length"]
    assert reply.texts[-1] == ""
    assert len(reply.stamps) == 2


def test_no_finish_reason_comes() -> None:
    reply = ask("finish=none")
    assert set(reply.finish_reasons) == {None}
    assert reply.events[-1] == b"[DONE]"


def test_usage_comes_late() -> None:
    with paced("usage=late:100ms") as url, connect(url) as sock:
        sock.sendall(request_bytes(COMPLETIONS, completion(2), "connection: close"))
        data = b""
        while b'"length"' not in data:
            data += sock.recv(65536)
        assert b"prompt_tokens" not in data
        assert b"prompt_tokens" in read_to_end(sock).raw


def test_usage_never_comes() -> None:
    assert all(chunk["usage"] is None and chunk["choices"] for chunk in ask("usage=none").chunks)
    assert ask("usage=none", completion(2, stream=False)).json["usage"] is None


@pytest.mark.parametrize(
    "body", [completion(4, stream_options=None), chat(4, stream_options=None)], ids=["text", "chat"]
)
def test_each_chunk_has_usage(body: dict[str, Any]) -> None:
    reply = ask("usage=each,role=0", body)
    assert [chunk["usage"]["completion_tokens"] for chunk in reply.chunks] == [1, 2, 3, 4]


def test_vllms_continuous_usage_is_known() -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    reply = ask("", completion(3, stream_options=options))
    assert [chunk["usage"]["completion_tokens"] for chunk in reply.chunks] == [1, 2, 3, 3]


def test_usage_is_wrong() -> None:
    assert ask("usage=wrong", completion(4)).chunks[-1]["usage"]["completion_tokens"] != 4


def test_there_is_no_done() -> None:
    reply = ask("done=0")
    assert b"[DONE]" not in reply.body
    assert reply.complete
    assert reply.finish_reasons[-1] == "length"


def test_the_body_is_ended_by_the_connections_end() -> None:
    with paced("chunked=0") as url, connect(url) as sock:
        sock.sendall(request_bytes(COMPLETIONS, completion(3)))
        reply = read_to_end(sock)
    assert reply.response.header("transfer-encoding") is None
    assert reply.response.header("connection") == "close"
    assert len(reply.stamps) == 3
    assert reply.raw.endswith(b"data: [DONE]\n\n")


def test_the_stream_begins_with_a_byte_order_mark() -> None:
    reply = ask("bom")
    assert reply.body.startswith(b"\xef\xbb\xbfdata: ")
    assert len(reply.stamps) == 6


@pytest.mark.parametrize("tokens", [1, 2])
def test_a_chunk_without_choices_comes_in_the_middle(tokens: int) -> None:
    reply = ask(f"empty_chunk,tokens={tokens}", completion(8, stream_options=None))
    assert [bool(chunk["choices"]) for chunk in reply.chunks].index(False) == 4 // tokens
    assert len(reply.stamps) == 8


def test_chunks_carry_an_error_that_is_null() -> None:
    assert all(chunk["error"] is None for chunk in ask("null_error", completion(2)).chunks)


def test_each_chunk_has_another_id() -> None:
    ids = [chunk["id"] for chunk in ask("id=changing").chunks]
    assert len(set(ids)) == len(ids) == 7


def test_chunks_have_no_id() -> None:
    assert not any("id" in chunk for chunk in ask("id=none").chunks)


def test_oddities_come_together() -> None:
    text = "crlf,pings,fields,multiline,split=11,utf8,bom,reasoning=2,finish=separate,usage=each,empty_chunk,tokens=2"
    reply = ask(text, chat(9))
    assert [len(text.split()) for text in reply.texts if text] == [2, 2, 2, 2, 1]
    assert all(first <= second for first, second in pairwise(stamps_of(reply)))
    assert reply.finish_reasons[-1] == "length"


def stamps_of(reply: Reply) -> list[int]:
    return [int(re.sub(r"\D", "", word.rpartition(":")[2])) for word in "".join(reply.texts).split()]


def test_whole_answers_have_reasoning_and_tool_calls_too() -> None:
    message = ask("reasoning=2,tools", chat(5, stream=False)).json["choices"][0]["message"]
    assert len(message["reasoning_content"].split()) == 2
    assert len(message["tool_calls"][0]["function"]["arguments"].split()) == 3
    assert message["content"] is None
    assert json.dumps(message)
