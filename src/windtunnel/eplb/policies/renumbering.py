"""Which rank takes which part of a new plan: ranks that are alike change numbers, so that most experts stay."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from windtunnel.eplb.policies.kernels import in_common

Bools = NDArray[np.bool_]
Indices = NDArray[np.intp]


def renumbered(home: Bools, held: Bools, kinds: list[Hashable], nodes: list[int] | None) -> Indices:
    """For each rank, the rank whose experts of the new plan it takes.

    `home` and `held` [ranks, experts]: what is in place, and what is planned. Only ranks of one kind change places.
    `nodes`: a node's ranks stay together, on that node or on another with ranks of the same kinds; None: nodes do not
    matter. The assignments are the best ones (by scipy's `linear_sum_assignment`).
    """
    kept = in_common(home, held)  # [what is in place, what is planned]
    everything = np.arange(len(kinds))
    if nodes is None:
        return _assigned(kept, kinds, everything, everything)[0]
    members = [everything[np.array(nodes) == node] for node in sorted(set(nodes))]
    shapes = [sorted(str(kinds[rank]) for rank in of_node) for of_node in members]
    inner, worth = {}, np.full((len(members), len(members)), -1.0)
    for place, ranks in enumerate(members):
        for planned, others in enumerate(members):
            if shapes[place] == shapes[planned]:
                inner[place, planned], worth[place, planned] = _assigned(kept, kinds, ranks, others)
    out = everything.copy()
    shape_of = ["/".join(shape) for shape in shapes]
    for shape in sorted(set(shape_of)):
        alike = np.array([node for node, its in enumerate(shape_of) if its == shape])
        places, planned_nodes = linear_sum_assignment(worth[np.ix_(alike, alike)], maximize=True)
        for place, planned in zip(alike[places], alike[planned_nodes], strict=True):
            out[members[place]] = inner[place, planned]
    return out


def _assigned(
    kept: NDArray[np.int64], kinds: list[Hashable], ranks: Indices, planned: Indices
) -> tuple[Indices, float]:
    """For each of `ranks` one of `planned` of its kind, and how many experts stay in place."""
    out, total = ranks.copy(), 0.0
    for kind in dict.fromkeys(kinds[rank] for rank in ranks):
        mine = np.array([place for place, rank in enumerate(ranks) if kinds[rank] == kind])
        theirs = np.array([rank for rank in planned if kinds[rank] == kind])
        matrix = kept[np.ix_(ranks[mine], theirs)]
        rows, columns = linear_sum_assignment(matrix, maximize=True)
        out[mine[rows]] = theirs[columns]
        total += float(matrix[rows, columns].sum())
    return out, total
