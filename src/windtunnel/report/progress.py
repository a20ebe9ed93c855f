"""The progress of a run: a line for plain streams, and the same as a bar for terminals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from windtunnel.units import format_duration

if TYPE_CHECKING:
    from rich.console import RenderableType


_BAR_COLUMNS = 20
_FAST_PER_S = 100
"""A rate whose decimals nobody needs."""


class Progress(Struct, kw_only=True, frozen=True):
    """How far a run is."""

    total: int
    done: int
    """Over, failed ones included."""
    in_flight: int
    failed: int
    rate_per_s: float
    """Requests that were over in each second of late."""
    median_ttft_ms: float | None
    elapsed_s: float


def progress_line(progress: Progress) -> str:
    """One line for a log, e.g. `412/1000 done, 64 in flight, 0 failed, 38.2 req/s, median TTFT 51.2 ms, 11 s`."""
    return f"{progress.done}/{progress.total} done, {', '.join(_figures(progress))}"


def progress_bar(progress: Progress) -> RenderableType:
    """The same with a bar, one line for a terminal; where that is narrow the bar gives way to the figures."""
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    row = Table.grid(padding=(0, 1))
    row.add_column(max_width=_BAR_COLUMNS)
    row.add_column(no_wrap=True)
    row.add_column(no_wrap=True)
    row.add_row(
        ProgressBar(total=max(progress.total, 1), completed=progress.done),
        Text(f"{progress.done}/{progress.total}", style="bold"),
        Text(", ".join(_figures(progress)), style="red" if progress.failed else ""),
    )
    return row


def _figures(progress: Progress) -> list[str]:
    figures = [
        f"{progress.in_flight} in flight",
        f"{progress.failed} failed",
        f"{progress.rate_per_s:.{1 if progress.rate_per_s < _FAST_PER_S else 0}f} req/s",
    ]
    if progress.median_ttft_ms is not None:
        figures.append(f"median TTFT {format_duration(progress.median_ttft_ms / 1e3)}")
    return [*figures, _elapsed(progress.elapsed_s)]


def _elapsed(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 60 else format_duration(seconds)
