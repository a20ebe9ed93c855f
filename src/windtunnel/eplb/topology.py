"""Where experts can live: ranks with their slots, the nodes that they stand on, and which of them are alive."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from windtunnel.errors import EplbInputError

MOST_SLOTS = 1 << 20
"""Of a rank. More is a slip of the pen."""


@dataclass(frozen=True)
class Topology:
    """Ranks and their slots. Hashable and immutable; a change makes a new one.

    Raises EplbInputError, which names the field, where the parts do not fit together.
    """

    slots_per_rank: tuple[int, ...]
    """Slots for physical experts that each rank has, in every layer. 0: a rank that only routes, and has no agent."""
    node_of_rank: tuple[int, ...]
    """The node, or other domain that fails as one, of each rank; counted from 0."""
    live: tuple[bool, ...]
    """False: the rank is dead or evicted. Its slots are empty, and nothing is put there."""
    num_groups: int = 1
    """Expert groups of the model's router (group-limited routing); 1: it has none."""

    def __post_init__(self) -> None:
        if not self.slots_per_rank:
            raise EplbInputError("slots_per_rank", "no rank is named", "Name at least one rank.")
        for field in ("node_of_rank", "live"):
            if len(getattr(self, field)) != self.num_ranks:
                problem = f"{len(getattr(self, field))} entries for {self.num_ranks} ranks"
                raise EplbInputError(field, problem, "Give one entry for each rank.")
        for slots in (min(self.slots_per_rank), max(self.slots_per_rank)):
            if not 0 <= slots <= MOST_SLOTS:
                raise EplbInputError("slots_per_rank", f"{slots} slots", f"A rank has 0 to {MOST_SLOTS:,} of them.")
        if sorted(set(self.node_of_rank)) != list(range(self.num_nodes)):
            remedy = "Count nodes from 0 and leave none out."
            raise EplbInputError("node_of_rank", f"nodes {sorted(set(self.node_of_rank))}", remedy)
        if self.num_groups < 1:
            raise EplbInputError("num_groups", f"{self.num_groups} groups", "Without groups, say 1.")

    @classmethod
    def uniform(
        cls,
        ranks: int,
        slots: int | None = None,
        *,
        nodes: int = 1,
        num_groups: int = 1,
        slots_per_rank: Sequence[int] | None = None,
    ) -> Topology:
        """Lay `ranks` over `nodes` in order, and `slots` (of the whole, in one layer) over the ranks.

        Where a count does not divide, the first ones get one more. Say `slots_per_rank` instead of `slots` for a
        distribution of your own.
        """
        if ranks < 1:
            raise EplbInputError("ranks", f"{ranks} ranks", "There is at least one.")
        if not 1 <= nodes <= ranks:
            raise EplbInputError("nodes", f"{nodes} nodes for {ranks} ranks", f"There are 1 to {ranks}.")
        if (slots is None) == (slots_per_rank is None):
            raise EplbInputError("slots", "say either slots or slots_per_rank", "Give one of the two.")
        if slots is not None and slots < 0:
            raise EplbInputError("slots", f"{slots} slots", "There are 0 or more.")
        shares = tuple(slots_per_rank) if slots_per_rank is not None else _deal(slots or 0, ranks)
        if len(shares) != ranks:
            raise EplbInputError(
                "slots_per_rank", f"{len(shares)} entries for {ranks} ranks", "Give one for each rank."
            )
        node_of_rank = tuple(node for node, count in enumerate(_deal(ranks, nodes)) for _ in range(count))
        return cls(shares, node_of_rank, (True,) * ranks, num_groups)

    @property
    def num_ranks(self) -> int:
        """Of all ranks, dead ones too: a rank's number never changes."""
        return len(self.slots_per_rank)

    @property
    def num_nodes(self) -> int:
        """Of all nodes."""
        return max(self.node_of_rank) + 1

    @property
    def width(self) -> int:
        """The most slots that a rank has: the last axis of a placement."""
        return max(self.slots_per_rank)

    @property
    def live_ranks(self) -> tuple[int, ...]:
        """The ranks that are alive, in order."""
        return tuple(rank for rank, alive in enumerate(self.live) if alive)

    @property
    def dead_ranks(self) -> tuple[int, ...]:
        """The others, in order."""
        return tuple(rank for rank, alive in enumerate(self.live) if not alive)

    @property
    def live_slots_per_rank(self) -> tuple[int, ...]:
        """Slots that can be used: 0 for a dead rank."""
        return tuple(n if alive else 0 for n, alive in zip(self.slots_per_rank, self.live, strict=True))

    @property
    def num_slots(self) -> int:
        """Slots of a layer that can be used."""
        return sum(self.live_slots_per_rank)

    def without(self, ranks: Iterable[int]) -> Topology:
        """The same, with these ranks dead."""
        dead = set(ranks)
        return replace(self, live=tuple(alive and rank not in dead for rank, alive in enumerate(self.live)))


def _deal(items: int, hands: int) -> tuple[int, ...]:
    each, more = divmod(items, hands)
    return tuple(each + (hand < more) for hand in range(hands))
