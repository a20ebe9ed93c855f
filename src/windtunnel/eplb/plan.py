"""What has to move to get from one placement to another."""

from __future__ import annotations

from msgspec import Struct

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
