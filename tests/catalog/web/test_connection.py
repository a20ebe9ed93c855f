"""Clients that send too much, too slowly, or nothing."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.catalog.web.serving import Server, ask, serving

MUCH_BYTES = 64 << 20


@pytest.fixture(scope="module")
def server(catalog: Path) -> Iterator[Server]:
    """One for itself: its connections are used up."""
    with serving("--store", str(catalog)) as server:
        yield server
        assert server.end(signal.SIGTERM) == 0


def connected(server: Server, sent: bytes = b"") -> socket.socket:
    to = urlsplit(server.address)
    connection = socket.create_connection((to.hostname, to.port), timeout=60)
    connection.sendall(sent)
    return connection


def num_bytes_taken(connection: socket.socket, chunk: bytes) -> int:
    """How much of an endless stream goes out before the connection is closed."""
    num_bytes = 0
    try:
        while num_bytes < MUCH_BYTES:
            connection.sendall(chunk)
            num_bytes += len(chunk)
    except (BrokenPipeError, ConnectionResetError):
        pass
    return num_bytes


@pytest.mark.parametrize("chunk", [b"x" * 100_000, b"X-More: " + b"x" * 10_000 + b"\r\n"], ids=["one", "many"])
def test_headers_without_an_end_are_refused(server: Server, chunk: bytes) -> None:
    with connected(server, b"GET / HTTP/1.1\r\nHost: localhost\r\nX-First: ") as connection:
        assert num_bytes_taken(connection, chunk) < MUCH_BYTES
    assert ask(server.address, "/").status == 200


def test_who_sends_nothing_or_half_a_head_is_cut_off_and_shuts_nobody_out(server: Server) -> None:
    with ExitStack() as stack:
        silent = [stack.enter_context(connected(server)) for _ in range(130)]
        half = stack.enter_context(connected(server, b"GET / HTTP/1.1\r\nHost: loc"))
        later = stack.enter_context(connected(server, b"GET /api/projects HTTP/1.1\r\nHost: localhost\r\n\r\nGET / HT"))
        assert later.recv(1 << 16).startswith(b"HTTP/1.1 503")  # all connections are in use
        for connection in (*silent, half):
            assert ended(connection)
    assert ask(server.address, "/").status == 200


def test_two_requests_that_are_sent_at_once_are_answered_one_after_the_other(server: Server) -> None:
    request = b"GET /api/projects HTTP/1.1\r\nHost: localhost\r\n"
    with connected(server, request + b"\r\n" + request + b"Connection: close\r\n\r\n") as connection:
        answers = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    assert answers.count(b"HTTP/1.1 200") == answers.count(b'"projects/1"') == 2


def test_a_client_that_would_speak_another_protocol_gets_a_page(server: Server) -> None:
    got = ask(server.address, "/", Connection="Upgrade", Upgrade="websocket", Sec_WebSocket_Version="13")
    assert got.status == 200 and "<h1>" in got.text


def ended(connection: socket.socket) -> bool:
    """Whether the other side closes it without a word. Waits for it."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True
