"""Each way in which a request can go wrong, as bytes on the wire and as the connection's end."""

from __future__ import annotations

import json
import time
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
from windtunnel.engine.paced.config import FAULTS
from windtunnel.units import NS_PER_MS

ENDLESS = ("stall", "stall_pings", "no_first", "no_answer")


def test_truncated_ends_cleanly_without_a_finish_reason() -> None:
    reply = ask("fault=truncated")
    assert (reply.complete, reply.ended) == (True, "fin")
    assert len(reply.stamps) == 3
    assert set(reply.finish_reasons) == {None}
    assert b"[DONE]" not in reply.body


def test_truncated_done_has_done_but_neither_finish_reason_nor_usage() -> None:
    reply = ask("fault=truncated_done,fault_after=4")
    assert reply.complete
    assert reply.finish_reasons == [None] * 4
    assert reply.events[-1] == b"[DONE]"
    assert all(chunk["choices"] for chunk in reply.chunks)


def test_cut_closes_in_the_middle_of_the_body() -> None:
    reply = ask("fault=cut")
    assert (reply.complete, reply.ended) == (False, "fin")
    assert len(reply.stamps) == 3


def test_reset_comes_after_tokens_that_are_not_lost() -> None:
    began_ns = time.monotonic_ns()
    reply = ask("fault=reset,fault_after=2,ttft=0,itl=20ms")
    assert (reply.complete, reply.ended) == (False, "rst")
    assert len(reply.stamps) == 2
    assert time.monotonic_ns() - began_ns >= 40 * NS_PER_MS  # when the third token would have come


@pytest.mark.parametrize(("fault", "ended"), [("reset_before", "rst"), ("close_before", "fin")])
def test_the_connection_ends_before_the_first_byte(fault: str, ended: str) -> None:
    reply = ask(f"fault={fault}")
    assert (reply.raw, reply.ended) == (b"", ended)


def test_an_error_comes_in_the_stream() -> None:
    reply = ask("fault=inband_error,fault_after=1")
    assert (reply.status, reply.complete) == (200, True)
    assert [json.loads(data).get("error", {}).get("type") for data in reply.events[:-1]] == [
        None,
        "internal_server_error",
    ]
    assert reply.events[-1] == b"[DONE]"


def test_an_error_comes_alone_with_status_200() -> None:
    reply = ask("fault=error_only")
    assert (reply.status, reply.response.header("content-type")) == (200, "application/json")
    assert reply.json["error"]["message"]


@pytest.mark.parametrize("status", [400, 404, 429, 500, 503, 599])
def test_a_status_comes_with_an_error_object(status: int) -> None:
    reply = ask(f"fault={status},retry_after=2")
    assert reply.status == status
    assert reply.json["error"]["code"] == status
    assert reply.response.header("retry-after") == "2"


def test_retry_after_is_left_out_unless_it_is_asked_for() -> None:
    assert ask("fault=429").response.header("retry-after") is None


def wait_for_stats(url: str, name: str, number: int) -> None:
    while call(url, "/stats").json[name] != number:
        pass


@pytest.mark.parametrize(("fault", "last"), [("stall", b"\n\n\r\n"), ("no_first", b"chunked\r\n\r\n")])
def test_the_answer_stops_and_the_connection_stays_open(fault: str, last: bytes) -> None:
    with paced(f"fault={fault},fault_after=1") as url:
        with connect(url) as sock:
            sock.sendall(request_bytes(COMPLETIONS, completion()))
            read_until(sock, last)
            sock.setblocking(False)
            with pytest.raises(BlockingIOError):
                sock.recv(1)
            assert call(url, "/stats").json["in_flight"] == 1
        wait_for_stats(url, "left", 1)
        assert call(url, "/stats").json["in_flight"] == 0


def test_no_answer_comes_at_all() -> None:
    with paced("fault=no_answer") as url, connect(url) as sock:
        sock.sendall(request_bytes(COMPLETIONS, completion()))
        wait_for_stats(url, "in_flight", 1)
        sock.setblocking(False)
        with pytest.raises(BlockingIOError):
            sock.recv(1)


def test_comments_go_on_while_the_stream_stalls() -> None:
    with paced("fault=stall_pings,fault_after=1") as url, connect(url) as sock:
        sock.sendall(request_bytes(COMPLETIONS, completion()))
        data = read_until(sock, b":\n\n")
        for _ in range(3):
            data += read_until(sock, b":")
    assert data.count(b'"text"') == 1


def is_json(data: bytes) -> bool:
    try:
        json.loads(data)
    except ValueError:
        return False
    return True


def test_one_event_is_malformed_and_the_stream_goes_on() -> None:
    events = ask("fault=malformed_event,fault_after=2").events
    assert [is_json(data) for data in events] == [True, True, False, True, True, True, True, False]
    assert events[-1] == b"[DONE]"


def test_each_event_is_malformed() -> None:
    events = ask("fault=malformed_all", chat()).events
    assert not any(is_json(data) for data in events)
    assert len(events) == 1 + 6 + 1 + 1


def test_a_stray_line_comes_between_events() -> None:
    reply = ask("fault=stray")
    assert b"\n\nupstream is slow, please wait\n\ndata: " in reply.body
    assert len(reply.stamps) == 6
    assert reply.finish_reasons[-1] == "length"


def test_the_answer_is_no_http() -> None:
    reply = ask("fault=not_http")
    assert (reply.raw, reply.ended) == (b"SSH-2.0-OpenSSH_9.6\r\n", "fin")


def test_the_answer_is_a_page() -> None:
    reply = ask("fault=html")
    assert (reply.status, reply.response.header("content-type")) == (200, "text/html; charset=utf-8")
    assert reply.body.startswith(b"<!DOCTYPE html>")


@pytest.mark.parametrize(("after", "tokens"), [("", 3), (",fault_after=5", 5), (",fault_after=99", 5)])
def test_short_has_fewer_tokens_and_says_stop(after: str, tokens: int) -> None:
    reply = ask(f"fault=short{after}")
    assert len(reply.stamps) == tokens
    assert reply.finish_reasons[-1] == "stop"
    assert reply.chunks[-1]["usage"]["completion_tokens"] == tokens


@pytest.mark.parametrize("finish", ["last", "separate"])
def test_zero_has_no_token_and_says_stop(finish: str) -> None:
    began_ns = time.monotonic_ns()
    reply = ask(f"fault=zero,finish={finish},ttft=30ms")
    assert time.monotonic_ns() - began_ns >= 30 * NS_PER_MS
    assert (reply.texts, reply.finish_reasons) == ([""], ["stop"])
    assert reply.chunks[-1]["usage"]["completion_tokens"] == 0


def test_a_stream_comes_in_one_piece() -> None:
    reply = ask("fault=one_piece,ttft=20ms,itl=2ms")
    assert len(reply.stamps) == 6
    arrived = int(reply.texts[0].split(":")[0])
    assert reply.stamps[0] - arrived >= (20 + 5 * 2) * 1_000_000
    assert reply.complete
    assert len(reply.pieces) == 1


def test_a_stream_comes_as_plain_json() -> None:
    reply = ask("fault=json")
    assert reply.response.header("content-type") == "application/json"
    assert len(reply.json["choices"][0]["text"].split()) == 6


@pytest.mark.parametrize(("path", "body"), [(COMPLETIONS, completion()), (CHAT, chat())])
def test_a_redirect_leads_to_where_it_is_served(path: str, body: dict[str, Any]) -> None:
    with paced("fault=redirect") as url:
        reply = call(url, path, body)
        location = reply.response.header("location")
        assert (reply.status, location) == (307, f"{path}?redirected=1")
        assert len(call(url, location, body).stamps) == 6


def test_a_redirect_loop_leads_to_itself() -> None:
    with paced("fault=redirect_loop") as url:
        for path in (COMPLETIONS, f"{COMPLETIONS}?redirected=1"):
            reply = call(url, path, completion())
            assert (reply.status, reply.response.header("location")) == (307, path)


def test_the_head_comes_slowly() -> None:
    reply = ask("fault=slow_head,ttft=80ms")
    assert len(reply.stamps) == 6
    assert b"\r\n\r\n" not in reply.pieces[0]


@pytest.mark.parametrize(("ratio", "faulty"), [("0.25", [3, 7, 11]), ("0.5", [1, 3, 5, 7, 9, 11]), ("0", [])])
def test_a_share_of_requests_goes_wrong_evenly_spread(ratio: str, faulty: list[int]) -> None:
    with paced(f"fault=503,fault_ratio={ratio}") as url:
        statuses = [call(url, COMPLETIONS, completion(1)).status for _ in range(12)]
    assert [number for number, status in enumerate(statuses) if status == 503] == faulty


def test_redirected_requests_do_not_shift_the_share() -> None:
    with paced("fault=redirect,fault_ratio=0.5") as url:
        statuses = []
        for _ in range(6):
            reply = call(url, COMPLETIONS, completion(1))
            statuses.append(reply.status)
            if reply.status == 307:
                assert call(url, f"{COMPLETIONS}?redirected=1", completion(1)).status == 200
    assert statuses == [200, 307] * 3


@pytest.mark.parametrize("fault", [name for name in FAULTS if name not in ENDLESS])
def test_a_fault_without_streaming_ends_too(fault: str) -> None:
    reply = ask(f"fault={fault}", completion(stream=False))
    whole = fault in ("one_piece", "slow_head", "json", "short", "zero")
    broken = fault in ("truncated", "truncated_done", "cut", "reset")
    assert isinstance(reply, Reply)
    if whole:
        assert reply.json["usage"]["completion_tokens"] == {"short": 3, "zero": 0}.get(fault, 6)
    elif broken:
        assert not reply.complete
        assert int(reply.response.header("content-length") or 0) > len(reply.body) > 0
    elif fault in ("malformed_event", "malformed_all", "stray"):
        assert reply.complete
        assert not is_json(reply.body)
    elif fault in ("inband_error", "error_only"):
        assert reply.json["error"]


@pytest.mark.parametrize("fault", ENDLESS)
def test_a_fault_without_streaming_can_last_for_ever(fault: str) -> None:
    with paced(f"fault={fault}") as url:
        with connect(url) as sock:
            sock.sendall(request_bytes(COMPLETIONS, completion(stream=False)))
            if fault != "no_answer":
                read_until(sock, b"\r\n\r\n")
            wait_for_stats(url, "in_flight", 1)
        wait_for_stats(url, "left", 1)


def test_a_fault_can_come_before_the_first_token() -> None:
    reply = ask("fault=truncated,fault_after=0")
    assert (reply.complete, reply.body) == (True, b"")


def test_a_client_that_leaves_in_mid_stream_is_counted() -> None:
    with paced("itl=5ms") as url:
        with connect(url) as sock:
            sock.sendall(request_bytes(COMPLETIONS, completion(100_000)))
            read_until(sock, b'"text"')
        wait_for_stats(url, "left", 1)
        stats = call(url, "/stats").json
    assert (stats["started"], stats["completed"], stats["in_flight"]) == (1, 0, 0)


def test_the_next_request_on_the_connection_is_served_after_a_clean_fault() -> None:
    with paced("fault=truncated,fault_ratio=0.5") as url, connect(url) as sock:
        for tokens in (6, 3):
            sock.sendall(request_bytes(COMPLETIONS, completion()))
            assert len(Reply(read_until(sock, b"\r\n0\r\n\r\n"), "").stamps) == tokens
        sock.sendall(request_bytes("/health", None, "connection: close"))
        assert read_to_end(sock).status == 200
