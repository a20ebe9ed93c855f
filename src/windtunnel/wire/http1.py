"""HTTP/1.1 as values: responses for the client, requests for the server, and the heads that both write.

httptools (llhttp) parses. One `Response` or `Request` reads one message, whatever the split of its bytes.
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import unquote, urlsplit

import httptools

STATUS_REASONS = {
    200: "OK",
    204: "No Content",
    307: "Temporary Redirect",
    308: "Permanent Redirect",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    405: "Method Not Allowed",
    413: "Content Too Large",
    422: "Unprocessable Content",
    429: "Too Many Requests",
    500: "Internal Server Error",
    502: "Bad Gateway",
    503: "Service Unavailable",
    504: "Gateway Timeout",
}

LAST_CHUNK = b"0\r\n\r\n"


class ProtocolError(Exception):
    """The bytes are no HTTP/1.1; `offset` is the number of bytes before the piece in which that showed."""

    def __init__(self, problem: str, offset: int) -> None:
        super().__init__(problem)
        self.problem = problem
        self.offset = offset


class Origin(NamedTuple):
    """Where connections go; those to one origin are shared."""

    scheme: str
    host: str
    """Without the brackets of an IPv6 literal."""
    port: int

    @property
    def authority(self) -> str:
        """`host:port` as the Host header has it: brackets for IPv6, no port where it is the scheme's own."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == {"http": 80, "https": 443}[self.scheme] else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}"


class Url(NamedTuple):
    """An http or https address, taken apart."""

    origin: Origin
    target: str
    """Path and query, as the request line has it."""
    user: str | None = None
    password: str | None = None

    def __str__(self) -> str:
        """Without user, password and query, which may hold secrets: this form goes into messages and files."""
        path, mark, _ = self.target.partition("?")
        return f"{self.origin}{path}{mark and '?…'}"


def parse_url(text: str) -> Url:
    """Take an address apart.

    Raises ValueError, saying what is wrong with it, for anything that is no http or https address.
    """
    if any(c.isspace() or ord(c) < 32 for c in text):
        raise ValueError("an address has no spaces or control characters in it")
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https"):
        raise ValueError("an address begins with http:// or https://")
    if not parts.hostname:
        raise ValueError("the address has no host")
    try:
        port = parts.port
    except ValueError:
        raise ValueError("the port is no number from 0 to 65535") from None
    try:
        host = parts.hostname if parts.hostname.isascii() else parts.hostname.encode("idna").decode()
    except UnicodeError:
        raise ValueError("the host's name can't be written in DNS") from None
    if port is None:
        port = {"http": 80, "https": 443}[parts.scheme]
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if not target.isascii():
        raise ValueError("path and query are written in ASCII: use %-escapes")
    return Url(
        Origin(parts.scheme, host, port),
        target,
        unquote(parts.username) if parts.username is not None else None,
        unquote(parts.password) if parts.password is not None else None,
    )


def write_request(method: str, target: str, headers: list[tuple[str, str]], body: bytes = b"") -> bytes:
    """A whole request; `content-length` is added where there is a body or a method that has one."""
    lines = [f"{method} {target} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in headers]
    if body or method != "GET":
        lines.append(f"content-length: {len(body)}")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def write_response_head(status: int, headers: list[tuple[str, str]]) -> bytes:
    """The head of a response, up to and with the empty line."""
    lines = [f"HTTP/1.1 {status} {STATUS_REASONS.get(status, 'Status')}"]
    lines += [f"{name}: {value}" for name, value in headers]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"


def write_chunk(data: bytes) -> bytes:
    """One chunk of a chunked body; `LAST_CHUNK` ends it."""
    return b"%x\r\n%b\r\n" % (len(data), data)


class _Message:
    """What responses and requests have in common."""

    def __init__(self) -> None:
        self.headers: list[tuple[str, str]] = []
        self.parts: list[bytes] = []
        """The body's bytes, as they came; the reader may take them out."""
        self.head_complete = False
        self.complete = False
        self.received = 0
        """Bytes fed so far."""
        self.trailing = False
        """More bytes came after the message's end."""

    def on_message_begin(self) -> None:
        if self.complete:
            self.trailing = True

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.head_complete:
            self.headers.append((name.decode("latin-1").lower(), value.decode("latin-1")))

    def on_body(self, data: bytes) -> None:
        if not self.complete:
            self.parts.append(data)

    def header(self, name: str) -> str | None:
        """The first header of that (lower-case) name."""
        for key, value in self.headers:
            if key == name:
                return value
        return None

    @property
    def body(self) -> bytes:
        """What of the body has come and was not taken out."""
        return b"".join(self.parts)


class Response(_Message):
    """One response of a server, read piece by piece. 1xx answers before it are passed over."""

    def __init__(self) -> None:
        super().__init__()
        self.status = 0
        self.reason = ""
        self.keep_alive = False
        self._parser = httptools.HttpResponseParser(self)

    def feed(self, data: bytes | memoryview) -> None:
        """Take the next bytes; raises ProtocolError when they are no HTTP."""
        before = self.received
        self.received += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            raise ProtocolError("the server switches to another protocol", before) from None
        except httptools.HttpParserError as error:
            if not self.complete:  # what follows a whole message is not this message's fault
                raise ProtocolError(str(error) or type(error).__name__, before) from error
            self.trailing = True

    def finish(self) -> bool:
        """The connection was closed: True if that is this message's proper end."""
        if self.complete:
            return True
        if self.head_complete and not self.has_length:
            self.complete = True
            self.keep_alive = False
        return self.complete

    @property
    def is_chunked(self) -> bool:
        """The body comes in chunks."""
        return "chunked" in (self.header("transfer-encoding") or "").lower()

    @property
    def has_length(self) -> bool:
        """The head says where the body ends; otherwise the connection's end does."""
        return self.is_chunked or self.header("content-length") is not None

    def on_status(self, reason: bytes) -> None:
        if not self.complete:
            self.reason += reason.decode("latin-1")

    def on_headers_complete(self) -> None:
        if self.complete:
            return
        self.status = self._parser.get_status_code()
        if self.status >= 200:
            self.head_complete = True

    def on_message_complete(self) -> None:
        if self.status < 200:  # an interim answer: the real one follows
            self.headers.clear()
            self.reason = ""
            return
        if not self.complete:
            self.complete = True
            self.keep_alive = self._parser.should_keep_alive()


class Request(_Message):
    """One request of a client, read piece by piece."""

    def __init__(self) -> None:
        super().__init__()
        self.method = ""
        self.target = ""
        self.keep_alive = False
        self._parser = httptools.HttpRequestParser(self)

    def feed(self, data: bytes) -> None:
        """Take the next bytes; raises ProtocolError when they are no HTTP."""
        before = self.received
        self.received += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            raise ProtocolError("upgrades are not served", before) from None
        except httptools.HttpParserError as error:
            if not self.complete:
                raise ProtocolError(str(error) or type(error).__name__, before) from error

    def on_url(self, url: bytes) -> None:
        self.target += url.decode("latin-1")

    def on_headers_complete(self) -> None:
        self.method = self._parser.get_method().decode()
        self.head_complete = True

    def on_message_complete(self) -> None:
        self.complete = True
        self.keep_alive = self._parser.should_keep_alive()
