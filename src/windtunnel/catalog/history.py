"""Since when an error is told at a place: by git, when somebody asks.

The message's longest piece that stands in the code as it is read is looked for in the file's history, through renames:
the first commit that has it is the answer, and what is told is the first tag with that commit. A message that is not
written at the place (a class makes it, or there is none) is as old as the line.
"""

from __future__ import annotations

import re
import time

import msgspec

from windtunnel.catalog.record import Record, Site
from windtunnel.catalog.source import Source
from windtunnel.catalog.source.git import git
from windtunnel.catalog.source.model import Repository
from windtunnel.catalog.template import literals_of
from windtunnel.errors import CatalogSourceError

MOST_S = 10.0
"""A long history is not searched for longer."""

_LEAST_CHARACTERS = 8
_ESCAPED = re.compile(r"""["'\\{}%\n\r\t]|[^\x20-\uffff]""")
"""What code may write otherwise than the message has it."""
_NOT_COMMITTED = "0" * 40


def since(source: Source, record: Record, site: Site, most_s: float = MOST_S) -> str | None:
    """The first tag that has the record's message at this site; without a tag the commit and its day.

    None: the source has no history, or one that begins later, the line is not committed, or it took longer than
    `most_s`.
    """
    repository = source.repository
    if repository is None:
        return None
    deadline = time.monotonic() + most_s
    try:
        commit = _first_commit(repository, record, site, deadline)
        return None if commit is None else _named(repository, commit, deadline)
    except CatalogSourceError:  # it is too slow, or the file is not in the commit
        return None


def with_since(source: Source, record: Record, num_sites: int) -> Record:
    """The record, its first sites each with since when it has the message there."""
    found = (msgspec.structs.replace(site, since=since(source, record, site)) for site in record.sites[:num_sites])
    return msgspec.structs.replace(record, sites=(*found, *record.sites[num_sites:]))


def _first_commit(repository: Repository, record: Record, site: Site, deadline: float) -> str | None:
    path = repository.prefix + site.path
    piece = _piece(record, site)
    commits: list[str] = []
    if piece is not None:
        found = _git(
            repository, deadline, "log", "--follow", "--format=%H", "--no-textconv", "--no-ext-diff", f"-S{piece}",
            repository.commit, "--", path,
        )  # fmt: skip
        commits = found.split()
    first = commits[-1] if commits else _blamed(repository, path, site, deadline)
    return None if first is None or first in _cut_off(repository, deadline) else first


def _piece(record: Record, site: Site) -> str | None:
    """The longest part of the message that a line of the site has as it is."""
    lines = [line.text for line in site.excerpt if site.start <= line.number <= site.end]
    written = (
        piece
        for literal in literals_of(record.template)
        for part in _ESCAPED.split(literal)
        for line in lines
        for piece in _shared(part, line)
    )
    longest = max(written, key=len, default="")
    return longest if len(longest.strip()) >= _LEAST_CHARACTERS else None


def _shared(part: str, line: str) -> list[str]:
    """The part, where the line has it; else its beginning or end, where it goes on in another line."""
    if part in line:
        return [part]
    words = part.split(" ")
    heads = (" ".join(words[:n]) for n in range(len(words) - 1, 0, -1))
    tails = (" ".join(words[n:]) for n in range(1, len(words)))
    return [found for pieces in (heads, tails) if (found := next((p for p in pieces if p in line), ""))]


def _blamed(repository: Repository, path: str, site: Site, deadline: float) -> str | None:
    """The commit that the statement's first line comes from, whatever moved or indented it later."""
    lines = f"{site.start},{site.start}"
    told = _git(
        repository, deadline, "blame", "-w", "-M", "-C", "--no-textconv", "--porcelain", "-L", lines,
        repository.commit, "--", path,
    )  # fmt: skip
    commit = told.partition(" ")[0]
    return commit if commit and commit != _NOT_COMMITTED else None


def _cut_off(repository: Repository, deadline: float) -> set[str]:
    """Commits of a shallow clone whose parents it does not have: what they hold may be older."""
    if _git(repository, deadline, "rev-parse", "--is-shallow-repository").strip() != "true":
        return set()
    return set(_git(repository, deadline, "log", "--format=%H", "--max-parents=0", repository.commit).split())


def _named(repository: Repository, commit: str, deadline: float) -> str:
    tags = _git(
        repository, deadline, "for-each-ref", "--contains", commit, "--sort=creatordate", "--count=1",
        "--format=%(refname:short)", "refs/tags",
    )  # fmt: skip
    if tags.strip():
        return tags.strip()
    return _git(repository, deadline, "log", "-1", "--format=%h (%cs)", "--abbrev=12", commit).strip()


def _git(repository: Repository, deadline: float, *arguments: str) -> str:
    told = git(repository.folder, "--literal-pathspecs", *arguments, timeout_s=max(0.0, deadline - time.monotonic()))
    return told.decode("utf-8", "replace")
