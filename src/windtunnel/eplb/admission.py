"""Who may be a rank: what a process says of itself, held against the topology and against what others have said."""

from __future__ import annotations

from collections.abc import Iterable

from windtunnel.eplb import control
from windtunnel.eplb.placement import DIGEST_BYTES, EMPTY, Placement
from windtunnel.eplb.topology import Topology
from windtunnel.eplb.transaction import messages as m
from windtunnel.eplb.transaction.takeover import check_same_model, contents, since
from windtunnel.errors import EplbInputError


class Admission:
    """Decides by greetings, and remembers those of earlier members."""

    def __init__(self, topology: Topology, token: str) -> None:
        self.digests: dict[tuple[int, int], bytes] = {}
        """Of each (layer, expert) that a rank has told: all ranks have the same bytes."""
        self._topology = topology
        self._token = token
        self._evicted: dict[int, int] = {}
        """The newest generation of each rank that was evicted: it, and older ones, are refused."""
        self._former: set[tuple[int, int, str]] = set()
        """Rank, pid and host of processes that were members once."""

    def why_not(self, hello: m.Hello, here: Iterable[m.Hello]) -> str:
        """Why a rank can't be a member, whatever its generation, beside those that are here; empty where it can."""
        others = list(here)
        if not control.same_token(hello.token, self._token):
            return "its token is not the coordinator's"
        if not 0 <= hello.rank < self._topology.num_ranks:
            return f"the topology has ranks 0 to {self._topology.num_ranks - 1}"
        present = next((other for other in others if other.rank == hello.rank), None)
        if present and process_of(hello) in self._former and process_of(hello) != process_of(present):
            return f"it was evicted, and process {present.pid} has its rank now"
        if hello.slots != self._topology.slots_per_rank[hello.rank]:
            return f"it has {hello.slots} slots; the topology says {self._topology.slots_per_rank[hello.rank]}"
        try:
            _check_claims(hello, self._topology.slots_per_rank)
            if others:
                check_same_model(others[0], hello)
            self._check_digests(hello)
        except (EplbInputError, ValueError) as error:
            return str(error)
        return ""

    def was_evicted(self, hello: m.Hello) -> bool:
        """Whether this generation of the rank, or a later one, was evicted."""
        return hello.generation <= self._evicted.get(hello.rank, -1)

    def learn(self, hello: m.Hello) -> None:
        """Hold those who come to what this one says of its experts."""
        self.digests |= _digests_of(hello)

    def learn_only(self, hellos: Iterable[m.Hello]) -> None:
        """Hold those who come to what these say, and to nothing that was said by others."""
        self.digests = {where: digest for hello in hellos for where, digest in _digests_of(hello).items()}

    def evict(self, hello: m.Hello) -> None:
        """This generation is no member any more."""
        self._evicted[hello.rank] = hello.generation

    def leave(self, hello: m.Hello) -> None:
        """This process, a member, has gone."""
        self.evict(hello)
        self._former.add(process_of(hello))

    def _check_digests(self, hello: m.Hello) -> None:
        for where, digest in _digests_of(hello).items():
            if self.digests.get(where, digest) != digest:
                layer, expert = where
                problem = f"layer {layer}, expert {expert} has other bytes than on the other ranks"
                raise EplbInputError("contents", problem, "All ranks load the same checkpoint.")


def process_of(hello: m.Hello) -> tuple[int, int, str]:
    """Tells the processes apart that come for a rank."""
    return hello.rank, hello.pid, hello.host


def _check_claims(hello: m.Hello, slots_per_rank: tuple[int, ...]) -> None:
    """Raise EplbInputError or ValueError where what a rank says of itself can't be."""
    held = contents(hello)
    Placement.of(held[:, None, :], hello.num_experts)
    if since(hello).shape != held.shape or len(hello.digests) != held.size * DIGEST_BYTES or hello.staging_buffers < 0:
        raise ValueError("what it says of its slots does not fit together")
    for told in (hello.committed, hello.pending and hello.pending.target):
        if told and told.placement().slots_per_rank != slots_per_rank:
            problem = f"{list(told.slots_per_rank)}, not {list(slots_per_rank)}"
            raise EplbInputError("slots_per_rank", problem, "It served under another topology: start it again.")


def _digests_of(hello: m.Hello) -> dict[tuple[int, int], bytes]:
    held = contents(hello)
    return {
        (layer, int(held[layer, slot])): hello.digests[at : at + DIGEST_BYTES]
        for layer in range(held.shape[0])
        for slot in range(held.shape[1])
        for at in [(layer * held.shape[1] + slot) * DIGEST_BYTES]
        if held[layer, slot] != EMPTY
    }
