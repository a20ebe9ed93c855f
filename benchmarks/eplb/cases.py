"""What the policies are measured on: five models' shapes, four loads, a static problem and one that drifts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Load = NDArray[np.float64]
TOKENS = 1e6
"""Of a layer in a load."""


class Shape(NamedTuple):
    """A model, and the ranks that it is spread over."""

    layers: int
    experts: int
    slots: int
    ranks: int
    nodes: int
    groups: int


SHAPES = {
    "A": Shape(58, 256, 288, 32, 4, 8),
    "B": Shape(58, 256, 320, 64, 8, 8),
    "C": Shape(58, 256, 288, 144, 18, 8),
    "D": Shape(26, 64, 80, 8, 1, 1),
    "E": Shape(94, 128, 144, 16, 2, 1),
}
LOADS = ("zipf 0.6", "zipf 0.9", "zipf 1.2", "lognormal 1.0")
DRIFT_LOADS = ("zipf 0.9", "lognormal 1.0")
DRIFT_PLANS = 5


def static_load(shape: Shape, kind: str, seed: int) -> Load:
    """Tokens of each expert [layers, experts]; in each layer another order."""
    rng = np.random.default_rng([seed, LOADS.index(kind)])
    name, parameter = kind.split()
    if name == "zipf":
        falling = np.arange(1, shape.experts + 1) ** -float(parameter)
        load = np.stack([rng.permutation(falling) for _ in range(shape.layers)])
    else:
        load = rng.lognormal(0, float(parameter), (shape.layers, shape.experts))
    return load / load.sum(axis=1, keepdims=True) * TOKENS


def drifting_load(shape: Shape, kind: str, sigma: float, seed: int) -> Iterator[Load]:
    """A load, and what becomes of it: each step multiplies each expert's by a lognormal of `sigma`."""
    load = static_load(shape, kind, seed)
    rng = np.random.default_rng([seed, 100 + LOADS.index(kind)])
    while True:
        yield load
        load = load * rng.lognormal(0, sigma, load.shape)


def engine_slots(shape: Shape) -> NDArray[np.int64]:
    """As engines begin [layers, slots]: the experts in order, then again from the first."""
    return np.tile(np.arange(shape.slots) % shape.experts, (shape.layers, 1))
