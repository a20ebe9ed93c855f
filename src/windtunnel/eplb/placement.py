"""Which slot holds which logical expert, and which share of the expert's tokens goes there. Immutable, with an epoch.

All arrays have the axes [layers, ranks, width], width being the most slots of a rank. A slot that is empty, and one
that a rank does not have, holds -1: never 0, which is an expert.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from windtunnel.errors import EplbInputError

EMPTY = -1
DIGEST_BYTES = 16
_SHARE_TOLERANCE = 1e-4
_DERIVED = frozenset(("replica_counts", "replicas", "layer_digests", "missing"))
"""What doesn't depend on the epoch."""


@dataclass(frozen=True, eq=False)
class Placement:
    """Make one by `Placement.of`, which checks it."""

    epoch: int
    """Counts publications; two ranks of one epoch have the same placement."""
    num_experts: int
    """Logical experts of a layer."""
    slots_per_rank: tuple[int, ...]
    slots: NDArray[np.int32]
    """The logical expert of each slot [layers, ranks, width]; -1: empty, or no slot."""
    share: NDArray[np.float32]
    """The share of its expert's tokens that a slot gets [layers, ranks, width]; 0 where there is no expert."""

    @classmethod
    def of(
        cls,
        slots: ArrayLike,
        num_experts: int,
        *,
        slots_per_rank: tuple[int, ...] | None = None,
        share: ArrayLike | None = None,
        epoch: int = 0,
    ) -> Placement:
        """Check and freeze a placement: `slots` [layers, ranks, width] of integers, `share` likewise or an even split.

        Experts may be missing (`missing` tells which); anything else that is wrong raises EplbInputError, which names
        the first place.
        """
        experts = _integers(slots)
        widths = (experts.shape[2],) * experts.shape[1] if slots_per_rank is None else tuple(slots_per_rank)
        _check_slots(experts, num_experts, widths)
        counts = _replica_counts(experts, num_experts)
        shares = _even_share(experts, counts) if share is None else _checked_share(share, experts, counts)
        experts.flags.writeable = False
        shares.flags.writeable = False
        return cls(epoch, num_experts, widths, experts, shares)

    @property
    def num_layers(self) -> int:
        """The first axis."""
        return int(self.slots.shape[0])

    @property
    def num_ranks(self) -> int:
        """The second axis."""
        return int(self.slots.shape[1])

    @cached_property
    def replica_counts(self) -> NDArray[np.int32]:
        """Replicas of each expert [layers, experts]."""
        counts = _replica_counts(self.slots, self.num_experts)
        counts.flags.writeable = False
        return counts

    @cached_property
    def replicas(self) -> NDArray[np.int32]:
        """Where each expert's replicas are [layers, experts, most replicas]: `rank * width + slot`, padded by -1.

        Replicas of an expert stand in ascending order.
        """
        layers, ranks, width = self.slots.shape
        flat = self.slots.reshape(layers, ranks * width)
        most = max(int(self.replica_counts.max(initial=0)), 1)
        table = np.full((layers, self.num_experts, most), EMPTY, np.int32)
        layer, place = np.nonzero(flat != EMPTY)
        expert = flat[layer, place]
        order = np.lexsort((place, expert, layer))
        layer, place, expert = layer[order], place[order], expert[order]
        starts = np.flatnonzero(np.r_[True, (np.diff(layer) != 0) | (np.diff(expert) != 0)]) if len(layer) else layer
        lengths = np.diff(np.r_[starts, len(layer)])
        table[layer, expert, np.arange(len(layer)) - np.repeat(starts, lengths)] = place
        table.flags.writeable = False
        return table

    @cached_property
    def missing(self) -> tuple[tuple[int, int], ...]:
        """The experts that no slot holds, as (layer, expert)."""
        return tuple((int(layer), int(expert)) for layer, expert in np.argwhere(self.replica_counts == 0))

    @cached_property
    def layer_digests(self) -> tuple[bytes, ...]:
        """16 bytes for each layer: of its slots and shares."""
        parts = zip(self.slots.astype("<i4"), self.share.astype("<f4"), strict=True)
        return tuple(
            blake2b(slots.tobytes() + share.tobytes(), digest_size=DIGEST_BYTES).digest() for slots, share in parts
        )

    @cached_property
    def digest(self) -> bytes:
        """16 bytes that ranks compare: of the epoch, the slots and the shares."""
        numbers = (self.epoch, self.num_experts, *self.slots.shape, *self.slots_per_rank)
        head = struct.pack(f"<{len(numbers)}q", *numbers)
        return blake2b(head + b"".join(self.layer_digests), digest_size=DIGEST_BYTES).digest()

    def ranks_of(self, layer: int, expert: int) -> list[tuple[int, int]]:
        """The (rank, slot) pairs that hold an expert."""
        return [(int(rank), int(slot)) for rank, slot in np.argwhere(self.slots[layer] == expert)]

    def with_epoch(self, epoch: int) -> Placement:
        """The same under another epoch."""
        return self._like(epoch, self.slots, self.share, **{k: v for k, v in vars(self).items() if k in _DERIVED})

    def without_ranks(self, ranks: tuple[int, ...] | list[int], epoch: int) -> Placement:
        """The same with the slots of these ranks empty, and their tokens split evenly over what is left."""
        slots = self.slots.copy()
        slots[:, list(ranks)] = EMPTY
        return Placement.of(slots, self.num_experts, slots_per_rank=self.slots_per_rank, epoch=epoch)

    def with_layers(self, layers: Sequence[int], slots: ArrayLike, share: ArrayLike, epoch: int) -> Placement:
        """The same with other `slots` [len(layers), ranks, width] and `share` in some layers, checked as by `of`.

        What was derived for the other layers is kept, so that a change of one layer costs little in a deep model.
        Raises EplbInputError.
        """
        if not layers:
            return self.with_epoch(epoch)
        where = list(layers)
        if len(set(where)) != len(where) or not 0 <= min(where) <= max(where) < self.num_layers:
            raise EplbInputError("layers", f"{where}", f"Each once, from 0 to {self.num_layers - 1}.")
        part = Placement.of(slots, self.num_experts, slots_per_rank=self.slots_per_rank, share=share)
        if part.slots.shape != (len(where), *self.slots.shape[1:]):
            problem = f"shape {part.slots.shape} for {len(where)} layers of {self}"
            raise EplbInputError("placement", problem, "Ranks and slots are those of the placement.")
        digests = dict(enumerate(self.layer_digests)) | dict(zip(where, part.layer_digests, strict=True))
        counts = _replaced(self.replica_counts, where, part.replica_counts)
        most = max(int(counts.max()), 1)
        return self._like(
            epoch,
            _replaced(self.slots, where, part.slots),
            _replaced(self.share, where, part.share),
            replica_counts=counts,
            replicas=_replaced(_padded(self.replicas, most), where, _padded(part.replicas, most)),
            layer_digests=tuple(digests[layer] for layer in range(self.num_layers)),
        )

    def _like(self, epoch: int, slots: NDArray[np.int32], share: NDArray[np.float32], **known: Any) -> Placement:
        made = Placement(epoch, self.num_experts, self.slots_per_rank, slots, share)
        vars(made).update(known)  # what a cached property has found
        return made

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Placement) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        layers, ranks, width = self.slots.shape
        return (
            f"Placement(epoch={self.epoch}, layers={layers}, experts={self.num_experts}, ranks={ranks}, width={width})"
        )


def _integers(slots: ArrayLike) -> NDArray[np.int32]:
    raw = np.asarray(slots)
    if raw.ndim != 3:
        raise EplbInputError("placement", f"{raw.ndim} axes", "Its axes are [layers, ranks, slots of a rank].")
    if 0 in raw.shape:
        raise EplbInputError("placement", f"shape {raw.shape}", "No axis may be empty.")
    if not np.issubdtype(raw.dtype, np.integer):
        raise EplbInputError("placement", f"dtype {raw.dtype}", "Experts are integers, -1 for an empty slot.")
    bounds = np.iinfo(np.int32)
    if raw.min() < bounds.min or raw.max() > bounds.max:
        raise EplbInputError("placement", f"values from {raw.min()} to {raw.max()}", "Experts are small integers.")
    return np.array(raw, np.int32)  # a copy: it will be frozen


def _check_slots(slots: NDArray[np.int32], num_experts: int, widths: tuple[int, ...]) -> None:
    if num_experts < 1:
        raise EplbInputError("num_experts", f"{num_experts} experts", "A layer has at least one.")
    if len(widths) != slots.shape[1] or min(widths) < 0 or max(widths) > slots.shape[2]:
        problem = f"{list(widths)} for a placement of shape {slots.shape}"
        raise EplbInputError(
            "slots_per_rank", problem, "One number for each rank, none over the placement's last axis."
        )
    wrong = np.argwhere((slots < EMPTY) | (slots >= num_experts))
    if len(wrong):
        layer, rank, slot = wrong[0]
        problem = f"layer {layer}, rank {rank}, slot {slot} holds expert {slots[layer, rank, slot]}"
        raise EplbInputError("placement", problem, f"Experts are 0 to {num_experts - 1}, -1 for an empty slot.")
    absent = np.arange(slots.shape[2]) >= np.asarray(widths)[:, None]
    wrong = np.argwhere((slots != EMPTY) & absent)
    if len(wrong):
        layer, rank, slot = wrong[0]
        problem = f"layer {layer}, rank {rank}: slot {slot} is used, but the rank has {widths[rank]}"
        raise EplbInputError("placement", problem, "Slots that a rank does not have hold -1.")


def _replica_counts(slots: NDArray[np.int32], num_experts: int) -> NDArray[np.int32]:
    layers = slots.shape[0]
    flat = slots.reshape(layers, -1)
    keys = (np.arange(layers)[:, None] * num_experts + flat)[flat != EMPTY]
    return np.bincount(keys, minlength=layers * num_experts).reshape(layers, num_experts).astype(np.int32)


def _even_share(slots: NDArray[np.int32], counts: NDArray[np.int32]) -> NDArray[np.float32]:
    layers = np.arange(slots.shape[0])[:, None, None]
    of_slot = counts[layers, np.maximum(slots, 0)]
    return np.where(slots == EMPTY, 0, 1 / np.maximum(of_slot, 1)).astype(np.float32)


def _checked_share(share: ArrayLike, slots: NDArray[np.int32], counts: NDArray[np.int32]) -> NDArray[np.float32]:
    shares: NDArray[np.float32] = np.array(share, np.float32)
    if shares.shape != slots.shape:
        problem = f"shape {shares.shape} for a placement of shape {slots.shape}"
        raise EplbInputError("share", problem, "It has the placement's axes.")
    if not np.all((shares >= 0) & (shares <= 1 + _SHARE_TOLERANCE)):
        raise EplbInputError("share", "a value is not between 0 and 1", "A share is a part of an expert's tokens.")
    if np.any(shares[slots == EMPTY]):
        raise EplbInputError("share", "an empty slot has a share", "Empty slots get 0.")
    totals: NDArray[Any] = np.zeros(counts.shape)
    layer = np.broadcast_to(np.arange(slots.shape[0])[:, None, None], slots.shape)
    used = slots != EMPTY
    np.add.at(totals, (layer[used], slots[used]), shares[used])
    wrong = np.argwhere((counts > 0) & (abs(totals - 1) > _SHARE_TOLERANCE))
    if len(wrong):
        where, expert = wrong[0]
        problem = f"the shares of layer {where}, expert {expert} add up to {totals[where, expert]:.4f}"
        raise EplbInputError("share", problem, "The shares of an expert's replicas add up to 1.")
    return shares


def _replaced(values: NDArray[Any], layers: list[int], part: NDArray[Any]) -> NDArray[Any]:
    changed = values.copy()
    changed[layers] = part
    changed.flags.writeable = False
    return changed


def _padded(replicas: NDArray[np.int32], most: int) -> NDArray[np.int32]:
    layers, experts, width = replicas.shape
    table = np.full((layers, experts, most), EMPTY, np.int32)
    table[:, :, :width] = replicas[:, :, :most]
    return table
