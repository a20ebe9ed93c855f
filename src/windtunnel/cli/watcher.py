"""Shows on stderr how a run goes: a live line where it is a terminal, a plain line now and then where it is not."""

from __future__ import annotations

import sys
from collections import deque
from statistics import median
from typing import TYPE_CHECKING

from windtunnel.cli.console import say
from windtunnel.clock import monotonic_ns
from windtunnel.loadgen.watcher import Counts
from windtunnel.report.progress import Progress, progress_bar, progress_line
from windtunnel.units import NS_PER_MS, NS_PER_S

if TYPE_CHECKING:
    from rich.live import Live

_TERMINAL_EVERY_NS = NS_PER_S // 4
_PLAIN_EVERY_NS = 5 * NS_PER_S
_RATE_WINDOW_S = 5.0
_LATEST_TTFTS = 500


class ConsoleWatcher:
    """The `Watcher` of the command line. `shows_progress` False leaves only notices."""

    def __init__(self, *, shows_progress: bool) -> None:
        self._shows_progress = shows_progress
        self._is_terminal = sys.stderr.isatty()
        self._live: Live | None = None
        self._next_ns = 0 if self._is_terminal else monotonic_ns() + _PLAIN_EVERY_NS
        self._history: deque[tuple[float, int]] = deque()
        self._last: Counts | None = None

    def notify(self, text: str) -> None:
        """A line for the user."""
        if self._live is not None:
            self._live.console.print(f"windtunnel: {text}", markup=False, highlight=False)
        else:
            say(f"windtunnel: {text}")

    def loading(self, done: int, total: int) -> None:
        """The dataset is being made or read."""
        if not self._shows_progress:
            return
        if self._is_terminal:
            if self._is_due(_TERMINAL_EVERY_NS) or done == total:
                end = "\r\x1b[K" if done == total else ""
                say(f"\r\x1b[Kmaking prompts: {done}/{total}{end}", end="")
        elif done and done < total and self._is_due(_PLAIN_EVERY_NS):
            say(f"making prompts: {done}/{total}")

    def begin(self, total: int) -> None:
        """The load begins."""
        self._next_ns = 0 if self._is_terminal else monotonic_ns() + _PLAIN_EVERY_NS
        if self._shows_progress and self._is_terminal:
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(stderr=True), auto_refresh=False, transient=True)
            self._live.start()

    def progress(self, counts: Counts) -> None:
        """So far."""
        self._last = counts
        if not self._shows_progress:
            return
        if self._live is not None:
            if self._is_due(_TERMINAL_EVERY_NS):
                self._live.update(progress_bar(self._measured(counts)), refresh=True)
        elif self._is_due(_PLAIN_EVERY_NS):
            say(progress_line(self._measured(counts)))

    def end(self) -> None:
        """The load is over."""
        if self._live is not None:
            self._live.stop()
            self._live = None
        if self._shows_progress and self._last is not None:
            say(progress_line(self._measured(self._last)))

    def _is_due(self, every_ns: int) -> bool:
        now_ns = monotonic_ns()
        if now_ns < self._next_ns:
            return False
        self._next_ns = now_ns + every_ns
        return True

    def _measured(self, counts: Counts) -> Progress:
        done = counts.completed + counts.failed
        self._history.append((counts.elapsed_s, done))
        while len(self._history) > 2 and self._history[1][0] <= counts.elapsed_s - _RATE_WINDOW_S:
            self._history.popleft()
        since_s, before = self._history[0] if len(self._history) > 1 else (0.0, 0)
        span_s = counts.elapsed_s - since_s
        ttfts_ns = counts.ttfts_ns[-_LATEST_TTFTS:]
        return Progress(
            total=counts.total,
            done=done,
            in_flight=counts.in_flight,
            failed=counts.failed,
            rate_per_s=(done - before) / span_s if span_s > 0 else 0.0,
            median_ttft_ms=median(ttfts_ns) / NS_PER_MS if ttfts_ns else None,
            elapsed_s=counts.elapsed_s,
        )
