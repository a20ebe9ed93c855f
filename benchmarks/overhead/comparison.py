"""Figures of several clients side by side: ratios pair by pair, and the table on the console."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import NamedTuple

Runs = Mapping[str, Sequence[Mapping[str, float]]]
"""By client: the figures of each of its runs. The runs of one place in these lists followed each other: a pair."""


class Figure(NamedTuple):
    """A figure that clients are compared by; the lesser, the better."""

    key: str
    label: str
    unit: str


FIGURES = (
    Figure("cpu_s", "processor time, user + system", "s"),
    Figure("peak_pss_mb", "peak memory, PSS of all processes", "MB"),
    Figure("max_rss_mb", "greatest resident set of a process", "MB"),
    Figure("wall_s", "wall time, start to exit", "s"),
    Figure("ttft_error_mean_ms", "TTFT error mean", "ms"),
    Figure("ttft_error_p50_ms", "TTFT error p50", "ms"),
    Figure("ttft_error_p99_ms", "TTFT error p99", "ms"),
    Figure("ttft_error_max_ms", "TTFT error max", "ms"),
    Figure("itl_error_p50_ms", "ITL error p50", "ms"),
    Figure("itl_error_p99_ms", "ITL error p99", "ms"),
)
NOISE = (
    Figure("true_ttft_p99_ms", "server: true TTFT p99", "ms"),
    Figure("true_gap_p99_ms", "server: true gap p99", "ms"),
    Figure("others_cpu_s", "processor time of others meanwhile", "s"),
)


class Spread(NamedTuple):
    """Several values of one figure."""

    median: float
    least: float
    greatest: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread | None:
        """None where there are no values."""
        return cls(median(values), min(values), max(values)) if values else None

    def __str__(self) -> str:
        return f"{_short(self.median)} ({_short(self.least)}–{_short(self.greatest)})"


def values(runs: Runs, client: str, key: str) -> list[float]:
    """A client's values of one figure, of the runs that have it."""
    return [run[key] for run in runs[client] if key in run]


def ratios(runs: Runs, client: str, peer: str, key: str) -> list[float]:
    """The client's figure in terms of the peer's, pair by pair.

    A pair that lacks a figure is left out, and so is one in which the peer's is 0 or less: a mean error can be, and a
    multiple of that says nothing.
    """
    pairs = zip(runs[client], runs[peer], strict=True)
    return [ours[key] / theirs[key] for ours, theirs in pairs if key in ours and theirs.get(key, 0) > 0]


def compare(runs: Runs, peer: str) -> dict[str, dict[str, dict[str, float]]]:
    """By client and figure: median and spread of the ratios to `peer`."""
    out: dict[str, dict[str, dict[str, float]]] = {}
    for client in runs:
        if client != peer:
            spreads = {f.key: Spread.of(ratios(runs, client, peer, f.key)) for f in FIGURES}
            out[client] = {key: spread._asdict() for key, spread in spreads.items() if spread is not None}
    return out


def table(runs: Runs, peer: str | None) -> list[list[str]]:
    """Rows of cells, the head first: each client's median and spread, then its ratio to `peer`."""
    head = ["figure"]
    for client in runs:
        head += [client] if peer in (None, client) else [client, f"÷ {peer}"]
    rows = [head]
    for figure in (*FIGURES, *NOISE):
        cells = [f"{figure.label} ({figure.unit})"]
        for client in runs:
            cells.append(_cell(Spread.of(values(runs, client, figure.key))))
            if peer is not None and client != peer:
                cells.append(_ratio_cell(runs, client, peer, figure))
        rows.append(cells)
    return rows


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """The rows as text: the first column to the left, the others to the right, a line under the head."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for first, *others in rows:
        cells = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        lines.append("  ".join([first.ljust(widths[0]), *cells]).rstrip())
    lines.insert(1, "-" * (sum(widths) + 2 * (len(widths) - 1)))
    return "\n".join(lines)


def _ratio_cell(runs: Runs, client: str, peer: str, figure: Figure) -> str:
    """Empty for noise, which is nobody's doing; a loss is called one."""
    if figure in NOISE:
        return ""
    spread = Spread.of(ratios(runs, client, peer, figure.key))
    return _cell(spread) + (" worse" if spread is not None and spread.median > 1 else "")


def _cell(spread: Spread | None) -> str:
    return "–" if spread is None else str(spread)


def _short(value: float) -> str:
    """Three digits, and no exponent."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}" if abs(value) >= 0.001 else f"{value:.5f}"
