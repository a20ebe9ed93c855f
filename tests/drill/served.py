"""Requests as a server would have answered them, made by rule: one each so often, its tokens at a steady pace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from tests.measure.making import MS, START_NS, answered, failed
from windtunnel.drill.traffic import Traffic
from windtunnel.errors import HttpStatus
from windtunnel.measure.record import Record
from windtunnel.measure.run import RunEnd, RunFacts

FACTS = RunFacts(
    run_id="r", date="20261201-000000", version="0", target="t", backend="openai", model_id="m", num_prompts=1
)
Later = Callable[[float], float]
"""From the second at which a token was to come to the one at which it comes."""


def steady(at_s: float) -> float:
    return at_s


def stalled(begin_s: float, end_s: float) -> Later:
    """Nothing comes in between, and what was to come comes at once afterwards."""
    return lambda at_s: end_s if begin_s <= at_s < end_s else at_s


def serve(
    later: Later = steady,
    *,
    for_s: float = 10.0,
    every_s: float = 0.05,
    tokens: int = 10,
    gap_s: float = 0.02,
    fails: Callable[[float], bool] = lambda sent_s: False,
) -> list[Record]:
    """Requests from second 0 on; the n-th token of each was to come `n * gap_s` after it was sent."""
    records = []
    for index in range(round(for_s / every_s)):
        sent_s = index * every_s
        if fails(sent_s):
            records.append(failed(index, HttpStatus(429, "Too Many Requests", ""), sent=sent_s * 1e3))
            continue
        at_s = [later(sent_s + (n + 1) * gap_s) for n in range(tokens)]
        gaps = tuple((b - a) * 1e3 for a, b in pairwise(at_s))
        records.append(answered(index, sent=sent_s * 1e3, ttft=(at_s[0] - sent_s) * 1e3, gaps=gaps))
    return records


def traffic(
    records: Sequence[Record], changed: Sequence[bool] = (), bounds_ms: dict[str, float] | None = None
) -> Traffic:
    ends = [record.done_ns for record in records if record.done_ns is not None]
    end = RunEnd(start_ns=START_NS, end_ns=max(ends, default=START_NS + MS))
    return Traffic.of(records, changed or [False] * len(records), FACTS, end, bounds_ms or {})
