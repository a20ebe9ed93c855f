"""HTTP messages are read the same whatever the split of their bytes, and written as they are read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.wire.http1 import (
    LAST_CHUNK,
    Origin,
    ProtocolError,
    Request,
    Response,
    parse_url,
    write_chunk,
    write_request,
    write_response_head,
)

RESPONSES = {
    "length": (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 200, b"hello", True),
    "chunked": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n",
        200,
        b"hello",
        True,
    ),
    "until the end": (b"HTTP/1.1 200 OK\r\nX: y\r\n\r\nhello", 200, b"hello", False),
    "http/1.0": (b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello", 200, b"hello", False),
    "close": (b"HTTP/1.1 503 Busy Now\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", 503, b"", False),
    "continue first": (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello",
        200,
        b"hello",
        True,
    ),
    "no content": (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b"", True),
}


@pytest.mark.parametrize("name", RESPONSES)
@pytest.mark.parametrize("size", [1, 2, 7, 10_000])
def test_a_response_is_the_same_for_any_size_of_pieces(name: str, size: int) -> None:
    raw, status, body, keep_alive = RESPONSES[name]
    response = Response()
    for start in range(0, len(raw), size):
        response.feed(raw[start : start + size])
    assert response.finish()
    assert (response.status, response.body, response.keep_alive) == (status, body, keep_alive)


def test_headers_are_those_of_the_last_answer_and_its_reason_too() -> None:
    response = Response()
    response.feed(RESPONSES["continue first"][0])
    assert response.headers == [("content-length", "5")]
    assert response.reason == "OK"


@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        b"",
    ],
)
def test_a_response_that_breaks_off_is_not_complete(raw: bytes) -> None:
    response = Response()
    if raw:
        response.feed(raw)
    assert not response.finish()


def test_bytes_after_a_response_are_noticed_and_are_not_its_body() -> None:
    response = Response()
    response.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx")
    assert response.complete
    assert response.trailing
    assert response.body == b"ok"


@pytest.mark.parametrize("raw", [b"hello\r\n\r\n", b"SSH-2.0-x\r\n", b"HTTP/1.1 abc OK\r\n\r\n"])
def test_what_is_no_http_is_refused(raw: bytes) -> None:
    with pytest.raises(ProtocolError):
        Response().feed(raw)


def test_the_place_of_a_broken_chunk_is_told() -> None:
    response = Response()
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n"
    response.feed(head)
    with pytest.raises(ProtocolError) as error:
        response.feed(b"zz\r\n")
    assert error.value.offset == len(head)


@given(st.binary(max_size=300), st.integers(1, 50))
def test_a_request_that_was_written_is_read_back(body: bytes, size: int) -> None:
    raw = write_request("POST", "/v1/x?y=1", [("host", "h"), ("x-a", "b")], body)
    request = Request()
    for start in range(0, len(raw), size):
        request.feed(raw[start : start + size])
    assert request.complete
    assert (request.method, request.target, request.body) == ("POST", "/v1/x?y=1", body)
    assert request.header("x-a") == "b"


@given(st.lists(st.binary(min_size=1, max_size=50), max_size=5))
def test_a_chunked_answer_that_was_written_is_read_back(parts: list[bytes]) -> None:
    response = Response()
    response.feed(write_response_head(200, [("transfer-encoding", "chunked")]))
    for part in parts:
        response.feed(write_chunk(part))
    response.feed(LAST_CHUNK)
    assert response.complete
    assert response.body == b"".join(parts)


@pytest.mark.parametrize(
    ("text", "origin", "target"),
    [
        ("http://h", Origin("http", "h", 80), "/"),
        ("https://h/v1?x=1", Origin("https", "h", 443), "/v1?x=1"),
        ("http://[::1]:8000/a", Origin("http", "::1", 8000), "/a"),
        ("http://u:p%40@h:1/", Origin("http", "h", 1), "/"),
    ],
)
def test_addresses_are_taken_apart(text: str, origin: Origin, target: str) -> None:
    url = parse_url(text)
    assert (url.origin, url.target) == (origin, target)


def test_an_address_never_prints_its_password() -> None:
    url = parse_url("http://me:secret%20word@h:1/x")
    assert (url.user, url.password) == ("me", "secret word")
    assert str(url) == "http://h:1/x"


def test_brackets_stand_around_ipv6_and_the_scheme_s_own_port_is_left_out() -> None:
    assert Origin("http", "::1", 8000).authority == "[::1]:8000"
    assert Origin("https", "h", 443).authority == "h"


@pytest.mark.parametrize(
    "text", ["h:80", "ftp://h", "http://", "http://h:99999", "http://h:x", "http://h/ä", "http://h /"]
)
def test_what_is_no_address_is_refused_with_a_reason(text: str) -> None:
    with pytest.raises(ValueError, match=r"address|port|path"):
        parse_url(text)
