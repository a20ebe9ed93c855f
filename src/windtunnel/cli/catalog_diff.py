"""`windtunnel catalog diff`: what errors two versions differ in."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from windtunnel.cli.catalog_flags import GROUPS, JSON, STORE, print_json, require_reader, store_path, versioned
from windtunnel.cli.parser import CommandParser, Positional
from windtunnel.errors import EXIT_FAILED, EXIT_OK, ConfigurationError, NotInCatalog

if TYPE_CHECKING:
    import argparse

    from windtunnel.catalog.record import Record

_SUMMARY = """\
Tell what errors two versions differ in: new, gone, reworded, moved, raised under other conditions, of other severity.

  windtunnel catalog diff engine@1.1 engine@1.2            two versions that are in the catalog
  windtunnel catalog diff ~/src/engine@v1.1 ~/src/engine   a tag, and the folder as it is now

Markdown, for a release note or a pull request. The exit code is 1 where there is a difference."""


def parser() -> CommandParser:
    """Of this command's flags."""
    positional = Positional("A B", "+", "PROJECT, PROJECT@VERSION, or a source, as `catalog index` takes it.")
    return CommandParser("catalog diff", _SUMMARY, (STORE, JSON), GROUPS, positional)


def run(arguments: Sequence[str]) -> int:
    """Print the difference; the exit code is 1 where there is one."""
    values = parser().parse(arguments).values
    sides = getattr(values, "a b")
    if len(sides) != 2:
        raise ConfigurationError("catalog diff", f"{len(sides)} sources", "Name two: the earlier one first.")
    from windtunnel.catalog.differ import diff, markdown

    with records_of(sides[0], values) as before, records_of(sides[1], values) as after:
        difference = diff(before, after)
    if values.json:
        print_json(difference)
    else:
        sys.stdout.write(markdown(difference, *sides))
    return EXIT_OK if difference.is_empty else EXIT_FAILED


@contextmanager
def records_of(text: str, values: argparse.Namespace) -> Iterator[list[Record]]:
    """The records of a project of the catalog, or of a source that is read for this once."""
    from windtunnel.catalog.store import Store

    path = store_path(values)
    name, version = versioned(text)
    if path.exists():
        with Store.open(path) as store:
            try:
                store.project(name, version)
            except NotInCatalog:
                if any(project.name == name for project in store.projects(every_version=True)):
                    raise
            else:
                yield list(store.records(name, version))
                return
    yield _read(text)


def _read(text: str) -> list[Record]:
    require_reader()
    from windtunnel.catalog.assemble import assemble
    from windtunnel.catalog.extract import extract
    from windtunnel.catalog.source import open_source

    source = open_source(text)
    facts = [extract(file.path, source.read(file.path)) for file in source.files()]
    drafts = assemble(
        facts,
        project="compared",
        version=source.version,
        commit=source.commit,
        indexed_at="",
        permalink=source.permalink,
    )
    return [draft.record() for draft in drafts]
