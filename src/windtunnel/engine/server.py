"""A small HTTP/1.1 server for embedded targets: requests in as values, answers out as bytes.

Theory of operation. A `_Connection` reads one request at a time through `wire.http1.Request`, takes the instant at
which its last byte was read, and hands an `Exchange` to the handler. The handler answers at once or later: a whole
response (`respond`), raw bytes (`write`, then `finish`), or a broken connection (`close`, `reset`). Nothing checks what
it writes, since embedded targets are there to misbehave on the wire too. While an answer is due the connection goes
on reading, so a client that leaves is noticed when it leaves, and `Exchange.on_gone` is called.

A client that closes only its sending half counts as gone: its end of file looks the same.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import Callable, Iterable
from typing import cast

from windtunnel.clock import ClockPair, monotonic_ns, realtime_ns
from windtunnel.readiness import PreciseSelector
from windtunnel.wire.http1 import Origin, ProtocolError, Request, write_response_head
from windtunnel.wire.openai import error_body

Handler = Callable[["Exchange"], None]

_BACKLOG = 4096
_MAX_HEAD_BYTES = 64 * 1024
_MAX_BODY_BYTES = 64 * 1024 * 1024
_DRAIN_S = 2.0
_RST_ON_CLOSE = struct.pack("ii", 1, 0)


def new_event_loop() -> asyncio.AbstractEventLoop:
    """An event loop whose timers are exact below a millisecond."""
    return asyncio.SelectorEventLoop(PreciseSelector())


def arrived_now() -> ClockPair:
    """Now, on both clocks; on the wall clock not later than on the other, so that no pace from here looks early."""
    realtime = realtime_ns()
    return ClockPair(monotonic_ns(), realtime)


class Exchange:
    """One request and the answer that a handler gives to it."""

    def __init__(self, connection: _Connection, request: Request, arrived: ClockPair) -> None:
        self._connection = connection
        self.request = request
        self.arrived = arrived
        """When the request's last byte was read."""
        self.write = connection.transport.write
        """Send raw bytes."""
        self.writable = True
        """False while more bytes wait for a slow client than should; `on_writable` tells the end of that."""
        self.on_writable: Callable[[], None] | None = None
        self.on_gone: Callable[[], None] | None = None
        """Called once if the client leaves, or the connection breaks, before the answer was ended."""

    def respond(self, status: int, body: bytes, *, headers: Iterable[tuple[str, str]] = ()) -> None:
        """Send a whole answer, JSON unless `headers` has another content-type, and end it."""
        lines = list(headers)
        if not any(name == "content-type" for name, _ in lines):
            lines.insert(0, ("content-type", "application/json"))
        lines.append(("content-length", str(len(body))))
        if not self.request.keep_alive:
            lines.append(("connection", "close"))
        self.write(write_response_head(status, lines) + (b"" if self.request.method == "HEAD" else body))
        self.finish()

    def finish(self) -> None:
        """The answer is complete: the connection takes the next request, or is closed if the client wants that."""
        if self.request.keep_alive:
            self._connection.await_next_request()
        else:
            self.close()

    def close(self) -> None:
        """Send what was written, then FIN."""
        self._connection.exchange = None
        self._connection.transport.close()

    def reset(self) -> None:
        """Send RST; what was written and not yet sent is lost."""
        self._connection.exchange = None
        sock = self._connection.transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RST_ON_CLOSE)
        self._connection.transport.abort()


class _Connection(asyncio.Protocol):
    """One client's connection. (asyncio's own transports switch Nagle's delay off.)"""

    transport: asyncio.Transport

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._request = Request()
        self._continued = False
        self._early = b""
        """Bytes that came before the answer to the request before them was ended."""
        self._refused = False
        self.exchange: Exchange | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._server.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.connections.discard(self)
        exchange, self.exchange = self.exchange, None
        if exchange is not None and exchange.on_gone is not None:
            exchange.on_gone()

    def pause_writing(self) -> None:
        if self.exchange is not None:
            self.exchange.writable = False

    def resume_writing(self) -> None:
        if self.exchange is not None:
            self.exchange.writable = True
            if self.exchange.on_writable is not None:
                self.exchange.on_writable()

    def data_received(self, data: bytes) -> None:
        arrived = arrived_now()
        if self._refused or self.transport.is_closing():
            return
        if self.exchange is None:
            self._read(data, arrived)
        elif len(self._early) + len(data) <= _MAX_HEAD_BYTES:
            self._early += data
        else:
            self.transport.abort()  # it sends without end and reads no answer

    def await_next_request(self) -> None:
        """The answer is complete."""
        self.exchange = None
        if self._early:
            early, self._early = self._early, b""
            self._read(early, arrived_now())

    def _read(self, data: bytes, arrived: ClockPair) -> None:
        request = self._request
        try:
            request.feed(data)
        except ProtocolError as error:
            self._refuse(400, f"the request is no HTTP/1.1: {error.problem}")
            return
        if request.trailing:
            self._refuse(400, "a second request came before the answer to the first: pipelining is not served")
        elif not request.head_complete and request.received > _MAX_HEAD_BYTES:
            self._refuse(400, f"the request's head is larger than {_MAX_HEAD_BYTES} bytes")
        elif self._is_too_large(request):
            self._refuse(413, f"the request's body is larger than {self._server.max_body_bytes} bytes")
        elif request.complete:
            self._request = Request()
            self._continued = False
            self._answer(Exchange(self, request, arrived))
        elif request.head_complete and not self._continued:
            self._continued = True
            if (request.header("expect") or "").lower() == "100-continue":
                self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _is_too_large(self, request: Request) -> bool:
        """By its declared length or, for a chunked body, by what has come, head and framing within reason."""
        declared = int(request.header("content-length") or 0)  # llhttp has refused what is no number
        return max(declared, request.received - _MAX_HEAD_BYTES) > self._server.max_body_bytes

    def _answer(self, exchange: Exchange) -> None:
        self.exchange = exchange
        try:
            self._server.handler(exchange)
        except Exception:
            # the client must not wait for an answer that won't come; the loop logs what happened
            if self.exchange is exchange:
                exchange.respond(500, error_body("the server failed; see its log", "internal_error", 500))
            raise

    def _refuse(self, status: int, problem: str) -> None:
        """Answer what can't be read on from, then hang up without losing the answer.

        Closing while the client still sends makes the kernel reset the connection, and the client may never see the
        answer. So only our half is closed, and what still comes is dropped until the client closes or time is up.
        """
        self._refused = True
        body = error_body(problem, code=status)
        headers = [("content-type", "application/json"), ("content-length", str(len(body))), ("connection", "close")]
        self.transport.write(write_response_head(status, headers) + body)
        if self.transport.can_write_eof():
            self.transport.write_eof()
        asyncio.get_running_loop().call_later(_DRAIN_S, self.transport.abort)


class HttpServer:
    """Listens on one address and calls `handler` with each request."""

    def __init__(
        self, handler: Handler, *, tls: ssl.SSLContext | None = None, max_body_bytes: int = _MAX_BODY_BYTES
    ) -> None:
        self.handler = handler
        self.max_body_bytes = max_body_bytes
        self.connections: set[_Connection] = set()
        self._tls = tls
        self._server: asyncio.Server | None = None
        self.url = ""
        """Where it listens, once it does."""

    async def listen(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """Begin to serve; port 0 takes a free one. Raises OSError where the address can't be had."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: _Connection(self), host, port, ssl=self._tls, backlog=_BACKLOG, reuse_address=True
        )
        bound_host, bound_port = self._server.sockets[0].getsockname()[:2]
        self.url = str(Origin("https" if self._tls else "http", bound_host, bound_port))

    def stop_listening(self) -> None:
        """Take no more connections; those that are there are served on."""
        if self._server is not None:
            self._server.close()

    async def close(self) -> None:
        """Stop listening and break off what is still being answered."""
        self.stop_listening()
        for connection in list(self.connections):
            connection.transport.abort()
        while self.connections:
            await asyncio.sleep(0)
