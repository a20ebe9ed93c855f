"""Goes over a project's claims again: are the lines that they cite still what they were?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from windtunnel.catalog.gate.pack import Read
from windtunnel.catalog.record import Citation, Record
from windtunnel.errors import CatalogSourceError


class StaleClaim(msgspec.Struct, frozen=True):
    """A claim one of whose cited lines has changed."""

    id: str
    field: str
    text: str
    path: str
    line: int
    was: str
    now: str | None
    """None: the line or the file is gone."""


class Verified(msgspec.Struct):
    """What was looked at, and what is stale."""

    num_records: int
    num_claims: int
    stale: list[StaleClaim]


def verify(records: Iterable[Record], read: Read) -> Verified:
    """Compare the lines that claims cite with the source as it is now."""
    files: dict[str, list[str] | None] = {}
    done = Verified(0, 0, [])
    for record in records:
        done.num_records += 1
        for field, claim in record.prose.claims():
            done.num_claims += 1
            changed = next((c for citation in claim.citations for c in _changes(record, citation, files, read)), None)
            if changed is not None:
                path, line, was, now = changed
                done.stale.append(StaleClaim(record.id, field, claim.text, path, line, was, now))
    return done


def _changes(
    record: Record, citation: Citation, files: dict[str, list[str] | None], read: Read
) -> Iterator[tuple[str, int, str, str | None]]:
    if citation.path not in files:
        try:
            files[citation.path] = read(citation.path).decode("utf-8", "replace").split("\n")
        except CatalogSourceError:
            files[citation.path] = None
    lines = files[citation.path]
    for line in record.quoted(citation):
        now = lines[line.number - 1] if lines is not None and line.number <= len(lines) else None
        # a comment is kept without its marks, and a head or an operand without what stands around it
        if now is None or not _is_in(line.text, now):
            yield citation.path, line.number, line.text, now


def _is_in(kept: str, line: str) -> bool:
    words = kept.split()
    now = " ".join(line.split())
    return " ".join(words) in now or (bool(words) and words[0] in now and all(word in now for word in words[:3]))
