"""`windtunnel catalog remove`: takes a project, or a version of it, out of the catalog."""

from __future__ import annotations

from collections.abc import Sequence

from windtunnel.cli.catalog_flags import GROUPS, STORE, store_path, versioned
from windtunnel.cli.parser import CommandParser, Positional
from windtunnel.errors import EXIT_OK, StoreMissing


def parser() -> CommandParser:
    """Of this command's flags."""
    positional = Positional("PROJECT", "+", "A project, all its versions; or PROJECT@VERSION.")
    return CommandParser("catalog remove", "Remove projects from the catalog.", (STORE,), GROUPS, positional)


def run(arguments: Sequence[str]) -> int:
    """Remove and tell; the exit code."""
    values = parser().parse(arguments).values
    from windtunnel.catalog.store import Store

    path = store_path(values)
    if not path.exists():
        raise StoreMissing(str(path))
    with Store.open(path, write=True) as store:
        for text in values.project:
            name, version = versioned(text)
            print(f"removed {text}: {store.remove(name, version):,} records")
    return EXIT_OK
