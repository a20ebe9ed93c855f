"""How far a client's figures are from the truth that its own result file holds.

The ground-truth server writes into each token the CLOCK_REALTIME nanosecond at which it was sent, and into the first
one also when the request had arrived. So `generated_texts` tell what happened, `ttfts` and `itls` what the client saw.

A time to first token is reported too long by the client's way to the server (connecting, a request that waits in the
client) and by its way back (a read that comes late); its error keeps its sign. A gap can be wrong either way; its error
is absolute.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Milliseconds = NDArray[np.float64]
_NS_PER_MS = 1e6
_MS_PER_S = 1e3


class Distortion(NamedTuple):
    """One run against the truth."""

    ttft_errors_ms: Milliseconds
    """Reported minus true, shape (requests,)."""
    itl_errors_ms: Milliseconds
    """|reported minus true|, shape (gaps of all requests,)."""
    true_ttfts_ms: Milliseconds
    """From the request's arrival to its first token's sending, shape (requests,): how well the server kept its pace."""
    true_gaps_ms: Milliseconds
    num_unusable: int
    """Requests that can't be compared: failed, or with another number of gaps than of tokens."""


def read_tokens(text: str) -> tuple[int, NDArray[np.int64]]:
    """(arrival, send instants of the tokens), in CLOCK_REALTIME ns; raises ValueError when it is no truth."""
    arrival, _, sends = text.strip().partition(":")
    return int(arrival), np.array(sends.split(), dtype=np.int64)


def distortion(document: Mapping[str, Any]) -> Distortion:
    """Compare a detailed result (vLLM's schema) with the truth in its texts."""
    ttft_errors: list[float] = []
    true_ttfts: list[float] = []
    itl_errors: list[Milliseconds] = [np.empty(0)]
    true_gaps: list[Milliseconds] = [np.empty(0)]
    unusable = 0
    for ttft_s, itls_s, text in zip(document["ttfts"], document["itls"], document["generated_texts"], strict=True):
        try:
            arrival_ns, sends_ns = read_tokens(text)
        except ValueError:
            unusable += 1
            continue
        if len(itls_s) != len(sends_ns) - 1:
            unusable += 1
            continue
        true_ttft_ms = (int(sends_ns[0]) - arrival_ns) / _NS_PER_MS
        gaps_ms = np.diff(sends_ns) / _NS_PER_MS
        ttft_errors.append(ttft_s * _MS_PER_S - true_ttft_ms)
        true_ttfts.append(true_ttft_ms)
        itl_errors.append(np.abs(np.array(itls_s) * _MS_PER_S - gaps_ms))
        true_gaps.append(gaps_ms)
    return Distortion(
        np.array(ttft_errors), np.concatenate(itl_errors), np.array(true_ttfts), np.concatenate(true_gaps), unusable
    )


def figures(found: Distortion) -> dict[str, float]:
    """The figures of a run that its result file tells; without a usable request there are none."""
    out: dict[str, float] = {"unusable_requests": found.num_unusable}
    if not found.ttft_errors_ms.size or not found.itl_errors_ms.size:
        return out
    out["ttft_error_mean_ms"] = float(found.ttft_errors_ms.mean())
    for name, quantile in (("p50", 50), ("p99", 99), ("max", 100)):
        out[f"ttft_error_{name}_ms"] = float(np.percentile(found.ttft_errors_ms, quantile))
    for name, quantile in (("p50", 50), ("p99", 99)):
        out[f"itl_error_{name}_ms"] = float(np.percentile(found.itl_errors_ms, quantile))
    out["true_ttft_p99_ms"] = float(np.percentile(found.true_ttfts_ms, 99))
    out["true_gap_p99_ms"] = float(np.percentile(found.true_gaps_ms, 99))
    return out
