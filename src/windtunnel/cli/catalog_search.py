"""`windtunnel catalog search`: finds records by words."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from windtunnel.cli.catalog_flags import GROUP, GROUPS, JSON, PROJECT, STORE, open_store, width
from windtunnel.cli.flags import OURS, Flag
from windtunnel.cli.json_output import print_json
from windtunnel.cli.parser import CommandParser, Positional
from windtunnel.cli.values import POSITIVE
from windtunnel.errors import EXIT_FAILED, EXIT_OK

_FLAGS = (PROJECT, Flag("--limit", GROUP, POSITIVE, 10, "At most so many.", OURS), STORE, JSON)


def parser() -> CommandParser:
    """Of this command's flags."""
    positional = Positional("WORDS", "+", "Of the message, the type, the file or the function.")
    return CommandParser("catalog search", "Search records by words.", _FLAGS, GROUPS, positional)


def run(arguments: Sequence[str]) -> int:
    """Print what is found; the exit code is 1 where that is nothing."""
    values = parser().parse(arguments).values
    with open_store(values) as store:
        if values.project is not None:
            store.project(values.project)
        hits = store.search(" ".join(values.words), project=values.project, limit=values.limit)
    if values.json:
        print_json({"schema": "hits/1", "hits": hits})
    else:
        from windtunnel.catalog.text import hits_text

        sys.stdout.write(hits_text(hits, width()) or f"nothing is like {' '.join(values.words)!r}\n")
    return EXIT_OK if hits else EXIT_FAILED
