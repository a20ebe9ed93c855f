"""Records as numpy columns: made once, then every metric is a few lines of arithmetic.

Axis `n` is the run's requests, in the order given; axis `g` is all gaps between chunks, request after request, cut by
`gap_offsets`. Instants are float64 nanoseconds since the run's start (so small that every nanosecond is exact), NaN
where the record has none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, repeat

import numpy as np
from numpy.typing import NDArray

from windtunnel.measure.record import COMPLETED_ENDINGS, Record, ending
from windtunnel.measure.run import RunEnd, RunFacts
from windtunnel.units import NS_PER_MS

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """A run's records, column by column."""

    endings: list[str]
    """[n] by `measure.record.ending`."""
    completed: Bools
    """[n]"""
    streamed: Bools
    """[n] asked for as a stream"""
    paced: Bools
    """[n] completed, asked for as a stream, and not all in one piece: its tokens' instants mean something."""

    scheduled: Floats
    ready: Floats
    sent: Floats
    connected: Floats
    first_token: Floats
    first_output: Floats
    last_token: Floats
    done: Floats

    prompt_tokens: Ints
    """[n] by the server's usage, else as asked."""
    output_tokens: Ints
    """[n] 0 where none came."""
    sent_once: Bools
    """[n] one attempt, no reconnect, no redirect: its first attempt is also its last."""

    gaps: Ints
    """[g] ns"""
    gap_offsets: Ints
    """[n + 1] request i's gaps are `gaps[gap_offsets[i]:gap_offsets[i + 1]]`."""
    gap_tokens: Floats
    """[g] tokens of the chunk that ended the gap; where the server doesn't tell, its request's mean."""
    first_tokens: Floats
    """[n] tokens of the first chunk; NaN where there is none."""

    duration_s: float
    has_schedule: bool
    """A request rate or a ramp-up said when each request was due."""
    max_concurrency: int | None

    def __len__(self) -> int:
        return len(self.endings)

    @property
    def gap_request(self) -> Ints:
        """[g] the request that each gap belongs to."""
        return np.repeat(np.arange(len(self), dtype=np.int64), np.diff(self.gap_offsets))

    @classmethod
    def of(cls, records: Sequence[Record], facts: RunFacts, end: RunEnd) -> Columns:
        """The columns of a run's records."""
        start = end.start_ns
        endings = [ending(r, ignore_eos=facts.ignore_eos) for r in records]
        completed = np.array([e in COMPLETED_ENDINGS for e in endings], dtype=bool)
        streamed = np.array([r.streamed for r in records], dtype=bool)
        tokens_per_chunk = [_mean_tokens(r) for r in records]
        return cls(
            endings=endings,
            completed=completed,
            streamed=streamed,
            paced=completed & streamed & np.array([e != "not_streamed" for e in endings], dtype=bool),
            scheduled=_instants((r.scheduled_ns for r in records), start),
            ready=_instants((r.ready_ns for r in records), start),
            sent=_instants((r.sent_ns for r in records), start),
            connected=_instants((r.connected_ns for r in records), start),
            first_token=_instants((r.first_token_ns for r in records), start),
            first_output=_instants((r.first_output_ns for r in records), start),
            last_token=_instants((r.last_token_ns for r in records), start),
            done=_instants((r.done_ns for r in records), start),
            prompt_tokens=np.array([_prompt_tokens(r) for r in records], dtype=np.int64),
            output_tokens=np.array([r.output_tokens or 0 for r in records], dtype=np.int64),
            sent_once=np.array([r.attempts == 1 and not r.reconnects and not r.redirects for r in records], dtype=bool),
            gaps=np.fromiter(chain.from_iterable(r.gaps_ns for r in records), dtype=np.int64),
            gap_offsets=np.cumsum([0, *(len(r.gaps_ns) for r in records)], dtype=np.int64),
            gap_tokens=np.fromiter(
                chain.from_iterable(map(_tokens_after_gaps, records, tokens_per_chunk)), dtype=np.float64
            ),
            first_tokens=np.array(list(map(_tokens_of_first_chunk, records, tokens_per_chunk)), dtype=np.float64),
            duration_s=end.duration_s,
            has_schedule=facts.has_schedule,
            max_concurrency=facts.max_concurrency,
        )


def span_ms(begin: Floats, end: Floats) -> Floats:
    """Milliseconds from one column of instants to another; NaN where either is absent."""
    return (end - begin) / NS_PER_MS


def _instants(values: Iterable[int | None], start_ns: int) -> Floats:
    return np.array([None if v is None else v - start_ns for v in values], dtype=np.float64)


def _prompt_tokens(record: Record) -> int:
    return record.prompt_tokens_asked if record.prompt_tokens is None else record.prompt_tokens


def _mean_tokens(record: Record) -> float:
    """Tokens per chunk, at least 1: a chunk that carries tokens carries one.

    An answer that did not end for its length ended with a token that usage counts and that no chunk shows.
    """
    unseen = 0 if record.finish_reason == "length" else 1
    return max(1.0, ((record.output_tokens or 0) - unseen) / (len(record.gaps_ns) + 1))


def _tokens_after_gaps(record: Record, mean: float) -> Iterator[float]:
    counts = _chunk_tokens(record)
    if counts is None:
        return repeat(mean, len(record.gaps_ns))
    return iter([max(1, count) for count in counts[1:]])


def _tokens_of_first_chunk(record: Record, mean: float) -> float | None:
    if record.first_token_ns is None:
        return None
    counts = _chunk_tokens(record)
    return mean if counts is None else max(1, counts[0])


def _chunk_tokens(record: Record) -> list[int] | None:
    """The counts, where there is one for every chunk."""
    counts = record.chunk_tokens
    return counts if counts is not None and len(counts) == len(record.gaps_ns) + 1 else None
