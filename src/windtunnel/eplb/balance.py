"""How well a placement shares the load: rank loads, balancedness, and what a change would move."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from windtunnel.eplb.placement import EMPTY, Placement
from windtunnel.eplb.policies import Explanation
from windtunnel.eplb.topology import Topology
from windtunnel.errors import EplbInputError


def checked_load(load: ArrayLike, dtype: type[Any] = np.float64, field: str = "load") -> NDArray[Any]:
    """The load [layers, experts] as floats that are finite, not negative, and can be summed.

    `dtype` is the precision in which a policy reckons. Raises EplbInputError, which names the first place.
    """
    given = np.asarray(load)
    if given.ndim != 2 or 0 in given.shape:
        raise EplbInputError(field, f"shape {given.shape}", "Its axes are [layers, experts], none of them empty.")
    if given.dtype.kind not in "iuf":
        raise EplbInputError(field, f"dtype {given.dtype}", "Tokens are whole numbers or floats.")
    most = np.finfo(dtype).max / given.shape[1]
    wrong = np.argwhere(~((given >= 0) & (given.astype(np.float64) <= most)))  # NaN is neither
    if len(wrong):
        layer, expert = wrong[0]
        problem = f"layer {layer}, expert {expert} has {given[layer, expert]} tokens"
        raise EplbInputError(
            field, problem, f"It is finite (sums are at most {np.finfo(dtype).max:.0e}), not negative."
        )
    return given.astype(dtype)


def rank_loads(load: NDArray[np.float64], placement: Placement, *, weighted: bool = False) -> NDArray[np.float64]:
    """Tokens that each rank gets in a step [layers, ranks], split evenly over replicas or by the placement's shares."""
    slots = placement.slots
    layer = np.arange(slots.shape[0])[:, None, None]
    expert = np.maximum(slots, 0)
    share = placement.share if weighted else 1 / np.maximum(placement.replica_counts[layer, expert], 1)
    tokens = np.where(slots == EMPTY, 0, np.asarray(load, np.float64)[layer, expert] * share)
    return np.asarray(tokens.sum(axis=2))


def balancedness(load: NDArray[np.float64], placement: Placement) -> float:
    """Mean over layers of mean rank load ÷ maximum rank load, tokens split evenly over replicas."""
    return _balancedness(rank_loads(load, placement), placement)


def balancedness_weighted(load: NDArray[np.float64], placement: Placement) -> float:
    """The same, tokens split by the placement's shares."""
    return _balancedness(rank_loads(load, placement, weighted=True), placement)


def _balancedness(loads: NDArray[np.float64], placement: Placement) -> float:
    used = (placement.slots != EMPTY).any(axis=(0, 2))
    most = loads.max(axis=1)
    mean = loads.sum(axis=1) / max(int(used.sum()), 1)  # ranks without any expert have no part in this
    return float(np.where(most > 0, mean / np.where(most > 0, most, 1), 1.0).mean())


def holders(placement: Placement) -> NDArray[np.bool_]:
    """Which rank holds which expert [layers, ranks, experts]."""
    layers, ranks, _ = placement.slots.shape
    held = np.zeros((layers, ranks, placement.num_experts), bool)
    layer, rank, slot = np.nonzero(placement.slots != EMPTY)
    held[layer, rank, placement.slots[layer, rank, slot]] = True
    return held


def arrivals(before: Placement, after: Placement) -> NDArray[np.int64]:
    """How many experts are new to each rank, over all layers [ranks]."""
    new: NDArray[np.int64] = (holders(after) & ~holders(before)).sum(axis=(0, 2), dtype=np.int64)
    return new


def copies_between(before: Placement, after: Placement) -> int:
    """How many experts are new to a rank, over all layers and ranks: what has to be sent."""
    return int(arrivals(before, after).sum())


def explained(
    policy: str,
    load: NDArray[np.float64],
    topology: Topology,
    committed: Placement | None,
    placement: Placement,
    stopped: Mapping[str, int],
) -> Explanation:
    """What a policy tells of a placement whose tokens are split evenly; without a committed one, nothing is sent."""
    copies = 0 if committed is None else copies_between(committed, placement)
    return Explanation(
        policy=policy,
        balancedness=balancedness(load, placement),
        balancedness_before=None if committed is None else balancedness(load, committed),
        copies=copies,
        moved_ratio=copies / (topology.num_slots * placement.num_layers),
        stopped=dict(stopped),
    )
