"""How the target is reached: TLS, proxy, redirects, address families, kept connections, and who may see the key."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.engine.certificates import make_certificate
from tests.engine.serving import paced
from tests.loadgen.driving import drive, drive_paced, paced_with_tls
from windtunnel import errors
from windtunnel.engine.process import EmbeddedTarget
from windtunnel.loadgen.network import resolve
from windtunnel.wire.control import Address
from windtunnel.wire.http1 import Origin, Request


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The files of a self-signed certificate for 127.0.0.1 and of its key."""
    certificate, key = make_certificate(tmp_path_factory.mktemp("tls"))
    return str(certificate), str(key)


def test_https_works_with_a_certificate_that_is_trusted(
    certificate: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", certificate[0])
    with paced_with_tls(certificate) as url:
        assert url.startswith("https://")
        records = drive(url, 6, slots=2)
    assert [record.failure for record in records] == [None] * 6
    assert {record.stamped_by for record in records} == {"kernel"}
    # the second request of each slot goes over the connection of the first
    assert sum(record.connected_ns is not None for record in records) == 2


def test_https_with_a_certificate_that_is_not_trusted_fails_in_its_own_phase(certificate: tuple[str, str]) -> None:
    with paced_with_tls(certificate) as url:
        (record,) = drive(url)
        (unchecked,) = drive(url, insecure=True)
    assert record.failure is not None
    assert (record.failure.code, record.failure.facts["phase"]) == ("WT-HTTP-CONNECT", "tls")
    assert "self-signed" in record.failure.facts["reason"]
    assert unchecked.failure is None


def test_https_to_a_server_that_speaks_http_is_a_tls_failure() -> None:
    with paced() as url:
        (record,) = drive(url.replace("http://", "https://"))
    assert record.failure is not None
    assert record.failure.facts["phase"] == "tls"


def test_ipv6_literals_are_reached() -> None:
    with EmbeddedTarget.start("paced:ttft=5ms,itl=1ms", host="::1") as target:
        assert "[::1]" in target.url
        (record,) = drive(target.url)
    assert record.failure is None


def test_the_next_address_of_a_host_is_tried_when_one_refuses() -> None:
    with paced() as url:
        port = int(url.rpartition(":")[2])
        addresses = [Address(socket.AF_INET6, "::1", port, (0, 0)), Address(socket.AF_INET, "127.0.0.1", port)]
        records = drive(url, 3, slots=3, addresses=addresses)
    assert [record.failure for record in records] == [None] * 3


def test_an_unknown_host_is_a_failure_of_dns() -> None:
    with pytest.raises(errors.ConnectFailed) as error:
        resolve(Origin("http", "no-such-host.invalid", 80))
    assert error.value.phase == "dns"


def test_a_redirect_is_followed() -> None:
    (record,) = drive_paced("fault=redirect")
    assert (record.failure, record.redirects) == (None, 1)


class Recorder:
    """A server that gives one answer to one request of each connection, and keeps what it was asked."""

    def __init__(self, answer: str, *, hangs_up_late: bool) -> None:
        self.requests: list[Request] = []
        self._answer = answer
        self._hangs_up_late = hangs_up_late
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                request = Request()
                while not request.complete:
                    data = connection.recv(65536)
                    if not data:
                        break
                    request.feed(data)
                if request.complete:
                    self.requests.append(request)
                    connection.sendall(self._answer.encode())
                    if self._hangs_up_late:
                        connection.recv(65536)  # the next request, which is not answered, or the client's goodbye

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()


@contextmanager
def recorder(answer: str, *, hangs_up_late: bool = False) -> Iterator[Recorder]:
    server = Recorder(answer, hangs_up_late=hangs_up_late)
    try:
        yield server
    finally:
        server.close()


ANSWER = '{"choices":[{"text":"a b","finish_reason":"stop"}],"usage":{"completion_tokens":2}}'
OK_HEAD = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n"
OK = f"{OK_HEAD}content-length: {len(ANSWER)}\r\n\r\n{ANSWER}"
SECRETS = [("authorization", "Bearer sk-secret"), ("x-team", "blue")]


def test_the_key_is_not_sent_to_another_host() -> None:
    with recorder(OK) as other:
        location = f"http://127.0.0.1:{other.port}/v1/completions"
        redirect = (
            f"HTTP/1.1 307 Temporary Redirect\r\nlocation: {location}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
        )
        with recorder(redirect) as first:
            (record,) = drive(f"http://127.0.0.1:{first.port}", headers=SECRETS, stream=False)
    assert (record.failure, record.redirects) == (None, 1)
    assert first.requests[0].header("authorization") == "Bearer sk-secret"
    assert other.requests[0].header("authorization") is None
    assert other.requests[0].header("x-team") is None
    assert other.requests[0].body == first.requests[0].body


def test_the_key_goes_along_within_the_host() -> None:
    with paced("fault=redirect,key=sk-secret") as url:
        (record,) = drive(url, headers=SECRETS)
    assert (record.failure, record.redirects) == (None, 1)


def test_what_a_request_says_of_itself() -> None:
    with recorder(OK) as server:
        drive(f"http://127.0.0.1:{server.port}", headers=SECRETS, stream=False)
    (request,) = server.requests
    assert (request.method, request.target) == ("POST", "/v1/completions")
    assert request.header("host") == f"127.0.0.1:{server.port}"
    assert request.header("content-type") == "application/json"
    assert request.header("x-request-id") == "r-0"
    assert request.header("accept-encoding") == "identity"


class TunnelProxy:
    """An HTTP proxy for CONNECT and for plain requests to one server; keeps what it was asked."""

    def __init__(self, status: str = "200 Connection established") -> None:
        self.heads: list[str] = []
        self._status = status
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with client:
                self._handle(client)

    def _handle(self, client: socket.socket) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            head += client.recv(65536)
        self.heads.append(head.decode())
        method, target, _ = head.decode().split(" ", 2)
        if not self._status.startswith("200"):
            client.sendall(f"HTTP/1.1 {self._status}\r\ncontent-length: 0\r\n\r\n".encode())
            return
        authority = target if method == "CONNECT" else target.split("/")[2]
        host, _, port = authority.rpartition(":")
        with socket.create_connection((host, int(port))) as server:
            if method == "CONNECT":
                client.sendall(f"HTTP/1.1 {self._status}\r\n\r\n".encode())
            else:
                server.sendall(head)
            pairs = {client: server, server: client}
            while True:
                for source in select.select(list(pairs), (), ())[0]:
                    data = source.recv(65536)
                    if not data:
                        return
                    pairs[source].sendall(data)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()


@contextmanager
def proxy(status: str = "200 Connection established") -> Iterator[TunnelProxy]:
    server = TunnelProxy(status)
    try:
        yield server
    finally:
        server.close()


def test_plain_requests_go_through_a_proxy_with_its_password() -> None:
    with proxy() as through, paced() as url:
        (record,) = drive(url, proxy=f"http://me:word@127.0.0.1:{through.port}")
    assert record.failure is None
    assert through.heads[0].startswith(f"POST {url}/v1/completions HTTP/1.1")
    assert "proxy-authorization: Basic bWU6d29yZA==" in through.heads[0]


def test_https_goes_through_a_tunnel_and_the_proxy_sees_nothing_of_it(certificate: tuple[str, str]) -> None:
    with proxy() as through, paced_with_tls(certificate) as url:
        (record,) = drive(url, proxy=f"http://127.0.0.1:{through.port}", insecure=True, headers=SECRETS)
    assert record.failure is None
    assert through.heads[0].startswith("CONNECT 127.0.0.1:")
    assert "sk-secret" not in "".join(through.heads)


def test_a_proxy_that_refuses_is_named(certificate: tuple[str, str]) -> None:
    with proxy("407 Proxy Authentication Required") as through:
        (record,) = drive("https://127.0.0.1:1", proxy=f"http://127.0.0.1:{through.port}")
    assert record.failure is not None
    assert (record.failure.facts["phase"], "407" in record.failure.facts["reason"]) == ("proxy", True)


def test_the_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert drive_paced("")[0].failure is None


def test_a_kept_connection_that_the_server_has_closed_is_replaced_and_counted() -> None:
    """The server answers one request of a connection and hangs up on the second, as if its idle time were over."""
    with recorder(OK.replace("connection: close\r\n", ""), hangs_up_late=True) as server:
        records = drive(f"http://127.0.0.1:{server.port}", 3, slots=1, stream=False)
    assert [record.failure for record in records] == [None] * 3
    assert [record.reconnects for record in records] == [0, 1, 1]
    assert all(record.connected_ns is not None for record in records)
    assert len(server.requests) == 3
