"""What has to move to get from one placement to another, and in which steps.

A step is what one transaction does. Its copies land in staging and stay there until the step is over, so a step asks
for no more copies of a rank than it has staging buffers, and where a layer needs more, the layer takes several steps,
none of which takes an expert's last replica away. Sources are those that there are when the step begins: what an
earlier step overwrote is none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from windtunnel.eplb.links import choose_sources, deal_batches
from windtunnel.eplb.placement import EMPTY, Placement
from windtunnel.eplb.topology import Topology
from windtunnel.errors import EplbInputError, ExpertLost

WEIGHT_SOURCE = -1
"""The rank of a source that is no rank: the checkpoint."""


class Source(Struct, frozen=True, array_like=True):
    """Where a copy can be read from."""

    rank: int
    """WEIGHT_SOURCE: the checkpoint; the target's own rank: a local move."""
    slot: int = -1


class Copy(Struct, frozen=True, array_like=True):
    """One expert of one layer, all its tensors as one group, into one slot."""

    layer: int
    expert: int
    rank: int
    """The target's."""
    slot: int
    """The target's."""
    sources: tuple[Source, ...]
    """Best first: the rank itself, replicas on the same node, other replicas, then the weight source."""
    batch: int = 0
    """A rank begins with its copies of a batch when it is done with those of the batch before."""


class Drop(NamedTuple):
    """A replica that goes without another expert coming in its place."""

    layer: int
    expert: int
    rank: int
    slot: int


class Link(NamedTuple):
    """What is read from one rank by another; `source` is WEIGHT_SOURCE for the checkpoint."""

    source: int
    target: int
    copies: int
    num_bytes: int
    crosses_nodes: bool


@dataclass(frozen=True)
class LinkSpeeds:
    """Bytes per second that one rank can send, and at the same time receive; for estimates of time only."""

    within_node: float = 100e9
    between_nodes: float = 25e9
    weight_source: float = 1e9


@dataclass(frozen=True)
class Step:
    """What one transaction does."""

    target: Placement
    copies: tuple[Copy, ...]
    layers: tuple[int, ...]
    """Those that change."""


@dataclass(frozen=True)
class Plan:
    """The way from `base` to `target`. No steps: there is nothing to do."""

    base: Placement
    target: Placement
    steps: tuple[Step, ...]
    topology: Topology
    group_bytes: tuple[int, ...]
    """Of one expert in each layer."""
    speeds: LinkSpeeds = field(default_factory=LinkSpeeds)

    @property
    def copies(self) -> list[Copy]:
        """Of all steps, in order."""
        return [copy for step in self.steps for copy in step.copies]

    @property
    def local_moves(self) -> list[Copy]:
        """Copies from a slot of the rank itself."""
        return [copy for copy in self.copies if copy.sources[0].rank == copy.rank]

    @cached_property
    def drops(self) -> list[Drop]:
        """Replicas that go without another expert coming in their place."""
        gone = np.argwhere((self.base.slots != EMPTY) & (self.target.slots == EMPTY))
        return [Drop(int(x), int(self.base.slots[x, r, s]), int(r), int(s)) for x, r, s in gone]

    @property
    def num_bytes(self) -> int:
        """What is copied, local moves too, each from its best source."""
        return sum(self.group_bytes[copy.layer] for copy in self.copies)

    @cached_property
    def links(self) -> list[Link]:
        """What each link carries, the busiest first; local moves use none."""
        node = self.topology.node_of_rank
        carried: dict[tuple[int, int], tuple[int, int]] = {}
        for copy in self.copies:
            source = copy.sources[0].rank
            if source != copy.rank:
                count, total = carried.get((source, copy.rank), (0, 0))
                carried[source, copy.rank] = count + 1, total + self.group_bytes[copy.layer]
        links = [
            Link(source, target, *amount, source != WEIGHT_SOURCE and node[source] != node[target])
            for (source, target), amount in carried.items()
        ]
        return sorted(links, key=lambda link: (-link.num_bytes, link.source, link.target))

    @property
    def estimated_s(self) -> float:
        """How long the bytes take at `speeds`, steps one after the other; what the protocol takes comes on top."""
        return sum(_step_s(step, self) for step in self.steps)


def make_plan(
    base: Placement,
    target: Placement,
    topology: Topology,
    *,
    group_bytes: Sequence[int],
    staging_buffers: Sequence[int],
    max_peers: int = 4,
    layers_per_step: int | None = 1,
    weight_source: bool = False,
    speeds: LinkSpeeds | None = None,
) -> Plan:
    """Plan the copies that turn `base` into `target`: no more than there are slots with another expert.

    `group_bytes` has the bytes of an expert for each layer, `staging_buffers` the buffers of each rank. In a batch of
    copies a rank reads from, or is read by, at most `max_peers` others. A step changes at most `layers_per_step`
    layers (None: as many as staging has room for). With `weight_source`, an expert without a replica, and one whose
    replicas all fail, comes from there.

    Raises EplbInputError where the placements don't fit each other or the ranks that are alive, or where staging is
    too small; ExpertLost where a copy has no source.
    """
    _check(base, target, topology, group_bytes, staging_buffers, max_peers, layers_per_step)
    making = _Making(base, target, topology, weight_source, max_peers)
    pending = making.changes()
    steps: list[Step] = []
    while pending:
        room, counts = list(staging_buffers), _live_counts(making.placement, topology)
        taken: dict[int, list[_Change]] = {}
        for layer, changes in pending.items():
            fitting = _fitting(changes, counts[layer], room)
            if len(fitting) < len(changes) and taken:
                break  # a layer is split only where it doesn't fit a step of its own
            if changes and not fitting:
                raise _too_little_staging(layer, changes, staging_buffers)
            taken[layer] = fitting
            if len(fitting) < len(changes) or len(taken) == layers_per_step:
                break
            room = [left - _arriving(fitting, rank) for rank, left in enumerate(room)]
        steps.append(making.step(taken))
        left = {layer: [c for c in changes if c not in taken.get(layer, ())] for layer, changes in pending.items()}
        pending = {layer: changes for layer, changes in left.items() if changes or layer not in taken}
    return Plan(base, target, tuple(steps), topology, tuple(group_bytes), speeds or LinkSpeeds())


class _Change(NamedTuple):
    """A slot of one layer that shall hold something else."""

    rank: int
    slot: int
    old: int
    new: int


class _Making:
    """Makes steps, one after the other; `placement` is what there is after those that were made."""

    def __init__(
        self, base: Placement, target: Placement, topology: Topology, weight_source: bool, max_peers: int
    ) -> None:
        self.placement = base
        self._target = target
        self._topology = topology
        self._weight_source = weight_source
        self._max_peers = max_peers

    def changes(self) -> dict[int, list[_Change]]:
        """What is to change, by layer; a layer in which only shares change has an empty list."""
        base, target = self.placement, self._target
        differs = base.slots != target.slots
        layers = np.flatnonzero((differs | (base.share != target.share)).any(axis=(1, 2)))
        changes: dict[int, list[_Change]] = {int(layer): [] for layer in layers}
        for layer, rank, slot in np.argwhere(differs).tolist():
            old = base.slots[layer, rank, slot] if self._topology.live[rank] else EMPTY  # nobody reads what died
            new = target.slots[layer, rank, slot]
            changes[layer].append(_Change(rank, slot, int(old), int(new)))
        return changes

    def step(self, taken: dict[int, list[_Change]]) -> Step:
        """The step that makes these changes. Raises ExpertLost."""
        copies = self._copies(taken)
        before, target, layers = self.placement, self._target, list(taken)
        slots = before.slots[layers]
        for row, changes in enumerate(taken.values()):
            for change in changes:
                slots[row, change.rank, change.slot] = change.new
        share = Placement.of(slots, before.num_experts, slots_per_rank=before.slots_per_rank).share.copy()
        done = (slots == target.slots[layers]).all(axis=(1, 2))
        share[done] = target.share[layers][done]
        self.placement = before.with_layers(layers, slots, share, before.epoch)
        pairs = [(copy.sources[0].rank, copy.rank) for copy in copies]
        batches = deal_batches([pair for pair in pairs if pair[0] not in (WEIGHT_SOURCE, pair[1])], self._max_peers)
        numbered = [replace(copy, batch=batches.get(pair, 0)) for copy, pair in zip(copies, pairs, strict=True)]
        return Step(self.placement, tuple(numbered), tuple(layers))

    def _copies(self, taken: dict[int, list[_Change]]) -> list[Copy]:
        live, slots = self._topology.live, self.placement.slots
        wanted = [(layer, c) for layer, changes in taken.items() for c in changes if c.new != EMPTY]
        places = [[(r, s) for r, s in np.argwhere(slots[x] == c.new).tolist() if live[r]] for x, c in wanted]
        bare = {(layer, c.new) for (layer, c), at in zip(wanted, places, strict=True) if not at}
        if bare and not self._weight_source:
            raise ExpertLost(*min(bare), len(bare))
        ranked = choose_sources([c.rank for _, c in wanted], places, self._topology.node_of_rank)
        last = (Source(WEIGHT_SOURCE),) if self._weight_source else ()
        return [
            Copy(layer, c.new, c.rank, c.slot, (*(Source(*at) for at in best), *last))
            for (layer, c), best in zip(wanted, ranked, strict=True)
        ]


def _fitting(changes: list[_Change], replica_counts: NDArray[np.int32], room: Sequence[int]) -> list[_Change]:
    """The changes that can be made together, with `room` buffers on each rank.

    Each change brings those along without which it would take away an expert's last replica.
    """
    counts, left = replica_counts.astype(np.int64), list(room)
    taken: dict[_Change, None] = {}
    for seed in changes:
        if seed not in taken:
            for change in _closure(seed, [c for c in changes if c not in taken], counts, left):
                taken[change] = None
                _count(change, counts, left)
    return list(taken)


def _closure(seed: _Change, changes: list[_Change], counts: NDArray[np.int64], room: list[int]) -> list[_Change]:
    """A change and all that it needs so that no expert is left without a replica; empty: there is no room for it."""
    had, counts, room = counts > 0, counts.copy(), list(room)
    together: list[_Change] = []
    change: _Change | None = seed
    while change:
        together.append(change)
        _count(change, counts, room)
        if room[change.rank] < 0:
            return []
        bare = np.flatnonzero(had & (counts < 1))
        if not len(bare):
            return together
        bringing = [c for c in changes if c.new == bare[0] and c not in together and room[c.rank] > 0]
        change = min(bringing, key=lambda c: c.old != EMPTY and counts[c.old] < 2, default=None)
    return []


def _count(change: _Change, counts: NDArray[np.int64], room: list[int]) -> None:
    if change.old != EMPTY:
        counts[change.old] -= 1
    if change.new != EMPTY:
        counts[change.new] += 1
        room[change.rank] -= 1


def _arriving(changes: list[_Change], rank: int) -> int:
    return sum(change.rank == rank and change.new != EMPTY for change in changes)


def _too_little_staging(layer: int, changes: list[_Change], staging: Sequence[int]) -> EplbInputError:
    """For changes none of which can be made without others for which there is no room."""
    needed = [_arriving(changes, rank) for rank in range(len(staging))]
    rank = max(range(len(staging)), key=lambda r: needed[r] - staging[r])
    problem = f"rank {rank} has {staging[rank]}, and layer {layer} brings it up to {needed[rank]} experts at once"
    return EplbInputError("staging_buffers", problem, "Give each rank more staging buffers.")


def _check(
    base: Placement,
    target: Placement,
    topology: Topology,
    group_bytes: Sequence[int],
    staging_buffers: Sequence[int],
    max_peers: int,
    layers_per_step: int | None,
) -> None:
    like = (*base.slots.shape, base.num_experts, base.slots_per_rank)
    if (*target.slots.shape, target.num_experts, target.slots_per_rank) != like:
        raise EplbInputError(
            "target", f"{target} does not fit {base}", "Layers, experts, ranks and slots are the same."
        )
    if topology.slots_per_rank != base.slots_per_rank:
        problem = f"{list(topology.slots_per_rank)} for a placement with {list(base.slots_per_rank)}"
        raise EplbInputError("slots_per_rank", problem, "Topology and placements have the same ranks and slots.")
    for field_name, given, wanted in (
        ("group_bytes", len(group_bytes), base.num_layers),
        ("staging_buffers", len(staging_buffers), base.num_ranks),
    ):
        if given != wanted:
            raise EplbInputError(field_name, f"{given} entries, not {wanted}", "One for each layer, or for each rank.")
    if max_peers < 1 or (layers_per_step is not None and layers_per_step < 1):
        name, value = ("max_peers", max_peers) if max_peers < 1 else ("layers_per_step", layers_per_step)
        raise EplbInputError(name, f"{value}", "At least 1.")
    used = (target.slots != EMPTY).any(axis=(0, 2))
    dead = [rank for rank in range(topology.num_ranks) if used[rank] and not topology.live[rank]]
    if dead:
        raise EplbInputError("target", f"it puts experts on ranks {dead}, which are not alive", "Plan for live ranks.")
    lost = np.argwhere((_live_counts(base, topology) > 0) & (target.replica_counts == 0))
    if len(lost):
        layer, expert = lost[0]
        problem = f"it drops the last replica of layer {layer}, expert {expert}"
        raise EplbInputError("target", problem, "A target holds each expert that the base holds.")


def _live_counts(placement: Placement, topology: Topology) -> NDArray[np.int32]:
    dead = topology.dead_ranks
    return placement.without_ranks(dead, placement.epoch).replica_counts if dead else placement.replica_counts


def _step_s(step: Step, plan: Plan) -> float:
    """Of the rank that sends or receives longest."""
    node, speeds = plan.topology.node_of_rank, plan.speeds
    sends, receives = [0.0] * len(node), [0.0] * len(node)
    for copy in step.copies:
        source = copy.sources[0].rank
        if source == WEIGHT_SOURCE:
            speed = speeds.weight_source
        else:
            speed = speeds.within_node if node[source] == node[copy.rank] else speeds.between_nodes
        spent_s = plan.group_bytes[copy.layer] / speed
        receives[copy.rank] += spent_s
        if source not in (WEIGHT_SOURCE, copy.rank):
            sends[source] += spent_s
    return max(*sends, *receives)
