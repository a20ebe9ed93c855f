"""The load window: mean and noise of the latest steps, ranks added up, and nothing that makes no sense let in."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from windtunnel.eplb.load import LoadWindow
from windtunnel.errors import EplbInputError


def counts(seed: int, steps: int = 1, layers: int = 3, experts: int = 5) -> NDArray[np.int64]:
    return np.random.default_rng(seed).integers(0, 1000, (steps, layers, experts))


def test_before_the_first_step_mean_and_noise_are_0() -> None:
    for window in (LoadWindow(2, 3), LoadWindow(2, 3, decay=0.9)):
        assert window.steps == 0
        assert not window.mean.any() and not window.noise.any()
        assert window.mean.shape == window.noise.shape == (2, 3)


def test_of_one_step_the_mean_is_that_step_and_nothing_is_known_of_its_noise() -> None:
    step = counts(0)[0]
    for window in (LoadWindow(3, 5), LoadWindow(3, 5, decay=0.9)):
        window.add(step)
        assert np.array_equal(window.mean, step)
        assert not window.noise.any()


@given(st.integers(1, 12), st.integers(1, 6), st.integers(0, 2**32))
def test_a_sliding_window_has_the_mean_and_the_deviation_of_the_latest_steps(steps: int, kept: int, seed: int) -> None:
    all_steps = counts(seed, steps)
    window = LoadWindow(3, 5, window_steps=kept)
    for step in all_steps:
        window.add(step)
    latest = all_steps[-kept:]
    assert window.steps == len(latest)
    assert np.allclose(window.mean, latest.mean(axis=0))
    if len(latest) > 1:
        assert np.allclose(window.noise, latest.std(axis=0, ddof=1))


@given(st.integers(2, 12), st.floats(0.05, 0.999), st.integers(0, 2**32))
def test_a_decayed_window_weighs_each_step_by_its_age(steps: int, decay: float, seed: int) -> None:
    all_steps = counts(seed, steps)
    window = LoadWindow(3, 5, decay=decay)
    for step in all_steps:
        window.add(step)
    weights = decay ** np.arange(steps)[::-1]
    mean = np.average(all_steps, axis=0, weights=weights)
    squares = np.average((all_steps - mean) ** 2, axis=0, weights=weights)
    unbiased = squares / (1 - (weights**2).sum() / weights.sum() ** 2)
    assert window.steps == steps
    assert np.allclose(window.mean, mean)
    assert np.allclose(window.noise, np.sqrt(unbiased), rtol=1e-6, atol=1e-6)


def test_a_load_that_never_changes_has_no_noise_however_large_it_is() -> None:
    for window in (LoadWindow(1, 2, window_steps=4), LoadWindow(1, 2, decay=0.5)):
        for _ in range(9):
            window.add(np.array([[2**53 - 1, 3]]))
        assert window.mean.tolist() == [[2**53 - 1, 3]]
        assert window.noise.tolist() == [[0, 0]]


def test_a_huge_step_leaves_nothing_behind_when_it_has_left_the_window() -> None:
    window = LoadWindow(1, 1, window_steps=2)
    for value in (2.0**63, 3, 5):
        window.add([[value]])
    assert window.mean.item() == 4
    assert window.noise.item() == pytest.approx(np.sqrt(2))


def test_unsigned_and_long_integers_are_counted_in_full() -> None:
    window = LoadWindow(1, 2)
    window.add(np.array([[2**62, 2**32 + 1]], np.uint64))
    assert window.mean.tolist() == [[2**62, 2**32 + 1]]


def test_counts_of_several_ranks_for_one_step_are_added_up() -> None:
    parts = counts(3, 4)
    for window in (LoadWindow(3, 5), LoadWindow(3, 5, decay=0.9)):
        window.add(*parts)
        assert window.steps == 1
        assert np.allclose(window.mean, parts.sum(axis=0))


def test_a_narrow_dtype_does_not_overflow_when_ranks_are_added_up() -> None:
    most = np.full((1, 1), 255, np.uint8)
    for window in (LoadWindow(1, 1), LoadWindow(1, 1, decay=0.9)):
        window.add(most, most)
        assert window.mean.item() == 510


def test_a_recorded_load_makes_a_window_of_all_its_steps() -> None:
    trace = counts(5, 7)
    assert np.allclose(LoadWindow.of(trace).noise, trace.std(axis=0, ddof=1))
    assert LoadWindow.of(trace).steps == 7
    assert np.array_equal(LoadWindow.of(trace[0]).mean, trace[0])


@pytest.mark.parametrize(
    ("value", "words"),
    [(np.nan, "nan"), (np.inf, "inf"), (-np.inf, "-inf"), (-1, "-1.0"), (1e300, "1e\\+300")],
)
def test_what_is_no_number_of_tokens_is_refused_with_its_place_and_nothing_is_added(value: float, words: str) -> None:
    wrong = counts(0)[0].astype(float)
    wrong[2, 4] = value
    for window in (LoadWindow(3, 5), LoadWindow(3, 5, decay=0.5)):
        with pytest.raises(EplbInputError, match=f"load: layer 2, expert 4 has {words} tokens") as refused:
            window.add(wrong)
        assert refused.value.field == "load"
        with pytest.raises(EplbInputError, match="load: rank 1, layer 2, expert 4"):
            window.add(counts(0)[0], wrong)
        with pytest.raises(EplbInputError, match="load: step 1, layer 2, expert 4"):
            LoadWindow.of([counts(0)[0], wrong])
        assert window.steps == 0 and not window.mean.any()


@pytest.mark.parametrize(
    "wrong",
    [
        np.zeros((5, 3)),
        np.zeros(15),
        np.zeros((3, 5), bool),
        np.zeros((3, 5), complex),
        np.full((3, 5), "7"),
        np.full((3, 5), None),
        [[1], [1, 2]],
    ],
    ids=["shape", "axes", "bool", "complex", "text", "object", "ragged"],
)
def test_what_is_no_array_of_counts_is_refused(wrong: NDArray[np.float64]) -> None:
    window = LoadWindow(3, 5)
    with pytest.raises(EplbInputError, match="load: "):
        window.add(wrong)
    with pytest.raises(EplbInputError, match="load: "):
        window.add()
    assert window.steps == 0


@pytest.mark.parametrize("shape", [(5,), (2, 0), (0, 2, 3), (2, 3, 0), (1, 1, 1, 1)])
def test_a_recorded_load_of_another_shape_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(EplbInputError, match="load: "):
        LoadWindow.of(np.zeros(shape))


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"window_steps": 0}, "window_steps"),
        ({"decay": 0.0}, "decay"),
        ({"decay": 1.0}, "decay"),
        ({"decay": float("nan")}, "decay"),
        ({"decay": 0.5, "window_steps": 5}, "decay"),
    ],
)
def test_a_window_that_makes_no_sense_is_refused(options: dict[str, float], field: str) -> None:
    with pytest.raises(EplbInputError) as refused:
        LoadWindow(1, 1, **options)  # type: ignore[arg-type]
    assert refused.value.field == field
    with pytest.raises(EplbInputError, match="experts: 0"):
        LoadWindow(1, 0)


@settings(max_examples=3, deadline=None)
@given(st.booleans())
def test_threads_may_add_and_read_at_once_and_no_step_is_lost(decayed: bool) -> None:
    window = LoadWindow(20, 50, decay=1 - 1e-9) if decayed else LoadWindow(20, 50, window_steps=2000)
    ones = np.ones((20, 50))

    def add() -> None:
        for _ in range(500):
            window.add(ones)

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        assert np.isin(window.mean.round(6), (0, 1)).all()
        assert np.allclose(window.noise, 0)
    for thread in threads:
        thread.join()
    assert window.steps == 2000
