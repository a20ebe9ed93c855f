"""Ratios pair by pair, and the table."""

from __future__ import annotations

import pytest

from overhead.comparison import Spread, aligned, compare, ratios, table

RUNS = {
    "peer": [{"cpu_s": 2.0, "wall_s": 4.0}, {"cpu_s": 4.0, "wall_s": 4.0}, {"cpu_s": 1.0, "wall_s": 4.0}],
    "ours": [{"cpu_s": 1.0, "wall_s": 6.0}, {"cpu_s": 4.0, "wall_s": 5.0}, {"cpu_s": 0.8, "wall_s": 7.0}],
}


def row(label: str) -> list[str]:
    return next(cells for cells in table(RUNS, "peer") if cells[0].startswith(label))


def test_a_run_is_divided_by_its_neighbour_not_by_the_median() -> None:
    assert ratios(RUNS, "ours", "peer", "cpu_s") == pytest.approx([0.5, 1.0, 0.8])


def test_pairs_without_a_meaningful_ratio_are_left_out() -> None:
    runs = {"peer": [{"x": 0.0}, {"x": -1.0}, {}, {"x": 2.0}], "ours": [{"x": 1.0}, {"x": 1.0}, {"x": 1.0}, {"x": 1.0}]}
    assert ratios(runs, "ours", "peer", "x") == [0.5]


def test_the_comparison_keeps_median_and_spread_of_what_was_measured() -> None:
    told = compare(RUNS, "peer")
    assert told["ours"]["cpu_s"] == {"median": pytest.approx(0.8), "least": 0.5, "greatest": 1.0}
    assert "ttft_error_mean_ms" not in told["ours"]


def test_a_loss_stays_in_the_table_and_is_called_one() -> None:
    assert row("wall time")[-1] == "1.5 (1.25–1.75) worse"
    assert row("processor time, user")[-1] == "0.8 (0.5–1)"


def test_a_figure_that_no_run_has_is_a_dash() -> None:
    assert row("TTFT error mean")[1:] == ["–", "–", "–"]


def test_without_a_peer_there_are_no_ratios() -> None:
    assert table({"ours": RUNS["ours"]}, None)[0] == ["figure", "ours"]


def test_columns_stand_under_their_heads() -> None:
    assert aligned([["figure", "ours"], ["cpu", "1.25"]]) == "figure  ours\n------------\ncpu     1.25"


def test_small_and_large_values_are_told_without_an_exponent() -> None:
    assert str(Spread(1234.5, 0.00042, 12.345)) == "1234 (0.00042–12.3)"
