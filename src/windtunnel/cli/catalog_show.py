"""`windtunnel catalog show`: everything about one error."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from windtunnel.cli.catalog_flags import GROUP, GROUPS, JSON, STORE, open_store, print_json, width
from windtunnel.cli.console import tell_note
from windtunnel.cli.flags import OURS, Flag
from windtunnel.cli.parser import CommandParser, Positional
from windtunnel.cli.values import NAME, SWITCH
from windtunnel.errors import EXIT_OK

_FLAGS = (
    Flag("--version", GROUP, NAME, None, "As this version of the project has it.", OURS),
    Flag("--every-site", GROUP, SWITCH, False, "All places that raise it, however many.", OURS),
    STORE,
    JSON,
)


def parser() -> CommandParser:
    """Of this command's flags."""
    positional = Positional("ID", "", "A record's id, an earlier id of it, or its first 6 digits or more.")
    return CommandParser("catalog show", "Show everything about one error.", _FLAGS, GROUPS, positional)


def run(arguments: Sequence[str]) -> int:
    """Print the record; the exit code."""
    values = parser().parse(arguments).values
    with open_store(values) as store:
        record = store.record(values.id, version=values.version)
    if not record.id.startswith(values.id):
        tell_note(f"{values.id} is an earlier id of {record.id}")
    if values.json:
        print_json(record)
    else:
        from windtunnel.catalog.text import record_text

        sys.stdout.write(record_text(record, width(), every_site=values.every_site))
    return EXIT_OK
