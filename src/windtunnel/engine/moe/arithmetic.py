"""Arithmetic whose results do not depend on how the work was cut: batch, order, rank and replica make no difference.

Theory. A matrix product in floating point rounds after each addition, and kernels add in another order for another
batch size, so bits change. Here every number is an integer that is kept in a float: a sum of integers below 2^24 is
exact in float32, and below 2^53 in float64, in whichever order it is made, fused or not. What is no sum is done element
by element: scaling by powers of two, rounding half to even, division and square root, which IEEE 754 defines to the
last bit; and exponentials, which it does not define, are looked up in tables of integers. So a token's result is a
function of the token and its context alone.

| what | range | greatest sum |
| --- | --- | --- |
| activations | ±127 | |
| weights | ±7 | 127 · 7 · inner size: exact in float32 up to an inner size of 18,000 |
| residual stream | ±32,767 | squares: in float64 |
| scores of attention | 127² · head size | float32 up to a head size of 1,000 |
| attention's probabilities | 0 to 2^16 | 2^16 · 127 · context: in float64 |
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.float32]
"""Integer values, kept in float32."""

MOST_ACTIVATION = 127
MOST_WEIGHT = 7
MOST_RESIDUAL = 32767
EXACT_FLOAT32 = 1 << 24

PROBABILITY_ONE = 1 << 16
GATE_ONE = 1 << 8
_STEPS_PER_E = 16
"""A step of an exponential's table is 1/16 of a natural logarithm."""


def _exponentials() -> NDArray[np.float64]:
    """`round(2^16 · e^(-i/16))` for i = 0, 1, …, until it is 0."""
    num_steps = int(np.ceil(np.log(2 * PROBABILITY_ONE) * _STEPS_PER_E)) + 1
    table: NDArray[np.float64] = np.rint(PROBABILITY_ONE * np.exp(-np.arange(num_steps) / _STEPS_PER_E))
    table[-1] = 0
    return table


EXPONENTIALS = _exponentials()
"""Made once for a process; rounded to integers, so that another machine's `exp` gives the same."""

_SILU = np.rint([x / (1 + np.exp(-x / 16)) for x in range(-MOST_ACTIVATION, MOST_ACTIVATION + 1)]).astype(np.float32)


def exact_inner_size(most_left: int = MOST_ACTIVATION, most_right: int = MOST_WEIGHT) -> int:
    """The longest inner dimension of a product of such numbers that float32 adds up exactly."""
    return (EXACT_FLOAT32 - 1) // (most_left * most_right)


def requantized(sums: Integers, shift: int, most: int = MOST_ACTIVATION) -> Integers:
    """`sums / 2^shift`, rounded half to even and clipped to ±most. In place."""
    sums *= np.float32(2.0**-shift)
    np.rint(sums, out=sums)
    return np.clip(sums, -most, most, out=sums)


def normalized(residual: Integers, gain: Integers) -> Integers:
    """RMSNorm of [tokens, hidden] to activations, `gain` [hidden] in 64ths."""
    wide = residual.astype(np.float64)
    mean_square = np.einsum("th,th->t", wide, wide) / residual.shape[1]
    wide *= gain
    wide /= np.sqrt(mean_square + 1.0)[:, None] * 2.0
    np.rint(wide, out=wide)
    return np.clip(wide, -MOST_ACTIVATION, MOST_ACTIVATION, out=wide).astype(np.float32)


def silu(values: Integers) -> Integers:
    """x · sigmoid(x / 16) of activations, by table."""
    result: Integers = _SILU[values.astype(np.int16) + MOST_ACTIVATION]
    return result


def exponentials(differences: NDArray[Any], shift: int) -> NDArray[np.float64]:
    """`2^16 · e^(-differences / 2^shift / 16)`, integers; differences are ≥ 0, and infinite ones give 0."""
    steps = np.minimum(np.rint(differences * 2.0**-shift), len(EXPONENTIALS) - 1)
    return EXPONENTIALS[steps.astype(np.intp)]


def rotated(values: Integers, cosines: Integers, sines: Integers) -> Integers:
    """Rotary embedding of [tokens, heads, size] by tables [tokens, 1, size / 2] in 127ths."""
    half = values.shape[-1] // 2
    first, second = values[..., :half], values[..., half:]
    result = np.empty_like(values)
    result[..., :half] = first * cosines - second * sines
    result[..., half:] = first * sines + second * cosines
    return requantized(result, 7)


def rotary_tables(max_positions: int, head_size: int, base: float = 10_000.0) -> tuple[Integers, Integers]:
    """Cosines and sines [positions, head size / 2], in 127ths."""
    frequencies = base ** (-np.arange(0, head_size, 2) / head_size)
    angles = np.outer(np.arange(max_positions), frequencies)
    return np.rint(127 * np.cos(angles)).astype(np.float32), np.rint(127 * np.sin(angles)).astype(np.float32)


def chosen_experts(logits: Integers, top_k: int) -> tuple[NDArray[np.intp], Integers]:
    """The `top_k` experts of each token [tokens, top_k], and their shares in 256ths; ties go to the lower expert."""
    order = np.argsort(-logits, axis=1, kind="stable")[:, :top_k]
    best = np.take_along_axis(logits, order, axis=1)
    weights = exponentials(best[:, :1] - best, shift=3)
    shares = np.rint(GATE_ONE * weights / weights.sum(axis=1, keepdims=True))
    return order, shares.astype(np.float32)
