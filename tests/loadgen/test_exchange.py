"""One request from its attempts to its record, without a socket."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel import errors
from windtunnel.loadgen.exchange import END_GRACE_NS, USAGE_GRACE_NS, Exchange
from windtunnel.measure.record import Record, ending
from windtunnel.wire.control import Timeouts, Work
from windtunnel.wire.http1 import LAST_CHUNK, write_chunk

S = 10**9
TIMEOUTS = Timeouts(connect_ns=10 * S, first_token_ns=600 * S, stall_ns=120 * S, request_ns=1000 * S)
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
USAGE = {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 3}}


def event(document: Any) -> bytes:
    data = document if isinstance(document, str) else json.dumps(document)
    return write_chunk(f"data: {data}\n\n".encode())


def token(text: str, finish: str | None = None) -> bytes:
    return event({"choices": [{"text": text, "finish_reason": finish}]})


def begun(ready_ns: int | None = 90) -> Exchange:
    exchange = Exchange(Work(7, "r-7", b"{}", 0, 5, 3), "completions", True, 80, ready_ns)
    exchange.begin_attempt(100)
    return exchange


def finished(exchange: Exchange) -> Record:
    exchange.settle()
    return exchange.record(worker=1)


def test_a_whole_answer_becomes_a_record_with_its_instants() -> None:
    exchange = begun()
    assert not exchange.receive(HEAD, 200, 5)
    assert not exchange.receive(token("a"), 300, 7)
    assert not exchange.receive(token("b"), 400, 1)
    assert exchange.receive(token("c", "length") + event(USAGE) + event("[DONE]") + LAST_CHUNK, 500, 1)
    record = finished(exchange)
    assert (record.scheduled_ns, record.ready_ns, record.sent_ns, record.first_byte_ns) == (80, 90, 100, 200)
    assert (record.first_token_ns, record.gaps_ns, record.last_token_ns, record.done_ns) == (300, [100, 100], 500, 500)
    assert (record.output_tokens, record.output_tokens_from, record.prompt_tokens) == (3, "usage", 5)
    assert (record.text, record.finish_reason, record.failure, record.transcript) == ("abc", "length", None, None)
    assert (record.stamped_by, record.read_lag_ns, record.reads) == ("kernel", 7, 3)
    assert ending(record, ignore_eos=True) == "ok"


WHOLE = HEAD + token("gr") + token("ü") + token("ß", "length") + event(USAGE) + event("[DONE]") + LAST_CHUNK


@given(st.lists(st.integers(0, len(WHOLE)), max_size=10), st.booleans())
def test_any_split_of_the_bytes_gives_the_same_record_but_for_instants(cuts: list[int], decode_between: bool) -> None:
    exchange = begun()
    edges = [0, *sorted(cuts), len(WHOLE)]
    over = False
    for stamp, (a, b) in enumerate(pairwise(edges), 200):
        if a < b:
            over = exchange.receive(WHOLE[a:b], stamp, None)
            if decode_between:
                exchange.decode()
    assert over
    record = finished(exchange)
    assert (record.text, record.output_tokens, record.failure, record.stamped_by) == ("grüß", 3, None, "client")


def test_a_late_usage_does_not_move_the_last_token() -> None:
    exchange = begun()
    exchange.receive(HEAD + token("abc", "stop"), 300, 0)
    exchange.receive(event(USAGE) + LAST_CHUNK, 900, 0)
    record = finished(exchange)
    assert (record.last_token_ns, record.done_ns) == (300, 900)


@pytest.mark.parametrize(
    ("pieces", "kind", "facts"),
    [
        ([HEAD, token("a"), LAST_CHUNK], errors.Truncated, {"tokens": 1, "end": "end of message"}),
        ([HEAD, token("a"), event("[DONE]"), LAST_CHUNK], errors.Truncated, {"tokens": 1, "end": "[DONE]"}),
        (
            [HEAD, token("a"), event({"error": {"message": "oom"}}), LAST_CHUNK],
            errors.BackendError,
            {"error": "oom", "tokens": 1},
        ),
        ([HEAD, b"2\r\n\n\n\r\n", event("{bad"), LAST_CHUNK], errors.MalformedResponse, {"layer": "json"}),
        ([b"garbage\r\n\r\n"], errors.MalformedResponse, {"layer": "http", "offset": 0}),
        (
            [b"HTTP/1.1 429 Slow Down\r\nretry-after: 2\r\ncontent-length: 4\r\n\r\nbusy"],
            errors.HttpStatus,
            {"status": 429, "reason": "Slow Down", "body": "busy", "retry_after_s": 2.0},
        ),
    ],
)
def test_each_way_to_fail_has_its_error_with_its_facts(
    pieces: list[bytes], kind: type[errors.RequestFailure], facts: dict[str, Any]
) -> None:
    exchange = begun()
    for stamp, piece in enumerate(pieces, 200):
        exchange.receive(piece, stamp, None)
    record = finished(exchange)
    assert record.failure is not None
    assert isinstance(record.failure.error, kind)
    assert facts.items() <= record.failure.facts.items()


def test_only_the_first_kilobyte_of_an_error_s_body_is_kept() -> None:
    exchange = begun()
    exchange.receive(b"HTTP/1.1 500 X\r\ncontent-length: 5000\r\n\r\n" + b"x" * 5000, 200, None)
    record = finished(exchange)
    assert record.failure is not None
    assert len(record.failure.facts["body"]) == 1024


def test_a_close_before_the_first_byte_is_a_disconnect() -> None:
    exchange = begun()
    exchange.connection_ended(None, 500)
    assert exchange.failure is not None
    assert exchange.failure.facts == {"where": "before the first byte", "reason": "closed by the server"}


def test_a_break_in_mid_stream_says_after_how_many_tokens() -> None:
    exchange = begun()
    exchange.receive(HEAD + token("a") + token("b"), 300, None)
    exchange.connection_ended("Connection reset by peer", 500)
    assert exchange.failure is not None
    assert exchange.failure.facts == {"where": "after 2 tokens", "reason": "Connection reset by peer"}
    assert exchange.failure.state == "disconnect"


def test_an_answer_without_a_length_ends_with_its_connection() -> None:
    exchange = begun()
    exchange.receive(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n", 200, None)
    exchange.receive(b'data: {"choices":[{"text":"a","finish_reason":"stop"}]}\n\n', 300, None)
    exchange.connection_ended(None, 400)
    record = finished(exchange)
    assert (record.failure, record.text, record.done_ns) == (None, "a", 400)


def test_a_whole_answer_whose_connection_then_breaks_is_fine() -> None:
    exchange = begun()
    exchange.receive(HEAD + token("a", "stop"), 300, None)
    exchange.connection_ended("Connection reset by peer", 400)
    record = finished(exchange)
    assert (record.failure, record.done_ns) == (None, 300)


# --- time-outs ---


def expired(exchange: Exchange, now_s: float, *, connecting: bool = False) -> bool:
    return exchange.expire(100 + round(now_s * S), TIMEOUTS, connecting)


def phase_of(exchange: Exchange) -> Any:
    assert exchange.failure is not None
    return exchange.failure.facts["phase"]


def test_connecting_has_its_own_time_out() -> None:
    exchange = begun()
    assert not expired(exchange, 9.9, connecting=True)
    assert expired(exchange, 10.1, connecting=True)
    assert phase_of(exchange) == "connect"


def test_no_first_token_is_a_time_out_even_though_comments_come() -> None:
    exchange = begun()
    exchange.receive(HEAD, 100, None)
    for second in range(50, 600, 50):
        exchange.receive(write_chunk(b": ping\n\n"), 100 + second * S, None)
        assert not expired(exchange, second + 1)
    assert expired(exchange, 600.1)
    assert phase_of(exchange) == "first_token"


def test_a_stall_is_a_time_out_even_though_comments_come() -> None:
    exchange = begun()
    exchange.receive(HEAD + token("a"), 100, None)
    exchange.receive(token("b"), 100 + 50 * S, None)
    for second in range(60, 170, 10):
        exchange.receive(write_chunk(b":\n\n"), 100 + second * S, None)
        assert not expired(exchange, second + 0.5)
    assert expired(exchange, 170.1)
    assert exchange.failure is not None
    assert (phase_of(exchange), exchange.failure.facts["tokens"]) == ("stall", 2)


def test_tokens_keep_a_stall_away() -> None:
    exchange = begun()
    exchange.receive(HEAD, 100, None)
    for second in range(100, 900, 100):
        exchange.receive(token("a"), 100 + second * S, None)
        assert not expired(exchange, second + 99)


def test_the_whole_request_has_a_time_out() -> None:
    exchange = begun()
    exchange.receive(HEAD + token("a"), 100 + 999 * S, None)
    assert expired(exchange, 1000.1)
    assert phase_of(exchange) == "total"


@pytest.mark.parametrize("end", [token("b", "stop") + event(USAGE), event("[DONE]"), event({"error": "x"})])
def test_an_end_without_the_end_of_the_message_is_waited_for_a_moment_only(end: bytes) -> None:
    exchange = begun()
    exchange.receive(HEAD + token("a") + end, 100, None)
    assert not exchange.expire(100 + END_GRACE_NS, TIMEOUTS, False)
    assert exchange.expire(101 + END_GRACE_NS, TIMEOUTS, False)
    assert (exchange.failure, exchange.done_ns) == (None, 100)


def test_a_usage_that_is_due_is_waited_for_a_little_longer() -> None:
    exchange = begun()
    exchange.receive(HEAD + token("a") + token("b", "stop"), 100, None)
    assert not exchange.expire(100 + USAGE_GRACE_NS, TIMEOUTS, False)
    assert exchange.expire(101 + USAGE_GRACE_NS, TIMEOUTS, False)
    assert (finished(exchange).failure, exchange.done_ns) == (None, 100)


def test_a_status_that_is_no_success_needs_no_whole_body() -> None:
    exchange = begun()
    exchange.receive(b"HTTP/1.1 503 Busy\r\ncontent-length: 1000\r\n\r\nhold on", 100, None)
    assert exchange.expire(101 + END_GRACE_NS, TIMEOUTS, False)
    cut = begun()
    cut.receive(b"HTTP/1.1 503 Busy\r\ncontent-length: 1000\r\n\r\nhold on", 100, None)
    cut.connection_ended(None, 200)
    for one in (exchange, cut):
        failure = finished(one).failure
        assert failure is not None
        assert (failure.facts["status"], failure.facts["body"]) == (503, "hold on")


def test_the_server_s_own_words_win_over_the_stall_that_follows_them() -> None:
    exchange = begun()
    exchange.receive(HEAD + token("a") + event({"error": {"message": "oom"}}), 100, None)
    exchange.fail(errors.Cancelled("SIGINT", 1), 200)
    failure = finished(exchange).failure
    assert failure is not None
    assert failure.facts == {"error": "oom", "tokens": 1}


def test_an_encoded_answer_is_told_as_such() -> None:
    exchange = begun()
    exchange.receive(b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 3\r\n\r\nabc", 100, None)
    failure = finished(exchange).failure
    assert failure is not None
    assert "gzip" in failure.facts["problem"]


# --- attempts ---


def test_another_attempt_forgets_the_one_before_but_not_when_the_first_was_sent() -> None:
    exchange = begun()
    exchange.receive(b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n", 200, None)
    exchange.settle()
    assert exchange.retryable
    exchange.begin_attempt(900)
    exchange.receive(WHOLE, 1000, None)
    record = finished(exchange)
    assert (record.sent_ns, record.attempts, record.failure, record.text) == (100, 2, None, "grüß")


@pytest.mark.parametrize(("status", "again"), [(429, True), (503, True), (500, True), (400, False), (404, False)])
def test_only_what_may_pass_is_worth_another_attempt(status: int, again: bool) -> None:
    exchange = begun()
    exchange.receive(b"HTTP/1.1 %d X\r\ncontent-length: 0\r\n\r\n" % status, 200, None)
    exchange.settle()
    assert exchange.retryable is again


def test_a_stream_that_broke_after_tokens_is_not_sent_again() -> None:
    exchange = begun()
    exchange.receive(HEAD + token("a"), 200, None)
    exchange.connection_ended("reset", 300)
    assert not exchange.retryable
