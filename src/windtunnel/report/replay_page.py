"""A replay as one HTML page: the table, and balancedness and moves over the steps. It needs no network.

Colours of text, grid and ground are the page's own (CSS), so that the plots follow a dark or a light screen. Without
JavaScript the table is still there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html import escape
from typing import Any, NamedTuple

from windtunnel.report.replay import (
    HEAD,
    Replay,
    Series,
    best_values,
    cells,
    columns,
    failures,
    is_best,
    reasons,
    rows,
)

_MOST_POINTS = 2000
"""Of a line; longer ones are drawn by the means of as many stretches."""
_COLORS = ("#8b8f98", "#2f81f7", "#e3832b", "#1fa37c", "#c655b8", "#b79a1e")
"""Told apart on white and on black, also by most people who see colours differently."""
_DASHES = ("dot", "solid", "dash", "dashdot", "longdash", "longdashdot")
_MARKERS = ("circle", "circle", "square", "diamond", "triangle-up", "x")
_PLOT_PIXELS = 380
_FLAG, _AS_CODE = re.compile(r"--[a-z-]+"), r"<code>\g<0></code>"

_STYLE = """
:root { color-scheme: light dark; --ground: #fff; --ink: #1b1f24; --faint: #5d6673; --line: #dfe3e8; --good: #0f7b55 }
@media (prefers-color-scheme: dark) {
  :root { --ground: #14171b; --ink: #e6e9ee; --faint: #9aa4b1; --line: #333a43; --good: #4cc38a }
}
* { box-sizing: border-box }
body { margin: 0 auto; padding: 2rem 1.25rem 3rem; max-width: 68rem; background: var(--ground); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0 0 .25rem }
h2 { font-size: 1.1rem; margin: 2.25rem 0 0 }
p { margin: .25rem 0; color: var(--faint); max-width: 46rem }
.failed { color: #c4541a }
.advice { color: var(--ink) }
code { white-space: nowrap }
.wide { overflow-x: auto; margin: 1.5rem 0 .75rem }
table { border-collapse: collapse; font-variant-numeric: tabular-nums }
th, td { text-align: right; vertical-align: bottom; padding: .4rem 0 .4rem clamp(.5rem, 2vw, 1.25rem);
  border-bottom: 1px solid var(--line) }
td { white-space: nowrap }
th { font-weight: 500; color: var(--faint); font-size: .875rem; line-height: 1.25 }
th:first-child, td:first-child { text-align: left; font-weight: 600; padding-left: 0 }
@media (max-width: 36rem) {
  body { padding-left: .75rem; padding-right: .75rem }
  td, th { font-size: .8125rem }
  .swatch { margin-right: .25em }
}
.best { color: var(--good); font-weight: 600 }
.swatch { display: inline-block; width: .75em; height: .75em; border-radius: 2px; margin-right: .5em }
.js-plotly-plot text { fill: var(--ink) !important }
.js-plotly-plot .hovertext text { fill: #fff !important }
.js-plotly-plot .gridlayer path, .js-plotly-plot .zerolinelayer path { stroke: var(--line) !important }
"""


class _Look(NamedTuple):
    color: str
    dash: str
    marker: str


def page(replay: Replay) -> str:
    """The whole page. It needs plotly."""
    looks = {
        series.policy: _Look(*(choices[i % len(choices)] for choices in (_COLORS, _DASHES, _MARKERS)))
        for i, series in enumerate(replay.series)
    }
    parts = [
        f"<h1>{escape(replay.title)}</h1>",
        f"<p>{escape(replay.method)}</p>",
        *(f'<p class="failed">{escape(line)}</p>' for line in failures(replay)),
        *_table(replay, looks),
        *(f"<p>{escape(line)}</p>" for line in reasons(replay)),
        *(f'<p class="advice">{_FLAG.sub(_AS_CODE, escape(line))}</p>' for line in [replay.advice] if line),
        "<h2>Balancedness</h2>",
        "<p>Mean rank load ÷ maximum rank load of each step, mean over layers. 1 is perfect; at 0.5 the hottest rank "
        "has twice the load of the mean, and all others wait for it.</p>",
        _plot("balancedness", replay, _balancedness(replay, looks), "balancedness", "", "normal", with_library=True),
        "<h2>Moves</h2>",
        "<p>Slots whose expert had to come from another rank, at each plan.</p>",
        _plot("moves", replay, _moves(replay, looks), "slots moved", ".0%", "tozero", with_library=False),
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(replay.title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(parts)
        + "\n</body>\n</html>\n"
    )


def _table(replay: Replay, looks: dict[str, _Look]) -> Iterator[str]:
    shown, best = columns(replay), best_values(replay)
    yield '<div class="wide"><table>'
    yield f"<thead><tr>{''.join(f'<th>{escape(HEAD[key])}</th>' for key in shown)}</tr></thead><tbody>"
    for row in rows(replay):
        texts = cells(row)
        swatch = f'<span class="swatch" style="background:{looks[row.policy].color}"></span>'
        yield "<tr>"
        for key in shown:
            mark = ' class="best"' if is_best(row, key, best) else ""
            before = swatch if key == "policy" else ""
            yield f"<td{mark}>{before}{escape(texts[key])}</td>"
        yield "</tr>"
    yield "</tbody></table></div>"


def _balancedness(replay: Replay, looks: dict[str, _Look]) -> Iterator[dict[str, Any]]:
    for series in replay.series:
        look = looks[series.policy]
        steps, values = _thinned(replay.first_step, series.balancedness)
        yield _trace(series, steps, values, "%{y:.4f}", mode="lines", line={"color": look.color, "dash": look.dash})


def _moves(replay: Replay, looks: dict[str, _Look]) -> Iterator[dict[str, Any]]:
    for series in replay.series:
        if not series.plans:
            continue
        look = looks[series.policy]
        steps = [float(plan.step) for plan in series.plans]
        values = [plan.moved_ratio for plan in series.plans]
        marker = {"color": look.color, "symbol": look.marker, "size": 9}
        yield _trace(series, steps, values, "%{y:.1%}", mode="markers", marker=marker)


def _trace(series: Series, steps: list[float], values: list[float], shown: str, **look: Any) -> dict[str, Any]:
    hover = f"{series.policy}: {shown}<extra></extra>"
    return {"type": "scatter", "name": series.policy, "x": steps, "y": values, "hovertemplate": hover, **look}


def _thinned(first: int, values: Sequence[float]) -> tuple[list[float], list[float]]:
    """Steps and values, at most so many: where there are more, the means of stretches of equal length."""
    each = -(-len(values) // _MOST_POINTS) or 1
    stretches = [values[begin : begin + each] for begin in range(0, len(values), each)]
    steps = [first + i * each + (len(stretch) - 1) / 2 for i, stretch in enumerate(stretches)]
    return steps, [sum(stretch) / len(stretch) for stretch in stretches]


def _steps_range(replay: Replay) -> list[float]:
    """Of the axis, the same for both plots: from the first step that was judged to the last, and a little more."""
    first = replay.first_step
    last = first + max((len(series.balancedness) for series in replay.series), default=0)
    margin = (last - first) * 0.02
    return [first - margin, last + margin]


def _plot(
    name: str,
    replay: Replay,
    traces: Iterator[dict[str, Any]],
    title: str,
    form: str,
    scale: str,
    *,
    with_library: bool,
) -> str:
    from plotly.graph_objects import Figure

    clear = "rgba(0,0,0,0)"
    layout = {
        "template": "none",
        "height": _PLOT_PIXELS,
        "margin": {"l": 64, "r": 8, "t": 48, "b": 48},
        "paper_bgcolor": clear,
        "plot_bgcolor": clear,
        "font": {"family": "system-ui, sans-serif", "size": 13},
        "hovermode": "closest",
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "bgcolor": clear},
        "xaxis": {"title": {"text": "step"}, "zeroline": False, "automargin": True, "range": _steps_range(replay)},
        "yaxis": {
            "title": {"text": title},
            "tickformat": form,
            "zeroline": False,
            "automargin": True,
            "rangemode": scale,
        },
    }
    html: str = Figure(data=list(traces), layout=layout).to_html(
        full_html=False,
        include_plotlyjs=with_library,
        div_id=name,
        default_height=f"{_PLOT_PIXELS}px",
        config={"displayModeBar": False, "responsive": True},
    )
    return html
