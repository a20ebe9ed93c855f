"""What the policy `windtunnel` may do where: constraints, checked and brought into the form that its kernels take.

A part is a set of ranks and the experts that live on them and nowhere else: the whole layer or, where expert groups
stay on one node, a node with its groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow

from windtunnel.eplb.policies import Constraints
from windtunnel.eplb.policies.kernels import Layer, Layout
from windtunnel.eplb.topology import Topology
from windtunnel.errors import EplbInputError, TooFewSlots

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Part:
    """Ranks and the experts that live on them."""

    layout: Layout
    """Ranks, experts and slots are counted within the part."""
    ranks: Ints
    """The topology's number of each rank."""
    experts: Ints
    """The model's number of each expert."""
    slots: Ints
    """`rank * width + slot` of each slot, as the topology has it."""
    spread: str
    """What a fault domain is: rank or node."""

    @cached_property
    def least(self) -> Ints:
        """Replicas that each expert must have."""
        pinned, domains = self.layout.pinned, self._pinned_domains.sum(axis=0)
        return np.asarray(pinned.sum(axis=0) + np.maximum(self.layout.min_domains - domains, 0), np.int64)

    @cached_property
    def pins(self) -> Ints:
        """A row with nothing but what is pinned."""
        row = np.full(len(self.slots), -1)
        for rank, pinned in enumerate(self.layout.pinned):
            experts = np.flatnonzero(pinned)
            row[self.layout.first[rank] : self.layout.first[rank] + len(experts)] = experts
        return row

    @cached_property
    def fewest(self) -> Ints:
        """A row with nothing but what must be there. Raises TooFewSlots where there is none.

        A maximum flow: from each expert to the domains that it is not pinned to, and into their free slots.
        """
        num_experts, pinned = len(self.experts), self._pinned_domains
        num_domains = len(pinned)
        row = self.pins.copy()
        free = np.bincount(self.layout.domain_of[self.layout.rank_of[row < 0]], minlength=num_domains)
        needed = np.maximum(self.layout.min_domains - pinned.sum(axis=0), 0)
        domain, expert = np.nonzero(~pinned)
        source, sink = 0, 1 + num_experts + num_domains
        starts = np.concatenate([np.full(num_experts, source), 1 + expert, 1 + num_experts + np.arange(num_domains)])
        ends = np.concatenate([1 + np.arange(num_experts), 1 + num_experts + domain, np.full(num_domains, sink)])
        capacity = np.concatenate([needed, np.ones(len(expert), np.int64), free]).astype(np.int32)
        flow = maximum_flow(csr_array((capacity, (starts, ends)), shape=(sink + 1, sink + 1)), source, sink)
        if flow.flow_value < needed.sum():
            raise self.too_few_slots()
        goes = flow.flow.toarray()[1 : 1 + num_experts, 1 + num_experts : sink]
        for expert_, domain_ in np.argwhere(goes > 0):
            row[np.flatnonzero((row < 0) & (self.layout.domain_of[self.layout.rank_of] == domain_))[0]] = expert_
        return row

    def layer(self, tokens: Floats, row: Ints) -> Layer:
        """A layer's state, yet to be counted (`kernels.recount`); `tokens` of the part's experts."""
        ranks, experts = self.layout.pinned.shape
        return Layer(
            tokens=np.ascontiguousarray(tokens),
            row=row.astype(np.int64),
            counts=np.zeros(experts, np.int64),
            held=np.zeros((ranks, experts), bool),
            in_domain=np.zeros((len(self._pinned_domains), experts), np.int64),
            loads=np.zeros(ranks),
        )

    def too_few_slots(self) -> TooFewSlots:
        """The error for a part whose slots do not hold what must be there."""
        replicas = self.layout.min_domains
        reason = "one for each expert" if replicas == 1 else f"{replicas} for each expert, on different {self.spread}s"
        if self.layout.pinned.any():
            reason += ", and the pinned ones"
        return TooFewSlots(int(self.least.sum()), len(self.slots), len(self.ranks), reason)

    @cached_property
    def _pinned_domains(self) -> NDArray[np.bool_]:
        """Which domain has a pinned replica of which expert."""
        domains = np.zeros((int(self.layout.domain_of.max()) + 1, len(self.experts)), bool)
        rank, expert = np.nonzero(self.layout.pinned)
        domains[self.layout.domain_of[rank], expert] = True
        return domains


def whole(topology: Topology, constraints: Constraints, num_experts: int) -> Part:
    """All live ranks that have slots, and all experts. Raises EplbInputError and TooFewSlots."""
    ranks = np.flatnonzero(topology.live_slots_per_rank)
    if not len(ranks):
        raise TooFewSlots(num_experts, 0, len(topology.live_ranks), "one for each expert")
    return _part(topology, constraints, ranks, np.arange(num_experts), _pinned(topology, constraints, num_experts))


def of_nodes(
    topology: Topology, constraints: Constraints, num_experts: int, node_of_group: Sequence[int] | Ints
) -> list[Part]:
    """The nodes that have groups, with those. Raises EplbInputError and TooFewSlots."""
    pinned = _pinned(topology, constraints, num_experts)
    node_of_expert = np.repeat(node_of_group, num_experts // topology.num_groups)
    has_slots = np.array(topology.live_slots_per_rank) > 0
    parts = []
    for node in np.unique(node_of_expert):
        ranks = np.flatnonzero((np.array(topology.node_of_rank) == node) & has_slots)
        parts.append(_part(topology, constraints, ranks, np.flatnonzero(node_of_expert == node), pinned))
    return parts


def groups_on_nodes(topology: Topology, constraints: Constraints, tokens: Floats) -> Ints:
    """The node of each expert group of a layer, by the tokens of its experts: the heaviest first, to the coldest ranks.

    A node takes as many groups as its slots hold. Raises EplbInputError and TooFewSlots.
    """
    size = len(tokens) // topology.num_groups
    ranks, room = _room_for_groups(topology, constraints, size)
    of_groups = tokens.reshape(topology.num_groups, size).sum(axis=1)
    out = np.full(topology.num_groups, -1)
    carried = np.zeros(topology.num_nodes)
    pinned = _pinned_groups(topology, constraints, size)
    for group in [*pinned, *(group for group in np.argsort(-of_groups, kind="stable") if group not in pinned)]:
        per_rank = np.where(room > 0, (carried + of_groups[group]) / np.maximum(ranks, 1), np.inf)
        node = pinned.get(group, int(np.argmin(per_rank)))
        if room[node] == 0:
            reason = f"groups of {size} experts stay on one node each"
            needed = len(tokens) * constraints.min_replicas
            raise TooFewSlots(needed, topology.num_slots, len(topology.live_ranks), reason)
        out[group] = node
        carried[node] += of_groups[group]
        room[node] -= 1
    return out


def groups_fit(topology: Topology, constraints: Constraints, num_experts: int, node_of_group: Ints) -> bool:
    """Whether groups can stay on these nodes; -1: a group is on none, or on several."""
    if node_of_group.min() < 0:
        return False
    size = num_experts // topology.num_groups
    _, room = _room_for_groups(topology, constraints, size)
    is_room = (np.bincount(node_of_group, minlength=topology.num_nodes) <= room).all()
    pinned = _pinned_groups(topology, constraints, size)
    return bool(is_room) and all(node_of_group[group] == node for group, node in pinned.items())


def _room_for_groups(topology: Topology, constraints: Constraints, size: int) -> tuple[Ints, Ints]:
    """The ranks with slots, and the groups that fit, of each node.

    Experts that need a number of replicas on different ranks fit where the ranks' slots, of each no more than there are
    experts, add up to all replicas. Of pins, those beyond the replicas needed take a slot each.
    """
    node_of_rank, slots = np.array(topology.node_of_rank), np.array(topology.live_slots_per_rank)
    replicas = constraints.min_replicas
    for pinned in (constraints.pinned or {}).values():
        for rank in sorted({rank for rank in pinned if topology.live[rank]})[replicas:]:
            slots[rank] -= 1
    room = np.zeros(topology.num_nodes, np.int64)
    for node in range(topology.num_nodes):
        of_node = np.maximum(slots[node_of_rank == node], 0)
        for groups in range(1, topology.num_groups + 1):
            if np.minimum(of_node, groups * size).sum() >= groups * size * replicas:
                room[node] = groups
    ranks = np.bincount(node_of_rank[np.array(topology.live_slots_per_rank) > 0], minlength=topology.num_nodes)
    return ranks, room


def check_groups(topology: Topology, constraints: Constraints, num_experts: int) -> None:
    """Raise EplbInputError where groups can't be kept."""
    if num_experts % topology.num_groups:
        problem = f"{num_experts} experts in {topology.num_groups} groups do not divide"
        raise EplbInputError("num_groups", problem, "A group has equally many experts; or leave out keep_groups.")
    if constraints.spread == "node" and constraints.min_replicas > 1:
        problem = f"a group stays on one node, and has replicas on {constraints.min_replicas}"
        raise EplbInputError("keep_groups", problem, "Leave out keep_groups, or spread replicas over ranks.")


def _pinned_groups(topology: Topology, constraints: Constraints, size: int) -> dict[int, int]:
    """The node of each group with pinned experts."""
    node_of_group: dict[int, int] = {}
    for expert, ranks in sorted((constraints.pinned or {}).items()):
        for rank in ranks:
            node = topology.node_of_rank[rank]
            if topology.live[rank] and node_of_group.setdefault(expert // size, node) != node:
                problem = f"group {expert // size} is pinned to nodes {node_of_group[expert // size]} and {node}"
                raise EplbInputError("pinned", problem, "Pin a group's experts to one node, or leave out keep_groups.")
    return node_of_group


def _part(
    topology: Topology,
    constraints: Constraints,
    ranks: NDArray[np.intp],
    experts: NDArray[np.intp],
    pinned: NDArray[np.bool_],
) -> Part:
    widths = np.array(topology.live_slots_per_rank)[ranks]
    domains = ranks if constraints.spread == "rank" else np.array(topology.node_of_rank)[ranks]
    names, domain_of = np.unique(domains, return_inverse=True)
    slots = np.concatenate([rank * topology.width + np.arange(n) for rank, n in zip(ranks, widths, strict=True)])
    layout = Layout(
        first=np.concatenate([[0], np.cumsum(widths)]).astype(np.int64),
        rank_of=np.repeat(np.arange(len(ranks)), widths),
        domain_of=domain_of.astype(np.int64),
        pinned=np.ascontiguousarray(pinned[np.ix_(ranks, experts)]),
        min_domains=constraints.min_replicas,
    )
    part = Part(layout, ranks, experts, slots, constraints.spread)
    if constraints.min_replicas > len(names):
        are = "has" if len(names) == 1 else "have"
        problem = (
            f"{constraints.min_replicas} replicas on different {constraints.spread}s, and {len(names)} {are} slots"
        )
        raise EplbInputError("min_replicas", problem, f"Ask for fewer, or let more {constraints.spread}s join.")
    if part.least.sum() > len(slots):
        raise part.too_few_slots()
    return part


def _pinned(topology: Topology, constraints: Constraints, num_experts: int) -> NDArray[np.bool_]:
    """Which rank must hold which expert [ranks, experts]; what is pinned to a dead rank waits until it lives."""
    if constraints.min_replicas < 1:
        raise EplbInputError("min_replicas", f"{constraints.min_replicas} replicas", "An expert has at least one.")
    pinned = np.zeros((topology.num_ranks, num_experts), bool)
    for expert, ranks in (constraints.pinned or {}).items():
        if not 0 <= expert < num_experts:
            raise EplbInputError("pinned", f"there is no expert {expert}", f"Experts are 0 to {num_experts - 1}.")
        for rank in ranks:
            if not 0 <= rank < topology.num_ranks:
                problem = f"expert {expert} is pinned to rank {rank}"
                raise EplbInputError("pinned", problem, f"Ranks are 0 to {topology.num_ranks - 1}.")
            pinned[rank, expert] = topology.live[rank]
    over = np.flatnonzero(pinned.sum(axis=1) > topology.live_slots_per_rank)
    if len(over):
        rank = over[0]
        problem = f"{pinned[rank].sum()} experts for the {topology.slots_per_rank[rank]} slots of rank {rank}"
        raise EplbInputError("pinned", problem, "Pin fewer to it, or give it more slots.")
    return pinned
