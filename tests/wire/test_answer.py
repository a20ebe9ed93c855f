"""What an answer's body says: tokens, when they came, how the answer ended."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.wire.answer import AnswerReader
from windtunnel.wire.openai import Dialect

SSE = "text/event-stream"
USAGE = {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2}}


def events(*documents: Any, done: bool = True) -> bytes:
    lines = [f"data: {json.dumps(document)}\n\n" for document in documents]
    return ("".join(lines) + ("data: [DONE]\n\n" if done else "")).encode()


def text(value: str, finish: str | None = None, **more: Any) -> dict[str, Any]:
    return {"choices": [{"text": value, "finish_reason": finish, **more}]}


def delta(finish: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"delta": fields, "finish_reason": finish}]}


def read(
    *pieces: bytes, dialect: Dialect = "completions", kind: str | None = SSE, streamed: bool = True
) -> AnswerReader:
    """Feed the pieces, the first at 1, the second at 2, and so on."""
    reader = AnswerReader(dialect, kind, streamed=streamed)
    for stamp, piece in enumerate(pieces, 1):
        reader.feed(piece, stamp)
    reader.finish(len(pieces))
    return reader


def test_tokens_have_the_stamps_of_their_reads() -> None:
    reader = read(events(text("a"), done=False), events(text("b"), done=False), events(text("c", "length"), USAGE))
    assert (reader.first_token_ns, reader.last_token_ns, reader.gaps_ns) == (1, 3, [1, 1])
    assert (reader.text, reader.finish_reason, reader.whole) == ("abc", "length", True)
    assert reader.usage is not None
    assert reader.usage.completion_tokens == 2


def test_the_role_chunk_is_no_token() -> None:
    reader = read(
        events(delta(role="assistant", content=""), done=False),
        events(delta(content="hi"), done=False),
        events(delta("stop", content="")),
        dialect="chat",
    )
    assert (reader.first_token_ns, reader.tokens, reader.gaps_ns) == (2, 1, [])


def test_a_role_in_a_chunk_with_content_is_a_token() -> None:
    reader = read(events(delta(role="assistant", content="hi"), delta("stop")), dialect="chat")
    assert reader.tokens == 1


def test_a_finish_chunk_without_text_is_no_token() -> None:
    reader = read(events(text("a"), done=False), events(text("", "stop")))
    assert (reader.tokens, reader.last_token_ns, reader.finish_reason) == (1, 1, "stop")


def test_an_empty_text_without_a_reason_is_a_token_that_is_held_back() -> None:
    reader = read(events(text(""), done=False), events(text("é", "length")))
    assert (reader.tokens, reader.first_token_ns) == (2, 1)


@pytest.mark.parametrize("key", ["reasoning", "reasoning_content"])
def test_reasoning_is_the_first_token_but_not_the_first_output(key: str) -> None:
    reader = read(
        events(delta(**{key: "hm"}), done=False),
        events(delta(content="42"), done=False),
        events(delta("stop")),
        dialect="chat",
    )
    assert (reader.first_token_ns, reader.first_output_ns, reader.reasoning_chunks) == (1, 2, 1)
    assert reader.text == "hm42"


def test_a_tool_call_is_output() -> None:
    reader = read(
        events(delta(tool_calls=[{"index": 0, "function": {"arguments": "{"}}]), delta("tool_calls")), dialect="chat"
    )
    assert (reader.tokens, reader.first_output_ns) == (1, 1)


@pytest.mark.parametrize(
    "more",
    [
        {"token_ids": [1, 2, 3]},
        {"logprobs": {"tokens": ["a", "b", "c"], "token_logprobs": [0, 0, 0]}},
        {"logprobs": {"content": [{"token": "a"}, {"token": "b"}, {"token": "c"}]}},
    ],
)
def test_a_chunk_that_tells_its_tokens_is_believed(more: dict[str, Any]) -> None:
    reader = read(events(text("abc", "length", **more)))
    assert (reader.chunk_tokens, reader.counted) == ([3], True)


def test_a_growing_usage_tells_the_tokens_of_each_chunk() -> None:
    chunks = [
        {**text("ab"), "usage": {"completion_tokens": 2}},
        {**text("c", "stop"), "usage": {"completion_tokens": 3}},
    ]
    reader = read(events(*chunks))
    assert reader.chunk_tokens == [2, 1]


def test_usage_that_is_null_in_the_chunks_is_passed_over() -> None:
    reader = read(events({**text("a", "stop"), "usage": None, "error": None}, USAGE))
    assert reader.usage is not None
    assert reader.error is None


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"error": {"message": "out of memory", "type": "server_error", "code": 500}}, "out of memory (server_error)"),
        ({"error": "boom"}, "boom"),
        ({"object": "error", "message": "old style", "code": 400}, "old style"),
        ({"error": {"detail": 1}}, '{"detail":1}'),
    ],
)
def test_an_error_in_the_stream_keeps_its_words(document: dict[str, Any], words: str) -> None:
    reader = read(events(text("a"), document))
    assert reader.error == words
    assert reader.tokens == 1


def test_an_event_of_type_error_is_an_error() -> None:
    assert read(b'event: error\ndata: {"detail": "x"}\n\n').error == '{"detail": "x"}'


def test_done_without_a_finish_reason_is_whole_only_with_the_usage() -> None:
    assert not read(events(text("a"))).whole
    assert read(events(text("a"), USAGE)).whole


def test_a_finish_reason_without_done_is_whole() -> None:
    assert read(events(text("a", "stop"), done=False)).whole


def test_one_bad_event_is_told_and_the_stream_goes_on() -> None:
    reader = read(events(text("a"), done=False), b"data: {nonsense\n\n", events(text("b", "stop")))
    assert (reader.tokens, reader.whole, reader.num_problems) == (2, True, 1)
    problem = reader.problems[0]
    assert (problem.layer, "nonsense" in problem.excerpt) == ("json", True)
    assert problem.offset == len(events(text("a"), done=False))


def test_a_field_of_the_wrong_type_is_a_problem_of_the_schema() -> None:
    reader = read(events({"choices": [{"text": 5}]}, text("b", "stop")))
    assert [problem.layer for problem in reader.problems] == ["schema"]


def test_a_line_that_is_no_field_is_a_problem() -> None:
    assert [problem.layer for problem in read(b"oops\n" + events(text("b", "stop"))).problems] == ["sse"]


def test_an_event_that_the_end_cuts_off_is_no_problem_of_its_own() -> None:
    reader = read(events(text("a"), done=False), b'data: {"choi')
    assert (reader.tokens, reader.whole, reader.num_problems) == (1, False, 0)


def test_a_whole_answer_in_json() -> None:
    document = {
        "choices": [{"message": {"role": "assistant", "content": "hello"}, "finish_reason": "stop"}],
        "usage": {"completion_tokens": 2},
    }
    body = json.dumps(document).encode()
    reader = read(body[:10], body[10:], dialect="chat", kind="application/json", streamed=False)
    assert (reader.text, reader.finish_reason, reader.first_token_ns) == ("hello", "stop", 2)


@pytest.mark.parametrize(("kind", "layer"), [("text/html", "schema"), ("application/json", "json")])
def test_an_answer_that_is_a_page_or_no_json_is_a_problem(kind: str, layer: str) -> None:
    reader = read(b"<html>Sign in</html>", kind=kind)
    assert [problem.layer for problem in reader.problems] == [layer]
    assert not reader.whole


STREAM = (
    b": ping\n\n"
    + events(
        delta(role="assistant", content=""), delta(content="grüße 🎈"), delta(content=" x"), delta("length"), USAGE
    )
).replace(b"\n", b"\r\n")


@given(st.lists(st.integers(0, len(STREAM)), max_size=8))
def test_any_split_of_the_bytes_says_the_same(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(STREAM)]
    reader = read(*[STREAM[a:b] for a, b in pairwise(edges)], dialect="chat")
    assert (reader.text, reader.tokens, reader.finish_reason, reader.num_problems) == ("grüße 🎈 x", 2, "length", 0)
    assert reader.whole
    assert reader.keep_alives == 1


def test_the_transcript_is_the_end_of_what_came() -> None:
    reader = read(*[events(text("x" * 100), done=False)] * 30, events(text("last", "stop")))
    assert len(reader.transcript) <= 1024
    assert reader.transcript.endswith("data: [DONE]\n\n")


def test_a_usage_on_the_finish_chunk_is_the_sum_and_no_token() -> None:
    finish = {**text("", "stop"), "usage": {"completion_tokens": 2}}
    reader = read(events(text("a"), done=False), events(text("b"), done=False), events(finish))
    assert (reader.tokens, reader.last_token_ns, reader.gaps_ns) == (2, 2, [1])
    assert reader.usage is not None


def test_an_answer_of_two_choices_is_whole_when_both_have_finished() -> None:
    def choice(index: int, value: str, finish: str | None) -> dict[str, Any]:
        return {"choices": [{"index": index, "text": value, "finish_reason": finish}]}

    first = events(choice(0, "a", None), choice(1, "b", None), choice(0, "", "stop"), done=False)
    assert not read(first).whole
    assert read(first, events(choice(1, "", "stop"))).whole


def test_what_comes_after_done_is_told_and_not_counted() -> None:
    reader = read(events(text("a", "stop")), events(text("late"), done=False))
    assert (reader.text, reader.tokens, reader.num_problems) == ("a", 1, 1)


def test_an_error_event_need_not_be_json() -> None:
    assert read(b"event: error\ndata: engine died\n\n").error == "engine died"


@pytest.mark.parametrize("nothing", [{}, False, ""])
def test_an_error_that_says_nothing_is_none(nothing: Any) -> None:
    assert read(events({**text("a", "stop"), "error": nothing})).error is None


@pytest.mark.parametrize("count", [-1, 10**19, 10**30, 1.5])
def test_a_count_that_can_not_be_is_a_problem_of_the_schema(count: float) -> None:
    reader = read(events(text("a", "stop"), {"choices": [], "usage": {"completion_tokens": count}}))
    assert (reader.usage, [problem.layer for problem in reader.problems]) == (None, ["schema"])


def test_json_that_is_nested_without_end_is_a_problem_and_no_crash() -> None:
    deep = b'data: {"x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}\n\n"
    reader = read(deep, events(text("a", "stop")))
    assert (reader.tokens, reader.num_problems) == (1, 1)


@pytest.mark.parametrize("before", [b"", b": hello\n\n"])
def test_a_line_of_megabytes_in_small_pieces_takes_no_longer_than_its_length(before: bytes) -> None:
    """Joined again with each piece it would take hours."""
    piece = b"x" * 500
    reader = AnswerReader("completions", SSE, streamed=True)
    reader.feed(before + b'data: {"choices":[{"text":"', 1)
    for stamp in range(40_000):
        reader.feed(piece, stamp)
    reader.feed(b'","finish_reason":"stop"}]}\n\n', 99_999)
    assert len(reader.text) == 20_000_000
    assert reader.first_token_ns == 99_999


@pytest.mark.parametrize("kind", ["application/json", "text/plain", None])
def test_a_stream_with_a_wrong_label_is_read_as_what_it_is(kind: str | None) -> None:
    reader = read(events(text("a"), done=False), events(text("b", "stop")), kind=kind)
    assert (reader.text, reader.whole, reader.num_problems) == ("ab", True, 0)


def test_a_document_without_a_label_is_read_as_what_it_is() -> None:
    document = json.dumps(text("ab", "stop")).encode()
    reader = read(document, kind=None)
    assert (reader.text, reader.whole, reader.num_problems) == ("ab", True, 0)
