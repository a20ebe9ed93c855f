"""Reads scenarios: YAML → values, with the line of each mistake. Needs PyYAML."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import yaml
from msgspec import inspect
from yaml import MappingNode, Node, ScalarNode, SequenceNode

from windtunnel.drill.bounds import parse_bound, parse_condition
from windtunnel.drill.scenario import ADMIN_KINDS, KINDS, RELAY_KINDS, Action, Scenario, Signal
from windtunnel.eplb.transaction.table import RANK
from windtunnel.errors import FileError, ScenarioError, did_you_mean
from windtunnel.report.drill import FIGURES
from windtunnel.units import parse_duration_s
from windtunnel.wire.http1 import parse_url

Path_ = tuple[str | int, ...]
_SUFFIX = ".yaml"
_FOLDER = files("windtunnel.drill") / "scenarios"
DEFAULT = "kill-in-transfer"
"""The shipped scenario that is run where none is named."""
_ANYWHERE = ("http", "exec", "signal", "load")
_DEPTH_OF_WORDS = 5
"""Of the words of a command line: `("actions", 0, "exec", "command", 2)`."""
_STEP = re.compile(r"\.(\w+)|\[(\d+)\]")


class ScenarioFile(NamedTuple):
    """A scenario, and where it stands."""

    name: str
    """The file's path, or the name of a shipped scenario."""
    scenario: Scenario
    lines: dict[Path_, int]
    """The line of each key and item, by its path: `("actions", 0, "kill_rank")`."""

    def error(self, path: Path_, problem: str, remedy: str) -> ScenarioError:
        """A mistake at a path, or at what stands around it."""
        return ScenarioError(self.name, problem, remedy, _line(self.lines, path))


def shipped_names() -> list[str]:
    """The scenarios that come with windtunnel."""
    return sorted(entry.name.removesuffix(_SUFFIX) for entry in _FOLDER.iterdir() if entry.name.endswith(_SUFFIX))


def open_scenario(name: str) -> ScenarioFile:
    """The scenario of a file, or the shipped one of that name. Raises FileError, ScenarioError."""
    if name in shipped_names():
        return read_scenario((_FOLDER / f"{name}{_SUFFIX}").read_text("utf-8"), name)
    remedy = f"Name a file, or a shipped scenario: {', '.join(shipped_names())}."
    try:
        text = Path(name).read_text("utf-8")
    except OSError as error:
        meant = did_you_mean(name, shipped_names())
        raise FileError("read", name, f"{error.strerror}{meant}", remedy) from error
    except UnicodeDecodeError as error:
        raise FileError("read", name, "it is no UTF-8", remedy) from error
    return read_scenario(text, name)


def read_scenario(text: str, name: str) -> ScenarioFile:
    """The scenario that a YAML text holds; raises ScenarioError with the line."""
    lines: dict[Path_, int] = {}
    document = _document(text, name, lines)
    _refuse_unknown_keys(document, inspect.type_info(Scenario), name, lines, ())
    try:
        scenario = msgspec.convert(document, Scenario)
    except msgspec.ValidationError as error:
        problem, _, where = str(error).partition(" - at `$")
        path = tuple(int(index) if index else key for key, index in _STEP.findall(where))
        at = ".".join(map(str, path))
        problem = f"{at}: {problem}" if at else problem
        raise ScenarioError(name, problem, _SHAPE_REMEDY, _line(lines, path)) from None
    found = ScenarioFile(name, scenario, lines)
    _check_target(found)
    for number, action in enumerate(scenario.actions):
        _check_action(found, number, action)
    _check_expectations(found)
    return found


_SHAPE_REMEDY = "The reference lists what each key takes (docs/reference/scenarios.md)."

# --- YAML -------------------------------------------------------------------------------------------------------


def _document(text: str, name: str, lines: dict[Path_, int]) -> Any:
    try:
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, yaml.SafeLoader)):
            raise ScenarioError(name, "it has aliases (*name)", "Write out what they stand for.")
        loader = yaml.SafeLoader(text)
        try:
            node = loader.get_single_node()
            return None if node is None else _plain(node, loader, name, lines, ())
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else None
        remedy = 'A value that begins with >, @, ` or % needs quotes: "> 0".'
        raise ScenarioError(name, f"it is no YAML: {error.problem}", remedy, line) from None
    except yaml.YAMLError as error:
        raise ScenarioError(name, f"it is no YAML: {error}", "Save it as plain text in UTF-8.") from None


def _plain(node: Node, loader: yaml.SafeLoader, name: str, lines: dict[Path_, int], path: Path_) -> Any:
    """A node as dicts, lists and scalars; notes the lines. Text under a key that ends in `_s` is a duration."""
    lines.setdefault(path, node.start_mark.line + 1)
    if isinstance(node, MappingNode):
        found: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = key_node.value
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, ScalarNode) or not isinstance(key, str):
                raise ScenarioError(name, "a key is no word", "Write KEY: VALUE.", line)
            if key in found:
                raise ScenarioError(name, f"{key} stands there twice", "Leave one of them out.", line)
            lines[*path, key] = line
            found[key] = _plain(value_node, loader, name, lines, (*path, key))
            if key.endswith("_s") and isinstance(found[key], str) and path[:1] == ("actions",) and len(path) <= 3:
                found[key] = _seconds(found[key], key, name, line)
        return found
    if isinstance(node, SequenceNode):
        return [_plain(item, loader, name, lines, (*path, number)) for number, item in enumerate(node.value)]
    if path[2:3] == ("exec",) and len(path) == _DEPTH_OF_WORDS:
        return node.value
    value = loader.construct_object(node)
    is_known = value is None or isinstance(value, str | int | float | bool)
    return value if is_known else node.value  # what YAML takes for a date is text to us


def _seconds(text: str, key: str, name: str, line: int) -> float:
    try:
        return parse_duration_s(text)
    except ValueError as error:
        raise ScenarioError(name, f"{key}: {error}", "Write seconds, or a number with its unit.", line) from None


def _line(lines: dict[Path_, int], path: Path_) -> int | None:
    while path and path not in lines:
        path = path[:-1]
    return lines.get(path)


def _refuse_unknown_keys(value: Any, kind: inspect.Type, name: str, lines: dict[Path_, int], path: Path_) -> None:
    for shape in _alternatives(kind):
        if isinstance(shape, inspect.StructType) and isinstance(value, dict):
            fields = {field.encode_name: field.type for field in shape.fields}
            for key, item in value.items():
                if key not in fields:
                    problem = f"unknown key {key}{did_you_mean(key, fields)}"
                    raise ScenarioError(name, problem, f"There are: {', '.join(fields)}.", _line(lines, (*path, key)))
                _refuse_unknown_keys(item, fields[key], name, lines, (*path, key))
                if item is None and _takes_nothing(fields[key]):
                    value[key] = {}  # `rebalance:` with nothing after it
        elif isinstance(shape, inspect.ListType) and isinstance(value, list):
            for number, item in enumerate(value):
                _refuse_unknown_keys(item, shape.item_type, name, lines, (*path, number))


def _alternatives(kind: inspect.Type) -> Iterator[inspect.Type]:
    if isinstance(kind, inspect.UnionType):
        yield from kind.types
    else:
        yield kind


def _takes_nothing(kind: inspect.Type) -> bool:
    """A shape whose fields can all be left out."""
    shapes = [shape for shape in _alternatives(kind) if isinstance(shape, inspect.StructType)]
    return any(not any(field.required for field in shape.fields) for shape in shapes)


# --- sense ------------------------------------------------------------------------------------------------------


def _check_target(found: ScenarioFile) -> None:
    target = found.scenario.target
    if (target.embedded is None) == (target.url is None):
        raise found.error(("target",), "it needs one of embedded and url", "Write `embedded: {ranks: 4}` or `url: …`.")
    if target.url is None:
        return
    try:
        url = parse_url(target.url)
    except ValueError as error:
        raise found.error(("target", "url"), str(error), "Write http://HOST:PORT.") from None
    on_link = next((n for n, action in enumerate(found.scenario.actions) if set(action.kinds) & {*RELAY_KINDS}), None)
    if url.origin.scheme == "https" and on_link is not None:
        remedy = "Give the address of the server behind TLS, or leave the actions on the link out."
        raise found.error(("actions", on_link), "the relay speaks no TLS, and the target is https", remedy)


def _check_action(found: ScenarioFile, number: int, action: Action) -> None:
    at: Path_ = ("actions", number)
    if (action.after_s is None) == (action.when is None):
        raise found.error(
            at, "an action needs one of after_s and when", "Write `after_s: 5` or `when: completed >= 50`."
        )
    if len(action.kinds) != 1:
        named = " and ".join(action.kinds) or "nothing"
        raise found.error(at, f"an action does one thing, this one {named}", f"There are: {', '.join(KINDS)}.")
    embedded = found.scenario.target.embedded_text
    if set(action.kinds) & {*ADMIN_KINDS} and embedded is not None and not found.scenario.target.engine_flags:
        remedy = f"Drill the engine (`embedded: {{ranks: 4}}`), or one of: {', '.join((*RELAY_KINDS, *_ANYWHERE))}."
        raise found.error((*at, action.kind), f"{embedded} has no ranks to {action.kind}", remedy)
    if action.when is not None:
        try:
            parse_condition(action.when)
        except ValueError as error:
            raise found.error((*at, "when"), str(error), "Quote it where it begins with a sign.") from None
    if action.fail_at is not None:
        known = [transition.name for transition in RANK]
        if action.fail_at.transition not in known:
            asked = action.fail_at.transition
            problem = f"a rank has no transition {asked}{did_you_mean(asked, known)}"
            raise found.error((*at, "fail_at", "transition"), problem, f"There are: {', '.join(known)}.")
    if action.http is not None and (action.http.path is None) == (action.http.url is None):
        raise found.error(
            (*at, "http"), "a call needs one of path and url", "Write `path: /PATH` for the target's own."
        )
    if action.signal is not None:
        _check_signal(found, (*at, "signal"), action.signal)


def _check_signal(found: ScenarioFile, at: Path_, asked: Signal) -> None:
    named = [name for name in ("rank", "pid", "pid_file") if getattr(asked, name) is not None]
    if len(named) > 1:
        raise found.error(at, f"{' and '.join(named)} name different processes", "Leave all but one out.")
    if not named and found.scenario.target.url is not None:
        raise found.error(at, "it names no process", "Name one with rank, pid or pid_file: the target is not ours.")
    known = [member.name for member in signal.Signals]
    if asked.signal not in known:
        raise found.error(
            (*at, "signal"), f"unknown signal {asked.signal}{did_you_mean(asked.signal, known)}", "As SIGSTOP."
        )


def _check_expectations(found: ScenarioFile) -> None:
    for key, written in found.scenario.expect.items():
        at: Path_ = ("expect", key)
        if key not in FIGURES:
            problem = f"the result has no {key}{did_you_mean(key, FIGURES)}"
            raise found.error(at, problem, f"There are: {', '.join(FIGURES)}.")
        try:
            parse_bound(written, is_duration=key.endswith("_s"))
        except ValueError as error:
            raise found.error(at, f"{key}: {error}", f"Write `{key}: 0` or `{key}: < 5`.") from None
