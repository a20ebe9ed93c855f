"""How an expert's tokens are split over the replicas that it has: the cheapest rebalancing, since no byte moves."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import csr_array

from windtunnel.eplb.balance import checked_load
from windtunnel.eplb.placement import EMPTY, Placement
from windtunnel.errors import EplbInputError


def split_tokens(load_mean: NDArray[np.float64], placement: Placement) -> Placement:
    """Give the placement the shares under which the hottest rank of each layer has least to do.

    `load_mean` [layers, experts], in tokens. The slots stay as they are. Experts without load keep an even split, as
    do replicas that share a rank. Raises EplbInputError.
    """
    load = checked_load(load_mean)
    if load.shape != (placement.num_layers, placement.num_experts):
        problem = f"shape {load.shape} for {placement.num_layers} layers of {placement.num_experts} experts"
        raise EplbInputError("load", problem, "Its axes are the placement's [layers, experts].")
    shares = np.stack([_layer_shares(of_layer, slots) for of_layer, slots in zip(load, placement.slots, strict=True)])
    return Placement.of(
        placement.slots,
        placement.num_experts,
        slots_per_rank=placement.slots_per_rank,
        share=shares,
        epoch=placement.epoch,
    )


def _layer_shares(load: NDArray[np.float64], slots: NDArray[np.int32]) -> NDArray[np.float64]:
    """Shares [ranks, width] of one layer's slots."""
    rank, slot = np.nonzero(slots != EMPTY)
    expert = slots[rank, slot]
    # an unknown is the part of an expert's tokens that a rank gets, whatever the number of its slots for it
    pairs, of_slot, slots_of_pair = np.unique(rank * len(load) + expert, return_inverse=True, return_counts=True)
    part = _parts(load, pairs // len(load), pairs % len(load), slots_of_pair, len(slots))
    shares = np.zeros(slots.shape)
    shares[rank, slot] = (part / slots_of_pair)[of_slot]
    return shares


def _parts(
    load: NDArray[np.float64],
    rank: NDArray[np.intp],
    expert: NDArray[np.intp],
    slots_of_pair: NDArray[np.intp],
    num_ranks: int,
) -> NDArray[np.float64]:
    """The part of its expert's tokens for each pair of a rank and an expert, by a linear program.

    Minimise t, where each rank's tokens are at most t, and each expert's parts add up to 1.
    """
    even = slots_of_pair / np.bincount(expert, slots_of_pair, len(load))[expert]
    tokens = load[expert]
    free = (np.bincount(expert, minlength=len(load))[expert] > 1) & (tokens > 0)
    if not free.any():
        return even
    unit = load.sum() / num_ranks  # numbers near 1 keep the solver's tolerances meaningful
    fixed = np.bincount(rank[~free], (tokens * even)[~free], num_ranks) / unit
    experts, row = np.unique(expert[free], return_inverse=True)
    unknowns = len(row)
    column = np.arange(unknowns)
    limits = csr_array(
        (
            np.concatenate([tokens[free] / unit, np.full(num_ranks, -1.0)]),
            (np.concatenate([rank[free], np.arange(num_ranks)]), np.append(column, np.full(num_ranks, unknowns))),
        ),
        shape=(num_ranks, unknowns + 1),
    )
    wholes = csr_array((np.ones(unknowns), (row, column)), shape=(len(experts), unknowns + 1))
    found = linprog(
        np.append(np.zeros(unknowns), 1.0),
        A_ub=limits,
        b_ub=-fixed,
        A_eq=wholes,
        b_eq=np.ones(len(experts)),
        method="highs",
    )
    if not found.success:  # it has a solution, the even split: only the solver's own limits can end it so
        return even
    parts = np.clip(found.x[:-1], 0, 1)
    out = even.copy()
    out[free] = parts / np.bincount(row, parts)[row]
    return out
