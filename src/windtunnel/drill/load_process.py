"""`python -m windtunnel.drill.load_process`: one load of a drill, in a process of its own, so that several can run.

Its first line on standard input is a `LoadOrder`; what happens is told on standard output, a `LoadNews` a line.
It ends in order on SIGTERM, and when its standard input ends: with the drill, however that dies.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

import msgspec
from msgspec import Struct

from windtunnel.errors import WindtunnelError
from windtunnel.loadgen.config import ServeConfig
from windtunnel.loadgen.fleet import Fleet, num_workers
from windtunnel.loadgen.watcher import Counts
from windtunnel.measure.record import Fault


class LoadOrder(Struct):
    """What to send, and where."""

    config: ServeConfig
    base_url: str
    result_folder: str


class LoadNews(Struct, omit_defaults=True):
    """What happened: exactly one of these."""

    note: str | None = None
    """A line for the user."""
    begun: int | None = None
    """The load begins: so many requests."""
    counts: Counts | None = None
    """So far, without the TTFTs."""
    journal: str | None = None
    """It is over, and this is its journal."""
    error: Fault | None = None
    """It could not begin, or broke."""


class _Teller:
    """The `Watcher` that tells the drill."""

    def notify(self, text: str) -> None:
        _tell(LoadNews(note=text))

    def loading(self, done: int, total: int) -> None:
        pass

    def begin(self, total: int) -> None:
        _tell(LoadNews(begun=total))

    def progress(self, counts: Counts) -> None:
        _tell(LoadNews(counts=msgspec.structs.replace(counts, ttfts_ns=[])))

    def end(self) -> None:
        pass


def _tell(news: LoadNews) -> None:
    os.write(sys.stdout.fileno(), msgspec.json.encode(news) + b"\n")


def _end_with_the_drill() -> None:
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> int:
    """Send the load that standard input orders; the exit code."""
    order = msgspec.json.decode(sys.stdin.buffer.readline(), type=LoadOrder)
    threading.Thread(target=_end_with_the_drill, daemon=True).start()
    try:
        with Fleet(num_workers(order.config)) as fleet:
            from windtunnel.loadgen.run import serve  # brings numpy, while the workers start

            journal = serve(order.config, order.base_url, fleet, _Teller(), result_folder=Path(order.result_folder))
    except WindtunnelError as error:
        _tell(LoadNews(error=Fault.of(error)))
        return error.exit_code
    _tell(LoadNews(journal=journal.path))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
