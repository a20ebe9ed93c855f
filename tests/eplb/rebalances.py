"""Placements of a simulated cluster, what makes one from another, and the copies for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.eplb.simulated import EXPERTS, LAYERS, SLOTS
from windtunnel.eplb.placement import EMPTY, Placement
from windtunnel.eplb.plan import WEIGHT_SOURCE, Copy, Source

if TYPE_CHECKING:
    from tests.eplb.world import World

VICTIM, OTHER = 1, 2
TO_VICTIM = (0, VICTIM, 1, 2)
"""From ranks 0 and 2."""
TO_OTHER = (1, OTHER, 2, 1)


def first() -> Placement:
    """Three ranks with three slots: experts 0 1 2, 3 0 1, 2 3 0."""
    return Placement.of(np.tile((np.arange(3 * SLOTS) % EXPERTS).reshape(3, SLOTS), (LAYERS, 1, 1)), EXPERTS)


def moved(*to: tuple[int, int, int, int]) -> Any:
    """A rebalance: (layer, rank, slot) gets an expert."""

    def target(base: Placement) -> Placement:
        slots = base.slots.copy()
        for layer, rank, slot, expert in to:
            slots[layer, rank, slot] = expert
        return Placement.of(slots, EXPERTS)

    return target


def swapped(world: World, seed: int) -> Callable[[Placement], Placement]:
    """A rebalance: some slots of members get other experts; no expert is lost by it."""

    def target(base: Placement) -> Placement:
        rng = np.random.default_rng(seed)
        slots = base.slots.copy()
        places = [
            (layer, rank, slot)
            for rank in world.coordinator.machine.members
            for layer, slot in np.ndindex(LAYERS, SLOTS)
        ]
        for number in rng.permutation(len(places))[: rng.integers(1, world.staging_buffers + 1)]:
            layer, rank, slot = places[number]
            before = slots[layer, rank, slot]
            if before == EMPTY or (slots[layer] == before).sum() > 1:
                slots[layer, rank, slot] = rng.integers(EMPTY, EXPERTS)
        return Placement.of(slots, EXPERTS)

    return target


def copies_between(base: Placement, target: Placement, members: list[int], weights: bool) -> list[Copy]:
    """What has to be copied, and from where: the rank itself, other members, the checkpoint."""
    copies = []
    for layer, rank, slot in np.argwhere((target.slots != base.slots) & (target.slots != EMPTY)):
        expert = int(target.slots[layer, rank, slot])
        replicas = [Source(r, s) for r, s in base.ranks_of(int(layer), expert) if r in members]
        replicas.sort(key=lambda source: source.rank != rank)
        sources = (*replicas, *((Source(WEIGHT_SOURCE),) if weights else ()))
        copies.append(Copy(int(layer), expert, int(rank), int(slot), sources, int(layer)))
    return copies


def restored(base: Placement, members: list[int], most: int) -> Placement:
    """What serves, with up to `most` missing experts in slots of members that are empty or hold a spare replica."""
    slots = base.slots.copy()
    for layer, expert in base.missing[:most]:
        counts = np.bincount(slots[layer][slots[layer] != EMPTY], minlength=EXPERTS)
        places = [(r, s) for r in members for s in range(SLOTS)]
        free = [p for p in places if slots[layer][p] == EMPTY or counts[slots[layer][p]] > 1]
        if free:
            slots[layer][free[0]] = expert
    return Placement.of(slots, EXPERTS)
