"""The metrics of a whole run: each is one row of `RATES`, and defined nowhere else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from windtunnel.measure.columns import Bools, Columns, Floats
from windtunnel.measure.metrics import METRICS
from windtunnel.units import NS_PER_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """One row of the table."""

    key: str
    """As in the result file."""
    label: str
    """As in the result block, without its unit."""
    unit: str
    formula: str
    doc: str
    value: Callable[[Columns, Mapping[str, float]], float | None]
    """Takes the columns and the goodput's bounds in ms; None where there is nothing to tell."""
    better: Literal["lower", "higher"] = "higher"


def good(columns: Columns, bounds_ms: Mapping[str, float]) -> Bools:
    """[n] Which requests completed and kept every bound (metric key to ms).

    As vLLM has it, the pace of an answer of at most one token keeps any bound. A request that lacks another datum
    can't be shown to have kept its bound, and is not good.
    """
    kept = columns.completed.copy()
    for key, bound in bounds_ms.items():
        samples = METRICS[key].samples(columns)
        if key == "tpot":
            samples = np.where(columns.output_tokens <= 1, 0.0, samples)
        kept &= samples <= bound
    return kept


def peak_concurrency(columns: Columns) -> int:
    """The most requests that were under way at one instant, failed ones included.

    One that ends at the instant at which another is sent makes room for it first.
    """
    sent = columns.sent[~np.isnan(columns.sent)]
    ended = columns.done[~np.isnan(columns.sent) & ~np.isnan(columns.done)]
    instants = np.concatenate((ended, sent))
    changes = np.concatenate((np.full(len(ended), -1), np.full(len(sent), 1)))
    order = np.lexsort((changes, instants))
    return int(np.cumsum(changes[order]).max(initial=0))


def peak_tokens_per_s(columns: Columns) -> float:
    """The most output tokens of completed requests that came within one second, wherever that second begins.

    In a run shorter than a second, the tokens by its length.
    """
    window_s = min(1.0, columns.duration_s)
    instants, tokens = _token_arrivals(columns)
    if window_s <= 0 or not len(instants):
        return 0.0
    order = np.argsort(instants, kind="stable")
    instants, total = instants[order], np.concatenate(([0.0], np.cumsum(tokens[order])))
    before = np.searchsorted(instants, instants - window_s * NS_PER_S, side="right")
    return float((total[1:] - total[before]).max() / window_s)


def _token_arrivals(c: Columns) -> tuple[Floats, Floats]:
    """Instants (ns) at which completed requests' chunks came, and how many tokens each brought."""
    gap_request = c.gap_request
    since_start = np.concatenate(([0], np.cumsum(c.gaps)))
    since_first = since_start[1:] - since_start[c.gap_offsets[gap_request]]
    later = c.completed[gap_request]
    first = c.completed & ~np.isnan(c.first_token)
    instants = np.concatenate((c.first_token[first], (c.first_token[gap_request] + since_first)[later]))
    whole = np.where(c.paced, c.first_tokens, c.output_tokens)
    return instants, np.concatenate((whole[first], np.where(c.paced[gap_request], c.gap_tokens, 0.0)[later]))


def _per_second(amount: float, columns: Columns) -> float | None:
    return float(amount / columns.duration_s) if columns.duration_s > 0 else None


def _request_goodput(columns: Columns, bounds_ms: Mapping[str, float]) -> float | None:
    return _per_second(good(columns, bounds_ms).sum(), columns) if bounds_ms else None


_ROWS = (
    Rate(
        key="request_throughput",
        label="Request throughput",
        unit="req/s",
        formula="completed requests ÷ duration",
        doc="Answers per second.",
        value=lambda c, _: _per_second(c.completed.sum(), c),
    ),
    Rate(
        key="request_goodput",
        label="Request goodput",
        unit="req/s",
        formula="completed requests that keep every bound of --goodput ÷ duration",
        doc="Answers per second that kept the service's promise. Only with --goodput.",
        value=_request_goodput,
    ),
    Rate(
        key="input_throughput",
        label="Input token throughput",
        unit="tok/s",
        formula="prompt tokens of completed requests ÷ duration",
        doc="Prompt tokens per second.",
        value=lambda c, _: _per_second(c.prompt_tokens[c.completed].sum(), c),
    ),
    Rate(
        key="output_throughput",
        label="Output token throughput",
        unit="tok/s",
        formula="output tokens of completed requests ÷ duration",
        doc="Output tokens per second, over the whole run.",
        value=lambda c, _: _per_second(c.output_tokens[c.completed].sum(), c),
    ),
    Rate(
        key="total_token_throughput",
        label="Total token throughput",
        unit="tok/s",
        formula="prompt and output tokens of completed requests ÷ duration",
        doc="Prompt and output tokens per second.",
        value=lambda c, _: _per_second((c.prompt_tokens + c.output_tokens)[c.completed].sum(), c),
    ),
    Rate(
        key="max_output_tokens_per_s",
        label="Peak output token throughput",
        unit="tok/s",
        formula="most output tokens within any one second",
        doc="By each chunk's own arrival and tokens, over completed requests. vLLM counts chunks, in seconds that "
        "begin with the first request. A run shorter than a second: its tokens by its length.",
        value=lambda c, _: peak_tokens_per_s(c),
    ),
    Rate(
        key="max_concurrent_requests",
        label="Peak concurrent requests",
        unit="requests",
        formula="most requests between sent and done at any one instant",
        doc="The true peak, failed requests included; it never exceeds --max-concurrency. vLLM counts all requests "
        "that touch the same second, and can.",
        value=lambda c, _: peak_concurrency(c),
    ),
)

RATES: dict[str, Rate] = {row.key: row for row in _ROWS}
"""By key."""


def rates(columns: Columns, bounds_ms: Mapping[str, float]) -> dict[str, float]:
    """Every rate that there is something to tell of, by key, in the table's order."""
    found = ((row.key, row.value(columns, bounds_ms)) for row in _ROWS)
    return {key: value for key, value in found if value is not None}
