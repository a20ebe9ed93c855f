"""`windtunnel eplb replay`: a recorded load through policies, side by side."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windtunnel.cli.console import tell_note
from windtunnel.cli.eplb_flags import (
    GROUPS,
    HOW,
    LIMIT_FLAGS,
    NUMBER,
    OUTPUT,
    POLICIES,
    WHERE_FLAGS,
    budget_of,
    constraints_of,
    naming_flags,
    previous_of,
    prove_writable,
    read_file,
    shape_text,
    steps_text,
    survivors,
    topology_of,
    warm_up,
)
from windtunnel.cli.flags import OURS, Flag
from windtunnel.cli.json_output import print_json
from windtunnel.cli.packages import require_packages
from windtunnel.cli.parser import CommandParser, Positional
from windtunnel.cli.values import NAME, PATH, SWITCH
from windtunnel.errors import EXIT_OK
from windtunnel.units import NS_PER_S

if TYPE_CHECKING:
    from windtunnel.eplb.planning import Planner
    from windtunnel.eplb.replay import Outcome, Windows
    from windtunnel.report.replay import Replay, Series

_SUMMARY = """\
Put a recorded load through policies side by side: how well each balances it, what it moves, how long it thinks.

  windtunnel eplb replay loads.npz --ranks 32 --nodes 4 --slots 288
  windtunnel eplb replay loads.npz --ranks 32 --slots 288 --every 100 --window-steps 300 --report replay.html

loads.npz holds `load` [steps, layers, experts]. After each --every steps a policy plans on the latest --window-steps
of them, and its placement is judged on each of the steps that follow, until the next plan. The first --every steps are
only looked at. All begin with the same placement: --previous, or the experts in order, as engines begin. The row none
keeps it. Limits bind the policy windtunnel; DeepSeek's plans as published.
Defaults stand in [brackets]."""

_STAYS = "none"
_OURS = "windtunnel"
_BEHIND = 0.001
"""Of balancedness, from which on it is worth a word."""
_FLAGS = (
    *WHERE_FLAGS,
    Flag(
        "--policies", HOW, NAME, None, "Who plans. Without it: windtunnel, deepseek-flat, and with --groups deepseek.",
        OURS, nargs="+", choices=POLICIES,
    ),
    Flag("--every", HOW, NUMBER, None, "Steps from plan to plan. Without it: a tenth of the trace.", OURS),
    Flag("--window-steps", HOW, NUMBER, None, "Steps that a plan is made for. Without it: as --every.", OURS),
    *LIMIT_FLAGS,
    Flag("--report", OUTPUT, PATH, None, "Save a page with plots there, an HTML file that works offline.", OURS),
    Flag("--json", OUTPUT, SWITCH, False, "Print JSON.", OURS),
)  # fmt: skip


def parser() -> CommandParser:
    """Of this command's flags."""
    positional = Positional("TRACE", "?", "The recorded load, an npz file.")
    return CommandParser("eplb replay", _SUMMARY, _FLAGS, GROUPS, positional)


def run(arguments: Sequence[str]) -> int:
    """Replay, save and tell; the exit code. Raises errors of `windtunnel.errors`."""
    parsed = parser().parse(arguments)
    for note in parsed.notes:
        tell_note(note)
    with naming_flags(_FLAGS):
        _compare(parsed.values)
    return EXIT_OK


def _compare(values: argparse.Namespace) -> None:
    require_packages("windtunnel eplb", "eplb", "numba", "scipy")
    if values.report is not None:
        require_packages("--report", "plots", "plotly")
    from windtunnel.eplb.files import read_load
    from windtunnel.eplb.load import LoadWindow
    from windtunnel.eplb.planning import engine_placement
    from windtunnel.eplb.replay import Windows, replay

    trace = read_file("TRACE", values.trace, read_load)
    windows = Windows.of(len(trace), values.every, values.window_steps)
    previous = previous_of(values, trace)
    topology = topology_of(values, previous, trace)
    start = survivors(previous, topology) or engine_placement(trace.shape[1], trace.shape[2], topology)
    planners = _planners(values)
    prove_writable("--report", values.report, values.trace)
    for planner in planners.values():
        warm_up(planner, LoadWindow.of(trace[: windows.every]), topology, start)
    outcomes: dict[str, Outcome] = {}
    with _progress(len(trace), len(planners) + 1) as on_step_of:
        for name in (_STAYS, *planners):
            outcomes[name] = replay(trace, planners.get(name), topology, start, windows, on_step_of(name))
    _raise_where_none_planned(outcomes)
    title = f"{steps_text(len(trace))} of {shape_text(trace, topology)}"
    found = _replay(outcomes, windows, title, values)
    if values.report is not None:
        from windtunnel.eplb.files import write_whole
        from windtunnel.report.replay_page import page

        html = page(found).encode()
        write_whole(Path(values.report), lambda out: out.write(html))
    if values.json:
        print_json(_document(found, windows, values))
    else:
        from windtunnel.report.replay import write_table

        write_table(found)
        if values.report is not None:
            print(f"\nplots: {values.report}")


def _planners(values: argparse.Namespace) -> dict[str, Planner]:
    from windtunnel.eplb.planning import Planner
    from windtunnel.eplb.policies import policy

    constraints, budget = constraints_of(values), budget_of(values)
    names = values.policies or [name for name in POLICIES if name != "deepseek" or values.groups > 1]
    out = {}
    for name in dict.fromkeys(names):
        if name.startswith("deepseek"):  # it knows no limits
            out[name] = Planner(policy(name), split=values.split)
        else:
            out[name] = Planner(policy(name), constraints, budget, values.split)
    return out


def _raise_where_none_planned(outcomes: dict[str, Outcome]) -> None:
    """Where no policy made a single plan, there is nothing to show but why."""
    planned = [outcome for name, outcome in outcomes.items() if name != _STAYS]
    errors = [outcome.error for outcome in planned if outcome.error is not None and not outcome.plans]
    if errors and len(errors) == len(planned):
        raise errors[0]


def _replay(outcomes: dict[str, Outcome], windows: Windows, title: str, values: argparse.Namespace) -> Replay:
    from windtunnel.report.replay import Replay

    seen = f"the latest {steps_text(windows.window_steps)}"
    method = (
        f"A plan after each {steps_text(windows.every)} on {seen}, judged on the steps that follow; "
        f"tokens are split {'evenly' if values.split == 'even' else 'as is best for the window'}."
    )
    series = [_series(name, outcome) for name, outcome in outcomes.items()]
    found = Replay(title, method, windows.every, series, values.expert_bytes)
    return found._replace(advice=_advice(found, values))


def _advice(found: Replay, values: argparse.Namespace) -> str | None:
    """The flags that let our policy balance better, where another one does; None where none does."""
    from windtunnel.report.replay import rows

    judged = {row.policy: row for row in rows(found) if row.achieved is not None}
    ours = judged.pop(_OURS, None)
    if ours is None or ours.achieved is None or not judged:
        return None
    best = max(judged.values(), key=lambda row: row.achieved or 0)
    if (best.achieved or 0) - ours.achieved < _BEHIND:
        return None
    stopped = next(series.stopped for series in found.series if series.policy == _OURS)
    often = [reason for reason, count in stopped.items() if count * 10 >= sum(stopped.values())]
    chances = (
        ("a higher --max-moved-ratio", "budget" in often and values.max_moved_ratio is not None),
        ("a higher --bytes-per-rank", "budget" in often and values.bytes_per_rank is not None),
        ("a lower --tolerance", "tolerance" in often or values.tolerance is not None),
        ("--full-replan", values.full_replan != "always"),
        ("a lower --every", found.first_step > 1),
    )
    flags = [flag for flag, helps in chances if helps]
    if not flags:
        return None
    listed = " or ".join(part for part in (", ".join(flags[:-1]), flags[-1]) if part)
    return f"{best.policy} balances better here. For more balance from {_OURS}, with more moves: {listed}."


def _series(name: str, outcome: Outcome) -> Series:
    from windtunnel.report.replay import PlanPoint, Series

    plans = [
        PlanPoint(
            step=plan.step,
            planned=plan.planned,
            achieved=plan.achieved,
            moved_ratio=plan.moved_ratio,
            copies=plan.copies,
            plan_s=plan.plan_ns / NS_PER_S,
            stopped=dict(plan.stopped),
        )
        for plan in outcome.plans
    ]
    error = None if outcome.error is None else outcome.error.message
    return Series(name, plans, outcome.balancedness.tolist(), error)


def _document(found: Replay, windows: Windows, values: argparse.Namespace) -> dict[str, Any]:
    from windtunnel.report.replay import rows

    return {
        "trace": values.trace,
        "every": windows.every,
        "window_steps": windows.window_steps,
        "first_step": found.first_step,
        "split": values.split,
        "policies": [
            {
                "policy": row.policy,
                "balancedness": row.achieved,
                "balancedness_worst": row.worst,
                "balancedness_planned": row.planned,
                "moved_ratio": row.moved_ratio,
                "moved_bytes": row.moved_bytes,
                "plan_s": row.plan_s,
                "stopped": series.stopped,
                "error": series.error,
                "plans": [plan._asdict() for plan in series.plans],
                "balancedness_of_steps": series.balancedness,
            }
            for row, series in zip(rows(found), found.series, strict=True)
        ],
        "report": values.report,
    }


@contextmanager
def _progress(steps: int, num_policies: int) -> Iterator[Callable[[str], Callable[[int], None]]]:
    """A bar on stderr where that is a terminal, and nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda name: lambda done: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=steps * num_policies)
        begun = iter(range(num_policies))

        def on_step_of(name: str) -> Callable[[int], None]:
            before = next(begun) * steps
            return lambda done: progress.update(task, completed=before + done, description=name)

        yield on_step_of
