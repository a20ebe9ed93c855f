"""What a drill found, as values: `--json` prints them, the console and the page tell them.

Instants are seconds since the load's begin, on one clock. What could not be observed is None.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

FIGURES: dict[str, str] = {
    "requests": "requests that were sent",
    "failed": "requests that failed, after the client's retries",
    "retried": "requests that took the client more than one attempt",
    "tokens_changed": "greedy outputs that differ from those of the undisturbed reference run; none without one",
    "detect_s": "from the deed until the target's event that the rank is lost; none where it tells no events",
    "recover_s": "from the deed until service was back at its level; 0 where it never left it; none where it did not "
    "come back",
    "goodput_lost_ratio": "share of the good tokens of the time before that did not come between deed and recovery",
    "worst_gap_s": "longest time without any token while requests were in flight",
}
"""What a drill is judged by: the keys of a result that a scenario can expect something of. Per action, and the worst
at top level."""


class Figures(Struct, kw_only=True):
    """What users saw."""

    requests: int = 0
    failed: int = 0
    retried: int = 0
    tokens_changed: int | None = None
    detect_s: float | None = None
    recover_s: float | None = None
    goodput_lost_ratio: float | None = None
    worst_gap_s: float | None = None


class Phase(Struct, kw_only=True):
    """A stretch of time, and how service was in it."""

    begin_s: float
    end_s: float
    requests: int
    """That ended in it."""
    failed: int
    """Of these."""
    tokens_per_s: float | None
    median_ttft_ms: float | None
    """Of requests whose first token came in it."""
    p99_ttft_ms: float | None
    median_itl_ms: float | None
    """Of gaps between tokens that ended in it."""
    p99_itl_ms: float | None
    worst_gap_s: float | None


class ActionReport(Figures, kw_only=True):
    """One action: when it was done, and what users saw from then to the next."""

    label: str
    """`kill_rank 1`"""
    kind: str
    planned: str
    """`after 5 s`, `when completed >= 100`."""
    at_s: float | None
    """When it took effect; None: it was not done."""
    problem: str | None = None
    """Why it was not done."""
    detectable: bool = False
    """A rank was killed or hung that was a member just then, so the engine could notice it."""
    comparable: bool = True
    """False: too little came before it to say what the level was, so `recover_s` is not known."""
    before: Phase | None = None
    """What it is compared with: where the action before had not recovered yet, the time before that one."""
    during: Phase | None = None
    """Until service was back at its level; None where it never left it."""
    after: Phase | None = None


class Event(Struct):
    """Something that happened."""

    at_s: float
    who: str
    """`drill`, `coordinator`, `rank 3`."""
    what: str
    facts: dict[str, Any] = {}


class Expectation(Struct):
    """What the scenario expected of a figure."""

    key: str
    bound: str
    figure: float | None
    met: bool


class Series(Struct):
    """How the drill went, bin by bin."""

    bin_s: float
    tokens_per_s: list[float]
    in_flight: list[float]
    """Mean number of requests."""
    failed: list[int]


class Drill(Figures, kw_only=True):
    """The result of a drill."""

    schema_version: int = 1
    title: str
    about: str
    scenario: str
    """The file's path, or the name of a shipped scenario."""
    target: str
    date: str
    version: str
    """windtunnel's."""
    duration_s: float
    level_ratio: float
    window_s: float
    """Of the windows by which it was decided what counts as back at its level."""
    tokens_compared: int
    """Outputs that were compared with the reference run's."""
    passed: bool
    """Every expectation was met, and every action was done."""
    interrupted: str | None
    """The signal that ended it early."""
    expectations: list[Expectation]
    actions: list[ActionReport]
    """In the order in which they took effect; those that were not done come last."""
    ranks: list[int]
    """Of the engine; none where the target has no admin API."""
    events: list[Event]
    series: Series
    runs: list[str]
    """The folders of its loads' journals, the reference's first where there is one."""
