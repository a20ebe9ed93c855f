"""Servers on a free port in a thread of the test, and raw sockets that talk to them."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from windtunnel.engine.paced.app import PacedApp
from windtunnel.engine.paced.config import parse_paced
from windtunnel.engine.pacer import Pacer
from windtunnel.engine.server import Exchange, Handler, HttpServer, new_event_loop
from windtunnel.wire.http1 import Request, Response
from windtunnel.wire.sse import Event, EventStream

FAST = "ttft=4ms,itl=1ms"
COMPLETIONS = "/v1/completions"
CHAT = "/v1/chat/completions"


@contextmanager
def serving(make_handler: Any, *, port: int = 0, **options: Any) -> Iterator[str]:
    """A server's address, while it runs; `make_handler(loop)` makes what answers."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        loop = runner.get_loop()
        server = HttpServer(make_handler(loop), **options)
        runner.run(server.listen(port=port))
        stop = asyncio.Event()
        thread = threading.Thread(target=lambda: runner.run(stop.wait()))
        thread.start()
        try:
            yield server.url
        finally:
            loop.call_soon_threadsafe(stop.set)
            thread.join()
            runner.run(server.close())


@contextmanager
def paced(text: str = "", *, port: int = 0) -> Iterator[str]:
    """A paced target's address; fast, where `text` does not say otherwise."""
    config = parse_paced(f"paced:{FAST},{text}")
    with serving(lambda loop: PacedApp(config, Pacer(loop)), port=port) as url:
        yield url


class Front:
    """Stands before a paced target: keeps what is asked of it, and holds generations back where it is told to."""

    def __init__(self, text: str, loop: asyncio.AbstractEventLoop, *, holds: bool) -> None:
        self.url = ""
        self.requests: list[Request] = []
        self._app = PacedApp(parse_paced(f"paced:{FAST},{text}"), Pacer(loop))
        self._loop = loop
        self._holds = holds
        self._held: list[Exchange] = []

    def __call__(self, exchange: Exchange) -> None:
        self.requests.append(exchange.request)
        if self._holds and exchange.request.target.startswith("/v1/") and exchange.request.method == "POST":
            self._held.append(exchange)
        else:
            self._app(exchange)

    def bodies(self, path: str) -> list[Any]:
        """The JSON of the requests to a path, in the order in which they came."""
        return [json.loads(request.body) for request in self.requests if request.target == path]

    @property
    def num_held(self) -> int:
        return len(self._held)

    def release(self) -> None:
        """Answer what was held back, and from now on everything at once."""
        self._loop.call_soon_threadsafe(self._release)

    def _release(self) -> None:
        self._holds = False
        for exchange in self._held:
            self._app(exchange)


@contextmanager
def fronted(text: str = "", *, holds: bool = False) -> Iterator[Front]:
    """A paced target behind a `Front`."""
    fronts: list[Front] = []

    def make(loop: asyncio.AbstractEventLoop) -> Front:
        fronts.append(Front(text, loop, holds=holds))
        return fronts[0]

    with serving(make) as url:
        fronts[0].url = url
        yield fronts[0]


@contextmanager
def answering(handler: Handler, **options: Any) -> Iterator[str]:
    """The address of a server with that handler."""
    with serving(lambda loop: handler, **options) as url:
        yield url


def connect(url: str, tls: ssl.SSLContext | None = None) -> socket.socket:
    """A connection, with a time-out that fails a test rather than hang it."""
    parts = urlsplit(url)
    sock = socket.create_connection((parts.hostname, parts.port), timeout=10)
    return tls.wrap_socket(sock, server_hostname=parts.hostname) if tls else sock


def request_bytes(path: str, body: dict[str, Any] | bytes | None = None, *headers: str, method: str = "") -> bytes:
    """A request; POST where it has a body."""
    raw = json.dumps(body).encode() if isinstance(body, dict) else body or b""
    lines = [f"{method or ('GET' if body is None else 'POST')} {path} HTTP/1.1", "host: here", *headers]
    if body is not None:
        lines.append(f"content-length: {len(raw)}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + raw


@dataclass
class Reply:
    """All that came on a connection until it ended."""

    raw: bytes
    ended: str
    """`fin` or `rst`."""
    pieces: list[bytes] = field(default_factory=list)

    @property
    def response(self) -> Response:
        response = Response()
        response.feed(self.raw)
        return response

    @property
    def status(self) -> int:
        return self.response.status

    @property
    def body(self) -> bytes:
        return self.response.body

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def complete(self) -> bool:
        """The message ended as its framing said."""
        return self.response.complete

    @property
    def events(self) -> list[bytes]:
        stream = EventStream()
        found = stream.feed(self.body, 0) + stream.finish(0)
        return [event.data for event in found if isinstance(event, Event)]

    @property
    def chunks(self) -> list[Any]:
        return [json.loads(data) for data in self.events if data != b"[DONE]"]

    @property
    def texts(self) -> list[str]:
        """What each chunk that has a choice adds, of whatever kind."""
        return [text_of(chunk["choices"][0]) for chunk in self.chunks if chunk["choices"]]

    @property
    def stamps(self) -> list[int]:
        """The instants in the tokens; of the first token the one after the colon."""
        return [int(word.rpartition(":")[2]) for word in "".join(self.texts).split()]

    @property
    def finish_reasons(self) -> list[str | None]:
        return [chunk["choices"][0]["finish_reason"] for chunk in self.chunks if chunk["choices"]]


def text_of(choice: dict[str, Any]) -> str:
    if "text" in choice:
        return choice["text"]
    delta = choice["delta"]
    if "tool_calls" in delta:
        return delta["tool_calls"][0]["function"]["arguments"]
    return delta.get("reasoning_content") or delta.get("reasoning") or delta.get("content") or ""


def read_to_end(sock: socket.socket) -> Reply:
    pieces = []
    try:
        while piece := sock.recv(65536):
            pieces.append(piece)
    except ConnectionResetError:
        return Reply(b"".join(pieces), "rst", pieces)
    return Reply(b"".join(pieces), "fin", pieces)


def exchange(url: str, raw: bytes, tls: ssl.SSLContext | None = None) -> Reply:
    """Send these bytes on a new connection and read until it ends."""
    with connect(url, tls) as sock:
        sock.sendall(raw)
        return read_to_end(sock)


def call(
    url: str, path: str, body: dict[str, Any] | bytes | None = None, *headers: str, method: str = "", tls: Any = None
) -> Reply:
    """One request, on a connection that ends with it."""
    return exchange(url, request_bytes(path, body, "connection: close", *headers, method=method), tls)


def completion(tokens: int = 6, **fields: Any) -> dict[str, Any]:
    """A streamed completion's body."""
    body = {"model": "m", "prompt": "three words here", "max_tokens": tokens, "stream": True}
    return body | {"stream_options": {"include_usage": True}} | fields


def chat(tokens: int = 6, **fields: Any) -> dict[str, Any]:
    """A streamed chat's body."""
    messages = [{"role": "user", "content": "three words here"}]
    body = {"model": "m", "messages": messages, "max_completion_tokens": tokens, "stream": True}
    return body | {"stream_options": {"include_usage": True}} | fields


def ask(text: str, body: dict[str, Any] | None = None, path: str = "") -> Reply:
    """One request to a paced target of that description."""
    body = completion() if body is None else body
    with paced(text) as url:
        return call(url, path or (CHAT if "messages" in body else COMPLETIONS), body)


def read_until(sock: socket.socket, mark: bytes) -> bytes:
    """Read until `mark` has come."""
    data = b""
    while mark not in data:
        piece = sock.recv(65536)
        assert piece, f"the connection ended before {mark!r}: {data!r}"
        data += piece
    return data
