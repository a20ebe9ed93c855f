"""What coordinator and ranks say to each other. Each message may arrive twice, late, or not at all.

`term` orders coordinators: a rank obeys none that is older than the newest it has seen. `txn` counts a coordinator's
transactions upward, its term in the high bits, so that a newer one is greater whoever began it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import Struct, msgpack

from windtunnel.eplb.placement import Placement
from windtunnel.eplb.plan import Copy
from windtunnel.errors import WindtunnelError, from_facts

_TERM_SHIFT = 32
_EPOCH_SHIFT = 10


def first_txn(term: int) -> int:
    """The number before a coordinator's first transaction."""
    return term << _TERM_SHIFT


def first_epoch(term: int) -> int:
    """The number before a successor's first epoch.

    Its predecessors may have published epochs that nobody who answers knows of, and a rank that hangs may still route
    by one. Terms are seconds, so numbers stay apart while fewer than 1,000 epochs a second are published.
    """
    return term << _EPOCH_SHIFT


class PlacementBytes(Struct, frozen=True, array_like=True):
    """A placement as it travels."""

    epoch: int
    num_experts: int
    slots_per_rank: tuple[int, ...]
    shape: tuple[int, int, int]
    slots: bytes
    """Little-endian int32."""
    share: bytes
    """Little-endian float32."""

    @classmethod
    def of(cls, placement: Placement) -> PlacementBytes:
        """Of a placement."""
        layers, ranks, width = placement.slots.shape
        slots, share = placement.slots.astype("<i4").tobytes(), placement.share.astype("<f4").tobytes()
        return cls(
            placement.epoch, placement.num_experts, placement.slots_per_rank, (layers, ranks, width), slots, share
        )

    def placement(self) -> Placement:
        """The placement; raises EplbInputError or ValueError where the bytes are none."""
        slots = np.frombuffer(self.slots, "<i4").reshape(self.shape)
        share = np.frombuffer(self.share, "<f4").reshape(self.shape)
        return Placement.of(slots, self.num_experts, slots_per_rank=self.slots_per_rank, share=share, epoch=self.epoch)


class ChangeBytes(Struct, frozen=True, array_like=True):
    """The layers of a placement that differ from another one, its base, as they travel."""

    epoch: int
    layers: tuple[int, ...]
    slots: bytes
    """Of these layers, little-endian int32."""
    share: bytes
    """Of these layers, little-endian float32."""

    @classmethod
    def between(cls, base: Placement, target: Placement) -> ChangeBytes:
        """What makes `target` of `base`."""
        pairs = enumerate(zip(base.layer_digests, target.layer_digests, strict=True))
        layers = [layer for layer, (ours, theirs) in pairs if ours != theirs]
        if not layers:
            return cls(target.epoch, (), b"", b"")
        slots, share = target.slots[layers].astype("<i4").tobytes(), target.share[layers].astype("<f4").tobytes()
        return cls(target.epoch, tuple(layers), slots, share)

    def apply(self, base: Placement) -> Placement:
        """The target; raises EplbInputError or ValueError where the bytes are none."""
        if not self.layers:
            return base.with_epoch(self.epoch)
        shape = (len(self.layers), *base.slots.shape[1:])
        slots = np.frombuffer(self.slots, "<i4").reshape(shape)
        share = np.frombuffer(self.share, "<f4").reshape(shape)
        return base.with_layers(self.layers, slots, share, self.epoch)


class Peer(Struct, frozen=True):
    """What a rank must know of another to read from it."""

    rank: int
    generation: int
    metadata: bytes
    """The transport's."""
    layout: bytes
    """The store's: where slots are in the peer's memory."""


class Fault(Struct, frozen=True):
    """An error of `windtunnel.errors` as a value."""

    code: str
    facts: dict[str, Any]


def to_fault(error: WindtunnelError) -> Fault:
    """An error's value."""
    return Fault(error.code, error.facts)


def to_error(fault: Fault) -> WindtunnelError:
    """The error that a fault is the value of."""
    return from_facts(fault.code, fault.facts)


class Pending(Struct, frozen=True):
    """The transaction that a rank is in."""

    txn: int
    phase: str
    target: PlacementBytes


# --- from ranks ---------------------------------------------------------------------------------------------------


class Hello(Struct, frozen=True, tag="hello"):
    """A rank introduces itself: the first message of a connection."""

    token: str
    rank: int
    generation: int
    """Counts a rank's lives: a newer one is greater."""
    term: int
    """Of the newest coordinator that it has obeyed; 0: none."""
    slots: int
    group_bytes: tuple[int, ...]
    """Of each layer."""
    num_experts: int
    staging_buffers: int
    transport: str
    peer: Peer
    contents: bytes
    """The expert of each slot [layers, slots] as little-endian int32; -1: empty."""
    since: bytes
    """The epoch that put it there [layers, slots] as little-endian int64: the slot's generation."""
    digests: bytes
    """xxh3-128 of each slot's group [layers, slots, 16]; zeros for an empty slot."""
    committed: PlacementBytes | None
    pending: Pending | None
    has_weights: bool
    """Whether this rank can read experts from a weight source."""
    pid: int
    host: str
    """Tells processes apart that can see each other's pids; empty: unknown."""


class Heartbeat(Struct, frozen=True, tag="heartbeat"):
    """Alive."""

    sent_ns: int
    quarantined_bytes: int = 0
    """Of its staging."""


class Prepared(Struct, frozen=True, tag="prepared"):
    """Agrees, and has copies to make."""

    term: int
    txn: int
    digest: bytes


class Verified(Struct, frozen=True, tag="verified"):
    """Votes yes: all copies of this rank are staged and verified, or there are none."""

    term: int
    txn: int
    digest: bytes
    moved_bytes: int = 0
    wasted_bytes: int = 0
    retries: tuple[Fault, ...] = ()


class Failed(Struct, frozen=True, tag="failed"):
    """Votes no."""

    term: int
    txn: int
    fault: Fault
    moved_bytes: int = 0
    wasted_bytes: int = 0
    retries: tuple[Fault, ...] = ()


class Waiting(Struct, frozen=True, tag="waiting"):
    """Alive, and can't go on before somebody here has let go of an old epoch, or of staging."""

    term: int
    txn: int


class Drained(Struct, frozen=True, tag="drained"):
    """Routes by the new epoch, and nobody here by the old one."""

    term: int
    txn: int


class Settled(Struct, frozen=True, tag="settled"):
    """All slots hold what the new epoch says, and staging is free."""

    term: int
    txn: int


class Aborted(Struct, frozen=True, tag="aborted"):
    """Rolled back."""

    term: int
    txn: int
    wasted_bytes: int = 0


FromRank = Hello | Heartbeat | Prepared | Verified | Failed | Waiting | Drained | Settled | Aborted

# --- from the coordinator -----------------------------------------------------------------------------------------


class Welcome(Struct, frozen=True, tag="welcome"):
    """A rank is a member now."""

    term: int
    heartbeat_ns: int
    """How often to send one."""
    peers: tuple[Peer, ...]
    placement: PlacementBytes | None
    """What serves; None: nothing yet, or what the rank itself has committed."""


class Refused(Struct, frozen=True, tag="refused"):
    """A rank is no member, or no longer."""

    reason: str
    remedy: str
    rejoin: bool
    """True: it may come back under a new generation, with empty slots."""


class Joined(Struct, frozen=True, tag="joined"):
    """Another rank became a member."""

    term: int
    peer: Peer


class Left(Struct, frozen=True, tag="left"):
    """Another rank is a member no longer."""

    term: int
    rank: int
    generation: int
    gone: bool
    """Its process is known to have ended: it writes nowhere any more."""
    again: bool = False
    """It was said before; now its process has ended."""


class Order(Struct, frozen=True, array_like=True):
    """A copy to be made, and how its bytes can be told."""

    copy: Copy
    num_bytes: int
    digest: bytes
    """xxh3-128 of the group; empty: not known."""


class Lease(Struct, frozen=True, array_like=True):
    """A slot that others will read: it must hold this."""

    layer: int
    slot: int
    expert: int
    since: int


class Prepare(Struct, frozen=True, tag="prepare"):
    """The plan, as far as it concerns one rank."""

    term: int
    txn: int
    base_epoch: int
    base_digest: bytes
    target: PlacementBytes | None
    """None: the rank has the base, and `change` is enough."""
    change: ChangeBytes | None
    digest: bytes
    """Of the target."""
    orders: tuple[Order, ...]
    leases: tuple[Lease, ...]


class Transfer(Struct, frozen=True, tag="transfer"):
    """All have leased their slots: begin to read."""

    term: int
    txn: int


class Publish(Struct, frozen=True, tag="publish"):
    """All voted yes: route by the new epoch."""

    term: int
    txn: int
    epoch: int


class Retire(Struct, frozen=True, tag="retire"):
    """No rank routes by the old epoch: slots may be overwritten."""

    term: int
    txn: int
    epoch: int


class Abort(Struct, frozen=True, tag="abort"):
    """Forget this transaction."""

    term: int
    txn: int
    reason: str


FromCoordinator = Welcome | Refused | Joined | Left | Prepare | Transfer | Publish | Retire | Abort

encode = msgpack.Encoder().encode
decode_from_rank = msgpack.Decoder(FromRank).decode
decode_from_coordinator = msgpack.Decoder(FromCoordinator).decode
