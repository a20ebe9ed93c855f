"""`windtunnel runs`: the runs that are kept, each with its journal."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windtunnel.cli.flags import OURS, Flag
from windtunnel.cli.parser import CommandParser, Positional
from windtunnel.cli.values import PATH, SWITCH
from windtunnel.errors import EXIT_OK

if TYPE_CHECKING:
    from windtunnel.loadgen.runs import RunInfo
    from windtunnel.measure.run import RunFacts

_GROUP = "flags"
_RUNS_DIR = Flag(
    "--runs-dir", _GROUP, PATH, None, "Where runs are kept. Without it: $XDG_STATE_HOME/windtunnel/runs.", OURS
)
_JSON = Flag("--json", _GROUP, SWITCH, False, "Print JSON.", OURS)
_WHICH = "A run's name or its beginning, or a path to its folder."


def list_parser() -> CommandParser:
    """Of `runs list`."""
    return CommandParser("runs list", "List the runs that are kept, oldest first.", (_RUNS_DIR, _JSON), {_GROUP: ""})


def show_parser() -> CommandParser:
    """Of `runs show`."""
    summary = "Show a run's result again, as far as it got."
    positional = Positional("RUN", "?", f"{_WHICH} Without it: the newest.")
    return CommandParser("runs show", summary, (_RUNS_DIR, _JSON), {_GROUP: ""}, positional)


def recover_parser() -> CommandParser:
    """Of `runs recover`."""
    summary = "Report a run that was cut off from its journal, and save its result as the run would have."
    positional = Positional("RUN", "?", f"{_WHICH} Without it: the newest that did not finish.")
    return CommandParser("runs recover", summary, (_RUNS_DIR,), {_GROUP: ""}, positional)


def rm_parser() -> CommandParser:
    """Of `runs rm`."""
    return CommandParser("runs rm", "Remove runs.", (_RUNS_DIR,), {_GROUP: ""}, Positional("RUN", "+", _WHICH))


def run_list(arguments: Sequence[str]) -> int:
    """Print a table, or JSON."""
    values = list_parser().parse(arguments).values
    from windtunnel.loadgen.runs import list_runs

    runs = list_runs(_folder(values.runs_dir))
    if values.json:
        _print_json([_as_json(run) for run in runs])
    elif runs:
        _print_table(["RUN", "STATE", "MODEL", "TARGET", "LOAD", "REQUESTS", "SIZE"], [_row(run) for run in runs])
    else:
        print(f"no runs in {_folder(values.runs_dir)}")
    return EXIT_OK


def run_show(arguments: Sequence[str]) -> int:
    """Print the result of a run; what the run's own exit code was is not repeated."""
    values = show_parser().parse(arguments).values
    from windtunnel.cli.reporting import document_of, show, summary_of
    from windtunnel.loadgen.run import recover
    from windtunnel.loadgen.runs import find_run

    run = find_run(_folder(values.runs_dir), values.run)
    journal = recover(run)
    if values.json:
        _print_json(document_of(journal))
    else:
        print(f"{run.run_id}  {run.state}  {run.journal}")
        show(summary_of(journal), journal)
    return EXIT_OK


def run_recover(arguments: Sequence[str]) -> int:
    """Make the report that the run would have made; the exit code is the run's."""
    values = recover_parser().parse(arguments).values
    from windtunnel.cli.reporting import report
    from windtunnel.loadgen.run import recover
    from windtunnel.loadgen.runs import find_run, refuse_running

    run = find_run(_folder(values.runs_dir), values.run, unfinished=True)
    refuse_running(run)
    print(f"windtunnel: recovering {run.journal}", file=sys.stderr)
    return report(recover(run))


def run_rm(arguments: Sequence[str]) -> int:
    """Remove runs: all that are named, or none where a name is wrong."""
    values = rm_parser().parse(arguments).values
    from windtunnel.loadgen.runs import find_run, refuse_running, remove_run

    folder = _folder(values.runs_dir)
    found = [find_run(folder, name) for name in values.run]
    for run in found:
        refuse_running(run)
    for run in {run.path: run for run in found}.values():
        remove_run(run)
        print(f"removed {run.path}")
    return EXIT_OK


def _folder(runs_dir: str | None) -> Path:
    from windtunnel.loadgen.runs import default_folder

    return Path(runs_dir) if runs_dir else default_folder()


def _row(run: RunInfo) -> list[str]:
    from windtunnel.units import format_bytes

    size = format_bytes(run.size_bytes)
    if run.header is None:
        return [run.run_id, run.state, "-", "-", "-", "-", size]
    facts = run.header.facts
    return [run.run_id, run.state, facts.model_id, facts.target, _load(facts), str(facts.num_prompts), size]


def _load(facts: RunFacts) -> str:
    """`50/s`, `at most 64`, or both."""
    if facts.ramp_up is not None:
        rate = f"{facts.ramp_up.start_rps:g}→{facts.ramp_up.end_rps:g}/s"
    else:
        rate = "" if facts.request_rate is None else f"{facts.request_rate:g}/s"
    cap = "" if facts.max_concurrency is None else f"at most {facts.max_concurrency}"
    return ", ".join(part for part in (rate, cap) if part) or "all at once"


def _as_json(run: RunInfo) -> dict[str, Any]:
    return {
        "run_id": run.run_id,
        "state": run.state,
        "path": str(run.path),
        "size_bytes": run.size_bytes,
        "problem": run.problem,
        "facts": None if run.header is None else run.header.facts,
    }


def _print_json(document: Any) -> None:
    import msgspec

    print(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())


def _print_table(head: list[str], rows: list[list[str]]) -> None:
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    for row in [head, *rows]:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
