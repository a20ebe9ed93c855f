"""`windtunnel catalog check`: faults in how a project tells its errors, for its continuous integration."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from windtunnel.cli.catalog_diff import PYTHON, reading_of
from windtunnel.cli.catalog_flags import GROUP, GROUPS, JSON, STORE
from windtunnel.cli.console import tell_note
from windtunnel.cli.flags import OURS, Flag
from windtunnel.cli.json_output import print_json
from windtunnel.cli.parser import CommandParser, Positional
from windtunnel.cli.values import LIST, PATH, SWITCH, TEXT
from windtunnel.errors import EXIT_FAILED, EXIT_OK, ConfigurationError, FileError, did_you_mean

if TYPE_CHECKING:
    from windtunnel.catalog.linter import Finding
    from windtunnel.catalog.record import Record

_SUMMARY = """\
Find errors that nobody could look up or tell apart: without a message, with too short a one, or one that others have.

  windtunnel catalog check .                                        everything
  windtunnel catalog check . --ignore assert-without-message --exclude 'vendor/*'
  windtunnel catalog check . --baseline known.json --update         what there is today is known
  windtunnel catalog check . --baseline known.json                  only what is new

A comment `windtunnel: ignore[RULE]` at a statement silences a rule there. The exit code is 1 where something is found;
hints count with --strict only."""
_SCHEMA = "error-baseline/1"


def _flags() -> tuple[Flag, ...]:
    from windtunnel.catalog.linter import RULES

    rules = ", ".join(name + (" (a hint)" if rule.level == "hint" else "") for name, rule in RULES.items())
    return (
        Flag("--ignore", GROUP, LIST, None, f"Rules that are not asked for: {rules}.", OURS),
        Flag("--exclude", GROUP, TEXT, None, "Files that are not asked about; * stands for anything.", OURS, nargs="+",
             metavar="PATTERN"),
        Flag("--strict", GROUP, SWITCH, False, "Hints fail too.", OURS),
        Flag("--baseline", GROUP, PATH, None, "A file with what was found before; only what is new counts.", OURS),
        Flag("--update", GROUP, SWITCH, False, "Write what is found into the baseline.", OURS),
        Flag("--github", GROUP, SWITCH, False, "Print annotations for a workflow of GitHub's.", OURS),
        PYTHON,
        STORE,
        JSON,
    )  # fmt: skip


def parser() -> CommandParser:
    """Of this command's flags."""
    positional = Positional("SOURCE", "", "A source, as `catalog index` takes it, or a project of the catalog.")
    return CommandParser("catalog check", _SUMMARY, _flags(), GROUPS, positional)


def run(arguments: Sequence[str]) -> int:
    """Print what is found; the exit code is 1 where something is."""
    values = parser().parse(arguments).values
    from windtunnel.catalog import linter

    ignored = _ignored(values, linter.RULES)
    if values.update and values.baseline is None:
        raise ConfigurationError("--update", "there is no baseline to write", "Name its file by --baseline.")
    known = Counter() if values.update or values.baseline is None else _known(values.baseline)
    reading = reading_of(values.source, values)
    found = linter.findings(_without(reading.records, values.exclude or ()), ignored)
    if values.update:
        _write_known(values.baseline, found)
        return EXIT_OK
    new = [_from_here(finding, values.source) for finding in _unknown(found, known)]
    if values.json:
        print_json({"schema": "findings/1", "findings": new, "known": len(found) - len(new)})
    elif values.github:
        sys.stdout.write(linter.github_annotations(new))
    else:
        sys.stdout.write(linter.text(new))
    _tell(new, len(found) - len(new), reading.problems)
    return EXIT_FAILED if any(values.strict or finding.level == "finding" for finding in new) else EXIT_OK


def _ignored(values: argparse.Namespace, rules: Collection[str]) -> list[str]:
    ignored = [rule.strip() for rule in (values.ignore or "").split(",") if rule.strip()]
    for rule in ignored:
        if rule not in rules:
            remedy = f"There are: {', '.join(rules)}."
            raise ConfigurationError("--ignore", f"no rule {rule!r}{did_you_mean(rule, rules)}", remedy)
    return ignored


def _without(records: list[Record], patterns: Sequence[str]) -> Iterator[Record]:
    """The records with what is raised in other files than those; one that is raised nowhere else is left out."""
    from msgspec.structs import replace

    for record in records:
        sites = tuple(s for s in record.sites if not any(fnmatchcase(s.path, pattern) for pattern in patterns))
        if sites:
            yield record if len(sites) == len(record.sites) else replace(record, sites=sites)


def _from_here(finding: Finding, source: str) -> Finding:
    """With its path as the caller would write it, where the source is a folder."""
    from msgspec.structs import replace

    folder = Path(source).expanduser()
    return replace(finding, path=str(PurePath(folder, finding.path))) if folder.is_dir() else finding


def _tell(new: list[Finding], num_known: int, problems: Sequence[tuple[str, str]]) -> None:
    for path, problem in problems[:3]:
        tell_note(f"{path}: {problem}")
    if len(problems) > 3:
        tell_note(f"{len(problems) - 3:,} more files could not be read, or in part only")
    counts = Counter((finding.rule, finding.level) for finding in new)
    told = [f"{count:,} {rule}{' (hint)' if level == 'hint' else ''}" for (rule, level), count in counts.most_common()]
    known = [f"{num_known:,} known before"] if num_known else []
    tell_note("; ".join([", ".join(told) or "nothing found", *known]))


# --- what is known ----------------------------------------------------------------------------------------------------


def _unknown(found: list[Finding], known: Counter[str]) -> list[Finding]:
    """What is found more often than it is known."""
    left, new = Counter(known), []
    for finding in found:
        if left[finding.known_by]:
            left[finding.known_by] -= 1
        else:
            new.append(finding)
    return new


def _write_known(path: str, found: list[Finding]) -> None:
    known = dict(sorted(Counter(finding.known_by for finding in found).items()))
    document = json.dumps({"schema": _SCHEMA, "known": known}, indent=1, ensure_ascii=False)
    try:
        Path(path).write_text(document + "\n", "utf-8")
    except OSError as error:
        raise FileError("write", path, error.strerror or str(error), "Name another --baseline.") from error
    tell_note(f"{len(found):,} findings are known from now on: {path}")


def _known(path: str) -> Counter[str]:
    try:
        document = json.loads(Path(path).read_text("utf-8"))
        if document["schema"] != _SCHEMA:
            raise ValueError(f"its schema is {document['schema']}, not {_SCHEMA}")
        return Counter({str(key): int(count) for key, count in document["known"].items()})
    except OSError as error:
        raise FileError("read", path, error.strerror or str(error), "--update makes it.") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FileError("read", path, f"it is no baseline: {error}", "--update makes a new one.") from error
