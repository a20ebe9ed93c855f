"""Bounds and conditions as people write them."""

import pytest

from windtunnel.drill.bounds import Bound, parse_bound, parse_condition


@pytest.mark.parametrize(
    ("written", "holds", "breaks"),
    [
        (0, 0, 1),
        ("< 5", 4.9, 5),
        ("<=5", 5, 5.1),
        ("> 0", 1, 0),
        (">= 2", 2, 1),
        ("!= 3", 2, 3),
        ("== 3", 3, 2),
        ("7", 7, 8),
    ],
)
def test_a_bound_holds_for_what_it_says_and_not_for_its_other_side(
    written: float | str, holds: float, breaks: float
) -> None:
    bound = parse_bound(written)
    assert bound.holds(holds) and not bound.holds(breaks)


def test_no_bound_holds_for_a_figure_that_is_absent() -> None:
    assert not any(parse_bound(written).holds(None) for written in (0, "< 5", "!= 3"))


def test_the_bound_of_a_duration_may_have_a_unit() -> None:
    assert parse_bound("< 500ms", is_duration=True) == Bound("<", 0.5)
    with pytest.raises(ValueError, match="is no bound"):
        parse_bound("< 500ms")


@pytest.mark.parametrize("written", ["", "< ", "=< 5", "five", "< nan", "< inf"])
def test_what_is_no_bound_says_what_may_be_written(written: str) -> None:
    with pytest.raises(ValueError, match="is no bound"):
        parse_bound(written)


def test_a_condition_is_a_metric_with_or_without_labels_and_a_bound() -> None:
    assert parse_condition("completed >= 100") == ("completed", Bound(">=", 100.0))
    assert parse_condition('vllm:requests{model="a b"}<3') == ('vllm:requests{model="a b"}', Bound("<", 3.0))
    with pytest.raises(ValueError, match="is no condition"):
        parse_condition("completed")


def test_bounds_are_shown_as_they_are_read() -> None:
    assert [str(parse_bound(written)) for written in (0, "<5", ">= 0.25")] == ["0", "< 5", ">= 0.25"]
