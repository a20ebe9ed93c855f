"""What `explain` answers, as it is published in JSON."""

from __future__ import annotations

from typing import Literal

import msgspec

from windtunnel.catalog.record import Severity

SCHEMA: Literal["explanation/1"] = "explanation/1"

Answer = Literal["found", "possible", "not in this catalog"]


class Value(msgspec.Struct, frozen=True):
    """What a hole of a template held in the message."""

    expression: str
    value: str


class SeenAt(msgspec.Struct, frozen=True, omit_defaults=True):
    """A place where a record's error is raised."""

    path: str
    start: int
    end: int
    function: str
    permalink: str | None = None
    is_here: bool = False
    """The traceback or the logger names it."""


class Match(msgspec.Struct, frozen=True):
    """A record that an error may be."""

    id: str
    project: str
    version: str
    language: str
    kind: str
    type: str
    template: str
    """With `{expression}` for holes."""
    confidence: float
    """0 to 1: how often a match with this evidence is right; see `catalog.match.judge`."""
    evidence: tuple[str, ...]
    error: int
    """Which of `errors` it explains."""
    values: tuple[Value, ...]
    sites: tuple[SeenAt, ...]
    severity: Severity | Literal["not analysed"]
    meaning: tuple[str, ...]
    trigger: tuple[str, ...]
    situations: tuple[str, ...]
    solutions: tuple[str, ...]


class SeenError(msgspec.Struct, frozen=True, omit_defaults=True):
    """An error of the text."""

    type: str
    message: str
    answer: Answer
    count: int
    first_line: int
    last_line: int
    how: str = ""
    """How it came from the error before it in the chain; empty: it is a root."""
    raised_in: str = ""
    """The innermost frame."""
    why_not: str = ""
    """Of one that is not in the catalog: who raised it, as far as it can be told."""
    records: tuple[str, ...] = ()
    """Ids of its candidates, the best first."""


class Explanation(msgspec.Struct, frozen=True):
    """What a text says of errors that the catalog knows."""

    schema: Literal["explanation/1"]
    found: bool
    """There is a record that is found or possible."""
    answer: Answer
    records: tuple[Match, ...]
    """The root's best candidate first, then those of the errors made from it, then the other candidates."""
    errors: tuple[SeenError, ...]
    """All that was seen, root causes first, each once."""
    projects: tuple[str, ...]
    """That are indexed, with their versions."""
    to_index: tuple[str, ...] = ()
    """Commands that index what the text's tracebacks come from."""
    similar: tuple[Match, ...] = ()
    """Where nothing was found: what a search for the text's words finds."""
