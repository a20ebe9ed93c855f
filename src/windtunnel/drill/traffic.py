"""A drill's requests as users saw them: when each was in flight, when each token came. Pure.

Instants are float64 seconds since the load's begin. Axis `n` is requests, `t` is tokens' arrivals in their order, `l`
is lulls between tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from windtunnel.measure.columns import Bools, Columns, Floats, Ints
from windtunnel.measure.rates import good
from windtunnel.measure.record import COMPLETED_ENDINGS, Record
from windtunnel.measure.run import RunEnd, RunFacts
from windtunnel.report.drill import Phase, Series
from windtunnel.units import NS_PER_S

_BINS_S = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
_MOST_BINS = 400


@dataclass(frozen=True, slots=True)
class Traffic:
    """What was sent, and what came back. What windtunnel cancelled itself is in flight, and neither failed nor good."""

    sent: Floats
    """[n] sorted by nothing; requests that were never sent are not there."""
    done: Floats
    """[n]"""
    failed: Bools
    """[n]"""
    good: Bools
    """[n] completed, and kept the load's --goodput bounds."""
    retried: Bools
    """[n]"""
    changed: Bools
    """[n] its text differs from the reference run's."""
    first_token: Floats
    """[n] NaN where none came."""
    token_at: Floats
    """[t] ascending"""
    token_num: Floats
    """[t] tokens that came together."""
    token_request: Ints
    """[t]"""
    token_gap: Floats
    """[t] since the request's last ones; NaN for its first."""
    lull_begin: Floats
    """[l] of each time between tokens, of whatever request, in which requests were in flight without a break."""
    lull_end: Floats
    """[l]"""

    @classmethod
    def of(
        cls,
        records: Sequence[Record],
        changed: Sequence[bool],
        facts: RunFacts,
        end: RunEnd,
        bounds_ms: Mapping[str, float],
    ) -> Traffic:
        """Of records whose instants are on one clock; `end` says where that begins."""
        kept = [i for i, record in enumerate(records) if record.sent_ns is not None]
        sent_records = [records[i] for i in kept]
        columns = Columns.of(sent_records, facts, end)
        at, num, request, gap = _arrivals(columns)
        order = np.argsort(at, kind="stable")
        sent = columns.sent / NS_PER_S
        done = np.where(np.isnan(columns.done), end.duration_s, columns.done / NS_PER_S)
        token_at = at[order] / NS_PER_S
        lull_begin, lull_end = _lulls(sent, done, token_at)
        ending = columns.endings
        return cls(
            sent=sent,
            done=done,
            failed=np.array([e not in (*COMPLETED_ENDINGS, "cancelled") for e in ending], dtype=bool),
            good=good(columns, bounds_ms),
            retried=np.array([record.attempts > 1 for record in sent_records], dtype=bool),
            changed=np.array([changed[i] for i in kept], dtype=bool),
            first_token=columns.first_token / NS_PER_S,
            token_at=token_at,
            token_num=num[order],
            token_request=request[order],
            token_gap=gap[order] / NS_PER_S,
            lull_begin=lull_begin,
            lull_end=lull_end,
        )

    @property
    def end_s(self) -> float:
        """When the last request was over."""
        return float(self.done.max(initial=0.0))

    def touching(self, begin_s: float, end_s: float) -> Bools:
        """[n] in flight at some time of a stretch."""
        return (self.sent < end_s) & (self.done >= begin_s)

    def in_flight_s(self, instants: Floats) -> Floats:
        """The time that all requests together were in flight up to each instant."""
        return _elapsed(np.sort(self.sent), instants) - _elapsed(np.sort(self.done), instants)

    def tokens_until(self, instants: Floats, *, of_good: bool = False) -> Floats:
        """Tokens that had come by each instant; with `of_good` only those of requests that were good in the end."""
        num = np.where(self.good[self.token_request], self.token_num, 0.0) if of_good else self.token_num
        return _up_to(self.token_at, np.cumsum(num), instants)

    def ended_until(self, instants: Floats, *, failed: bool) -> Floats:
        """Requests that were over by each instant, or those that failed."""
        at = np.sort(self.done[self.failed] if failed else self.done)
        return np.searchsorted(at, instants, side="right").astype(np.float64)

    def worst_gap_s(self, begin_s: float, end_s: float) -> float | None:
        """The longest time of a stretch without any token while requests were in flight; None where none were."""
        long = np.minimum(self.lull_end, end_s) - np.maximum(self.lull_begin, begin_s)
        return float(long.max()) if len(long) and long.max() > 0 else None

    def phase(self, begin_s: float, end_s: float) -> Phase | None:
        """How service was in a stretch; None where it has no length."""
        if end_s <= begin_s:
            return None
        over = (self.done >= begin_s) & (self.done < end_s)
        first = (self.first_token >= begin_s) & (self.first_token < end_s)
        ttft_ms = (self.first_token - self.sent)[first] * 1e3
        itl_ms = self.token_gap[(self.token_at >= begin_s) & (self.token_at < end_s) & ~np.isnan(self.token_gap)] * 1e3
        tokens = np.diff(self.tokens_until(np.array([begin_s, end_s])))[0]
        return Phase(
            begin_s=begin_s,
            end_s=end_s,
            requests=int(over.sum()),
            failed=int((over & self.failed).sum()),
            tokens_per_s=float(tokens / (end_s - begin_s)),
            median_ttft_ms=_percentile(ttft_ms, 50),
            p99_ttft_ms=_percentile(ttft_ms, 99),
            median_itl_ms=_percentile(itl_ms, 50),
            p99_itl_ms=_percentile(itl_ms, 99),
            worst_gap_s=self.worst_gap_s(begin_s, end_s),
        )

    def series(self) -> Series:
        """Bin by bin."""
        bin_s = next((each for each in _BINS_S if self.end_s / each <= _MOST_BINS), _BINS_S[-1])
        edges = np.asarray(np.arange(int(self.end_s / bin_s) + 2) * bin_s, dtype=np.float64)
        return Series(
            bin_s=bin_s,
            tokens_per_s=(np.diff(self.tokens_until(edges)) / bin_s).tolist(),
            in_flight=(np.diff(self.in_flight_s(edges)) / bin_s).tolist(),
            failed=np.diff(self.ended_until(edges, failed=True)).astype(int).tolist(),
        )


def _lulls(sent: Floats, done: Floats, token_at: Floats) -> tuple[Floats, Floats]:
    begins, ends = [np.empty(0)], [np.empty(0)]
    for busy_from, busy_to in _busy(sent, done):
        inside = token_at[np.searchsorted(token_at, busy_from) : np.searchsorted(token_at, busy_to)]
        begins.append(np.concatenate(([busy_from], inside)))
        ends.append(np.concatenate((inside, [busy_to])))
    return np.concatenate(begins), np.concatenate(ends)


def _busy(sent: Floats, done: Floats) -> list[tuple[float, float]]:
    """The stretches in which requests were in flight without a break."""
    merged: list[tuple[float, float]] = []
    for i in np.argsort(sent, kind="stable"):
        begin, end = float(sent[i]), float(done[i])
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((begin, end))
    return merged


def _arrivals(c: Columns) -> tuple[Floats, Floats, Ints, Floats]:
    """Of each chunk: its instant (ns), its tokens, its request, and the gap before it (ns), NaN for a first one."""
    request = c.gap_request
    since_start = np.concatenate(([0], np.cumsum(c.gaps)))
    since_first = since_start[1:] - since_start[c.gap_offsets[request]]
    first = np.flatnonzero(~np.isnan(c.first_token))
    return (
        np.concatenate((c.first_token[first], c.first_token[request] + since_first)),
        np.concatenate((np.nan_to_num(c.first_tokens[first], nan=1.0), c.gap_tokens)),
        np.concatenate((first, request)),
        np.concatenate((np.full(len(first), np.nan), c.gaps.astype(np.float64))),
    )


def _elapsed(since: Floats, instants: Floats) -> Floats:
    """Σ max(0, instant − begin) over all begins, which are sorted."""
    count = np.searchsorted(since, instants, side="right")
    return count * instants - np.concatenate(([0.0], np.cumsum(since)))[count]


def _up_to(at: Floats, total: Floats, instants: Floats) -> Floats:
    found: Floats = np.concatenate(([0.0], total))[np.searchsorted(at, instants, side="right")]
    return found


def _percentile(values: Floats, q: float) -> float | None:
    return float(np.percentile(values, q)) if len(values) else None
