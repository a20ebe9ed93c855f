"""A replay on the console: policies side by side, the best figure of each column marked."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from statistics import fmean, median
from typing import NamedTuple, TextIO

from windtunnel.report.text import WIDEST, printable
from windtunnel.units import format_bytes, format_duration


class PlanPoint(NamedTuple):
    """One plan of a policy, and how it did on the steps that followed."""

    step: int
    """The first step that is served by it."""
    planned: float
    """Balancedness on the load that it was planned for."""
    achieved: float
    """Mean balancedness of the steps that followed."""
    moved_ratio: float
    copies: int
    plan_s: float


class Series(NamedTuple):
    """What one policy did."""

    policy: str
    plans: Sequence[PlanPoint]
    """Empty: the placement stayed as it was."""
    balancedness: Sequence[float]
    """Of each step that was judged."""
    stopped: str | None = None
    """The policy's error, where it could not go on."""


class Replay(NamedTuple):
    """A trace through several policies."""

    title: str
    """What was replayed: `1,000 steps of 58 layers × 256 experts over 32 ranks, 288 slots`."""
    method: str
    """How the steps were windowed, as a sentence."""
    first_step: int
    """The first that was judged."""
    series: Sequence[Series]
    expert_bytes: int | None = None


class Row(NamedTuple):
    """The figures of one policy, None where there are none."""

    policy: str
    plans: int
    planned: float | None
    achieved: float | None
    worst: float | None
    """The lowest balancedness of a step."""
    moved_ratio: float | None
    """Mean over the plans."""
    moved_bytes: int | None
    """Of all plans together."""
    plan_s: float | None
    """Median."""


def rows(replay: Replay) -> list[Row]:
    """Each policy's figures."""
    return [_row(series, replay.expert_bytes) for series in replay.series]


def _row(series: Series, expert_bytes: int | None) -> Row:
    plans = series.plans
    return Row(
        policy=series.policy,
        plans=len(plans),
        planned=fmean(plan.planned for plan in plans) if plans else None,
        achieved=fmean(series.balancedness) if series.balancedness else None,
        worst=min(series.balancedness, default=None),
        moved_ratio=fmean(plan.moved_ratio for plan in plans) if plans else None,
        moved_bytes=None if expert_bytes is None or not plans else sum(plan.copies for plan in plans) * expert_bytes,
        plan_s=median(plan.plan_s for plan in plans) if plans else None,
    )


HEAD = {
    "policy": "policy",
    "achieved": "balancedness",
    "worst": "worst step",
    "planned": "as planned",
    "plans": "plans",
    "moved_ratio": "slots moved",
    "moved_bytes": "moved in all",
    "plan_s": "plan time",
}
"""Titles of the columns, in order; the keys are fields of Row."""


def cells(row: Row) -> dict[str, str]:
    """A row as text; a dash for what there is none of."""
    return {
        "policy": row.policy,
        "plans": f"{row.plans:,}",
        "planned": _or_dash(row.planned, ".4f"),
        "achieved": _or_dash(row.achieved, ".4f"),
        "worst": _or_dash(row.worst, ".4f"),
        "moved_ratio": _or_dash(row.moved_ratio, ".1%"),
        "moved_bytes": "–" if row.moved_bytes is None else format_bytes(row.moved_bytes),
        "plan_s": "–" if row.plan_s is None else format_duration(row.plan_s),
    }


def columns(replay: Replay) -> list[str]:
    """The columns that have something to tell."""
    return [key for key in HEAD if key != "moved_bytes" or replay.expert_bytes is not None]


def write_table(replay: Replay, stream: TextIO | None = None) -> None:
    """Print the table; a terminal that is narrow gets headings and cells on several lines."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    out = sys.stdout if stream is None else stream
    found, best = rows(replay), best_values(replay)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    shown = columns(replay)
    for key in shown:
        table.add_column(HEAD[key], justify="left" if key == "policy" else "right", no_wrap=key == "policy")
    for row in found:
        texts = cells(row)
        styled = [Text(texts[k], "green" if k in best and getattr(row, k) == best[k] else "") for k in shown]
        table.add_row(*styled)
    console = Console(file=out, width=None if out.isatty() else WIDEST, highlight=False)
    console.print(Text(printable(replay.title), "bold"))
    console.print(Text(replay.method, "dim"))
    console.print()
    console.print(table)
    for line in failures(replay):
        console.print(Text(line, "yellow"))


def best_values(replay: Replay) -> dict[str, float]:
    """The best figure of the columns that tell how good a policy is, where more than one policy has one."""
    out = {}
    for key in ("achieved", "worst"):
        values = [value for row in rows(replay) if (value := getattr(row, key)) is not None]
        if len(set(values)) > 1:
            out[key] = max(values)
    return out


def failures(replay: Replay) -> Iterator[str]:
    """Which policies could not go on, and why."""
    for series in replay.series:
        if series.stopped is not None:
            after = f" after {len(series.plans)} plans" if series.plans else ""
            yield f"{series.policy} gave up{after}: {series.stopped}"


def _or_dash(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)
