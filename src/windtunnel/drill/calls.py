"""Calls of a drill's own, beside its load: the admin API, metrics, and whatever address a scenario names."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import msgspec

from windtunnel.errors import ConnectFailed, Disconnected, MalformedResponse, TimedOut
from windtunnel.wire.http1 import ProtocolError, Response, Url, parse_url, write_request
from windtunnel.wire.sse import Event, EventStream

_READ_BYTES = 64 * 1024
_EXCERPT_CHARS = 200
Headers = Sequence[tuple[str, str]]


class Answer(NamedTuple):
    """What a call brought."""

    status: int
    body: bytes

    @property
    def json(self) -> Any:
        """The body's JSON; None where it is none."""
        try:
            return msgspec.json.decode(self.body)
        except msgspec.DecodeError:
            return None

    @property
    def excerpt(self) -> str:
        """The status, and what an error object says or the body begins with."""
        document = self.json
        error = document.get("error") if isinstance(document, dict) else None
        said = error.get("message") if isinstance(error, dict) else None
        text = str(said) if said else self.body[:_EXCERPT_CHARS].decode("utf-8", "replace")
        return f"HTTP {self.status}: {text}".strip(": ")


async def call(method: str, address: str, body: bytes = b"", *, headers: Headers = (), timeout_s: float) -> Answer:
    """One request on a connection of its own; raises errors.RequestFailure."""
    try:
        async with asyncio.timeout(timeout_s), _response(method, address, body, headers) as (response, reader):
            while not response.complete:
                if not await _read_on(response, reader):
                    raise Disconnected("before the answer's end", "connection closed")
            return Answer(response.status, response.body)
    except TimeoutError:
        raise TimedOut("total", timeout_s, "a whole answer", 0, "timeout_s") from None


async def events(address: str, *, headers: Headers = ()) -> AsyncIterator[Any]:
    """The JSON of each event of an endless stream, until the server ends it; raises errors.RequestFailure."""
    stream = EventStream()
    async with _response("GET", address, b"", headers) as (response, reader):
        while True:
            for event in stream.feed(b"".join(response.parts), 0):
                if isinstance(event, Event):
                    yield msgspec.json.decode(event.data)
            response.parts.clear()
            if response.head_complete and response.status != 200:
                raise Disconnected("before the first event", f"HTTP {response.status}")
            if response.complete or not await _read_on(response, reader):
                return


@asynccontextmanager
async def _response(
    method: str, address: str, body: bytes, headers: Headers
) -> AsyncIterator[tuple[Response, asyncio.StreamReader]]:
    """A response of which nothing was read yet. Translates what goes wrong while it is read."""
    url = parse_url(address)
    try:
        reader, writer = await _connect(url)
    except OSError as error:
        phase = "refused" if isinstance(error, ConnectionRefusedError) else "unreachable"
        raise ConnectFailed(str(url), phase, error.strerror or str(error)) from error
    try:
        lines = [("host", url.origin.authority), ("connection", "close"), *headers]
        if body:
            lines.append(("content-type", "application/json"))
        writer.write(write_request(method, url.target, lines, body))
        yield Response(), reader
    except ProtocolError as error:
        raise MalformedResponse("http", "response", error.offset, error.problem, "") from error
    except OSError as error:
        raise Disconnected("before the answer's end", error.strerror or str(error)) from error
    finally:
        writer.close()


async def _connect(url: Url) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    context = ssl.create_default_context() if url.origin.scheme == "https" else None
    return await asyncio.open_connection(url.origin.host, url.origin.port, ssl=context)


async def _read_on(response: Response, reader: asyncio.StreamReader) -> bool:
    """Feed what comes; False at the end of a message that has not come whole."""
    data = await reader.read(_READ_BYTES)
    if not data:
        return response.finish()
    response.feed(data)
    return True
