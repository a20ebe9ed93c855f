"""What to do after a failure: which experts need a new home, whether to try again, and what the next death would cost.

A rescale has two stages. `cover` is the first: it gives the experts that no live rank holds a slot each, and moves
nothing else, so that all experts serve again after as few copies as possible. Balance comes later, by a policy.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from windtunnel.eplb.placement import EMPTY, Placement
from windtunnel.eplb.topology import Topology
from windtunnel.eplb.transaction.instructions import Outcome
from windtunnel.errors import EplbInputError, TooFewSlots

# --- retry or evict -----------------------------------------------------------------------------------------------


class Decision(NamedTuple):
    """What to do about a transaction that was rolled back."""

    action: Literal["retry", "evict", "give up"]
    reason: str
    after_s: float = 0.0
    """To wait before the retry."""
    ranks: tuple[int, ...] = ()
    """To evict."""


@dataclass(frozen=True)
class RecoveryPolicy:
    """Decides between another try, eviction, and leaving things as they are. Raises EplbInputError."""

    retries: int = 2
    """More tries of a transaction whose culprits are all alive."""
    retry_after_s: float = 0.2
    """The pause before a retry: what made a rank fail may pass."""
    evict_stubborn: bool = False
    """Whether a rank that is alive is evicted when it was to blame for every try. If not, the rebalance is given up and
    the old epoch serves on, with that rank: it can serve tokens even where it can't exchange experts."""

    def __post_init__(self) -> None:
        if self.retries < 0:
            raise EplbInputError("retries", f"{self.retries} retries", "Say 0 for none.")
        if not (self.retry_after_s >= 0 and math.isfinite(self.retry_after_s)):
            raise EplbInputError("retry_after_s", f"{self.retry_after_s} s", "It is a number of seconds, 0 or more.")

    def decide(self, outcome: Outcome, alive: Collection[int], attempts: int) -> Decision:
        """What to do after the `attempts`-th try (from 1) was rolled back, `alive` being the ranks that are members.

        | culprits                          | tries left | decision                |
        | --------------------------------- | ---------- | ----------------------- |
        | one or more are no longer members | any        | evict them              |
        | none, or all are alive            | yes        | retry                   |
        | a minority, alive                 | no         | evict if evict_stubborn |
        | none, or more than half of all    | no         | give up                 |
        """
        culprits = tuple(sorted(set(outcome.culprits)))
        blamed = f"{_names(culprits)} alive" if culprits else "no rank to blame"
        lost = tuple(rank for rank in culprits if rank not in alive)
        if lost:
            return Decision("evict", f"without {_names(lost)} from now on: {outcome.reason}", ranks=lost)
        if attempts <= self.retries:
            reason = f"try {attempts} of {self.retries + 1} failed with {blamed}: {outcome.reason}"
            return Decision("retry", reason, after_s=self.retry_after_s)
        reason = f"{attempts} of {self.retries + 1} tries failed with {blamed}: {outcome.reason}"
        # where most are to blame, the fault is the network's or the coordinator's, and evictions would not mend it
        if self.evict_stubborn and 0 < len(culprits) <= len(alive) / 2:
            return Decision("evict", reason, ranks=culprits)
        return Decision("give up", reason)


def _names(ranks: tuple[int, ...]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"


# --- a home for each expert ---------------------------------------------------------------------------------------


def cover(placement: Placement, topology: Topology) -> Placement:
    """The placement with each missing expert in one slot of a live rank, and as little else changed as can be.

    A missing expert goes into an empty slot, on the rank with the least to do if all experts have the same load; where
    no slot is empty, in place of a spare replica: first of one that has a twin on its rank, then of the expert that has
    the most, then on the rank with the least to do. Slots of dead ranks become empty. Shares stay, but for the experts
    whose replicas changed: theirs are even. The epoch is the next one; where nothing is missing or dead, the placement
    itself comes back. Deterministic. Raises TooFewSlots, EplbInputError.
    """
    slots = _live_slots(placement, topology)
    counts = Placement.of(slots, placement.num_experts, slots_per_rank=placement.slots_per_rank).replica_counts
    holes = np.flatnonzero((counts == 0).any(axis=1))
    if len(holes) and topology.num_slots < placement.num_experts:
        reason = f"one for each of {placement.num_experts} experts"
        raise TooFewSlots(placement.num_experts, topology.num_slots, len(topology.live_ranks), reason)
    for layer in holes:
        _cover_layer(slots[layer], counts[layer].copy(), topology)
    if np.array_equal(slots, placement.slots):
        return placement
    even = Placement.of(slots, placement.num_experts, slots_per_rank=placement.slots_per_rank)
    share = np.where(_touched(placement, slots), even.share, placement.share)
    return Placement.of(
        slots,
        placement.num_experts,
        slots_per_rank=placement.slots_per_rank,
        share=share,
        epoch=placement.epoch + 1,
    )


def _live_slots(placement: Placement, topology: Topology) -> NDArray[np.int32]:
    """A copy of the slots, those of dead ranks empty."""
    if placement.slots_per_rank != topology.slots_per_rank:
        problem = f"slots {list(topology.slots_per_rank)} for a placement with {list(placement.slots_per_rank)}"
        raise EplbInputError("topology", problem, "Placement and topology have the same ranks.")
    slots = placement.slots.copy()
    slots[:, ~np.asarray(topology.live)] = EMPTY
    return slots


def _cover_layer(slots: NDArray[np.int32], counts: NDArray[np.int32], topology: Topology) -> None:
    """Put the experts whose count is 0 into `slots` [ranks, width] of one layer, in place; there is room for all."""
    usable = np.arange(slots.shape[1]) < np.asarray(topology.live_slots_per_rank)[:, None]
    for expert in np.flatnonzero(counts == 0):
        place = _best_place(slots, counts, usable)
        displaced = slots[place]
        if displaced != EMPTY:
            counts[displaced] -= 1
        slots[place] = expert
        counts[expert] = 1


def _best_place(slots: NDArray[np.int32], counts: NDArray[np.int32], usable: NDArray[np.bool_]) -> tuple[int, int]:
    """The (rank, slot) that a missing expert takes."""
    empty = slots == EMPTY
    replicas = np.where(empty, 1, counts[slots])
    rank_loads = np.broadcast_to(np.where(empty, 0, 1 / replicas).sum(axis=1)[:, None], slots.shape)
    free = np.flatnonzero(empty & usable)
    if len(free):
        place = free[np.argmin(rank_loads.flat[free])]
    else:
        spare = np.flatnonzero(replicas > 1)
        twin = (slots[:, :, None] == slots[:, None, :]).sum(axis=2) > 1
        place = spare[np.lexsort((rank_loads.flat[spare], -replicas.flat[spare], ~twin.flat[spare]))[0]]
    rank, slot = divmod(int(place), slots.shape[1])
    return rank, slot


def _touched(placement: Placement, slots: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Which slots hold nothing, or an expert whose replicas are elsewhere than in the placement."""
    changed = placement.slots != slots
    layer = np.broadcast_to(np.arange(slots.shape[0])[:, None, None], slots.shape)
    # one more than there are experts: what is empty, -1, counts as touched
    touched = np.zeros((slots.shape[0], placement.num_experts + 1), np.bool_)
    touched[layer[changed], placement.slots[changed]] = True
    touched[layer[changed], slots[changed]] = True
    touched[:, EMPTY] = True
    return touched[layer, slots]


# --- what the next death would cost -------------------------------------------------------------------------------


class Survivability(NamedTuple):
    """How many experts the next death would take, over all layers."""

    lost_by_rank: NDArray[np.int64]
    """Experts whose live replicas are all on that rank [ranks]."""
    lost_by_node: NDArray[np.int64]
    """Experts whose live replicas are all on that node [nodes]."""
    min_live_replicas: int
    """Of the expert that has the fewest, in any layer."""
    missing: int
    """Experts that have none."""


def survivability(placement: Placement, topology: Topology) -> Survivability:
    """Count what each single death would take. Raises EplbInputError."""
    slots = _live_slots(placement, topology)
    layer, rank, slot = np.nonzero(slots != EMPTY)
    expert = layer * placement.num_experts + slots[layer, rank, slot]
    num_experts = placement.num_layers * placement.num_experts
    node = np.asarray(topology.node_of_rank)[rank]
    replicas = np.bincount(expert, minlength=num_experts)
    return Survivability(
        _lost_by(expert, rank, num_experts, topology.num_ranks),
        _lost_by(expert, node, num_experts, topology.num_nodes),
        int(replicas.min()),
        int((replicas == 0).sum()),
    )


def _lost_by(
    expert: NDArray[np.int64], domain: NDArray[np.int64], num_experts: int, num_domains: int
) -> NDArray[np.int64]:
    """Experts that are in one domain only, by domain: in the first and in the last that they are in."""
    first = np.full(num_experts, num_domains)
    last = np.full(num_experts, -1)
    np.minimum.at(first, expert, domain)
    np.maximum.at(last, expert, domain)
    return np.bincount(first[first == last], minlength=num_domains)
