"""What the machines tell their shells to do, in order, and what a rank's shell tells its machine came of it.

A shell that dies between two instructions is what tests kill.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from windtunnel.eplb.placement import Placement
from windtunnel.eplb.transaction.messages import FromCoordinator, FromRank, Order, Peer
from windtunnel.eplb.transaction.table import Transition


class Entered(NamedTuple):
    """A transition was made; nothing that follows from it has been done yet."""

    transition: Transition


# --- to a rank's shell --------------------------------------------------------------------------------------------


class Send(NamedTuple):
    """Send it to the coordinator."""

    message: FromRank


class Read(NamedTuple):
    """Read a group into a staging buffer: from a peer, from an own slot, or from the weight source.

    Answered by Progressed any number of times, then Landed or Broke.
    """

    buffer: int
    attempt: int
    order: Order
    rank: int
    """WEIGHT_SOURCE, the rank itself, or a peer."""
    slot: int


class Check(NamedTuple):
    """Take the checksum of a staged group. Answered by Checked."""

    buffer: int
    attempt: int
    order: Order


class Abandon(NamedTuple):
    """Release a read. Answered by Drained once no byte of it can land any more."""

    buffer: int
    attempt: int


class Overwrite(NamedTuple):
    """Copy a staged group into its slot, which nobody reads. Answered by Overwritten."""

    buffer: int
    order: Order


class View(NamedTuple):
    """An epoch as one rank serves it: the placement, and which of its slots are read in staging for the time being."""

    number: int
    """Counts a rank's views upward."""
    placement: Placement
    staged: Mapping[tuple[int, int], int]
    """(layer, slot) → staging buffer."""


class Serve(NamedTuple):
    """Answer for this view's epoch from now on, instead of by an earlier view of the same epoch."""

    view: View


class RouteBy(NamedTuple):
    """Route by this view from now on. Answered by RoutersGone once nobody routes by an earlier one."""

    view: View


class Withdraw(NamedTuple):
    """Stop answering for a view. Answered by ReadersGone once nobody here reads it any more."""

    view: int


class Know(NamedTuple):
    """A peer can be read from, instead of what was known under its rank."""

    peer: Peer


class Forget(NamedTuple):
    """A peer is fenced: read from it no more."""

    rank: int


class Refuse(NamedTuple):
    """This rank is no member: it must not serve; under a new generation it may come back where `rejoin` says so."""

    reason: str
    remedy: str
    rejoin: bool


Instruction = Entered | Send | Read | Check | Abandon | Overwrite | Serve | RouteBy | Withdraw | Know | Forget | Refuse


# --- what became of them ------------------------------------------------------------------------------------------


class Progressed(NamedTuple):
    """Some bytes of a copy landed."""

    buffer: int
    attempt: int


class Landed(NamedTuple):
    """All bytes of a copy landed."""

    buffer: int
    attempt: int


class Broke(NamedTuple):
    """A read ended with an error: `kind` is `lost` or `failed`, `reason` the transport's own words."""

    buffer: int
    attempt: int
    kind: str
    reason: str


class Checked(NamedTuple):
    """The checksum of what landed."""

    buffer: int
    attempt: int
    digest: bytes


class Drained(NamedTuple):
    """No byte of an abandoned read can land any more."""

    buffer: int
    attempt: int


class Overwritten(NamedTuple):
    """A slot holds what was staged for it."""

    buffer: int


class RoutersGone(NamedTuple):
    """Nobody here routes by a view older than this one any more."""

    view: int


class ReadersGone(NamedTuple):
    """Nobody here reads this view, which was withdrawn, any more."""

    view: int


Moved = Progressed | Landed | Broke | Checked | Drained | Overwritten
"""Told by the mover."""
LetGo = RoutersGone | ReadersGone
"""Told by the table of views."""
Happened = Moved | LetGo


# --- to the coordinator's shell -----------------------------------------------------------------------------------


class SendTo(NamedTuple):
    """Send it to a rank."""

    rank: int
    message: FromCoordinator


class Announce(NamedTuple):
    """The decision is made: route by this placement here too. Answered by `local_drained`, once nobody routes by an
    earlier one."""

    placement: Placement


@dataclass(frozen=True)
class Outcome:
    """How a transaction ended."""

    txn: int
    epoch: int
    committed: bool
    stage: str
    """Where it was when it was given up; `retiring` where it was committed."""
    reason: str = ""
    culprits: tuple[int, ...] = ()
    """Ranks that were lost, did not answer, or could not be read from."""
    moved_bytes: int = 0
    wasted_bytes: int = 0
    retries: int = 0
    copies: int = 0


class Ended(NamedTuple):
    """A transaction is over; the coordinator is idle."""

    outcome: Outcome


class Stuck(NamedTuple):
    """A rank that is alive has not answered for too long, past the decision: it has to be evicted."""

    rank: int
    stage: str


CoordinatorInstruction = Entered | SendTo | Announce | Ended | Stuck
