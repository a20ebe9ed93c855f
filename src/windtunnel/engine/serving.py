"""What the processes of both embedded targets share: when they end, and what they say when they can't listen."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from windtunnel.engine.server import HttpServer

_STDIN = 0


class Ending:
    """That the process is to end: `told` by SIGTERM or SIGINT; `at_once` by a second one, or since its parent is gone.

    A parent that holds the other end of a pipe at standard input is never outlived, however it dies. (A standard input
    that can't be waited for, such as /dev/null, says nothing about a parent and is not watched.)
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, *, watches_stdin: bool) -> None:
        self.told = asyncio.Event()
        self.at_once = asyncio.Event()
        self._loop = loop
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled)
        if watches_stdin:
            try:
                loop.add_reader(_STDIN, self._read)
            except OSError:
                pass  # epoll takes no files, and a closed descriptor neither

    def end_at_once(self) -> None:
        """Wait for nothing more."""
        self.at_once.set()
        self.told.set()

    def _signalled(self) -> None:
        (self.at_once if self.told.is_set() else self.told).set()

    def _read(self) -> None:
        try:
            data = os.read(_STDIN, 4096)
        except OSError:
            data = b""
        if not data:
            self._loop.remove_reader(_STDIN)
            self.end_at_once()


async def listens(server: HttpServer, host: str, port: int) -> bool:
    """Begin to serve and print the address; False: it can't, and standard error says why."""
    try:
        await server.listen(host, port)
    except (OSError, OverflowError) as error:
        print(f"can't listen on {host} port {port}: {error}", file=sys.stderr)  # noqa: T201
        return False
    print(server.url, flush=True)  # noqa: T201
    return True
