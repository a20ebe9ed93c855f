"""A replay on the console: policies side by side, the best figures marked, and why each policy stopped."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
    stopped: Mapping[str, int]
    """Why planning ended, and in how many layers."""


class Series(NamedTuple):
    """What one policy did."""

    policy: str
    plans: Sequence[PlanPoint]
    """Empty: the placement stayed as it was."""
    balancedness: Sequence[float]
    """Of each step that was judged."""
    error: str | None = None
    """The policy's, where it could not go on."""

    @property
    def stopped(self) -> dict[str, int]:
        """Why planning ended, the most frequent first, and in how many layers of all plans."""
        total: Counter[str] = Counter()
        for plan in self.plans:
            total.update(plan.stopped)
        return dict(total.most_common())


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
    advice: str | None = None
    """How to get more out of the policy that is asked about."""


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
    "moved_ratio": "slots moved",
    "achieved": "balancedness",
    "worst": "worst step",
    "planned": "as planned",
    "moved_bytes": "moved in all",
    "plan_s": "plan time",
}
"""Titles of the columns, in order; the keys are fields of Row."""


_BEST: Mapping[str, Callable[[Iterable[float]], float]] = {"achieved": max, "worst": max, "moved_ratio": min}
_GAP = 2
"""Between columns; 1 where there is no room for it."""


def cells(row: Row) -> dict[str, str]:
    """A row as text; a dash for what there is none of."""
    return {
        "policy": row.policy,
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
    """Print the table; a terminal that is narrow gets headings on several lines."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    out = sys.stdout if stream is None else stream
    found, best = rows(replay), best_values(replay)
    console = Console(file=out, width=None if out.isatty() else WIDEST, highlight=False)
    shown, texts = columns(replay), [cells(row) for row in found]
    widths, gap = _widths(shown, texts, console.width)
    # a width of its own: rich would cut the columns of a table that is wider than the terminal
    whole = sum(widths) + gap * (len(widths) - 1)
    table = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="dim", width=whole)
    for key, width in zip(shown, widths, strict=True):
        table.add_column(HEAD[key], justify="left" if key == "policy" else "right", vertical="bottom", width=width)
    for row, text in zip(found, texts, strict=True):
        table.add_row(*(Text(text[key], "green" if is_best(row, key, best) else "") for key in shown))
    console.print(Text(printable(replay.title), "bold"))
    console.print(Text(replay.method, "dim"))
    console.print()
    console.print(table, crop=False)
    console.print()
    for line in reasons(replay):
        console.print(Text(line, "dim"))
    for line in failures(replay):
        console.print(Text(line, "yellow"))
    if replay.advice is not None:
        console.print(Text(replay.advice, "cyan"))


def _widths(shown: Sequence[str], texts: Sequence[Mapping[str, str]], room: int) -> tuple[list[int], int]:
    """Of the columns, and the gap between them: headings on one line where there is room, no word ever cut."""
    of_cells = [max(len(text[key]) for text in texts) for key in shown]
    roomy = [max(width, len(HEAD[key])) for key, width in zip(shown, of_cells, strict=True)]
    if sum(roomy) + _GAP * (len(roomy) - 1) <= room:
        return roomy, _GAP
    return [max(width, *map(len, HEAD[key].split())) for key, width in zip(shown, of_cells, strict=True)], 1


def best_values(replay: Replay) -> dict[str, float]:
    """The best balanced, and the least moved, where policies differ in it. What plans nothing moves nothing."""
    found = {key: [value for row in rows(replay) if (value := getattr(row, key)) is not None] for key in _BEST}
    return {key: _BEST[key](values) for key, values in found.items() if len(set(values)) > 1}


def is_best(row: Row, key: str, best: Mapping[str, float]) -> bool:
    """Whether the cell is one of `best_values`."""
    return key in best and getattr(row, key) == best[key]


def reasons(replay: Replay) -> Iterator[str]:
    """Why the policies stopped planning: `windtunnel ended by noise (90% of layers), replanned (10%)`."""
    for series in replay.series:
        layers = sum(series.stopped.values())
        shares = [f"{reason} ({count / layers:.0%})" for reason, count in series.stopped.items()]
        if len(shares) == 1:
            yield f"{series.policy} ended by {next(iter(series.stopped))}"
        elif shares:
            yield f"{series.policy} ended by {', '.join(shares).replace('%)', '% of layers)', 1)}"


def failures(replay: Replay) -> Iterator[str]:
    """Which policies could not go on, and why."""
    for series in replay.series:
        if series.error is not None:
            after = f" after {len(series.plans)} plans" if series.plans else ""
            yield f"{series.policy} gave up{after}: {series.error}"


def _or_dash(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)
