"""What every request passes first: its Host, the length of its address, and the headers of its answer.

The Host is checked since a page of another site, whose name was made to point at this machine, could read the catalog
through its reader's browser. A name that is a number can't be pointed anywhere.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable, Collection

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from windtunnel.catalog.web.problems import Refused

MOST_ADDRESS_BYTES = 8192
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


class Guard:
    """ASGI middleware: answers what is refused by `answer`, and passes the rest on."""

    def __init__(
        self, app: ASGIApp, *, hosts: Collection[str], answer: Callable[[Scope, Refused], Awaitable[ASGIApp]]
    ) -> None:
        self._app = app
        self._hosts = {host.lower() for host in hosts} | {"localhost"}
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection's scope."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        problem = self._refusal(scope)
        app = self._app if problem is None else await self._answer(scope, problem)
        await app(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope) -> Refused | None:
        host = Headers(scope=scope).get("host", "")
        if not self._is_ours(host):
            return Refused("wrong-host", f"this server does not answer as {host[:200]!r}")
        length = len(scope["raw_path"]) + len(scope["query_string"])
        if length > MOST_ADDRESS_BYTES:
            return Refused("address-too-long", f"{length} bytes; at most {MOST_ADDRESS_BYTES} are taken")
        return None

    def _is_ours(self, host: str) -> bool:
        name = host_name(host)
        return name in self._hosts or is_number(name)


def host_name(host: str) -> str:
    """A Host header without its port and brackets, in small letters."""
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    return name.lower().rstrip(".")


def is_number(name: str) -> bool:
    """Whether it is an IP address."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
