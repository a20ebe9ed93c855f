"""Failures and warnings by cause: what has one cause is told once, with a count and an example."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

from msgspec import Struct

from windtunnel import errors
from windtunnel.measure.record import Fault, Record

CAUSE_FACTS: dict[str, tuple[str, ...]] = {
    errors.ConnectFailed.code: ("target", "phase", "reason"),
    errors.HttpStatus.code: ("status", "reason", "body"),
    errors.TimedOut.code: ("phase",),
    errors.Disconnected.code: ("where", "reason"),
    errors.Truncated.code: ("end",),
    errors.Cancelled.code: ("why",),
    errors.RedirectRefused.code: ("status", "problem"),
    errors.MalformedResponse.code: ("layer", "problem"),
    errors.BackendError.code: ("error",),
}
"""Which of an error's facts make its cause; the others (counts, offsets, excerpts) differ from request to request."""

_SHAPE_CHARS = 120
_VARYING = re.compile(r"[\w.:-]*\d[\w.:-]*")
_MAX_CAUSES = 50


class Occurrence(NamedTuple):
    """A fault where it occurred."""

    record: Record
    fault: Fault
    state: str


class CatalogRecord(Struct, kw_only=True, frozen=True):
    """What the catalog of errors has of a failure: the record of ours, or of what the server said."""

    of: Literal["client", "server"]
    id: str
    """`windtunnel catalog show ID` shows all of it."""
    project: str
    version: str
    type: str
    meaning: str
    solution: str
    """The first thing to try; empty: the code does not say."""
    confidence: float
    """0 to 1: how sure it is that the record is of this failure."""


class Cause(Struct, kw_only=True, frozen=True):
    """What went wrong in one way, how often, and one request as its example."""

    code: str
    state: str
    """The word for how such a request ends, of `FAILED_ENDINGS`; `warning` for what didn't make it fail."""
    facts: dict[str, Any]
    """Those of the example that make the cause."""
    count: int
    """Requests."""
    ratio: float
    """Of all requests that have a record."""
    example: str
    """What happened, in one line."""
    example_request_id: str
    example_index: int
    transcript: str | None
    """The last bytes of the example's answer."""
    way_out: str
    records: list[CatalogRecord] = []
    """What the catalog has of it; none where the catalog is not there, or for causes beyond the first ten."""


def failure_causes(records: Sequence[Record], endings: Sequence[str]) -> list[Cause]:
    """The failed requests by cause, the most frequent first."""
    failed = (
        Occurrence(record, record.failure, state)
        for record, state in zip(records, endings, strict=True)
        if record.failure is not None
    )
    return _grouped(failed, len(records))


def warning_causes(records: Sequence[Record]) -> list[Cause]:
    """The requests that have warnings by cause, the most frequent first. One of each cause counts per request."""
    warned = (Occurrence(record, fault, "warning") for record in records for fault in record.warnings)
    return _grouped(warned, len(records))


def words(fault: Fault) -> tuple[str, str]:
    """What happened and the way out; of a code that this version doesn't know, the bare facts."""
    try:
        error = fault.error
    except (KeyError, TypeError):
        return f"{fault.code}: {fault.facts}", "A newer windtunnel wrote this; it can explain it."
    return error.message, error.advice


def shape(text: str) -> str:
    """The text's beginning with every word that has a digit (number, address, id) replaced by `#`."""
    return _VARYING.sub("#", text[: 2 * _SHAPE_CHARS])[:_SHAPE_CHARS]


def _cause_facts(fault: Fault) -> dict[str, Any]:
    names = CAUSE_FACTS.get(fault.code)
    return fault.facts if names is None else {n: fault.facts[n] for n in names if n in fault.facts}


def _key(fault: Fault, state: str) -> tuple[Any, ...]:
    facts = _cause_facts(fault)
    return (fault.code, state, *((n, shape(v) if isinstance(v, str) else repr(v)) for n, v in sorted(facts.items())))


def _grouped(faults: Iterable[Occurrence], num_records: int) -> list[Cause]:
    groups: dict[tuple[Any, ...], list[Occurrence]] = {}
    for occurrence in faults:
        group = groups.setdefault(_key(occurrence.fault, occurrence.state), [])
        if not group or group[-1].record is not occurrence.record:
            group.append(occurrence)
    if len(groups) > _MAX_CAUSES:
        # A server that quotes each prompt in its answer: its words make no cause.
        groups = _by_code(groups)
    return [_cause(group, num_records) for group in sorted(groups.values(), key=len, reverse=True)]


def _by_code(groups: dict[tuple[Any, ...], list[Occurrence]]) -> dict[tuple[Any, ...], list[Occurrence]]:
    merged: dict[tuple[Any, ...], list[Occurrence]] = {}
    for (code, state, *_), group in groups.items():
        merged.setdefault((code, state), []).extend(group)
    return merged


def _cause(group: list[Occurrence], num_records: int) -> Cause:
    record, fault, state = next((member for member in group if member.record.transcript), group[0])
    happened, way_out = words(fault)
    return Cause(
        code=fault.code,
        state=state,
        facts=_cause_facts(fault),
        count=len(group),
        ratio=len(group) / num_records,
        example=happened,
        example_request_id=record.request_id,
        example_index=record.index,
        transcript=record.transcript,
        way_out=way_out,
    )
