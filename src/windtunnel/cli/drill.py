"""`windtunnel drill`: load on a target, deeds done to it meanwhile, and what users of the endpoint saw."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windtunnel.cli import bench_serve, engine
from windtunnel.cli.console import say, tell_note
from windtunnel.cli.eplb_flags import prove_writable
from windtunnel.cli.flags import OURS, Flag
from windtunnel.cli.json_output import print_json
from windtunnel.cli.packages import require_packages
from windtunnel.cli.parser import CommandParser, Positional
from windtunnel.cli.values import PATH, SWITCH
from windtunnel.errors import (
    EXIT_FAILED,
    EXIT_OK,
    EXIT_SIGINT,
    EXIT_SIGTERM,
    EXIT_USAGE,
    ConfigurationError,
    ScenarioError,
    WindtunnelError,
)

if TYPE_CHECKING:
    from windtunnel.drill.reading import Path_, ScenarioFile
    from windtunnel.loadgen.config import ServeConfig
    from windtunnel.report.drill import Drill

_SUMMARY = """\
Put load on a target, do things to it meanwhile, and read what the users of the endpoint saw.

  windtunnel drill                                    kill a rank in mid-transfer, on the reference engine
  windtunnel drill rebalance-under-load               another scenario that comes with windtunnel
  windtunnel drill scenario.yaml --report drill.html  one of your own, on your own server

SCENARIO is a YAML file, or the name of a shipped scenario. The exit code is 1 where an expectation is missed or an
action could not be done, 2 where the scenario makes no sense."""

_GROUP = "flags"
_FLAGS = (
    Flag("--list", _GROUP, SWITCH, False, "List the scenarios that come with windtunnel.", OURS),
    Flag("--check", _GROUP, SWITCH, False, "Only check the scenario.", OURS),
    Flag(
        "--yes", _GROUP, SWITCH, False,
        "Run the programs that the scenario names, and send its signals to other processes. Without it they are shown, "
        "and nothing is done.", OURS,
    ),
    Flag("--report", _GROUP, PATH, None, "Save the timeline there, an HTML file that works offline.", OURS),
    Flag("--json", _GROUP, SWITCH, False, "Print JSON.", OURS),
)  # fmt: skip

_OF_THE_TARGET = ("base_url", "host", "port", "embedded")
_OF_RESULTS = (
    "save_result", "save_detailed", "append_result", "result_dir", "result_filename", "dry_run", "disable_tqdm",
)  # fmt: skip


def parser() -> CommandParser:
    """Of this command's flags."""
    positional = Positional("SCENARIO", "?", "A YAML file, or the name of a shipped scenario. [kill-in-transfer]")
    return CommandParser("drill", _SUMMARY, _FLAGS, {_GROUP: ""}, positional)


def run(arguments: Sequence[str]) -> int:
    """Read, check and do the drill; the exit code. Raises errors of `windtunnel.errors`."""
    parsed = parser().parse(arguments)
    for note in parsed.notes:
        tell_note(note)
    require_packages("windtunnel drill", "drill", "yaml")
    if parsed.values.list:
        return _list()
    from windtunnel.drill.reading import DEFAULT, open_scenario

    found = open_scenario(parsed.values.scenario or DEFAULT)
    loads = _loads(found)
    if parsed.values.check:
        from windtunnel.measure.notes import counted

        actions = counted(len(found.scenario.actions), "action")
        print(f"{found.name}: {actions}, {len(found.scenario.expect)} expected: fine")
        return EXIT_OK
    return _drill(found, loads, parsed.values)


def _drill(found: ScenarioFile, loads: list[ServeConfig], values: argparse.Namespace) -> int:
    if not values.yes:
        _refuse_what_leaves_the_drill(found)
    if values.report is not None:
        if Path(values.report).resolve() == Path(found.name).resolve():
            raise ConfigurationError("--report", f"{values.report} is the scenario itself", "Name another file.")
        prove_writable("--report", values.report)
    from windtunnel.drill.run import run_drill

    outcome = run_drill(found, loads, say_line)
    if outcome is None:
        tell_note("interrupted before anything was done to the target")
        return EXIT_SIGINT
    from windtunnel.drill.conclude import conclude

    drill = conclude(found, outcome)
    _show(drill, values)
    if drill.interrupted is not None:
        return EXIT_SIGINT if drill.interrupted == "SIGINT" else EXIT_SIGTERM
    return EXIT_OK if drill.passed else EXIT_FAILED


def say_line(text: str) -> None:
    """What happens, as it happens, on stderr."""
    say(f"windtunnel: {text}")


def _refuse_what_leaves_the_drill(found: ScenarioFile) -> None:
    """Programs, and signals to processes that are not the target's, want a yes; raises ConfigurationError."""
    shown = [
        action.label
        for action in found.scenario.actions
        if action.exec is not None or (action.signal is not None and (action.signal.pid or action.signal.pid_file))
    ]
    undone = [
        f"at the end: {shlex.join(map(str, a.exec.undo))}" for a in found.scenario.actions if a.exec and a.exec.undo
    ]
    if shown:
        problem = f"{found.name} does this on your machine: {'; '.join([*shown, *undone])}"
        raise ConfigurationError("drill", problem, "Read it, then add --yes. Nothing was done.")


def _show(drill: Drill, values: argparse.Namespace) -> None:
    if values.report is not None:
        from windtunnel.eplb.files import write_whole
        from windtunnel.report.drill_page import page

        html = page(drill).encode()
        write_whole(Path(values.report), lambda out: out.write(html))
    if values.json:
        print_json(drill)
        return
    from windtunnel.report.drill_console import drill_lines
    from windtunnel.report.text import write

    write(drill_lines(drill), sys.stdout)
    if values.report is not None:
        print(f"timeline: {values.report}")


def _list() -> int:
    from windtunnel.drill.reading import open_scenario, shipped_names

    width = max(map(len, shipped_names()), default=0)
    for name in shipped_names():
        print(f"{name:{width}}  {open_scenario(name).scenario.title}")
    return EXIT_OK


def _loads(found: ScenarioFile) -> list[ServeConfig]:
    """Of the scenario's load, and of each action's that brings one, in order; raises ScenarioError."""
    scenario = found.scenario
    loads = [_load(found, ("load",), scenario.load)]
    for number, action in enumerate(scenario.actions):
        if action.load is not None:
            loads.append(
                _load(found, ("actions", number, "load"), {**_spelled(scenario.load), **_spelled(action.load)})
            )
    return loads


def _load(found: ScenarioFile, at: Path_, flags: Mapping[str, Any]) -> ServeConfig:
    """One load by the parser of `bench serve`."""
    from windtunnel.cli.serve_config import configure

    for key in _spelled(flags):
        if key in (*_OF_THE_TARGET, *_OF_RESULTS):
            whose = "The target is named under `target`." if key in _OF_THE_TARGET else "See --json and --report."
            raise found.error((*at, key), f"{key} is no flag of a drill's load", f"Leave it out. {whose}")
    target = found.scenario.target
    where = f"--base-url={target.url}" if target.url is not None else f"--embedded={target.embedded_text}"
    try:
        parsed = bench_serve.parser().parse([*_tokens(_spelled(flags)), where])
        config, _ = configure(parsed.values, parsed.given, os.environ)
    except WindtunnelError as error:
        if error.exit_code != EXIT_USAGE:
            raise
        raise _named(found, at, error) from None
    if target.embedded_text is not None:
        _check_embedded(found, target.embedded_text, target.engine_flags)
    return config


def _check_embedded(found: ScenarioFile, text: str, engine_flags: Mapping[str, Any] | None) -> None:
    from windtunnel.engine.paced.config import parse_paced

    try:
        if engine_flags is None:
            parse_paced(text)
        else:
            engine.parser().parse([*_tokens(_spelled(engine_flags))])
    except WindtunnelError as error:
        raise found.error(("target", "embedded"), error.message, error.advice) from None


def _named(found: ScenarioFile, at: Path_, error: WindtunnelError) -> ScenarioError:
    """The error at the line of the key whose flag it names."""
    flag = str(error.facts.get("flag") or error.facts.get("where") or "")
    key = flag.partition("=")[0].lstrip("-").replace("-", "_")
    written = {name.replace("-", "_"): name for name in _keys_at(found, at)}
    return found.error((*at, written.get(key, "")), error.message, error.advice)


def _keys_at(found: ScenarioFile, at: Path_) -> Iterator[str]:
    return (str(path[-1]) for path in found.lines if path[:-1] == at)


def _spelled(flags: Mapping[str, Any]) -> dict[str, Any]:
    """By name with underscores."""
    return {key.replace("-", "_"): value for key, value in flags.items()}


def _tokens(flags: Mapping[str, Any]) -> Iterator[str]:
    """Flags as a command line has them."""
    import msgspec

    for key, value in flags.items():
        name = f"--{key.replace('_', '-')}"
        if value is True:
            yield name
        elif isinstance(value, list):
            yield name
            yield from map(str, value)
        elif isinstance(value, dict):
            yield f"{name}={msgspec.json.encode(value).decode()}"
        elif value is not False and value is not None:
            yield f"{name}={value}"
