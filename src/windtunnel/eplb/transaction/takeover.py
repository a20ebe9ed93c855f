"""What a new coordinator makes of what the ranks tell it: a fresh start, or the state that its predecessor left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from windtunnel.eplb.placement import EMPTY, Placement
from windtunnel.eplb.transaction.messages import Hello, Pending
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
    """Ranks that serve an older epoch and know nothing of the newest: they must come back with empty slots."""


def take_over(hellos: Sequence[Hello], slots_per_rank: tuple[int, ...]) -> Takeover:
    """Decide from what all ranks that answered say of themselves.

    The rule: if any of them has published an epoch, it is finished; else what is pending is rolled back.
    """
    term = max(hello.term for hello in hellos) + 1
    newest = max((h.committed for h in hellos if h.committed), key=lambda c: c.epoch, default=None)
    pending = max((h.pending for h in hellos if h.pending), key=lambda p: p.txn, default=None)
    if newest is None:
        return Takeover(assemble(hellos, slots_per_rank), pending, False, term, ())
    decided = pending is not None and pending.target.epoch <= newest.epoch
    strays = tuple(
        hello.rank
        for hello in hellos
        if (hello.committed is None or hello.committed.epoch < newest.epoch)
        and not (hello.pending and hello.pending.target.epoch == newest.epoch)
        and not (hello.committed is None and not contents(hello).max(initial=EMPTY) > EMPTY)
    )
    return Takeover(newest.placement(), pending, decided, term, strays)


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
