"""The transaction as data: who may go from which phase to which, and what makes them go.

`apply` is the only way from one phase to another. The docs' diagram is drawn from these tables, and the tests that kill
and stop processes are parametrised from them, so a transition that is added is drawn and killed without further ado.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal, NamedTuple

Role = Literal["coordinator", "rank"]


class Phase(StrEnum):
    """Where a rank is in a transaction."""

    SERVING = "serving"
    """In none: the committed epoch serves."""
    PREPARED = "prepared"
    """Agrees with plan and epoch, has leased its slots to readers, and waits for the others."""
    TRANSFERRING = "transferring"
    """Reads its copies into staging and verifies them."""
    VERIFIED = "verified"
    """Has all copies and voted yes: it can serve the new epoch, and waits for the decision."""
    FAILED = "failed"
    """Voted no, and waits for the order to roll back."""
    PUBLISHED = "published"
    """Routes by the new epoch; somebody here may still route by the old one."""
    DRAINED = "drained"
    """Nobody here routes by the old epoch any more."""
    SETTLING = "settling"
    """No rank routes by the old epoch: staged experts are copied into their slots."""
    RELEASING = "releasing"
    """All slots hold what they should; somebody may still read an expert in staging."""


class Stage(StrEnum):
    """Where the coordinator is in a transaction."""

    IDLE = "idle"
    PREPARING = "preparing"
    TRANSFERRING = "transferring"
    PUBLISHING = "publishing"
    """The decision is made; it can't be taken back."""
    RETIRING = "retiring"
    ROLLING_BACK = "rolling back"


class Transition(NamedTuple):
    """One way from a phase to the next."""

    role: Role
    source: str
    trigger: str
    target: str

    @property
    def name(self) -> str:
        """As `fail_at` and the tests spell it: `transferring+copied`."""
        return f"{self.source}+{self.trigger}".replace(" ", "_")


RANK = (
    Transition("rank", Phase.SERVING, "prepare", Phase.PREPARED),
    Transition("rank", Phase.SERVING, "prepare_without_copies", Phase.VERIFIED),
    Transition("rank", Phase.SERVING, "disagree", Phase.FAILED),
    Transition("rank", Phase.PREPARED, "transfer", Phase.TRANSFERRING),
    Transition("rank", Phase.TRANSFERRING, "copied", Phase.VERIFIED),
    Transition("rank", Phase.TRANSFERRING, "copy_failed", Phase.FAILED),
    Transition("rank", Phase.VERIFIED, "publish", Phase.PUBLISHED),
    Transition("rank", Phase.PUBLISHED, "routers_gone", Phase.DRAINED),
    Transition("rank", Phase.DRAINED, "retire", Phase.SETTLING),
    Transition("rank", Phase.SETTLING, "overwritten", Phase.RELEASING),
    Transition("rank", Phase.RELEASING, "readers_gone", Phase.SERVING),
    Transition("rank", Phase.PREPARED, "abort", Phase.SERVING),
    Transition("rank", Phase.TRANSFERRING, "abort", Phase.SERVING),
    Transition("rank", Phase.VERIFIED, "abort", Phase.SERVING),
    Transition("rank", Phase.FAILED, "abort", Phase.SERVING),
)

COORDINATOR = (
    Transition("coordinator", Stage.IDLE, "start", Stage.PREPARING),
    Transition("coordinator", Stage.PREPARING, "all_prepared", Stage.TRANSFERRING),
    Transition("coordinator", Stage.PREPARING, "all_verified", Stage.PUBLISHING),
    Transition("coordinator", Stage.TRANSFERRING, "all_verified", Stage.PUBLISHING),
    Transition("coordinator", Stage.PUBLISHING, "all_drained", Stage.RETIRING),
    Transition("coordinator", Stage.RETIRING, "all_settled", Stage.IDLE),
    Transition("coordinator", Stage.PREPARING, "give_up", Stage.ROLLING_BACK),
    Transition("coordinator", Stage.TRANSFERRING, "give_up", Stage.ROLLING_BACK),
    Transition("coordinator", Stage.ROLLING_BACK, "all_aborted", Stage.IDLE),
    # What a new coordinator does with a transaction that its predecessor left behind.
    Transition("coordinator", Stage.IDLE, "finish", Stage.PUBLISHING),
    Transition("coordinator", Stage.IDLE, "roll_back", Stage.ROLLING_BACK),
)

TRANSITIONS = RANK + COORDINATOR
_TARGETS = {(t.role, t.source, t.trigger): t for t in TRANSITIONS}


def apply(role: Role, source: str, trigger: str) -> Transition:
    """The transition from `source` by `trigger`. A KeyError is a bug: machines ask only for what the table has."""
    return _TARGETS[role, source, trigger]
