"""The drill's own calls, over real sockets."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Any

import pytest

from tests.engine.serving import answering
from windtunnel.drill.admin import Admin, Told
from windtunnel.drill.calls import call, events
from windtunnel.engine.server import Exchange
from windtunnel.errors import ActionFailed, ConnectFailed, Disconnected, MalformedResponse, TimedOut
from windtunnel.wire.http1 import LAST_CHUNK, write_chunk, write_response_head

STREAM = [("content-type", "text/event-stream"), ("transfer-encoding", "chunked")]


def post(url: str, timeout_s: float = 20.0) -> Any:
    return asyncio.run(call("POST", url, b"{}", headers=[("x-team", "wind")], timeout_s=timeout_s))


def test_a_call_sends_its_body_and_headers_and_brings_the_answer() -> None:
    def echo(exchange: Exchange) -> None:
        asked = exchange.request
        told = [asked.method, asked.target, asked.header("x-team"), asked.header("content-type"), asked.body.decode()]
        exchange.respond(201, json.dumps(told).encode())

    with answering(echo) as url:
        answer = post(f"{url}/a?b=1")
    assert answer.status == 201
    assert answer.json == ["POST", "/a?b=1", "wind", "application/json", "{}"]


def test_an_error_object_is_told_by_its_message_and_anything_else_by_its_first_words() -> None:
    bodies = iter([b'{"error": {"message": "no such rank"}}', b"<html>", b""])
    with answering(lambda exchange: exchange.respond(400, next(bodies))) as url:
        told = [post(url).excerpt for _ in range(3)]
    assert told == ["HTTP 400: no such rank", "HTTP 400: <html>", "HTTP 400"]


def test_what_goes_wrong_is_told_as_the_load_tells_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    with pytest.raises(ConnectFailed, match="refused"):
        post(f"http://127.0.0.1:{port}/")
    with answering(lambda exchange: exchange.reset()) as url, pytest.raises(Disconnected):
        post(url)
    with answering(lambda exchange: exchange.close()) as url, pytest.raises(Disconnected):
        post(url)
    with answering(lambda exchange: None) as url, pytest.raises(TimedOut):
        post(url, timeout_s=0.05)

    def babble(exchange: Exchange) -> None:
        exchange.write(b"SSH-2.0\r\n")
        exchange.close()

    with answering(babble) as url, pytest.raises(MalformedResponse):
        post(url)


def event(at_ns: int, what: str) -> bytes:
    told = {"at_ns": at_ns, "who": "coordinator", "what": what, "facts": {}}
    return write_chunk(b"data: " + json.dumps(told).encode() + b"\n\n")


def test_events_come_one_by_one_until_the_stream_ends() -> None:
    def stream(exchange: Exchange) -> None:
        exchange.write(write_response_head(200, STREAM) + event(1, "a") + event(2, "b") + LAST_CHUNK)
        exchange.finish()

    async def read(url: str) -> list[str]:
        return [told["what"] async for told in events(url)]

    with answering(stream) as url:
        assert asyncio.run(read(url)) == ["a", "b"]
    with answering(lambda exchange: exchange.respond(404, b"")) as url, pytest.raises(Disconnected, match="404"):
        asyncio.run(read(url))


def test_a_stream_that_breaks_is_taken_up_where_it_ended() -> None:
    asked: list[str] = []

    def stream(exchange: Exchange) -> None:
        asked.append(exchange.request.target)
        exchange.write(write_response_head(200, STREAM) + event(10 * len(asked), f"event {len(asked)}"))
        if len(asked) == 1:
            exchange.close()

    async def read(url: str) -> list[str]:
        told: list[str] = []
        enough = asyncio.Event()

        def on_event(one: Told) -> None:
            told.append(one.what)
            if len(told) == 2:
                enough.set()

        following = asyncio.create_task(Admin(url).follow(5, on_event))
        await enough.wait()
        following.cancel()
        return told

    with answering(stream) as url:
        assert asyncio.run(asyncio.wait_for(read(url), 20)) == ["event 1", "event 2"]
    assert asked == ["/admin/events?after=5", "/admin/events?after=10"]


def test_a_server_without_an_admin_api_has_none_and_a_refusal_is_told() -> None:
    with answering(lambda exchange: exchange.respond(404, b"")) as url:
        assert asyncio.run(Admin.find(url)) is None
        with pytest.raises(ActionFailed, match="kill_rank: HTTP 404"):
            asyncio.run(Admin(url).do("kill_rank", 20.0, rank=1))
    ranks = answering(lambda exchange: exchange.respond(200, b'{"ranks": []}'))
    with ranks as url, pytest.raises(ActionFailed, match="no process of such a rank"):
        asyncio.run(Admin(url).pid_of(1))
