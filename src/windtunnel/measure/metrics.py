"""The metrics of single requests and tokens: each is one row of `METRICS`, and defined nowhere else.

Console, result files, --goodput, --percentile-metrics and docs iterate the table. A row's `samples` gives milliseconds:
for a metric per request an array [n] that lies beside the records, NaN where a request has no such datum; for one per
token or per chunk a flat array. Samples are of completed requests unless the row says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from msgspec import Struct

from windtunnel.measure.columns import Columns, Floats, span_ms
from windtunnel.units import NS_PER_MS

Per = Literal["request", "token", "chunk"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One row of the table."""

    key: str
    """As in --percentile-metrics, --goodput and the result file (`mean_<key>_ms`)."""
    label: str
    header: str
    """The title of its section in the result block."""
    formula: str
    doc: str
    samples: Callable[[Columns], Floats]
    per: Per = "request"
    unit: str = "ms"
    better: Literal["lower", "higher"] = "lower"
    beside: str | None = None
    """The metric that this one refines: where they differ materially, it is shown even if not asked for."""


class Aggregate(Struct, frozen=True):
    """A metric's samples in a few numbers, in the metric's unit."""

    count: int
    mean: float
    median: float
    std: float
    """Of the population, as numpy and vLLM have it."""
    min: float
    max: float
    percentiles: dict[str, float]
    """By `percentile_word`, e.g. `p99`, `p99.9`; linear interpolation between samples."""


def percentile_word(percentile: float) -> str:
    """How vLLM writes a percentile: `p99`, `p99.9`."""
    return f"p{int(percentile)}" if int(percentile) == percentile else f"p{percentile}"


def aggregate(samples: Floats, percentiles: Sequence[float]) -> Aggregate | None:
    """The aggregate of the samples that are there; None without any."""
    present = samples[~np.isnan(samples)]
    if not len(present):
        return None
    values = np.percentile(present, percentiles) if len(percentiles) else np.empty(0)
    return Aggregate(
        count=len(present),
        mean=float(present.mean()),
        median=float(np.median(present)),
        std=float(present.std()),
        min=float(present.min()),
        max=float(present.max()),
        percentiles={percentile_word(p): float(v) for p, v in zip(percentiles, values, strict=True)},
    )


def _only(mask: np.ndarray, values: Floats) -> Floats:
    return np.where(mask, values, np.nan)


def _none(c: Columns) -> Floats:
    return np.full(len(c), np.nan)


def _ttft(c: Columns) -> Floats:
    return _only(c.paced, span_ms(c.sent, c.first_token))


def _ttfo(c: Columns) -> Floats:
    return _only(c.paced, span_ms(c.sent, c.first_output))


def _tpot(c: Columns) -> Floats:
    several = c.output_tokens > 1
    return _only(c.paced & several, span_ms(c.first_token, c.last_token) / np.maximum(c.output_tokens - 1, 1))


def _icl(c: Columns) -> Floats:
    return c.gaps[c.paced[c.gap_request]] / NS_PER_MS


def _itl(c: Columns) -> Floats:
    paced = c.paced[c.gap_request]
    tokens = c.gap_tokens[paced]
    # Whole intervals, also where a request's mean tokens per chunk is a fraction: the rest is carried on.
    intervals = np.diff(np.floor(np.cumsum(tokens) + 1e-6), prepend=0.0).astype(np.int64)
    return np.repeat(c.gaps[paced] / tokens / NS_PER_MS, intervals)


def _end(c: Columns) -> Floats:
    """When the answer was there: its last token, or all of it where it was not asked for as a stream."""
    return np.where(c.streamed, c.last_token, _only(c.output_tokens > 0, c.done))


def _e2el(c: Columns) -> Floats:
    return _only(c.completed, span_ms(c.sent, _end(c)))


def _ttft_scheduled(c: Columns) -> Floats:
    return _only(c.paced, span_ms(c.scheduled, c.first_token)) if c.has_schedule else _none(c)


def _e2el_scheduled(c: Columns) -> Floats:
    return _only(c.completed, span_ms(c.scheduled, _end(c))) if c.has_schedule else _none(c)


def queue_wait_ms(c: Columns) -> Floats:
    """[n] How long each request that was sent waited for a slot; what nothing held back waited 0 ms."""
    waited = np.where(np.isnan(c.ready), 0.0, span_ms(c.scheduled, c.ready))
    return _only(~np.isnan(c.sent), np.maximum(waited, 0.0))


def _client_queue_time(c: Columns) -> Floats:
    return _none(c) if c.max_concurrency is None else _only(c.completed, queue_wait_ms(c))


def _e2el_including_client_queue(c: Columns) -> Floats:
    return _e2el(c) + _client_queue_time(c) if c.has_schedule else _none(c)


def _connect_time(c: Columns) -> Floats:
    return _only(c.sent_once, span_ms(c.sent, c.connected))


def _send_lateness(c: Columns) -> Floats:
    return span_ms(c.ready, c.sent)


_ROWS = (
    # vLLM's, in its order
    Metric(
        key="ttft",
        label="TTFT",
        header="Time to First Token",
        formula="first token − sent",
        doc="From sending a request to its first token of any kind, reasoning included. A chat's empty role chunk is "
        "no token. Answers that came in one piece have none.",
        samples=_ttft,
    ),
    Metric(
        key="tpot",
        label="TPOT",
        header="Time per Output Token (excl. 1st token)",
        formula="(last token − first token) ÷ (output tokens − 1)",
        doc="The mean pace of one answer after its first token. Only answers of more than one token have it.",
        samples=_tpot,
    ),
    Metric(
        key="itl",
        label="ITL",
        header="Inter-token Latency",
        formula="gap before a chunk of k tokens ÷ k, counted k times",
        doc="From one token to the next, over all tokens of all answers. Tokens that share a chunk share its gap; "
        "where the server doesn't tell how many a chunk has, its answer's mean (output tokens ÷ chunks) is taken.",
        samples=_itl,
        per="token",
    ),
    Metric(
        key="e2el",
        label="E2EL",
        header="End-to-end Latency",
        formula="last token − sent; done − sent where no stream was asked for",
        doc="From sending a request to the last token of its answer. What a server sends after that (usage, [DONE]) "
        "doesn't stretch it.",
        samples=_e2el,
    ),
    Metric(
        key="client_queue_time",
        label="Client Queue Time",
        header="Client-side Queueing",
        formula="ready − scheduled",
        doc="How long a request that was due waited for a slot under --max-concurrency; in a closed loop, where all "
        "are due at the start, the time until its turn. Only where there is such a cap.",
        samples=_client_queue_time,
    ),
    Metric(
        key="e2el_including_client_queue",
        label="E2EL incl. Client Queue",
        header="Queue-inclusive End-to-end Latency",
        formula="client queue time + E2EL",
        doc="E2EL with the wait for a slot. Only where there is both a schedule and --max-concurrency.",
        samples=_e2el_including_client_queue,
    ),
    # ours
    Metric(
        key="ttfo",
        label="TTFO",
        header="Time to First Output Token",
        formula="first token that is no reasoning − sent",
        doc="What the reader of an answer waits for when a model thinks first. The same as TTFT where it doesn't.",
        samples=_ttfo,
        beside="ttft",
    ),
    Metric(
        key="icl",
        label="ICL",
        header="Inter-chunk Latency",
        formula="chunk with tokens − chunk with tokens before it",
        doc="From one chunk of an answer to the next, whatever number of tokens it carries. This is what vLLM's "
        "clients call ITL; the two are the same where each chunk has one token.",
        samples=_icl,
        per="chunk",
        beside="itl",
    ),
    Metric(
        key="ttft_scheduled",
        label="TTFT from Schedule",
        header="Time to First Token from Schedule",
        formula="first token − scheduled",
        doc="TTFT as a user sees it who comes when the schedule says: with the wait for a slot under --max-concurrency "
        "and the client's own lateness. Only where a request rate or a ramp-up makes a schedule.",
        samples=_ttft_scheduled,
        beside="ttft",
    ),
    Metric(
        key="e2el_scheduled",
        label="E2EL from Schedule",
        header="End-to-end Latency from Schedule",
        formula="last token − scheduled",
        doc="E2EL with the wait for a slot and the client's own lateness. Only where a request rate or a ramp-up makes "
        "a schedule.",
        samples=_e2el_scheduled,
        beside="e2el",
    ),
    Metric(
        key="connect_time",
        label="Connect Time",
        header="Connect Time",
        formula="connected − sent",
        doc="Name look-up, TCP and TLS, over every request that opened a connection at its only attempt, failed ones "
        "included. It is a part of TTFT.",
        samples=_connect_time,
    ),
    Metric(
        key="send_lateness",
        label="Send Lateness",
        header="Send Lateness",
        formula="sent − ready",
        doc="How late the client itself was to send, once a request was due and had a slot, over every request sent. "
        "In a closed loop: its turnaround from an answer to the next request.",
        samples=_send_lateness,
    ),
)

METRICS: dict[str, Metric] = {row.key: row for row in _ROWS}
"""By key, in the order in which they are shown."""

GOODPUT_KEYS = tuple(row.key for row in _ROWS if row.per == "request")
"""What --goodput can bound."""


def aggregates(columns: Columns, percentiles: Sequence[float]) -> dict[str, Aggregate]:
    """Every metric that has data, by key, in the table's order."""
    found = ((row.key, aggregate(row.samples(columns), percentiles)) for row in _ROWS)
    return {key: value for key, value in found if value is not None}
