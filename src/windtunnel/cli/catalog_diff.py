"""`windtunnel catalog diff`: what errors two versions differ in."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from windtunnel.cli.catalog_flags import GROUP, GROUPS, JSON, STORE, require_reader, store_path, versioned
from windtunnel.cli.flags import OURS, Flag
from windtunnel.cli.json_output import print_json
from windtunnel.cli.parser import CommandParser, Positional
from windtunnel.cli.values import PATH
from windtunnel.errors import EXIT_FAILED, EXIT_OK, CatalogSourceError, ConfigurationError, NotInCatalog, did_you_mean

if TYPE_CHECKING:
    from windtunnel.catalog.reading import Reading
    from windtunnel.catalog.store import Store

_SUMMARY = """\
Tell what errors two versions differ in: new, gone, reworded, of another type, raised under other conditions or in other
places, of other severity.

  windtunnel catalog diff engine@1.1 engine@1.2            two versions that are in the catalog
  windtunnel catalog diff ~/src/engine@v1.1 ~/src/engine   a tag, and the folder as it is now
  windtunnel catalog diff engine-1.1.whl engine-1.2.whl

Markdown, for a release note or a pull request. The exit code is 1 where there is a difference. A name that both a
project and a folder have is the project's; ./NAME is the folder."""

PYTHON = Flag(
    "--python", GROUP, PATH, None, "The interpreter that has the packages of pip:NAME. Without it: this one.", OURS
)


def parser() -> CommandParser:
    """Of this command's flags."""
    positional = Positional("A B", "+", "PROJECT, PROJECT@VERSION, or a source, as `catalog index` takes it.")
    return CommandParser("catalog diff", _SUMMARY, (PYTHON, STORE, JSON), GROUPS, positional)


def run(arguments: Sequence[str]) -> int:
    """Print the difference; the exit code is 1 where there is one."""
    values = parser().parse(arguments).values
    sides = getattr(values, "a b")
    if len(sides) != 2:
        raise ConfigurationError("catalog diff", f"{len(sides)} sources", "Name two: the earlier one first.")
    from windtunnel.catalog.differ import diff, markdown

    before, after = (reading_of(side, values) for side in sides)
    difference = diff(before.records, after.records)
    if values.json:
        print_json(difference)
    else:
        sys.stdout.write(markdown(difference, before.label, after.label))
    return EXIT_OK if difference.is_empty else EXIT_FAILED


def reading_of(text: str, values: argparse.Namespace) -> Reading:
    """The records of a project of the catalog, or of a source that is read for this once."""
    from windtunnel.catalog.store import Store

    path = store_path(values)
    if not path.exists():
        return _read(text, values, frozenset())
    with Store.open(path) as store:
        known = frozenset(project.name for project in store.projects(every_version=True))
        for name, version in ((text, None), versioned(text)):  # a project's name may have an at sign
            if name in known:
                return _stored(store, name, version)
    return _read(text, values, known)


def _stored(store: Store, name: str, version: str | None) -> Reading:
    from windtunnel.catalog.reading import Reading, label_of

    project = store.project(name, version)
    label = label_of(project.name, project.version, project.commit)
    return Reading(label, list(store.records(name, version)), tuple(project.problems))


def _read(text: str, values: argparse.Namespace, known: frozenset[str]) -> Reading:
    require_reader()
    from windtunnel.catalog.reading import read
    from windtunnel.catalog.source import open_source

    try:
        source = open_source(text, python=values.python)
    except CatalogSourceError as error:
        name = versioned(text)[0]
        meant = did_you_mean(name, known)
        if not meant or Path(name).exists() or name.startswith("pip:"):
            raise
        raise NotInCatalog(str(store_path(values)), "project", name, meant) from error
    return read(source)
