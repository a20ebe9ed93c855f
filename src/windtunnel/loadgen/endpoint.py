"""An origin with what is needed to connect to it, a proxy before it, and the words for what goes wrong on the way."""

from __future__ import annotations

import base64
import errno
from typing import TYPE_CHECKING

from windtunnel import errors
from windtunnel.wire.control import Address
from windtunnel.wire.http1 import Origin, Url

if TYPE_CHECKING:
    import ssl

    from windtunnel.loadgen.connection import Connection


class Proxy:
    """An HTTP proxy between us and every origin."""

    def __init__(self, url: Url) -> None:
        self.url = url
        self.headers: list[tuple[str, str]] = []
        if url.user is not None:
            credentials = base64.b64encode(f"{url.user}:{url.password or ''}".encode()).decode()
            self.headers.append(("proxy-authorization", f"Basic {credentials}"))


class Endpoint:
    """An origin with what is needed to connect to it, and the kept connections that wait for work."""

    def __init__(
        self, origin: Origin, addresses: list[Address], tls: ssl.SSLContext | None, proxy: Proxy | None
    ) -> None:
        self.origin = origin
        self.addresses = tuple(addresses)
        """Where connections go, in order of preference; the proxy's where there is one."""
        self.tls = tls
        self.proxy = proxy
        self.idle: list[Connection] = []

    def prefer(self, address: Address) -> None:
        """An address has worked: begin with it from now on."""
        if self.addresses[0] is not address:
            self.addresses = (address, *(other for other in self.addresses if other is not address))


def connect_failure(target: str, error: OSError) -> errors.ConnectFailed:
    """The one seam from the system's errors of connecting to ours."""
    code = error.errno
    reason = describe(error)
    if code == errno.ECONNREFUSED:
        return errors.ConnectFailed(target, "refused", "nothing listens there")
    if code in (errno.ECONNRESET, errno.EPIPE, errno.ECONNABORTED):
        return errors.ConnectFailed(target, "reset", reason)
    if code in (errno.EMFILE, errno.ENFILE):
        return errors.ConnectFailed(target, "local", f"{reason}: raise `ulimit -n`, or lower --max-concurrency")
    if code == errno.EADDRNOTAVAIL:
        return errors.ConnectFailed(target, "local", f"{reason}: this machine has no free port left for the address")
    return errors.ConnectFailed(target, "unreachable", reason)


def describe(error: OSError) -> str:
    """The system's words."""
    return str(error.strerror) if error.strerror is not None else str(error)


def write_connect(authority: str, proxy: Proxy) -> bytes:
    """The request by which a proxy is asked for a tunnel."""
    headers = "".join(f"{name}: {value}\r\n" for name, value in proxy.headers)
    return f"CONNECT {authority} HTTP/1.1\r\nhost: {authority}\r\n{headers}\r\n".encode("latin-1")
