"""Failures of a run beside their records in the catalog: our own error's, and the server's where it said one.

A look-up and no more: nothing is indexed here, since a run that is over is to be told at once. Where there is no
catalog yet, `windtunnel explain CODE` makes it. Whatever goes wrong is left out: the run's figures are what counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from windtunnel.errors import StoreMissing, classes
from windtunnel.measure.causes import CatalogRecord, Cause
from windtunnel.measure.summary import Summary

if TYPE_CHECKING:
    from windtunnel.catalog.match.answer import Match
    from windtunnel.catalog.store import Store

MOST_CAUSES = 10
"""The most frequent ones; a server that words each answer differently makes many."""
_SAID_BY_SERVER = ("body", "error")
"""Facts of our errors that hold its words."""
_MOST_SAID_CHARACTERS = 4_000
_LEAST_CONFIDENCE = 0.35
"""Of the server's: its words may be those of a gateway that nobody has indexed."""


def with_records(summary: Summary, store: Path | None = None) -> Summary:
    """The summary, its most frequent failures with their records. `store`: the catalog; None: the default one."""
    if not summary.failures:
        return summary
    try:
        told, rest = summary.failures[:MOST_CAUSES], summary.failures[MOST_CAUSES:]
        with ExitStack() as stack:
            ours, theirs = _catalogs(store, stack)
            told = [msgspec.structs.replace(each, records=list(_records(each, ours, theirs))) for each in told]
        return msgspec.structs.replace(summary, failures=told + rest)
    except Exception:
        return summary


def _catalogs(path: Path | None, stack: ExitStack) -> tuple[Store, Store]:
    """Where our own errors are, and where those of servers may be: the same file, or the one that the wheel brings."""
    from windtunnel.catalog.own import BUILT
    from windtunnel.catalog.store import Store, default_store

    try:
        theirs = stack.enter_context(Store.open(default_store() if path is None else path))
    except StoreMissing:
        both = stack.enter_context(Store.open(BUILT))
        return both, both
    return stack.enter_context(Store.open(BUILT)) if BUILT.exists() else theirs, theirs


def _records(cause: Cause, ours: Store, theirs: Store) -> Iterator[CatalogRecord]:
    from windtunnel.catalog.match.look_up import explain
    from windtunnel.catalog.own import PROJECT

    type_ = next((cls.__name__ for cls in classes() if cls.code == cause.code), None)
    if type_ is not None and any(project.name == PROJECT for project in ours.projects()):
        for asked in (f"{type_}: {cause.example}", cause.code):  # a message that quotes a body reads as the body's
            found = explain(asked, ours, project=PROJECT).records
            match = next((each for each in found if each.type == type_), None)
            if match is not None:
                yield _record("client", match)
                break
    said = next((text for name in _SAID_BY_SERVER if isinstance(text := cause.facts.get(name), str)), "")
    if said.strip():
        found = explain(said[:_MOST_SAID_CHARACTERS], theirs).records
        match = next((each for each in found if each.project != PROJECT), None)
        if match is not None and match.confidence >= _LEAST_CONFIDENCE:
            yield _record("server", match)


def _record(of: Literal["client", "server"], match: Match) -> CatalogRecord:
    return CatalogRecord(
        of=of, id=match.id, project=match.project, version=match.version, type=match.type,
        meaning=next(iter(match.meaning), ""), solution=next(iter(match.solutions), ""), confidence=match.confidence,
    )  # fmt: skip
