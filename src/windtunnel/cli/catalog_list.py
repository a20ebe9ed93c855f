"""`windtunnel catalog list`: the projects of the catalog."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from windtunnel.cli.catalog_flags import GROUP, GROUPS, JSON, STORE, open_store
from windtunnel.cli.flags import OURS, Flag
from windtunnel.cli.json_output import print_json
from windtunnel.cli.parser import CommandParser
from windtunnel.cli.values import SWITCH
from windtunnel.errors import EXIT_OK

_FLAGS = (Flag("--every-version", GROUP, SWITCH, False, "Earlier versions too.", OURS), STORE, JSON)


def parser() -> CommandParser:
    """Of this command's flags."""
    return CommandParser("catalog list", "List the projects of the catalog.", _FLAGS, GROUPS)


def run(arguments: Sequence[str]) -> int:
    """Print a table, or JSON; the exit code."""
    values = parser().parse(arguments).values
    with open_store(values) as store:
        projects = store.projects(every_version=values.every_version)
    if values.json:
        print_json({"schema": "projects/1", "projects": projects})
    else:
        from windtunnel.catalog.text import projects_text

        sys.stdout.write(projects_text(projects))
    return EXIT_OK
