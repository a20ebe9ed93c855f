"""A drill's timeline as one SVG: tokens, requests in flight, failures and ranks over the same seconds.

It is drawn here and not by a plotting library: it is the same without JavaScript, a hundredth of the size, and the
ranks' lanes and the actions' labels, which tell the story, are no plot. Colours come from the page's CSS.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from math import floor, log10
from typing import NamedTuple

from windtunnel.report.drill import Drill
from windtunnel.report.text import shortened

_WIDTH = 1000
_LEFT, _RIGHT = 64, 12
_LABEL_ROW, _LANE = 20, 20
_TOKENS, _IN_FLIGHT, _FAILED = 190, 70, 44
_GAP = 26
_CHAR = 7.3
"""Of a label, about, in its font's size."""
_MOST_LABEL_CHARS = 60
_STEPS = (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10)
_TIME_STEPS = (1, 2, 5, 10)


class _Scale(NamedTuple):
    """From seconds to places."""

    duration_s: float

    def x(self, at_s: float) -> float:
        """The place of an instant."""
        return _LEFT + min(max(at_s, 0.0), self.duration_s) / self.duration_s * (_WIDTH - _LEFT - _RIGHT)


def chart(drill: Drill) -> str:
    """The whole picture."""
    scale = _Scale(max(drill.duration_s, drill.series.bin_s))
    labels = _labels(drill, scale)
    top = (1 + max((row for row, *_ in labels), default=-1)) * _LABEL_ROW + 12
    body: list[str] = []
    y = float(top)
    body += _panel(scale, drill, y, _TOKENS, "tokens/s", drill.series.tokens_per_s, "tokens")
    y += _TOKENS + _GAP
    body += _panel(scale, drill, y, _IN_FLIGHT, "in flight", drill.series.in_flight, "flight")
    y += _IN_FLIGHT + _GAP
    if any(drill.series.failed):
        body += _bars(scale, drill, y, _FAILED)
        y += _FAILED + _GAP
    if drill.ranks:
        body += _lanes(scale, drill, y)
        y += _LANE * len(drill.ranks) + 8
    bottom = y
    body += _axis(scale, bottom)
    behind = _bands(scale, drill, top, bottom)
    marks = _marks(labels, bottom)
    height = bottom + 26
    return (
        f'<svg class="timeline" viewBox="0 0 {_WIDTH} {height:.0f}" role="img" aria-label="timeline of the drill">'
        + "".join([*behind, *body, *marks])
        + "</svg>"
    )


def _panel(
    scale: _Scale, drill: Drill, y: float, height: float, title: str, values: Sequence[float], kind: str
) -> Iterator[str]:
    """An area over time, with its own axis."""
    top = _round_up(max(values, default=0.0) or 1.0)
    yield from _grid(y, height, title, top)
    bin_s = drill.series.bin_s
    points = [f"{scale.x(0):.1f},{y + height:.1f}"]
    for number, value in enumerate(values):
        level = y + height * (1 - value / top)
        points += [f"{scale.x(number * bin_s):.1f},{level:.1f}", f"{scale.x((number + 1) * bin_s):.1f},{level:.1f}"]
    points.append(f"{scale.x(len(values) * bin_s):.1f},{y + height:.1f}")
    yield f'<polygon class="{kind}" points="{" ".join(points)}"/>'


def _bars(scale: _Scale, drill: Drill, y: float, height: float) -> Iterator[str]:
    """Failed requests, by when they did."""
    top = max(drill.series.failed)
    yield from _grid(y, height, "failed", top)
    bin_s = drill.series.bin_s
    width = max(1.5, scale.x(bin_s) - scale.x(0))
    for number, count in enumerate(drill.series.failed):
        if count:
            tall = height * count / top
            yield (
                f'<rect class="failed" x="{scale.x(number * bin_s):.1f}" y="{y + height - tall:.1f}" '
                f'width="{width:.1f}" height="{tall:.1f}"><title>{count} failed at {number * bin_s:.1f} s</title>'
                "</rect>"
            )


def _grid(y: float, height: float, title: str, top: float) -> Iterator[str]:
    for share in (0.0, 1.0) if height < 100 else (0.0, 0.5, 1.0):
        line = y + height * (1 - share)
        yield f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{line:.1f}" y2="{line:.1f}"/>'
        if share:
            yield f'<text class="tick" x="{_LEFT - 8}" y="{line + 4:.1f}" text-anchor="end">{top * share:,g}</text>'
    yield f'<text class="name" x="{_LEFT - 8}" y="{y + height + 4:.1f}" text-anchor="end">{title}</text>'


_STATES = {"lost": "away", "joined": "serving"}
"""What a rank is after an event of the coordinator's."""


class _Stay(NamedTuple):
    """What a rank was for a while."""

    begin_s: float
    end_s: float
    state: str


def _lanes(scale: _Scale, drill: Drill, y: float) -> Iterator[str]:
    """A lane for each rank: when it was a member, when it was away, when new epochs were published."""
    for number, rank in enumerate(drill.ranks):
        top = y + number * _LANE
        yield f'<text class="name" x="{_LEFT - 8}" y="{top + 13:.1f}" text-anchor="end">rank {rank}</text>'
        for stay in _stays(drill, rank):
            left, right = scale.x(stay.begin_s), scale.x(stay.end_s)
            yield (
                f'<rect class="{stay.state}" x="{left:.1f}" y="{top + 3:.1f}" width="{max(right - left, 1.5):.1f}" '
                f'height="{_LANE - 6}" rx="2"><title>rank {rank}: {stay.state}, {stay.begin_s:.2f} to '
                f"{stay.end_s:.2f} s</title></rect>"
            )
    bottom = y + _LANE * len(drill.ranks)
    for event in drill.events:
        if event.what == "published" and event.who == "coordinator":
            x = scale.x(event.at_s)
            yield (
                f'<line class="epoch" x1="{x:.1f}" x2="{x:.1f}" y1="{y:.1f}" y2="{bottom:.1f}"><title>epoch '
                f"{escape(str(event.facts.get('epoch')))} published at {event.at_s:.2f} s</title></line>"
            )


def _stays(drill: Drill, rank: int) -> Iterator[_Stay]:
    """Serving, hung (stopped, and not yet noticed) or away."""
    changes = [(0.0, "serving")]
    for kind, state in (("hang_rank", "hung"), ("resume_rank", "serving")):
        changes += [(a.at_s, state) for a in drill.actions if a.at_s is not None and a.label == f"{kind} {rank}"]
    changes += [
        (event.at_s, _STATES[event.what])
        for event in drill.events
        if event.who == "coordinator" and event.facts.get("rank") == rank and event.what in _STATES
    ]
    changes.sort(key=lambda change: change[0])
    for (begin_s, state), (end_s, _) in zip(changes, [*changes[1:], (drill.duration_s, "")], strict=True):
        if end_s > begin_s:
            yield _Stay(begin_s, end_s, state)


def _bands(scale: _Scale, drill: Drill, top: float, bottom: float) -> Iterator[str]:
    """From each action until service was back; where these overlap, one."""
    spans: list[tuple[float, float]] = []
    for begin_s, end_s in sorted((a.during.begin_s, a.during.end_s) for a in drill.actions if a.during is not None):
        if spans and begin_s <= spans[-1][1]:
            spans[-1] = (spans[-1][0], max(spans[-1][1], end_s))
        else:
            spans.append((begin_s, end_s))
    for begin_s, end_s in spans:
        left, right = scale.x(begin_s), scale.x(end_s)
        yield (
            f'<rect class="during" x="{left:.1f}" y="{top}" width="{max(right - left, 1):.1f}" '
            f'height="{bottom - top:.1f}"/>'
        )


def _labels(drill: Drill, scale: _Scale) -> list[tuple[int, float, str, str]]:
    """Row, place, anchor and text of each action's label, so that none covers another."""
    placed: list[tuple[int, float, str, str]] = []
    taken: list[list[tuple[float, float]]] = []
    for action in drill.actions:
        if action.at_s is None:
            continue
        text = shortened(action.label, _MOST_LABEL_CHARS)
        x, width = scale.x(action.at_s), len(text) * _CHAR + 12
        at_end = x + width > _WIDTH
        span = (x - width, x) if at_end else (x, x + width)
        row = next((n for n, spans in enumerate(taken) if all(span[1] <= a or b <= span[0] for a, b in spans)), None)
        if row is None:
            row = len(taken)
            taken.append([])
        taken[row].append(span)
        placed.append((row, x, "end" if at_end else "start", text))
    return placed


def _marks(labels: Sequence[tuple[int, float, str, str]], bottom: float) -> Iterator[str]:
    for row, x, anchor, text in labels:
        y = row * _LABEL_ROW + 14
        shift = -5 if anchor == "end" else 5
        yield f'<line class="action" x1="{x:.1f}" x2="{x:.1f}" y1="{y - 10}" y2="{bottom:.1f}"/>'
        yield f'<text class="label" x="{x + shift:.1f}" y="{y}" text-anchor="{anchor}">{escape(text)}</text>'


def _axis(scale: _Scale, y: float) -> Iterator[str]:
    step = _round_up(scale.duration_s / 14, _TIME_STEPS)
    for number in range(int(scale.duration_s / step) + 1):
        x = scale.x(number * step)
        yield f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{y:.1f}" y2="{y + 5:.1f}"/>'
        yield f'<text class="tick" x="{x:.1f}" y="{y + 19:.1f}" text-anchor="middle">{number * step:g} s</text>'


def _round_up(value: float, steps: Sequence[float] = _STEPS) -> float:
    """To a number that is read easily."""
    power = 10.0 ** floor(log10(value))
    return next(step * power for step in steps if step * power >= value * (1 - 1e-9))
