"""A client's result file against the truth in its texts."""

from __future__ import annotations

import pytest

from overhead.distortion import distortion, figures, read_tokens

MS = 1_000_000
ARRIVAL_NS = 1_800_000_000 * 10**9


def truth(*sends_ms: float) -> str:
    sends = [ARRIVAL_NS + round(ms * MS) for ms in sends_ms]
    return f" {ARRIVAL_NS}:{sends[0]}" + "".join(f" {send}" for send in sends[1:])


def document(*requests: tuple[float, list[float], str]) -> dict[str, list[object]]:
    ttfts, itls, texts = zip(*requests, strict=True)
    return {"ttfts": list(ttfts), "itls": list(itls), "generated_texts": list(texts)}


def test_tokens_are_read_to_the_nanosecond() -> None:
    arrival_ns, sends_ns = read_tokens(" 1796080547721793731:1796080547771941696 1796080547781951864")
    assert arrival_ns == 1796080547721793731
    assert sends_ns.tolist() == [1796080547771941696, 1796080547781951864]


def test_a_first_token_that_was_seen_late_has_a_positive_error_and_one_seen_early_a_negative() -> None:
    found = distortion(document((0.053, [0.010], truth(50, 60)), (0.049, [0.010], truth(50, 60))))
    assert found.ttft_errors_ms == pytest.approx([3, -1])
    assert found.true_ttfts_ms == pytest.approx([50, 50])


def test_a_gap_is_as_wrong_too_short_as_too_long() -> None:
    found = distortion(document((0.050, [0.012, 0.008, 0.015], truth(50, 60, 70, 85))))
    assert found.itl_errors_ms == pytest.approx([2, 2, 0])
    assert found.true_gaps_ms == pytest.approx([10, 10, 15])


def test_requests_that_failed_or_lost_gaps_are_counted_and_left_out() -> None:
    failed = (0.0, [], "")
    lost_a_gap = (0.050, [0.010], truth(50, 60, 70))
    good = (0.051, [0.010], truth(50, 60))
    found = distortion(document(failed, lost_a_gap, good))
    assert found.num_unusable == 2
    assert found.ttft_errors_ms == pytest.approx([1])


def test_the_figures_are_percentiles_over_all_requests() -> None:
    found = distortion(document(*((0.050 + ms / 1e3, [0.010], truth(50, 60)) for ms in range(101))))
    told = figures(found)
    assert told["ttft_error_mean_ms"] == pytest.approx(50)
    assert told["ttft_error_p99_ms"] == pytest.approx(99)
    assert told["ttft_error_max_ms"] == pytest.approx(100)
    assert told["itl_error_p99_ms"] == pytest.approx(0, abs=1e-9)


def test_a_run_without_a_usable_request_has_no_error_figures() -> None:
    assert figures(distortion(document((0.0, [], "")))) == {"unusable_requests": 1}
