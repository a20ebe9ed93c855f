"""A source that is read for this once: its records without a store."""

from __future__ import annotations

from typing import NamedTuple

from windtunnel.catalog.assemble import assemble
from windtunnel.catalog.extract import LANGUAGES, extract
from windtunnel.catalog.record import Record
from windtunnel.catalog.source import Source
from windtunnel.errors import CatalogSourceError


class Reading(NamedTuple):
    """The records of a version of a project."""

    label: str
    """Its name and version."""
    records: list[Record]
    problems: tuple[tuple[str, str], ...]
    """Files that could not be read, or in part only, and why."""


def read(source: Source) -> Reading:
    """Read all files and put the records together. Raises CatalogSourceError."""
    facts = [extract(file.path, source.read(file.path)) for file in source.files()]
    if not facts:
        remedy = f"Sources in {', '.join(LANGUAGES)} are read."
        raise CatalogSourceError(source.spec, "it has no source files that can be read", remedy)
    drafts = assemble(
        facts, project=source.name, version=source.version, commit=source.commit, indexed_at="",
        permalink=source.permalink,
    )  # fmt: skip
    problems = tuple((each.path, each.problem) for each in facts if each.problem)
    return Reading(label_of(source.name, source.version, source.commit), [each.record() for each in drafts], problems)


def label_of(name: str, version: str, commit: str | None) -> str:
    """For titles: `engine v1.2`, `engine (working tree at 1f2e3d4c5b6a)`."""
    if version != "working tree":
        return f"{name} {version}"
    return f"{name} (working tree at {commit[:12]})" if commit else f"{name} (working tree)"
