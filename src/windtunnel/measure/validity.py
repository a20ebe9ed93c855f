"""Whether a run measured what it was asked to measure, and what the client itself adds to the figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from windtunnel.measure.columns import Columns, Floats
from windtunnel.measure.metrics import METRICS, aggregate
from windtunnel.measure.record import Record
from windtunnel.measure.run import RunFacts
from windtunnel.units import NS_PER_MS

LATENESS_BOUND_MS = 5.0
LATENESS_BOUND_OF_TTFT = 0.05
READ_TOGETHER_BOUND = 0.25


class Invalid(Struct, kw_only=True, frozen=True):
    """Why a run's figures must not be used."""

    check: str
    """`failed_ratio`, `short`, `send_lateness` or `read_together`."""
    found: str
    value: float
    bound: float
    way_out: str
    """Which setting to change."""


class Spread(Struct, frozen=True):
    """An error of the instrument, in ms."""

    p50: float
    p99: float
    max: float


class Instrument(Struct, kw_only=True, frozen=True):
    """What the client itself adds to the figures, or would."""

    stamped_by_kernel: int
    """Requests whose arrivals the kernel stamped: the client's read lag is not in their figures."""
    stamped_by_client: int
    num_chunks: int
    """That carried tokens, over completed streams."""
    num_chunks_merged: int
    """Of these, at least so many shared a read with an earlier one, and so its stamp: the server sent them together, or
    the client looked late. The time between them is lost, to the kernel's stamps too."""
    num_chunks_merged_by_client: int
    """Of these, those of requests at which the client looked at least 5 ms late."""
    read_lag_ms: Spread | None
    """How late the client looked at arrivals, by each request's latest read. Only where the kernel stamped them."""
    send_lateness_ms: Spread | None
    """From ready to sent; in a closed loop the turnaround from an answer to the next request."""
    closed_loop: bool


def instrument(records: Sequence[Record], columns: Columns) -> Instrument:
    """The instrument's own errors in this run."""
    read = [r for r in records if r.reads]
    by_kernel = [r for r in read if r.stamped_by == "kernel"]
    chunks = [
        (len(r.gaps_ns) + 1, r.reads, r.read_lag_ns >= LATENESS_BOUND_MS * NS_PER_MS)
        for r, completed in zip(records, columns.completed, strict=True)
        if completed and r.gaps_ns
    ]
    lags = np.array([r.read_lag_ns for r in by_kernel], dtype=np.float64) / NS_PER_MS
    return Instrument(
        stamped_by_kernel=len(by_kernel),
        stamped_by_client=len(read) - len(by_kernel),
        num_chunks=sum(count for count, _, _ in chunks),
        num_chunks_merged=sum(max(0, count - reads) for count, reads, _ in chunks),
        num_chunks_merged_by_client=sum(max(0, count - reads) for count, reads, late in chunks if late),
        read_lag_ms=_spread(lags),
        send_lateness_ms=_spread(METRICS["send_lateness"].samples(columns)),
        closed_loop=not columns.has_schedule,
    )


def _spread(samples: Floats) -> Spread | None:
    found = aggregate(samples, [99])
    return None if found is None else Spread(found.median, found.percentiles["p99"], found.max)


# --- invalid ----------------------------------------------------------------------------------------------------


def reasons_invalid(
    records: Sequence[Record], columns: Columns, facts: RunFacts, instrument: Instrument
) -> list[Invalid]:
    """Every reason for which the run is invalid; none when it is valid."""
    checks = (
        _too_many_failed(columns, facts),
        _short(records, columns, facts),
        _sent_late(columns, instrument),
        _read_together(instrument),
    )
    return [reason for reason in checks if reason is not None]


def _too_many_failed(columns: Columns, facts: RunFacts) -> Invalid | None:
    """What an interrupt cancelled is no failure of the server's."""
    ended = [e for e in columns.endings if e != "cancelled"]
    failed = len(ended) - int(columns.completed.sum())
    if not ended or failed / len(ended) <= facts.max_failed_ratio:
        return None
    return Invalid(
        check="failed_ratio",
        found=f"{failed} of {len(ended)} requests failed ({failed / len(ended):.1%}); "
        f"--max-failed-ratio allows {facts.max_failed_ratio:.1%}",
        value=failed / len(ended),
        bound=facts.max_failed_ratio,
        way_out="Fix the causes listed below, or lower --max-concurrency or --request-rate; raise "
        "--max-failed-ratio if figures over the rest are wanted.",
    )


def _short(records: Sequence[Record], columns: Columns, facts: RunFacts) -> Invalid | None:
    short = [r for r, e in zip(records, columns.endings, strict=True) if e == "short"]
    if not facts.ignore_eos or not short:
        return None
    example = short[0]
    finishes = Counter(r.finish_reason for r in short)
    return Invalid(
        check="short",
        found=f"{len(short)} of {columns.completed.sum()} answers are shorter than asked under --ignore-eos, e.g. "
        f"{example.output_tokens} tokens of {example.output_tokens_asked} (request {example.request_id}); "
        f"finish reasons: {', '.join(f'{reason} × {n}' for reason, n in finishes.most_common(3))}",
        value=float(len(short)),
        bound=0.0,
        way_out="`length`: the model's context is full, ask for less with --input-len or --output-len. `stop`: the "
        "server doesn't honour ignore_eos, or a stop sequence is set; run without --ignore-eos.",
    )


def _sent_late(columns: Columns, instrument: Instrument) -> Invalid | None:
    lateness = instrument.send_lateness_ms
    if not columns.has_schedule or lateness is None:
        return None
    ttft = aggregate(METRICS["ttft"].samples(columns), [])
    bound = max(LATENESS_BOUND_MS, LATENESS_BOUND_OF_TTFT * ttft.median if ttft else 0.0)
    if lateness.p99 <= bound:
        return None
    return Invalid(
        check="send_lateness",
        found=f"the client was the bottleneck: p99 of send lateness is {lateness.p99:.1f} ms; the bound is "
        f"{bound:.1f} ms (the larger of {LATENESS_BOUND_MS:g} ms and {LATENESS_BOUND_OF_TTFT:.0%} of the median TTFT)",
        value=lateness.p99,
        bound=bound,
        way_out="Raise --workers, lower --request-rate, or run the client on a machine with idle cores.",
    )


def _read_together(instrument: Instrument) -> Invalid | None:
    """Chunks that a late client reads at once have one stamp: what lay between them is lost, and TTFT may be too."""
    if not instrument.num_chunks:
        return None
    ratio = instrument.num_chunks_merged_by_client / instrument.num_chunks
    if ratio <= READ_TOGETHER_BOUND:
        return None
    return Invalid(
        check="read_together",
        found=f"the client was the bottleneck: it read {ratio:.0%} of the chunks together with an earlier one, of "
        f"requests at which it looked at least {LATENESS_BOUND_MS:g} ms late; the bound is {READ_TOGETHER_BOUND:.0%}",
        value=ratio,
        bound=READ_TOGETHER_BOUND,
        way_out="Give the client idle cores (another machine, or `taskset`), raise --workers, or lower the load.",
    )
