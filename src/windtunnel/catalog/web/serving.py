"""The server of the catalog's pages: one process, one socket, until a signal ends it."""

from __future__ import annotations

import errno
import signal
import socket
from collections.abc import Callable, Collection
from pathlib import Path
from types import FrameType

import uvicorn

from windtunnel.catalog.web.app import build
from windtunnel.catalog.web.connection import MOST_IDLE_S, BoundedConnection
from windtunnel.errors import ConfigurationError

_BACKLOG = 128
_MOST_CONNECTIONS = 128
_GRACE_S = 3


def serve(store: Path, host: str, port: int, *, hosts: Collection[str], ready: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM; `ready` is called with the address. Port 0: any free one.

    Raises ConfigurationError where the address can't be had.
    """
    with _listening(host, port) as listener:
        config = uvicorn.Config(
            build(store, hosts=[host, *hosts]), log_level="warning", access_log=False, server_header=False,
            limit_concurrency=_MOST_CONNECTIONS, timeout_keep_alive=MOST_IDLE_S, timeout_graceful_shutdown=_GRACE_S,
            proxy_headers=False, http=BoundedConnection, ws="none",
        )  # fmt: skip
        server = uvicorn.Server(config)

        def stop(number: int, frame: FrameType | None) -> None:
            server.should_exit = True

        before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            ready(_address(host, listener.getsockname()[1]))
            server.run(sockets=[listener])
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _listening(host: str, port: int) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listener = socket.create_server(address[:2], family=family, backlog=_BACKLOG)
        # Inherited by connections. asyncio sets it only where a socket names its protocol, which Python's own do not;
        # and without it a page's body waits 40 ms for the acknowledgement of its head.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listener
    except socket.gaierror as error:
        raise ConfigurationError(
            "--host", f"{host} is no address: {error.strerror}", "Name one of this machine."
        ) from error
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ConfigurationError(
                "--port", f"{port} is in use", "Name another port, or 0 for any free one."
            ) from error
        raise ConfigurationError(
            "--host",
            f"can't listen at {_address(host, port)}: {error.strerror or error}",
            "Name an address of this machine.",
        ) from error


def _address(host: str, port: int) -> str:
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"
