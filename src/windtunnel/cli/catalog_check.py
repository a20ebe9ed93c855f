"""`windtunnel catalog check`: faults in how a project tells its errors, for its continuous integration."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from windtunnel.cli.catalog_diff import records_of
from windtunnel.cli.catalog_flags import GROUP, GROUPS, JSON, STORE, print_json
from windtunnel.cli.console import tell_note
from windtunnel.cli.flags import OURS, Flag
from windtunnel.cli.parser import CommandParser, Positional
from windtunnel.cli.values import LIST, PATH, SWITCH
from windtunnel.errors import EXIT_FAILED, EXIT_OK, ConfigurationError, FileError, did_you_mean

_SUMMARY = """\
Find errors that nobody could look up or tell apart: without a message, with too short a one, or with one twice.

  windtunnel catalog check .                                        everything
  windtunnel catalog check . --ignore assert-without-message
  windtunnel catalog check . --baseline known.json --update         what there is today is known
  windtunnel catalog check . --baseline known.json                  only what is new

The exit code is 1 where something is found."""


def _flags() -> tuple[Flag, ...]:
    return (
        Flag("--ignore", GROUP, LIST, None, "Rules that are not asked for: no-message, assert-without-message, "
             "short-message, only-values, duplicate-message, too-broad-type.", OURS),
        Flag("--baseline", GROUP, PATH, None, "A file with what was found before; only what is new counts.", OURS),
        Flag("--update", GROUP, SWITCH, False, "Write what is found into the baseline.", OURS),
        Flag("--github", GROUP, SWITCH, False, "Print annotations for a workflow of GitHub's.", OURS),
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

    ignored = [rule.strip() for rule in (values.ignore or "").split(",") if rule.strip()]
    for rule in ignored:
        if rule not in linter.RULES:
            remedy = f"There are: {', '.join(linter.RULES)}."
            raise ConfigurationError("--ignore", f"no rule {rule!r}{did_you_mean(rule, linter.RULES)}", remedy)
    if values.update and values.baseline is None:
        raise ConfigurationError("--update", "there is no baseline to write", "Name its file by --baseline.")
    with records_of(values.source, values) as records:
        found = linter.findings(records, ignored)
    if values.update:
        keys = sorted({finding.key for finding in found})
        Path(values.baseline).write_text(json.dumps({"schema": "error-baseline/1", "known": keys}, indent=1) + "\n")
        tell_note(f"{len(keys):,} findings are known from now on: {values.baseline}")
        return EXIT_OK
    known = _known(values.baseline)
    new = [finding for finding in found if finding.key not in known]
    if values.json:
        print_json({"schema": "findings/1", "findings": new, "known": len(found) - len(new)})
    elif values.github:
        sys.stdout.write(linter.github_annotations(new))
    else:
        sys.stdout.write(linter.text(new))
        counts = Counter(finding.rule for finding in new)
        told = ", ".join(f"{counts[rule]} {rule}" for rule in linter.RULES if counts[rule]) or "nothing found"
        tell_note(told + (f"; {len(found) - len(new)} known before" if known else ""))
    return EXIT_FAILED if new else EXIT_OK


def _known(path: str | None) -> set[str]:
    if path is None:
        return set()
    try:
        return set(json.loads(Path(path).read_text())["known"])
    except OSError as error:
        raise FileError("read", path, error.strerror or str(error), "--update makes it.") from error
    except (ValueError, KeyError, TypeError) as error:
        raise FileError("read", path, f"it is no baseline: {error}", "--update makes a new one.") from error
