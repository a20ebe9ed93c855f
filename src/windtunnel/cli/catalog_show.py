"""`windtunnel catalog show`: everything about one error."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from windtunnel.cli.catalog_flags import GROUP, GROUPS, JSON, STORE, open_store, width
from windtunnel.cli.console import tell_note
from windtunnel.cli.flags import OURS, Flag
from windtunnel.cli.json_output import print_json
from windtunnel.cli.parser import CommandParser, Positional
from windtunnel.cli.values import NAME, SWITCH
from windtunnel.errors import EXIT_OK, CatalogSourceError

if TYPE_CHECKING:
    from windtunnel.catalog.record import Record
    from windtunnel.catalog.store import Project

_FLAGS = (
    Flag("--version", GROUP, NAME, None, "As this version of the project has it.", OURS),
    Flag("--every-site", GROUP, SWITCH, False, "All places that raise it, however many.", OURS),
    Flag("--since", GROUP, SWITCH, False, "Since when each place has it, by the history that git has of it.", OURS),
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
        project = store.project(record.project, record.provenance.version)
    if not record.id.startswith(values.id):
        tell_note(f"{values.id} is an earlier id of {record.id}")
    if values.since:
        record = _with_since(record, project, every_site=values.every_site or values.json)
    if values.json:
        print_json(record)
    else:
        from windtunnel.catalog.text import record_text

        sys.stdout.write(record_text(record, width(), every_site=values.every_site))
    return EXIT_OK


def _with_since(record: Record, project: Project, *, every_site: bool) -> Record:
    """The record as its source's history dates it; notes say where that says less than was asked for."""
    from windtunnel.catalog.history import with_since
    from windtunnel.catalog.source import open_source
    from windtunnel.catalog.text import SITES

    try:
        source = open_source(project.source)
    except CatalogSourceError as error:
        tell_note(f"since when is not known: {error.message}")
        return record
    if source.repository is None:
        tell_note(f"since when is not known: git has no history of {project.source}")
        return record
    if source.commit != record.provenance.commit:
        was, now = (commit[:12] if commit else "no commit" for commit in (record.provenance.commit, source.commit))
        tell_note(f"{project.source} is at {now} now and was indexed at {was}: since when is told of {now}")
    num_sites = len(record.sites) if every_site else SITES
    dated = with_since(source, record, num_sites)
    num_undated = sum(site.since is None for site in dated.sites[:num_sites])
    if num_undated:
        places = "1 place" if num_undated == 1 else f"{num_undated} places"
        tell_note(f"git does not say it of {places}: not committed, in a history cut off, or not found in time")
    return dated
