"""A drill on the console: its timeline, what each action cost, what was expected."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from windtunnel.report.drill import FIGURES, ActionReport, Drill, Event
from windtunnel.report.text import Line, printable, shortened

_BARS = " ▁▂▃▄▅▆▇█"
_CHART_COLUMNS = 80
_MOST_EVENTS = 40
_MOST_CHARS = 92
TOLD = (
    "lost", "evicted", "published", "rolled back", "restored", "restore failed", "can't restore", "joined",
    "rebalancing", "rebalanced", "rebalance refused", "refused", "ended",
)  # fmt: skip
"""What of the engine's events a timeline tells; --json has all."""
_UNTOLD = ("generation", "pid", "ended")
"""Facts that tell an engine's developer something, and the story nothing."""
_DRILL = "drill"


def drill_lines(drill: Drill) -> Iterator[Line]:
    """All that the console shows."""
    yield Line(drill.title, "title")
    if drill.about:
        yield Line(printable(drill.about), "quote", rest="")
    yield Line(f"{drill.target} · {drill.requests} requests in {drill.duration_s:.1f} s", "quote", rest="")
    yield Line("")
    yield from _chart(drill)
    yield Line("")
    yield from _timeline(drill)
    if drill.actions:
        yield Line("")
        yield from _table(drill.actions)
    yield Line("")
    yield from _expectations(drill)


def timeline(drill: Drill) -> list[Event]:
    """The events that tell the story, with each recovery, in order; epochs that follow each other are one."""
    told = [event for event in drill.events if event.who == _DRILL or _is_told(event)]
    told += [
        Event(action.at_s + action.recover_s, _DRILL, f"back at its level after {action.label}")
        for action in drill.actions
        if action.at_s is not None and action.recover_s
    ]
    merged: list[Event] = []
    for event in sorted(told, key=lambda event: event.at_s):
        if merged and event.what == merged[-1].what == "published":
            first = str(merged[-1].facts.get("epochs", merged[-1].facts.get("epoch"))).partition(" ")[0]
            merged[-1] = Event(merged[-1].at_s, event.who, event.what, {"epochs": f"{first} to {event.facts['epoch']}"})
        else:
            merged.append(event)
    return merged


def _is_told(event: Event) -> bool:
    """An engine looks at its load again and again, and mostly finds nothing to do."""
    return event.what in TOLD and event.facts.get("result") != "nothing to do"


def event_text(event: Event) -> str:
    """`coordinator: lost rank 1, reason …`."""
    told = {name: value for name, value in event.facts.items() if name not in _UNTOLD and value not in (None, "", [])}
    facts = ", ".join(f"{name} {_fact(value)}" for name, value in told.items())
    who = "" if event.who == _DRILL else f"{event.who}: "
    return shortened(printable(f"{who}{event.what}{' · ' if facts else ''}{facts}"), _MOST_CHARS)


def _fact(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def duration(seconds: float | None) -> str:
    """`0.42 s`; a dash for none."""
    return "–" if seconds is None else f"{seconds:.2f} s"


def back_text(action: ActionReport) -> str:
    """How long service took; `never`; `unknown` where there is nothing to compare with."""
    if action.at_s is None or action.recover_s is not None:
        return duration(action.recover_s)
    return "never" if action.comparable else "unknown"


def verdict(drill: Drill) -> str:
    """In a few words."""
    if drill.interrupted is not None:
        return f"interrupted by {drill.interrupted}"
    return "passed" if drill.passed else "not passed"


def figure_text(key: str, value: float | None) -> str:
    """A figure with its unit."""
    if value is None:
        return "–"
    if key.endswith("_s"):
        return duration(value)
    return f"{value:.0%}" if key.endswith("_ratio") else f"{value:g}"


def _chart(drill: Drill) -> Iterator[Line]:
    """Tokens a second over the time, and where the actions were."""
    values = drill.series.tokens_per_s
    each = -(-len(values) // _CHART_COLUMNS) or 1
    columns = [sum(values[i : i + each]) / len(values[i : i + each]) for i in range(0, len(values), each)]
    most = max(columns, default=0.0) or 1.0
    marks = [" "] * len(columns)
    for action in drill.actions:
        if action.at_s is not None and 0 <= (place := int(action.at_s / (each * drill.series.bin_s))) < len(marks):
            marks[place] = "↓"
    yield Line("".join(marks).rstrip())
    yield Line("".join(_BARS[round(value / most * (len(_BARS) - 1))] for value in columns))
    ends = f"{drill.duration_s:.0f} s, at most {most:,.0f} tokens/s"
    yield Line(f"0 s{ends:>{max(len(columns) - 3, 0)}}", "quote")


def _timeline(drill: Drill) -> Iterator[Line]:
    told = timeline(drill)
    for event in told[:_MOST_EVENTS]:
        style: Any = "bad" if event.what in ("lost", "restore failed", "can't restore") else ""
        style = "good" if event.what.startswith("back at") else style
        yield Line(f"{event.at_s:7.2f} s  {event_text(event)}", style)
    if len(told) > _MOST_EVENTS:
        yield Line(f"{'':9}  and {len(told) - _MOST_EVENTS} more: --json has all", "quote")


_HEAD = ("action", "at", "detected", "back", "failed", "goodput lost", "worst gap")


def _table(actions: Sequence[ActionReport]) -> Iterator[Line]:
    rows = [_HEAD, *(_row(action) for action in actions)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(_HEAD))]
    for number, row in enumerate(rows):
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        yield Line("  ".join(cells).rstrip(), "quote" if not number else "")
    for action in actions:
        if action.problem is not None:
            yield Line(
                f"✗ {action.label} ({action.planned}) was not done: {printable(action.problem)}", "bad", rest="  "
            )


def action_cells(action: ActionReport) -> tuple[str, ...]:
    """What an action cost: label, at, detected, back, failed, goodput lost, worst gap."""
    return (
        action.label,
        duration(action.at_s),
        duration(action.detect_s),
        back_text(action),
        str(action.failed),
        figure_text("goodput_lost_ratio", action.goodput_lost_ratio),
        duration(action.worst_gap_s),
    )


def _row(action: ActionReport) -> tuple[str, ...]:
    label, *figures = action_cells(action)
    return (shortened(printable(label), 44), *figures)


def _expectations(drill: Drill) -> Iterator[Line]:
    for expected in drill.expectations:
        figure = figure_text(expected.key, expected.figure)
        said = "" if expected.met else "   expected" + f" {expected.bound}"
        mark = "✓" if expected.met else "✗"
        yield Line(f"{mark} {expected.key} {figure}{said}", "good" if expected.met else "bad")
    missing = [key for key in FIGURES if key not in {expected.key for expected in drill.expectations}]
    figures = ", ".join(f"{key} {figure_text(key, getattr(drill, key))}" for key in missing)
    yield Line(f"  {figures}", "quote", rest="  ")
    yield Line(verdict(drill), "good" if drill.passed else "bad")
