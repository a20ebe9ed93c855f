"""Sums of integers are exact in floats, whatever the order; the rest is defined to the last bit."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.engine.moe.arithmetic import (
    GATE_ONE,
    MOST_ACTIVATION,
    MOST_WEIGHT,
    PROBABILITY_ONE,
    chosen_experts,
    exact_inner_size,
    exponentials,
    normalized,
    requantized,
    silu,
)


@given(st.integers(0, 2**32 - 1), st.integers(1, 40), st.integers(1, 400))
def test_a_product_is_exact_and_the_same_in_any_batch_and_order(seed: int, num_tokens: int, inner: int) -> None:
    rng = np.random.default_rng(seed)
    left = rng.integers(-MOST_ACTIVATION, MOST_ACTIVATION, (num_tokens, inner), endpoint=True)
    right = rng.integers(-MOST_WEIGHT, MOST_WEIGHT, (inner, 33), endpoint=True)
    exact = left @ right
    a, b = left.astype(np.float32), right.astype(np.float32)
    order = rng.permutation(inner)
    assert np.array_equal(a @ b, exact)
    assert np.array_equal(a[:, order] @ b[order], exact)
    assert np.array_equal(np.concatenate([row[None] @ b for row in a]), exact)


def test_the_longest_inner_size_is_exact_and_one_that_is_longer_need_not_be() -> None:
    inner = exact_inner_size()
    ones = np.full((1, inner), MOST_ACTIVATION, np.float32) @ np.full((inner, 1), MOST_WEIGHT, np.float32)
    assert ones[0, 0] == inner * MOST_ACTIVATION * MOST_WEIGHT < 1 << 24 <= (inner + 1) * MOST_ACTIVATION * MOST_WEIGHT


def test_requantizing_rounds_half_to_even_and_clips() -> None:
    sums = np.array([1, 2, 3, 6, -2, 10_000, -10_000], np.float32)
    assert requantized(sums, 2).tolist() == [0, 0, 1, 2, 0, 127, -127]


def test_norms_do_not_depend_on_neighbours() -> None:
    rng = np.random.default_rng(0)
    residual = rng.integers(-32767, 32767, (50, 64)).astype(np.float32)
    gain = np.full(64, 64, np.float32)
    together = normalized(residual, gain)
    assert np.array_equal(together, np.concatenate([normalized(row[None], gain) for row in residual]))
    assert np.array_equal(together, normalized(residual[::-1], gain)[::-1])
    assert 25 < together.std() < 40


def test_tables_are_what_they_stand_for() -> None:
    differences = np.array([0, 16, 32, 1e9, np.inf])
    expected = np.rint(PROBABILITY_ONE * np.exp(-differences / 16))
    assert exponentials(differences, shift=0).tolist() == expected.tolist()
    values = np.arange(-127, 128, dtype=np.float32)
    assert np.abs(silu(values) - values / (1 + np.exp(-values / 16))).max() <= 0.5


def test_ties_between_experts_go_to_the_lower_one_and_shares_add_up() -> None:
    logits = np.array([[5, 9, 9, 9], [0, 0, 0, 0], [1000, 0, 0, -1000]], np.float32)
    chosen, shares = chosen_experts(logits, 2)
    assert chosen.tolist() == [[1, 2], [0, 1], [0, 1]]
    assert shares.tolist() == [[128, 128], [128, 128], [GATE_ONE, 0]]
