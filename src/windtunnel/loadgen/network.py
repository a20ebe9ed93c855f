"""Where requests go and how they are written: addresses, TLS, proxy, redirects, and who may see which header."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING
from urllib.parse import urljoin

from windtunnel import errors
from windtunnel.loadgen.endpoint import Endpoint, Proxy
from windtunnel.wire.control import Address
from windtunnel.wire.http1 import Origin, Response, Url, parse_url, write_request

if TYPE_CHECKING:
    import ssl

REDIRECTS = frozenset((307, 308))
_MAX_REDIRECTS = 5
_OUR_HEADERS = (
    ("content-type", "application/json"),
    ("accept", "text/event-stream, application/json"),
    ("accept-encoding", "identity"),
    ("user-agent", "windtunnel"),
)


class Route:
    """The way to one address."""

    def __init__(self, url: Url, endpoint: Endpoint, headers: list[tuple[str, str]]) -> None:
        self.url = url
        self.endpoint = endpoint
        self._headers = [("host", url.origin.authority), *headers]
        self._target = url.target
        if endpoint.proxy is not None and endpoint.tls is None:
            self._target = f"{url.origin}{url.target}"
            self._headers += endpoint.proxy.headers

    def write(self, method: str, request_id: str, body: bytes) -> bytes:
        """A request's bytes."""
        headers = [*self._headers, ("x-request-id", request_id)] if request_id else self._headers
        return write_request(method, self._target, headers, body)


class Network:
    """Knows the target and finds the way to it, and to wherever it redirects."""

    def __init__(
        self,
        url: Url,
        headers: list[tuple[str, str]],
        *,
        insecure: bool,
        proxy: str | None,
        addresses: list[Address] | None = None,
    ) -> None:
        self.url = url
        self._headers = headers
        self._insecure = insecure
        self._proxy = Proxy(parse_url(proxy)) if proxy else None
        self._tls: ssl.SSLContext | None = None
        self._endpoints: dict[Origin, Endpoint] = {}
        if addresses is not None:
            self._endpoints[url.origin] = self._endpoint(url.origin, addresses)

    def route(self, url: Url) -> Route:
        """The way to an address; raises errors.ConnectFailed (dns) when its host has none.

        The key and the headers that the user added go to the target's own origin and to nobody else.
        """
        endpoint = self._endpoints.get(url.origin)
        if endpoint is None:
            addresses = resolve(self._proxy.url.origin if self._proxy is not None else url.origin)
            endpoint = self._endpoints[url.origin] = self._endpoint(url.origin, addresses)
        given = {name.lower() for name, _ in self._headers} if url.origin == self.url.origin else set()
        headers = [header for header in _OUR_HEADERS if header[0] not in given]
        if url.origin == self.url.origin:
            headers += self._headers
        return Route(url, endpoint, headers)

    def redirect(self, url: Url, response: Response, num_before: int) -> Route:
        """The way on from an answer that redirects; raises errors.RedirectRefused or errors.ConnectFailed (dns)."""
        location = response.header("location") or ""
        try:
            if num_before >= _MAX_REDIRECTS:
                raise ValueError(f"more than {_MAX_REDIRECTS} redirects")
            target = parse_url(urljoin(f"{url.origin}{url.target}", location))
        except ValueError as problem:
            raise errors.RedirectRefused(response.status, location[:200], str(problem)) from problem
        return self.route(target)

    def close_idle(self) -> None:
        """Close the kept connections."""
        for endpoint in self._endpoints.values():
            for connection in endpoint.idle:
                connection.close()
            endpoint.idle.clear()

    def _endpoint(self, origin: Origin, addresses: list[Address]) -> Endpoint:
        if origin.scheme == "https" and self._tls is None:
            from windtunnel.loadgen.tls import tls_context

            self._tls = tls_context(insecure=self._insecure)
        return Endpoint(origin, addresses, self._tls if origin.scheme == "https" else None, self._proxy)


def resolve(origin: Origin) -> list[Address]:
    """The addresses of a host, in the resolver's order; raises errors.ConnectFailed with phase dns."""
    try:
        found = socket.getaddrinfo(origin.host, origin.port, type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError) as error:
        reason = str(error.strerror) if isinstance(error, socket.gaierror) else str(error)
        raise errors.ConnectFailed(str(origin), "dns", reason) from error
    addresses: list[Address] = []
    for family, _, _, _, sockaddr in found:
        if family in (socket.AF_INET, socket.AF_INET6):
            scope = (int(sockaddr[2]), int(sockaddr[3])) if len(sockaddr) == 4 else None
            address = Address(family, str(sockaddr[0]), int(sockaddr[1]), scope)
            if address not in addresses:
                addresses.append(address)
    return addresses


def reachable_first(addresses: list[Address], timeout_s: float) -> list[Address]:
    """The addresses with the first one that takes a connection in front; as they are when none does."""
    if len(addresses) == 1:
        return addresses
    for address in addresses:
        try:
            with socket.socket(address.family, socket.SOCK_STREAM) as sock:
                sock.settimeout(timeout_s)
                sock.connect(address.sockaddr)
        except OSError:
            continue
        return [address, *(other for other in addresses if other != address)]
    return addresses
