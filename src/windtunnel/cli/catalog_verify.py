"""`windtunnel catalog verify`: are the lines that explanations cite still what they were?"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from windtunnel.cli.catalog_flags import GROUP, GROUPS, JSON, STORE, open_store, versioned
from windtunnel.cli.console import tell_note
from windtunnel.cli.flags import OURS, Flag
from windtunnel.cli.json_output import print_json
from windtunnel.cli.parser import CommandParser, Positional
from windtunnel.cli.values import PATH
from windtunnel.errors import EXIT_FAILED, EXIT_OK

_SHOWN = 40

_FLAGS = (
    Flag("--source", GROUP, PATH, None, "Where its code is now, if not where it was indexed from.", OURS),
    STORE,
    JSON,
)


def parser() -> CommandParser:
    """Of this command's flags."""
    summary = "Check that the lines which a project's explanations cite are still what they were."
    return CommandParser(
        "catalog verify", summary, _FLAGS, GROUPS, Positional("PROJECT", "", "PROJECT or PROJECT@VERSION.")
    )


def run(arguments: Sequence[str]) -> int:
    """Print what is stale; the exit code is 1 where something is."""
    values = parser().parse(arguments).values
    from windtunnel.catalog.gate.verifying import verify
    from windtunnel.catalog.source import open_source

    name, version = versioned(values.project)
    with open_store(values) as store:
        project = store.project(name, version)
        source = open_source(values.source or project.source)
        done = verify(store.records(name, version), source.read)
    if values.json:
        print_json({"schema": "verified/1", "verified": done})
    else:
        for each in done.stale[:_SHOWN]:
            now = "is gone" if each.now is None else f"is now: {each.now.strip()}"
            sys.stdout.write(
                f"{each.path}:{each.line}: {each.id} {each.field}: {each.text}\n  was: {each.was.strip()}\n  {now}\n"
            )
        more = f" ({len(done.stale) - _SHOWN} more)" if len(done.stale) > _SHOWN else ""
        tell_note(f"{done.num_claims:,} claims of {done.num_records:,} errors; {len(done.stale):,} are stale{more}")
    return EXIT_FAILED if done.stale else EXIT_OK
