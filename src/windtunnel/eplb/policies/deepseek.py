"""DeepSeek's expert-parallel load balancer, as published (github.com/deepseek-ai/EPLB, `rebalance_experts`).

It is here to be compared with: it plans from scratch each time, and neither looks at what is in place nor keeps
replicas of an expert on different ranks. Equal to the published one slot for slot, and like it in single precision
throughout (how a group's sum is rounded may differ where tokens are no whole numbers). What the published one
does layer by layer is done for all layers at once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from windtunnel.eplb.balance import checked_load, explained
from windtunnel.eplb.placement import EMPTY, Placement
from windtunnel.eplb.policies import Budget, Constraints, Explanation, Load
from windtunnel.eplb.topology import Topology
from windtunnel.errors import EplbInputError, TooFewSlots

_INSTEAD = "The policy windtunnel can."

Singles = NDArray[np.float32]
Indices = NDArray[np.intp]


class _Shape(NamedTuple):
    """What the algorithm counts with."""

    groups: int
    nodes: int
    ranks: int
    slots: int
    """Of all ranks."""


def plan(
    load: Load, topology: Topology, committed: Placement | None, constraints: Constraints, budget: Budget
) -> tuple[Placement, Explanation]:
    """Plan hierarchically where the groups divide by the nodes, and otherwise over all ranks at once.

    Hierarchically: expert groups are packed to nodes, replicas made within each node, and packed to its ranks; so all
    replicas of an expert stay on one node. Raises EplbInputError where slots, ranks, groups or experts do not divide,
    or where something is asked for that the algorithm does not know (constraints, budgets); TooFewSlots.
    """
    ranks = _ranks(topology)
    nodes = len({topology.node_of_rank[rank] for rank in ranks})
    if topology.num_groups % nodes:
        return plan_flat(load, topology, committed, constraints, budget)
    _refuse_what_it_does_not_know(constraints, budget, "deepseek", keeps_groups=True)
    shape = _Shape(topology.num_groups, nodes, len(ranks), len(ranks) * topology.slots_per_rank[ranks[0]])
    return _planned("deepseek", load, topology, ranks, shape, committed)


def plan_flat(
    load: Load, topology: Topology, committed: Placement | None, constraints: Constraints, budget: Budget
) -> tuple[Placement, Explanation]:
    """Plan over all ranks at once, as if they stood on one node and the model had no groups.

    Raises EplbInputError and TooFewSlots like `plan`.
    """
    _refuse_what_it_does_not_know(constraints, budget, "deepseek-flat", keeps_groups=False)
    ranks = _ranks(topology)
    shape = _Shape(1, 1, len(ranks), len(ranks) * topology.slots_per_rank[ranks[0]])
    return _planned("deepseek-flat", load, topology, ranks, shape, committed)


def _planned(
    name: str, load: Load, topology: Topology, ranks: list[int], shape: _Shape, committed: Placement | None
) -> tuple[Placement, Explanation]:
    weights = checked_load(load.mean, np.float32)
    layers, experts = weights.shape
    _check_shape(shape, experts, topology)
    width = shape.slots // shape.ranks
    slots = np.full((layers, topology.num_ranks, topology.width), EMPTY, np.int32)
    slots[:, ranks, :width] = experts_of_slots(weights, shape).reshape(layers, shape.ranks, width)
    epoch = 0 if committed is None else committed.epoch + 1
    placement = Placement.of(slots, experts, slots_per_rank=topology.slots_per_rank, epoch=epoch)
    mean, stopped = np.asarray(load.mean, np.float64), {"replanned": layers}
    return placement, explained(name, mean, topology, committed, placement, stopped)


def experts_of_slots(weights: Singles, shape: _Shape) -> Indices:
    """The logical expert of each slot [layers, slots], by the load [layers, experts]."""
    layers, experts = weights.shape
    group_size, groups_per_node = experts // shape.groups, shape.groups // shape.nodes
    slots_per_rank = shape.slots // shape.ranks

    # groups to nodes: `order` lists a layer's experts node by node
    of_groups = weights.reshape(layers, shape.groups, group_size).sum(axis=-1)
    node, place = _packed(of_groups, shape.nodes)
    position = ((node * groups_per_node + place) * group_size)[..., None] + np.arange(group_size)
    order = _inverse(position.reshape(layers, experts))

    # replicas within each node: a row is one node of one layer, experts are counted within the row
    by_node = np.take_along_axis(weights, order, axis=1).reshape(layers * shape.nodes, -1)
    replicas, counts = _replicated(by_node, shape.slots // shape.nodes)

    # replicas to the node's ranks
    shares = np.take_along_axis(by_node / counts, replicas, axis=1)
    rank, place = _packed(shares, shape.ranks // shape.nodes)
    in_slots = np.take_along_axis(replicas, _inverse(rank * slots_per_rank + place), axis=1)

    first = np.arange(shape.nodes) * (experts // shape.nodes)
    in_layer = (in_slots.reshape(layers, shape.nodes, -1) + first[:, None]).reshape(layers, -1)
    return np.take_along_axis(order, in_layer, axis=1)


def _packed(weights: Singles, packs: int) -> tuple[Indices, Indices]:
    """Pack items [rows, items] into packs of equally many: each item's pack, and its place there.

    The heaviest item first, into the lightest pack that has room; of equals the first.
    """
    rows, items = weights.shape
    size = items // packs
    if size == 1:
        return np.tile(np.arange(items), (rows, 1)), np.zeros((rows, items), np.intp)
    heaviest_first = np.argsort(-weights, axis=1, kind="stable")
    pack_of, place_of = np.empty((rows, items), np.intp), np.empty((rows, items), np.intp)
    carried = np.zeros((rows, packs), np.float32)
    filled = np.zeros((rows, packs), np.intp)
    row = np.arange(rows)
    for item in heaviest_first.T:
        pack = np.argmin(carried, axis=1)
        place = filled[row, pack]
        pack_of[row, item], place_of[row, item] = pack, place
        filled[row, pack] = place + 1
        total = carried[row, pack] + weights[row, item]
        carried[row, pack] = np.where(place + 1 == size, np.float32(np.inf), total)  # a full pack takes no more
    return pack_of, place_of


def _replicated(weights: Singles, slots: int) -> tuple[Indices, NDArray[np.float32]]:
    """Replicate experts [rows, experts] to as many as there are slots: each replica's expert, each expert's replicas.

    Each further replica goes to the expert with the largest load per replica; of equals the first.
    """
    rows, experts = weights.shape
    replicas = np.tile(np.arange(slots), (rows, 1))
    counts = np.ones((rows, experts), np.float32)
    shares = weights.copy()
    row = np.arange(rows)
    for slot in range(experts, slots):
        hottest = np.argmax(shares, axis=1)
        replicas[:, slot] = hottest
        counts[row, hottest] += 1
        shares[row, hottest] = weights[row, hottest] / counts[row, hottest]
    return replicas, counts


def _inverse(permutations: Indices) -> Indices:
    """Of each row."""
    out = np.empty_like(permutations)
    np.put_along_axis(out, permutations, np.arange(permutations.shape[1])[None], axis=1)
    return out


# --- what it can't do, said -----------------------------------------------------------------------------------------


def _ranks(topology: Topology) -> list[int]:
    """The live ranks with slots, node by node; raises EplbInputError where they differ in slots."""
    slots = topology.live_slots_per_rank
    ranks = sorted((r for r in topology.live_ranks if slots[r]), key=lambda rank: (topology.node_of_rank[rank], rank))
    if not ranks:
        raise EplbInputError("slots_per_rank", "no live rank has a slot", "Give the ranks slots.")
    different = {slots[rank] for rank in ranks}
    if len(different) > 1:
        problem = f"ranks have {' and '.join(map(str, sorted(different)))} slots"
        raise EplbInputError("slots_per_rank", problem, f"DeepSeek's algorithm needs equal ones. {_INSTEAD}")
    return ranks


def _check_shape(shape: _Shape, experts: int, topology: Topology) -> None:
    if shape.slots < experts:
        raise TooFewSlots(experts, shape.slots, shape.ranks, "one for each expert")
    if experts % shape.groups:
        remedy = f"A group has equally many experts. {_INSTEAD}"
        raise EplbInputError("num_groups", f"{experts} experts in {shape.groups} groups do not divide", remedy)
    if shape.nodes == 1:
        return
    nodes = [topology.node_of_rank[rank] for rank in _ranks(topology)]
    of_nodes = {nodes.count(node) for node in nodes}
    if len(of_nodes) > 1:
        problem = f"nodes have {' and '.join(map(str, sorted(of_nodes)))} live ranks"
        raise EplbInputError("nodes", problem, "Hierarchically, nodes are equal. deepseek-flat and windtunnel can.")


def _refuse_what_it_does_not_know(constraints: Constraints, budget: Budget, name: str, *, keeps_groups: bool) -> None:
    asked = {
        "min_replicas": constraints.min_replicas > 1,
        "pinned": bool(constraints.pinned),
        "keep_groups": constraints.keep_groups and not keeps_groups,
        "moved_ratio": budget.moved_ratio is not None,
        "bytes_per_rank": budget.bytes_per_rank is not None,
        "full_replan": budget.full_replan is False,
    }
    for field, is_asked in asked.items():
        if is_asked:
            raise EplbInputError(field, f"the policy {name} can't keep to it", _INSTEAD)
