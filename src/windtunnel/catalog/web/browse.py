"""A snapshot's records as a list: filtered, counted by what they are, and page by page."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from operator import attrgetter
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from windtunnel.catalog.store import Hit, Project, Store

PAGE = 50
MOST_KEPT = 8
_SEVERITIES = ("fatal", "error", "warning", "none", "not analysed")


class Filters(NamedTuple):
    """What is shown of a project; None: all."""

    kind: str | None = None
    severity: str | None = None
    language: str | None = None
    under: str | None = None
    """A directory, without a slash at its end."""

    def let(self, hit: Hit) -> bool:
        """Whether a record is shown."""
        return (
            self.kind in (None, hit.kind)
            and self.severity in (None, hit.severity)
            and self.language in (None, hit.language)
            and (self.under is None or hit.path.startswith(f"{self.under}/"))
        )


class Counts(NamedTuple):
    """How many records of each; each is counted with the other filters in force."""

    kind: dict[str, int]
    severity: dict[str, int]
    language: dict[str, int]
    under: dict[str, int]
    """Directories right below the one that is shown."""


def shown(hits: Sequence[Hit], filters: Filters) -> Sequence[Hit]:
    """The records that the filters let through, in their order."""
    return hits if filters == Filters() else [hit for hit in hits if filters.let(hit)]


_what = attrgetter("kind", "severity", "language", "path")


def counts(hits: Iterable[Hit], filters: Filters) -> Counts:
    """What a reader may filter by, and what is behind it."""
    kind, severity, language, under = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    start = len(filters.under) + 1 if filters.under else 0
    for (a_kind, a_severity, a_language, path), amount in Counter(map(_what, hits)).items():
        if filters.under is not None and not path.startswith(f"{filters.under}/"):
            continue
        is_kind = filters.kind in (None, a_kind)
        is_severity = filters.severity in (None, a_severity)
        is_language = filters.language in (None, a_language)
        if is_severity and is_language:
            kind[a_kind] += amount
        if is_kind and is_language:
            severity[a_severity] += amount
        if is_kind and is_severity:
            language[a_language] += amount
            if is_language and (end := path.find("/", start)) > 0:
                under[path[:end]] += amount
    by_severity = {name: severity[name] for name in _SEVERITIES if severity[name]}
    return Counts(dict(kind.most_common()), by_severity, dict(language.most_common()), dict(sorted(under.items())))


class Lists:
    """The lists that were read last; each is read again when the store's file has changed."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[object, ...], list[Hit]] = OrderedDict()
        self._lock = Lock()

    def of(self, store: Store, project: Project) -> list[Hit]:
        """All records of a snapshot, by path and line."""
        key = (stamp(store.path), project.name, project.version)
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        hits = store.hits(project.name, project.version)
        with self._lock:
            self._kept[key] = hits
            while len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        return hits


def stamp(path: Path) -> tuple[int, ...]:
    """Changes whenever the store is written: by its file, and the log of what is not yet in it."""
    found: list[int] = []
    for name in (path, path.with_name(f"{path.name}-wal")):
        try:
            status = name.stat()
        except OSError:
            continue
        found += [status.st_ino, status.st_size, status.st_mtime_ns]
    return tuple(found)
