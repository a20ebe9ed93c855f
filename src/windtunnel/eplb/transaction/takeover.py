"""What a new coordinator makes of what the ranks tell it: a fresh start, or the state that its predecessor left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from windtunnel.eplb.placement import EMPTY, Placement
from windtunnel.eplb.transaction.messages import Hello, Pending, PlacementBytes
from windtunnel.errors import EplbInputError


class Takeover(NamedTuple):
    """Where to begin."""

    committed: Placement
    """What serves; epoch 0: nothing does yet, and this is what the ranks' slots hold."""
    pending: Pending | None
    """A transaction to be finished or rolled back."""
    decided: bool
    """True: some rank has published it, so all must."""
    term: int
    strays: tuple[int, ...]
    """Ranks that do not hold what serves and can't get there: they must come back with empty slots, after an epoch
    without them was published."""


def take_over(hellos: Sequence[Hello], slots_per_rank: tuple[int, ...], now_s: int) -> Takeover:
    """Decide from what all ranks that answered say of themselves.

    The term is `now_s`, of the wall clock, unless a greater one was heard of: ranks that do not answer may have obeyed
    coordinators that nobody here knows of, and a term must not come twice.

    The rule: if any of them has published an epoch, it is finished; else what is pending is rolled back. Other pending
    transactions of single ranks are left to the next one, which rolls them back.
    """
    term = max(now_s, *(hello.term + 1 for hello in hellos))
    committed = [h.committed for h in hellos if h.committed and not _is_overruled(h, hellos)]
    newest = max(committed, key=lambda c: c.epoch, default=None)
    pendings = sorted((h.pending for h in hellos if h.pending), key=lambda p: p.txn)
    if newest is None:
        return Takeover(assemble(hellos, slots_per_rank), pendings[-1] if pendings else None, False, term, ())
    strays = tuple(hello.rank for hello in hellos if not _is_in_step(hello, newest))
    published = [p for p in pendings if p.target == newest]
    if published:
        return Takeover(newest.placement(), published[-1], True, term, strays)
    undecided = [p for p in pendings if p.target.epoch > newest.epoch]
    return Takeover(newest.placement(), undecided[-1] if undecided else None, False, term, strays)


def _is_overruled(hello: Hello, hellos: Sequence[Hello]) -> bool:
    """Whether a later coordinator rolled back what this rank has published, because it did not hear of it."""
    published = hello.committed
    return published is not None and any(
        other.term > hello.term
        and other.committed is not None
        and other.committed != published
        and other.committed.epoch <= published.epoch
        and not (other.pending and other.pending.target == published)
        for other in hellos
    )


def _is_in_step(hello: Hello, newest: PlacementBytes) -> bool:
    """Whether a rank serves the newest epoch, can finish it, or has no part in it."""
    if hello.pending and hello.pending.target == newest:
        return True
    if hello.committed is not None:
        return hello.committed == newest
    expected = newest.placement().slots[:, hello.rank]
    return not (expected != EMPTY).any() and not (contents(hello) != EMPTY).any()


def misfit(hello: Hello, committed: Placement, term: int) -> str:
    """Why a rank that arrives between transactions can't be a member as it is; empty where it can.

    Epochs of the same number may differ where a cluster was started anew while this rank hung.
    """
    if hello.term > term:
        return f"it has obeyed a coordinator of term {hello.term}, and this one has term {term}"
    if hello.committed and hello.committed != PlacementBytes.of(committed):
        return f"its epoch {hello.committed.epoch} is not what serves, epoch {committed.epoch}"
    return ""


def will_hold(hello: Hello) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """`contents` and `since` of a rank once it has settled what it has published: it does that by itself."""
    held, epochs, pending = contents(hello), since(hello), hello.pending
    if pending is None or hello.committed != pending.target:
        return held, epochs
    target = pending.target.placement()
    slots = target.slots[:, hello.rank, : hello.slots]
    return slots, np.where(slots != held, target.epoch, epochs)


def contents(hello: Hello) -> NDArray[np.int32]:
    """The expert in each slot of a rank [layers, slots]."""
    return np.frombuffer(hello.contents, "<i4").reshape(len(hello.group_bytes), hello.slots)


def since(hello: Hello) -> NDArray[np.int64]:
    """The epoch that put it there [layers, slots]."""
    return np.frombuffer(hello.since, "<i8").reshape(len(hello.group_bytes), hello.slots)


def assemble(hellos: Sequence[Hello], slots_per_rank: tuple[int, ...]) -> Placement:
    """The placement of epoch 0: what the ranks' slots hold. Raises EplbInputError where ranks' models differ."""
    first = hellos[0]
    for hello in hellos:
        check_same_model(first, hello)
    slots = np.full((len(first.group_bytes), len(slots_per_rank), max(slots_per_rank)), EMPTY, np.int32)
    for hello in hellos:
        slots[:, hello.rank, : hello.slots] = contents(hello)
    return Placement.of(slots, first.num_experts, slots_per_rank=slots_per_rank)


def check_same_model(first: Hello, other: Hello) -> None:
    """Raise EplbInputError, which names the field, where two ranks serve different models."""
    for field in ("num_experts", "group_bytes", "transport"):
        mine, theirs = getattr(first, field), getattr(other, field)
        if mine != theirs:
            problem = f"rank {other.rank} has {theirs}, rank {first.rank} has {mine}"
            raise EplbInputError(field, problem, "All ranks of a model say the same.")
