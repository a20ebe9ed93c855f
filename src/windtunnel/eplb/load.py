"""What experts had to do lately: the tokens of each logical expert, step by step, over a window.

An engine adds the counts of each step; a policy reads their mean and their noise. Which tokens count is the engine's
affair: padding and warm-up steps are left out before the counts come here.
"""

from __future__ import annotations

import threading
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from windtunnel.errors import EplbInputError

MOST_TOKENS = float(2**63)
"""Of one expert in a step; more is taken for a mistake. Sums and squares over a window stay finite below it."""
_WINDOW_STEPS = 1000
_FIELD = "load"

Floats = NDArray[np.float64]


class LoadWindow:
    """The load of the latest steps, or of all steps with old ones fading. A `Load` for policies.

    `window_steps` keeps as many steps (default: 1000) in one array of float64 [steps, layers, experts], made at the
    start. `decay` instead weighs each step by that factor against the one after it, and keeps three arrays [layers,
    experts]. Both are exact for whole numbers below 2^53.

    Any thread may add, and any may read. An `add` waits for another `add`, and for a reader at most as long as the
    statistics of one layer take; so layers that are read while steps are added may differ by a step.

    Raises EplbInputError.
    """

    def __init__(
        self, layers: int, experts: int, *, window_steps: int | None = None, decay: float | None = None
    ) -> None:
        for field, value in (("layers", layers), ("experts", experts), ("window_steps", window_steps)):
            if value is not None and value < 1:
                raise EplbInputError(field, f"{value}", "There is at least one.")
        if decay is not None and window_steps is not None:
            raise EplbInputError("decay", "both decay and window_steps are given", "Give one of the two.")
        if decay is not None and not 0 < decay < 1:
            raise EplbInputError("decay", f"{decay}", "It lies between 0 and 1, e.g. 0.999.")
        self.shape = (layers, experts)
        self._lock = threading.Lock()
        self._kept: _Kept
        if decay is not None:
            self._kept = _Decayed(self.shape, decay)
        else:
            self._kept = _Sliding(self.shape, _WINDOW_STEPS if window_steps is None else window_steps)

    @classmethod
    def of(cls, load: ArrayLike) -> LoadWindow:
        """A window of a recorded load: [steps, layers, experts], or [layers, experts] as one step."""
        steps = recorded(load)
        window = cls(steps.shape[1], steps.shape[2], window_steps=len(steps))
        for counts in steps:
            window._add([counts])
        return window

    def add(self, *counts: ArrayLike) -> None:
        """Add a step: tokens of each logical expert [layers, experts], whole numbers or floats.

        Several arrays are what several ranks counted in that step: their sum counts. Raises EplbInputError,
        naming the first place, for a wrong shape, NaN, infinite and negative values; nothing is added then.
        """
        if not counts:
            raise EplbInputError(_FIELD, "no counts are given", "Give the counts of at least one rank.")
        of_rank = "rank {}, " if len(counts) > 1 else ""
        self._add([_checked(each, self.shape, of_rank.format(rank)) for rank, each in enumerate(counts)])

    @property
    def mean(self) -> Floats:
        """Tokens of each expert in a step [layers, experts]; 0 before the first step."""
        out = np.zeros(self.shape)
        for layer in range(self.shape[0]):
            with self._lock:
                out[layer] = self._kept.mean(layer)
        return out

    @property
    def noise(self) -> Floats:
        """The standard deviation of a step's load around the mean, in tokens [layers, experts].

        0 before the second step: nothing is known of it then, and no policy should stop at it.
        """
        out = np.zeros(self.shape)
        for layer in range(self.shape[0]):
            with self._lock:
                out[layer] = self._kept.noise(layer)
        return out

    @property
    def steps(self) -> int:
        """How many steps the window holds; of a decayed one, how many were added."""
        return self._kept.steps

    def _add(self, counts: list[NDArray[Any]]) -> None:
        with self._lock:
            self._kept.add(counts)


def recorded(load: ArrayLike) -> NDArray[Any]:
    """A recorded load, checked, as [steps, layers, experts]; one of [layers, experts] is one step.

    Raises EplbInputError, naming the first place that is wrong.
    """
    array = np.asarray(load)
    if array.ndim == 2:
        array = array[None]
    if array.ndim != 3:
        remedy = "Its axes are [layers, experts] or [steps, layers, experts]."
        raise EplbInputError(_FIELD, f"{array.ndim} axes", remedy)
    if 0 in array.shape:
        raise EplbInputError(_FIELD, f"shape {array.shape}", "No axis may be empty.")
    for step, counts in enumerate(array):
        _checked(counts, array.shape[1:], f"step {step}, ")
    return array


class _Kept(Protocol):
    """How a window keeps its steps. Counts that come here are checked."""

    steps: int

    def add(self, counts: list[NDArray[Any]]) -> None: ...
    def mean(self, layer: int) -> Floats: ...
    def noise(self, layer: int) -> Floats: ...


class _Sliding:
    """The latest steps, in a ring."""

    def __init__(self, shape: tuple[int, int], window_steps: int) -> None:
        self.ring = np.full((window_steps, *shape), 0.0)  # its pages are there before the serving loop needs them
        self.steps = 0
        self.next = 0

    def add(self, counts: list[NDArray[Any]]) -> None:
        place = self.ring[self.next]
        place[...] = counts[0]
        for more in counts[1:]:
            place += more
        self.next = (self.next + 1) % len(self.ring)
        self.steps = min(self.steps + 1, len(self.ring))

    def mean(self, layer: int) -> Floats:
        mean: Floats = self.ring[: self.steps, layer].mean(axis=0) if self.steps else np.zeros(self.ring.shape[2])
        return mean

    def noise(self, layer: int) -> Floats:
        if self.steps < 2:
            return np.zeros(self.ring.shape[2])
        deviation: Floats = self.ring[: self.steps, layer].std(axis=0, ddof=1)
        return deviation


class _Decayed:
    """Weighted mean and variance, a step's weight being `decay` to the power of its age.

    Incremental, after D. H. D. West, "Updating mean and variance estimates: an improved method" (1979).
    """

    def __init__(self, shape: tuple[int, int], decay: float) -> None:
        self.decay = decay
        self.steps = 0
        self.weight = 0.0
        self.weight_of_squares = 0.0
        self.means = np.zeros(shape)
        self.squares = np.zeros(shape)
        """Weighted squares of the distances to the mean."""
        self.distance = np.zeros(shape)

    def add(self, counts: list[NDArray[Any]]) -> None:
        faded = self.decay * self.weight
        self.weight = faded + 1
        self.weight_of_squares = self.decay**2 * self.weight_of_squares + 1
        distance = self.distance
        np.subtract(counts[0], self.means, out=distance)
        for more in counts[1:]:
            distance += more
        self.means += distance / self.weight
        self.squares *= self.decay
        distance *= distance
        distance *= faded / self.weight
        self.squares += distance
        self.steps += 1

    def mean(self, layer: int) -> Floats:
        mean: Floats = self.means[layer]
        return mean

    def noise(self, layer: int) -> Floats:
        # the weights' own count of independent steps, less the one that the mean took; a rounding error is none
        divisor = self.weight - self.weight_of_squares / self.weight if self.steps > 1 else 0.0
        deviation: Floats = np.sqrt(self.squares[layer] / divisor) if divisor > 0 else np.zeros(self.means.shape[1])
        return deviation


def _checked(counts: ArrayLike, shape: tuple[int, ...], where: str) -> NDArray[Any]:
    """The counts as an array; raises EplbInputError, with `where` before the place."""
    try:
        array = np.asarray(counts)
    except (TypeError, ValueError, RuntimeError) as error:  # ragged lists, tensors on a device
        raise EplbInputError(_FIELD, f"{where}no array of numbers: {error}", "Give a numpy array.") from error
    if array.dtype.kind not in "iuf":
        raise EplbInputError(_FIELD, f"{where}dtype {array.dtype}", "Counts are whole numbers or floats.")
    if array.shape != shape:
        problem = f"{where}shape {array.shape} in a window of {shape}"
        raise EplbInputError(_FIELD, problem, "Its axes are [layers, experts].")
    if not (float(array.min()) >= 0 and float(array.max()) <= MOST_TOKENS):  # false for NaN too
        layer, expert = np.argwhere(~((array >= 0) & (array.astype(np.float64) <= MOST_TOKENS)))[0]
        problem = f"{where}layer {layer}, expert {expert} has {array[layer, expert]} tokens"
        raise EplbInputError(_FIELD, problem, "A load is finite, not negative, and at most 2^63.")
    return array
