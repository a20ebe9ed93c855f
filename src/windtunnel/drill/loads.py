"""The drill's end of its load processes."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable

import msgspec

from windtunnel.clock import monotonic_ns
from windtunnel.drill.load_process import LoadNews, LoadOrder
from windtunnel.errors import ActionFailed, WindtunnelError
from windtunnel.loadgen.config import ServeConfig
from windtunnel.loadgen.watcher import Counts

Tell = Callable[[str], None]
"""Takes a line for the user."""
_STOP_S = 10.0
_LINE_BYTES = 1 << 20


class LoadProcess:
    """One load that goes on."""

    def __init__(self, process: asyncio.subprocess.Process, tell: Tell) -> None:
        self._process = process
        self._tell = tell
        loop = asyncio.get_running_loop()
        self._begun_ns: asyncio.Future[int] = loop.create_future()
        self.counts = Counts(0)
        self._ending = loop.create_task(self._hear())

    @classmethod
    async def start(cls, config: ServeConfig, base_url: str, tell: Tell) -> LoadProcess:
        """Begin to prepare the load, and then to send it."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "windtunnel.drill.load_process"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},  # nothing there multiplies matrices
            limit=_LINE_BYTES,
            process_group=0,  # a terminal's Ctrl-C is the drill's affair
        )
        assert process.stdin is not None
        process.stdin.write(msgspec.json.encode(LoadOrder(config, base_url, os.curdir)) + b"\n")
        return cls(process, tell)

    async def begun_ns(self) -> int | None:
        """Wait until its requests begin to be sent: when that was, to a few ms. None: it was stopped before.

        Raises the error that kept it from it.
        """
        await asyncio.wait((self._begun_ns, self._ending), return_when=asyncio.FIRST_COMPLETED)
        if self._begun_ns.done():
            return self._begun_ns.result()
        self._ending.result()
        return None

    async def end(self) -> str:
        """Wait until it is over: its journal's path. Raises the error that kept it from it."""
        return await asyncio.shield(self._ending)

    async def stop(self) -> None:
        """End it in order; what is in flight is cancelled. May be called again."""
        if self._process.returncode is None:
            self._process.terminate()
            try:
                async with asyncio.timeout(_STOP_S):
                    await self._process.wait()
            except TimeoutError:
                self._process.kill()
        await asyncio.wait([self._ending])

    async def _hear(self) -> str:
        assert self._process.stdout is not None
        journal: str | None = None
        error: WindtunnelError | None = None
        async for line in self._process.stdout:
            news = msgspec.json.decode(line, type=LoadNews)
            if news.note is not None:
                self._tell(news.note)
            elif news.begun is not None:
                self._begun_ns.set_result(monotonic_ns())
            elif news.counts is not None:
                self.counts = news.counts
            elif news.journal is not None:
                journal = news.journal
            elif news.error is not None:
                error = news.error.error
        code = await self._process.wait()
        if journal is None:
            raise error or ActionFailed("load", f"its process ended with exit code {code}")
        return journal
