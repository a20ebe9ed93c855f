"""The HTTP server of the embedded targets: what it reads, what it refuses, and that it notices who leaves."""

from __future__ import annotations

import asyncio
import http.client
import queue
import resource
import ssl
import threading
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.engine.certificates import make_certificate
from tests.engine.serving import (
    answering,
    call,
    connect,
    exchange,
    read_to_end,
    read_until,
    request_bytes,
)
from windtunnel.engine.server import Exchange, HttpServer, new_event_loop
from windtunnel.readiness import raise_descriptor_limit


def echo(exchange: Exchange) -> None:
    """Answer with what was asked."""
    request = exchange.request
    exchange.respond(200, f"{request.method} {request.target} ".encode() + request.body)


def test_a_request_is_read_whatever_the_split_of_its_bytes() -> None:
    raw = request_bytes("/a?b=c", b"the body", "connection: close")
    with answering(echo) as url, connect(url) as sock:
        for byte in raw:
            sock.sendall(bytes([byte]))
        assert read_to_end(sock).body == b"POST /a?b=c the body"


def test_a_chunked_request_is_read() -> None:
    raw = b"POST /a HTTP/1.1\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    with answering(echo) as url:
        assert exchange(url, raw).body == b"POST /a abcde"


def test_a_standard_client_keeps_its_connection() -> None:
    with answering(echo) as url:
        client = http.client.HTTPConnection(urlsplit(url).netloc, timeout=10)
        client.connect()
        port = client.sock.getsockname()[1]
        for number in range(3):
            client.request("POST", "/a", body=b"%d" % number)
            assert client.getresponse().read() == b"POST /a %d" % number
            assert client.sock.getsockname()[1] == port
        client.close()


def test_the_connection_is_closed_where_the_client_wants_that() -> None:
    with answering(echo) as url:
        reply = call(url, "/a", b"")
    assert (reply.ended, reply.response.header("connection")) == ("fin", "close")


@pytest.mark.parametrize(
    "raw",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST / HTTP/1.1\r\ncontent-length: ten\r\n\r\n",
        b"GET / HTTP/1.1\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n",
        request_bytes("/1") + request_bytes("/2"),
    ],
    ids=["tls", "no target", "version", "length", "upgrade", "pipelining"],
)
def test_what_is_no_request_gets_400_with_openais_error_object(raw: bytes) -> None:
    with answering(echo) as url:
        reply = exchange(url, raw)
    assert (reply.status, reply.ended) == (400, "fin")
    assert reply.json["error"]["code"] == 400
    assert reply.response.header("connection") == "close"


def test_a_body_that_is_declared_too_large_gets_413_before_it_is_sent() -> None:
    with answering(echo, max_body_bytes=1000) as url:
        reply = exchange(url, b"POST / HTTP/1.1\r\ncontent-length: 1001\r\n\r\n")
    assert (reply.status, reply.ended) == (413, "fin")
    assert "1000 bytes" in reply.json["error"]["message"]


def test_a_client_that_was_refused_may_send_its_body_to_the_end() -> None:
    size = 30_000_000
    with answering(echo, max_body_bytes=1000) as url, connect(url) as sock:
        sock.sendall(b"POST / HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % size)
        assert read_until(sock, b"\r\n").startswith(b"HTTP/1.1 413")
        sock.sendall(bytes(size))  # a reset would raise here
        assert read_to_end(sock).ended == "fin"


def test_a_chunked_body_that_grows_too_large_gets_413() -> None:
    piece = b"10000\r\n" + bytes(0x10000) + b"\r\n"
    with answering(echo, max_body_bytes=1000) as url:
        reply = exchange(url, b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n" + piece * 2)
    assert reply.status == 413


def test_a_body_of_the_largest_size_is_taken() -> None:
    with answering(echo, max_body_bytes=1_000_000) as url:
        assert call(url, "/", bytes(1_000_000)).status == 200


def test_a_head_without_end_is_refused() -> None:
    with answering(echo) as url:
        reply = exchange(url, b"GET / HTTP/1.1\r\n" + b"a: " + b"b" * 70_000)
    assert reply.status == 400
    assert "head is larger than 65536 bytes" in reply.json["error"]["message"]


def test_a_client_that_waits_for_100_continue_gets_it() -> None:
    with answering(echo) as url, connect(url) as sock:
        sock.sendall(b"POST /a HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 2\r\nconnection: close\r\n\r\n")
        assert read_until(sock, b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        sock.sendall(b"ok")
        assert read_to_end(sock).body == b"POST /a ok"


@pytest.mark.parametrize("leave", ["close", "reset"])
def test_a_client_that_leaves_is_noticed(leave: str) -> None:
    arrived: queue.Queue[Exchange] = queue.Queue()
    gone = threading.Event()

    def wait(exchange: Exchange) -> None:
        exchange.on_gone = gone.set
        arrived.put(exchange)

    with answering(wait) as url:
        with connect(url) as sock:
            sock.sendall(request_bytes("/"))
            arrived.get(timeout=10)
            assert not gone.is_set()
            if leave == "reset":
                sock.setsockopt(1, 13, b"\x01\0\0\0\0\0\0\0")  # SO_LINGER with no time: close() sends RST
        assert gone.wait(10)


def test_a_client_that_leaves_after_its_answer_is_not_counted_as_gone() -> None:
    gone = []

    def answer(exchange: Exchange) -> None:
        exchange.on_gone = lambda: gone.append(1)
        exchange.respond(200, b"")

    with answering(answer) as url:
        with connect(url) as sock:
            sock.sendall(request_bytes("/"))
            read_until(sock, b"\r\n\r\n")
        call(url, "/")
    assert not gone


def test_a_handler_is_told_when_a_slow_client_has_read() -> None:
    told: queue.Queue[str] = queue.Queue()

    def write_much(exchange: Exchange) -> None:
        def go_on() -> None:
            told.put("writable" if exchange.writable else "called too early")
            exchange.finish()

        exchange.on_writable = go_on
        exchange.write(b"HTTP/1.1 200 OK\r\ncontent-length: 20000000\r\n\r\n" + bytes(20_000_000))
        told.put("full" if not exchange.writable else "not full")

    with answering(write_much) as url, connect(url) as sock:
        sock.sendall(request_bytes("/", None, "connection: close"))
        assert told.get(timeout=10) == "full"
        assert told.empty()
        assert len(read_to_end(sock).body) == 20_000_000
        assert told.get(timeout=10) == "writable"


def test_a_request_that_comes_before_the_answer_to_the_last_is_served_after_it() -> None:
    waiting: queue.Queue[tuple[asyncio.AbstractEventLoop, Exchange]] = queue.Queue()

    def later(exchange: Exchange) -> None:
        if exchange.request.target == "/1":
            waiting.put((asyncio.get_running_loop(), exchange))
        else:
            echo(exchange)

    with answering(later) as url, connect(url) as sock:
        sock.sendall(request_bytes("/1"))
        loop, first = waiting.get(timeout=10)
        sock.sendall(request_bytes("/2", None, "connection: close"))
        call(url, "/3")  # its bytes came after those of the second, so both have been read
        loop.call_soon_threadsafe(first.respond, 200, b"one")
        raw = read_to_end(sock).raw
    assert raw.index(b"one") < raw.index(b"GET /2")


def test_a_handler_that_fails_gets_500_and_the_server_goes_on() -> None:
    def fail(exchange: Exchange) -> None:
        if exchange.request.target == "/fail":
            raise RuntimeError("a bug")
        echo(exchange)

    logged = []

    async def serve_and_fail() -> tuple[bytes, bytes]:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: logged.append(context["exception"]))
        server = HttpServer(fail)
        await server.listen()
        failed = await asyncio.to_thread(call, server.url, "/fail")
        served = await asyncio.to_thread(call, server.url, "/fine")
        await server.close()
        assert failed.status == 500
        return failed.body, served.body

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        failed, served = runner.run(serve_and_fail())
    assert b"the server failed" in failed
    assert served == b"GET /fine "
    assert [str(error) for error in logged] == ["a bug"]


def test_https_is_served(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_side.load_cert_chain(certificate, key)
    client_side = ssl.create_default_context(cafile=str(certificate))
    with answering(echo, tls=server_side) as url:
        assert url.startswith("https://127.0.0.1:")
        reply = call(url, "/a", b"secret", tls=client_side)
    assert reply.body == b"POST /a secret"


def test_ipv6_is_served() -> None:
    async def serve_once() -> tuple[str, bytes]:
        server = HttpServer(echo)
        await server.listen("::1")
        reply = await asyncio.to_thread(call, server.url, "/six")
        await server.close()
        return server.url, reply.body

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        url, body = runner.run(serve_once())
    assert url.startswith("http://[::1]:")
    assert body == b"GET /six "


def test_two_thousand_connections_at_once_are_taken() -> None:
    raise_descriptor_limit()
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    num = min(2000, (limit - 200) // 2)  # both ends are in this process
    served = threading.Semaphore(0)

    def count(exchange: Exchange) -> None:
        served.release()
        exchange.respond(204, b"")

    with answering(count) as url:
        socks = [connect(url) for _ in range(num)]
        for sock in socks:
            sock.sendall(request_bytes("/"))
        assert all(served.acquire(timeout=10) for _ in range(num))
        for sock in socks:
            sock.close()


def test_the_descriptor_limit_is_raised_to_the_hard_one() -> None:
    raise_descriptor_limit()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert soft == hard
