"""What errors two versions of a project differ in: added, removed, reworded, moved, other guards, other severities."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from windtunnel.catalog.indexing import Identity, edited
from windtunnel.catalog.record import Guard, Record, Site, record_id
from windtunnel.catalog.template import identity_of

SCHEMA = "error-diff/1"


class Named(msgspec.Struct, frozen=True):
    """A record of one of the versions."""

    id: str
    type: str
    text: str
    path: str
    line: int


class Change(msgspec.Struct, frozen=True, omit_defaults=True):
    """A record before and after."""

    before: Named
    after: Named
    was: str = ""
    now: str = ""
    """What has changed, in words of the code."""


class Difference(msgspec.Struct, frozen=True):
    """What is different in the second version."""

    schema: str
    added: tuple[Named, ...]
    removed: tuple[Named, ...]
    reworded: tuple[Change, ...]
    """By likeness of messages in the same function or file: proposed, not certain."""
    moved: tuple[Change, ...]
    """Raised in another file or function."""
    guards: tuple[Change, ...]
    """Raised under other conditions."""
    severities: tuple[Change, ...]

    @property
    def is_empty(self) -> bool:
        """Whether there is none."""
        return not any(getattr(self, field) for field in _FIELDS)


_FIELDS = ("added", "removed", "reworded", "moved", "guards", "severities")


def diff(before: Iterable[Record], after: Iterable[Record]) -> Difference:
    """Compare all records of two versions."""
    old, new = {_key(record): record for record in before}, {_key(record): record for record in after}
    gone = {key: _identity(old[key]) for key in old.keys() - new.keys()}
    fresh = {key: _identity(new[key]) for key in new.keys() - old.keys()}
    pairs = sorted(edited(gone, fresh), key=lambda pair: _order(new[pair[1]]))
    for one, other in pairs:
        del gone[one], fresh[other]
    both = [(old[key], new[key]) for key in old.keys() & new.keys()] + [(old[a], new[b]) for a, b in pairs]
    both.sort(key=lambda pair: _order(pair[1]))
    return Difference(
        schema=SCHEMA,
        added=tuple(_named(new[key]) for key in sorted(fresh, key=lambda key: _order(new[key]))),
        removed=tuple(_named(old[key]) for key in sorted(gone, key=lambda key: _order(old[key]))),
        reworded=tuple(Change(_named(old[a]), _named(new[b]), old[a].text, new[b].text) for a, b in pairs),
        moved=tuple(_moved(both)),
        guards=tuple(_guarded_otherwise(both)),
        severities=tuple(
            Change(_named(a), _named(b), a.severity, b.severity) for a, b in both if a.severity != b.severity
        ),
    )


def _key(record: Record) -> str:
    """Who a record is, whichever project it is of."""
    return record_id("", record.language, record.type, record.template)


def _identity(record: Record) -> Identity:
    places = frozenset((site.path, site.function) for site in record.sites)
    return Identity(record.type, identity_of(record.template), places)


def _named(record: Record) -> Named:
    site = record.sites[0]
    return Named(record.id, record.type, record.text, site.path, site.start)


def _order(record: Record) -> tuple[str, int, str]:
    return record.sites[0].path, record.sites[0].start, record.id


def _moved(both: Iterable[tuple[Record, Record]]) -> Iterator[Change]:
    for a, b in both:
        was, now = ({(site.path, site.function) for site in record.sites} for record in (a, b))
        if was != now:
            left, come = sorted(was - now), sorted(now - was)
            yield Change(_named(a), _named(b), _places(left), _places(come))


def _places(places: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{path} in {function}" if function else path for path, function in places)


def _guarded_otherwise(both: Iterable[tuple[Record, Record]]) -> Iterator[Change]:
    """Sites in the same function whose conditions are not the same any more; lines do not count."""
    for a, b in both:
        was, now = _conditions(a.sites), _conditions(b.sites)
        for place in was.keys() & now.keys():
            if was[place] != now[place]:
                left, come = sorted(was[place] - now[place]), sorted(now[place] - was[place])
                yield Change(_named(a), _named(b), " / ".join(left), " / ".join(come))


def _conditions(sites: Iterable[Site]) -> dict[tuple[str, str], set[str]]:
    found: dict[tuple[str, str], set[str]] = {}
    for site in sites:
        found.setdefault((site.path, site.function), set()).add(", ".join(map(_condition, site.guards)) or "always")
    return found


def _condition(guard: Guard) -> str:
    return guard.condition if guard.holds else f"not ({guard.condition})"


_TITLES = {
    "added": "New errors", "removed": "Errors that are gone", "reworded": "Reworded (proposed)", "moved": "Moved",
    "guards": "Raised under other conditions", "severities": "Other severities",
}  # fmt: skip


def markdown(difference: Difference, before: str, after: str) -> str:
    """For a release note or a pull request."""
    lines = [f"# Errors from {before} to {after}", ""]
    if difference.is_empty:
        return "\n".join([*lines, "No difference."]) + "\n"
    counts = [f"{len(getattr(difference, field))} {field}" for field in _FIELDS if getattr(difference, field)]
    lines += [f"{', '.join(counts)}.", ""]
    for field in _FIELDS:
        entries = getattr(difference, field)
        if entries:
            lines += [f"## {_TITLES[field]}", "", *(line for entry in entries for line in _entry(entry)), ""]
    return "\n".join(lines).rstrip() + "\n"


def _entry(entry: Named | Change) -> Iterator[str]:
    named = entry if isinstance(entry, Named) else entry.after
    yield f"- {_code(f'{named.type}: {named.text}')} ({named.path}:{named.line}, {named.id})"
    if isinstance(entry, Change):
        yield f"  - was: {_code(entry.was) if entry.was else 'nothing'}"
        yield f"  - now: {_code(entry.now) if entry.now else 'nothing'}"


def _code(text: str) -> str:
    flat = " ".join(text.split())
    fence = "``" if "`" in flat else "`"
    return f"{fence} {flat} {fence}" if "`" in flat else f"`{flat}`"
