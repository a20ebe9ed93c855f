"""Who reads from whom: sources such that no rank sends more than it must, and batches in which ranks talk to few."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

Place = tuple[int, int]
"""A rank and a slot."""


def choose_sources(
    targets: Sequence[int], places: Sequence[list[Place]], node_of_rank: Sequence[int]
) -> list[list[Place]]:
    """Rank the places that each of some equally large copies can be read from, best first.

    The target's own rank comes first, then ranks of its node, then others. Among equals, the busiest sender sends as
    few copies as possible: an optimal semi-matching by cost-reducing paths (Harvey, Ladner, Lovász, Tamir 2006).
    """
    nearest = [_nearest(target, at, node_of_rank) for target, at in zip(targets, places, strict=True)]
    remote = [[] if target in dict(at) else at for target, at in zip(targets, nearest, strict=True)]
    chosen = _spread([sorted({rank for rank, _ in at}) for at in remote])
    ranked = []
    for target, at, sender in zip(targets, places, chosen, strict=True):

        def order(place: Place, target: int = target, sender: int | None = sender) -> tuple[bool, int, int, int]:
            return place[0] != sender, _distance(target, place[0], node_of_rank), *place

        ranked.append(sorted(at, key=order))
    return ranked


def deal_batches(pairs: Sequence[tuple[int, int]], max_peers: int) -> dict[tuple[int, int], int]:
    """The batch of each (sender, receiver): in a batch a rank has at most `max_peers` peers, in whatever part.

    First fit, pairs with the most copies first: at most twice the batches that any way needs.
    """
    copies: dict[tuple[int, int], int] = {}
    for pair in pairs:
        copies[pair] = copies.get(pair, 0) + 1
    peers: list[dict[int, set[int]]] = []
    batches: dict[tuple[int, int], int] = {}
    for a, b in sorted(copies, key=lambda pair: (-copies[pair], pair)):
        number = 0
        while number < len(peers) and not (_has_room(peers[number], a, b, max_peers)):
            number += 1
        if number == len(peers):
            peers.append({})
        peers[number].setdefault(a, set()).add(b)
        peers[number].setdefault(b, set()).add(a)
        batches[a, b] = number
    return batches


def _has_room(peers: dict[int, set[int]], a: int, b: int, max_peers: int) -> bool:
    return all(len(peers.get(x, set()) | {y}) <= max_peers for x, y in ((a, b), (b, a)))


def _distance(target: int, rank: int, node_of_rank: Sequence[int]) -> int:
    return 0 if rank == target else 1 if node_of_rank[rank] == node_of_rank[target] else 2


def _nearest(target: int, places: list[Place], node_of_rank: Sequence[int]) -> list[Place]:
    distance = min((_distance(target, rank, node_of_rank) for rank, _ in places), default=0)
    return [place for place in places if _distance(target, place[0], node_of_rank) == distance]


def _spread(choices: list[list[int]]) -> list[int | None]:
    """A sender for each copy, of those it has a choice of; None: it has none."""
    chosen: list[int | None] = [None] * len(choices)
    sends: dict[int, set[int]] = {rank: set() for ranks in choices for rank in ranks}
    for copy in sorted(range(len(choices)), key=lambda c: len(choices[c])):
        if choices[copy]:
            rank = min(choices[copy], key=lambda r: (len(sends[r]), r))
            chosen[copy] = rank
            sends[rank].add(copy)
    while path := _relieving_path(choices, sends):
        for copy, sender, to in path:
            sends[sender].discard(copy)
            sends[to].add(copy)
            chosen[copy] = to
    return chosen


def _relieving_path(choices: list[list[int]], sends: dict[int, set[int]]) -> list[tuple[int, int, int]]:
    """Copies to hand on, (copy, from, to), so that one of the busiest sends one less and none sends as many."""
    most = max(map(len, sends.values()), default=0)
    came: dict[int, tuple[int, int]] = {rank: (-1, -1) for rank in sorted(sends) if len(sends[rank]) == most}
    queue = deque(came)
    while queue:
        rank = queue.popleft()
        if len(sends[rank]) <= most - 2:
            path = []
            while came[rank][0] >= 0:
                copy, sender = came[rank]
                path.append((copy, sender, rank))
                rank = sender
            return path
        for copy in sorted(sends[rank]):
            for to in choices[copy]:
                if to not in came:
                    came[to] = (copy, rank)
                    queue.append(to)
    return []
