"""A drill as one HTML page, whose timeline tells the story. It needs no network and no JavaScript."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from windtunnel.report.drill import FIGURES, Drill, Event, Phase
from windtunnel.report.drill_chart import chart
from windtunnel.report.drill_console import action_cells, duration, event_text, figure_text, timeline, verdict

_STYLE = """
:root { color-scheme: light dark; --ground: #fff; --ink: #1b1f24; --faint: #5d6673; --line: #dfe3e8; --card: #f5f7f9;
  --good: #0f7b55; --bad: #b93a0e; --tokens: #2f81f7; --flight: #8b8f98; --during: #f2a93b;
  --hung: #e0b400; --away: #c4541a }
@media (prefers-color-scheme: dark) {
  :root { --ground: #14171b; --ink: #e6e9ee; --faint: #9aa4b1; --line: #333a43; --card: #1c2127;
    --good: #4cc38a; --bad: #ff8f5e; --tokens: #4b93f5; --flight: #9aa4b1; --during: #c98518;
    --hung: #d9b21a; --away: #e0672a }
}
* { box-sizing: border-box }
body { margin: 0 auto; padding: 2rem 1.25rem 3rem; max-width: 72rem; background: var(--ground); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0 0 .25rem }
h2 { font-size: 1.1rem; margin: 2.25rem 0 .5rem }
p { margin: .25rem 0; color: var(--faint); max-width: 50rem; overflow-wrap: anywhere }
.verdict { font-size: .875rem; font-weight: 600; border: 1px solid; border-radius: 99px; padding: .1rem .6rem;
  vertical-align: .2em; white-space: nowrap }
.good { color: var(--good) } .bad { color: var(--bad) }
.figures { display: flex; flex-wrap: wrap; gap: .75rem; margin: 1.25rem 0; padding: 0; list-style: none }
.figures li { background: var(--card); border-radius: 8px; padding: .5rem .9rem; min-width: 7rem }
.figures b { display: block; font-size: 1.3rem; line-height: 1.3; font-variant-numeric: tabular-nums }
.figures span { color: var(--faint); font-size: .8125rem }
.wide { overflow-x: auto }
.timeline { display: block; width: 100%; min-width: 44rem; height: auto; font: 11px system-ui, sans-serif }
.timeline text { fill: var(--ink) } .timeline .tick, .timeline .name { fill: var(--faint) }
.timeline .grid { stroke: var(--line) } .timeline .action { stroke: var(--ink); stroke-dasharray: 3 2 }
.timeline .label { font-weight: 600; font-size: 12px }
.timeline .tokens { fill: var(--tokens); fill-opacity: .75 } .timeline .flight { fill: var(--flight); fill-opacity: .6 }
.timeline .failed { fill: var(--bad) } .timeline .during { fill: var(--during); fill-opacity: .28 }
.timeline .serving { fill: var(--good); fill-opacity: .55 } .timeline .hung { fill: var(--hung) }
.timeline .away { fill: var(--away); fill-opacity: .8 } .timeline .epoch { stroke: var(--ink); stroke-opacity: .45 }
.key { font-size: .8125rem; max-width: none } .key span { display: inline-block; margin-right: 1.1em }
.key i { display: inline-block; width: .9em; height: .7em; border-radius: 2px; margin-right: .35em; opacity: .8 }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9375rem }
th, td { text-align: right; white-space: nowrap; padding: .35rem 0 .35rem 1.25rem;
  border-bottom: 1px solid var(--line) }
th { font-weight: 500; color: var(--faint); font-size: .8125rem; vertical-align: bottom }
th:first-child, td:first-child { text-align: left; padding-left: 0 }
tr.phase td { color: var(--faint); border-bottom: 0; padding-top: .1rem; padding-bottom: .1rem; font-size: .875rem }
tr.phase td:first-child { padding-left: 1.25rem }
.events td { text-align: left; white-space: normal; overflow-wrap: anywhere }
.events td:first-child { text-align: right; white-space: nowrap }
summary { cursor: pointer; margin-top: 1rem; color: var(--faint) }
"""
_KEY = (
    ("tokens", "tokens a second"),
    ("flight", "requests in flight"),
    ("during", "until service was back"),
)
_KEY_OF_RANKS = (("good", "rank serves"), ("hung", "hangs, and is not missed yet"), ("away", "is away"))


def page(drill: Drill) -> str:
    """The whole page."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(drill.title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(_parts(drill))
        + "\n</body>\n</html>\n"
    )


def _parts(drill: Drill) -> Iterator[str]:
    mood = "good" if drill.passed else "bad"
    yield f'<h1>{escape(drill.title)} <span class="verdict {mood}">{escape(verdict(drill))}</span></h1>'
    if drill.about:
        yield f"<p>{escape(drill.about)}</p>"
    facts = f"{drill.target} · {drill.requests} requests in {drill.duration_s:.1f} s · {drill.date}"
    yield f"<p>{escape(facts)} · windtunnel {escape(drill.version)}</p>"
    yield from _figures(drill)
    yield f'<div class="wide">{chart(drill)}</div>'
    yield _key(drill)
    if drill.actions:
        yield "<h2>What each action cost</h2>"
        yield from _actions(drill)
    yield "<h2>What happened</h2>"
    yield _events(timeline(drill))
    yield f"<details><summary>All {len(drill.events)} events</summary>{_events(drill.events)}</details>"
    yield "<h2>How “back” is decided</h2>"
    yield (
        f"<p>Service is looked at through windows of {drill.window_s:.2g} s. One is at its level when its tokens per "
        f"second and request in flight are at least {drill.level_ratio:.0%} of what is usual for that many in flight, "
        "as fitted to the windows before the action, or not much below the slowest of these; and when no greater share "
        "of its requests failed. Service is back at the end of the last bad stretch before the next action.</p>"
    )


def _figures(drill: Drill) -> Iterator[str]:
    expected = {expectation.key: expectation for expectation in drill.expectations}
    yield '<ul class="figures">'
    for key, meaning in FIGURES.items():
        said, mood = "", ""
        if (expectation := expected.get(key)) is not None:
            mood = "good" if expectation.met else "bad"
            said = (
                f' <span class="{mood}">{"✓" if expectation.met else "✗ expected"} {escape(expectation.bound)}</span>'
            )
        value = escape(figure_text(key, getattr(drill, key)))
        yield f'<li title="{escape(meaning)}"><b class="{mood}">{value}</b><span>{_words(key)}</span>{said}</li>'
    yield "</ul>"


def _words(key: str) -> str:
    """`goodput_lost_ratio` as people say it."""
    return (
        key.removesuffix("_s")
        .removesuffix("_ratio")
        .replace("_", " ")
        .replace("recover", "back after")
        .replace("detect", "noticed after")
    )


def _key(drill: Drill) -> str:
    keys = (*_KEY, *(_KEY_OF_RANKS if drill.ranks else ()))
    parts = [f'<span><i style="background:var(--{color})"></i>{text}</span>' for color, text in keys]
    lines = "<span>thin lines: a new routing was published</span>" if drill.ranks else ""
    return f'<p class="key">{"".join(parts)}{lines}</p>'


_HEAD = ("", "at", "noticed", "back", "failed", "goodput lost", "worst gap")
_PHASE_HEAD = ("from", "to", "tokens/s", "TTFT p50 / p99", "ITL p99", "failed", "worst gap")


def _actions(drill: Drill) -> Iterator[str]:
    yield '<div class="wide"><table><thead><tr>'
    yield "".join(f"<th>{text}</th>" for text in _HEAD) + "</tr></thead><tbody>"
    for action in drill.actions:
        if action.problem is not None:
            yield f'<tr><td>{escape(action.label)}</td><td colspan="6" class="bad">{escape(action.problem)}</td></tr>'
            continue
        yield f"<tr>{''.join(f'<td>{escape(text)}</td>' for text in action_cells(action))}</tr>"
    yield "</tbody></table></div>"
    yield "<details><summary>Before, during and after each</summary>"
    yield '<div class="wide"><table><thead><tr><th></th>'
    yield "".join(f"<th>{text}</th>" for text in _PHASE_HEAD) + "</tr></thead><tbody>"
    for action in drill.actions:
        yield f'<tr><td colspan="8">{escape(action.label)}</td></tr>'
        for name in ("before", "during", "after"):
            phase: Phase | None = getattr(action, name)
            if phase is not None:
                cells = "".join(f"<td>{text}</td>" for text in _phase_cells(phase))
                yield f'<tr class="phase"><td>{name}</td>{cells}</tr>'
    yield "</tbody></table></div></details>"


def _phase_cells(phase: Phase) -> tuple[str, ...]:
    return (
        duration(phase.begin_s),
        duration(phase.end_s),
        _number(phase.tokens_per_s, ""),
        f"{_number(phase.median_ttft_ms, '')} / {_number(phase.p99_ttft_ms, ' ms')}",
        _number(phase.p99_itl_ms, " ms"),
        str(phase.failed),
        duration(phase.worst_gap_s),
    )


def _number(value: float | None, unit: str) -> str:
    return "–" if value is None else f"{value:,.0f}{unit}" if value >= 10 else f"{value:.2g}{unit}"


def _events(events: list[Event]) -> str:
    rows = "".join(f"<tr><td>{event.at_s:.3f} s</td><td>{escape(event_text(event))}</td></tr>" for event in events)
    return f'<table class="events"><tbody>{rows}</tbody></table>'
