"""The loops of the policy `windtunnel`, compiled: a layer's replicas are counted, packed to ranks, improved in steps.

One layer's slots stand in one row, rank by rank. What follows from the row (replicas, holders, rank loads) is kept up
to date beside it, in `Layer`; functions change it in place.

They stand in one file because numba's cache looks at the file of the function that is called, and at no other: spread
over several, a change of one would leave machine code of the old one in the others.

Compiled code releases the interpreter lock, for planning happens beside serving. It runs on one thread: numba's pools
of threads do not survive a fork, and engines fork.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import numpy as np
from numba import njit
from numpy.typing import NDArray

EMPTY = -1
STOPPED = ("tolerance", "noise", "budget", "no better step", "step limit")
_TOLERANCE, _NOISE, _BUDGET, _NO_STEP, _LIMIT = range(len(STOPPED))
_NOISE_PART = 0.5
"""Of one standard deviation: an excess below it makes the hottest rank of a step hardly any hotter."""
_GAIN = 1 - 1e-9
"""A step leaves at most this part of the hottest rank's load: less is rounding."""
_DETOURS = 4
"""Spare replicas that a detour may begin with."""
_DETOUR_SWAPS = 6
_SHARES = (0.65, 0.75, 0.85)
"""Replicas of at most these parts of the mean rank load: a rank then has one heavy replica among light ones. Where
slots are few this packs better than replicas as light as can be, two of which are too much for a rank."""
NUM_ATTEMPTS = 1 + len(_SHARES)
"""Ways to count replicas: as light as can be, and these."""

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
_F = TypeVar("_F", bound=Callable[..., object])
_int: Callable[[np.int64 | int], int] = np.int64  # type: ignore[assignment]
"""Numba takes a number that stands in the code for a type of its own, and compiles what is called with it once more."""
_compiled: Callable[[_F], _F] = njit(cache=True, nogil=True, error_model="numpy")  # type: ignore[assignment]


class Layout(NamedTuple):
    """What all layers share."""

    first: Ints
    """Where each rank's slots begin in the row, and where the last one's end [ranks + 1]."""
    rank_of: Ints
    """The rank of each slot [slots]."""
    domain_of: Ints
    """The fault domain of each rank [ranks]."""
    pinned: Bools
    """Which rank must hold which expert [ranks, experts]."""
    min_domains: int
    """Fault domains that each expert must be on."""


class Layer(NamedTuple):
    """One layer's state. No rank holds an expert twice."""

    tokens: Floats
    """[experts]."""
    row: Ints
    """The expert of each slot [slots]; -1: empty."""
    counts: Ints
    """Replicas of each expert [experts]."""
    held: Bools
    """Which rank holds which expert [ranks, experts]."""
    in_domain: Ints
    """Ranks of a domain that hold an expert [domains, experts]."""
    loads: Floats
    """Tokens of each rank [ranks]."""


class Moves(NamedTuple):
    """What a layer's steps may copy."""

    home: Bools
    """What was where [ranks, experts]: anything else on a rank is a copy."""
    into: Ints
    """The layer's copies into each rank [ranks]."""
    most_into: Ints
    """At most that many [ranks]."""
    most: int
    """And at most that many in all."""


# --- a layer's state --------------------------------------------------------------------------------------------------


@_compiled
def _put(layout: Layout, layer: Layer, slot: int, expert: int) -> None:
    """Put an expert into an empty slot; counts and loads are the caller's."""
    rank = layout.rank_of[slot]
    layer.row[slot] = expert
    layer.held[rank, expert] = True
    layer.in_domain[layout.domain_of[rank], expert] += 1


@_compiled
def _take(layout: Layout, layer: Layer, slot: int) -> int:
    """Empty a slot and tell what it held; counts and loads are the caller's."""
    rank, expert = layout.rank_of[slot], layer.row[slot]
    layer.row[slot] = EMPTY
    layer.held[rank, expert] = False
    layer.in_domain[layout.domain_of[rank], expert] -= 1
    return int(expert)


@_compiled
def recount(layout: Layout, layer: Layer) -> None:
    """Make everything else from the row; an expert's second slot on a rank is emptied."""
    layer.counts[:] = 0
    layer.held[:] = False
    layer.in_domain[:] = 0
    layer.loads[:] = 0
    for slot in range(len(layer.row)):
        expert = layer.row[slot]
        if expert < 0:
            continue
        if layer.held[layout.rank_of[slot], expert]:
            layer.row[slot] = EMPTY
            continue
        layer.counts[expert] += 1
        _put(layout, layer, slot, expert)
    for slot in range(len(layer.row)):
        expert = layer.row[slot]
        if expert >= 0:
            layer.loads[layout.rank_of[slot]] += layer.tokens[expert] / layer.counts[expert]


@_compiled
def _domains(layer: Layer, expert: int) -> int:
    """How many domains hold an expert."""
    found = 0
    for domain in range(len(layer.in_domain)):
        if layer.in_domain[domain, expert] > 0:
            found += 1
    return found


@_compiled
def _may_leave(layout: Layout, layer: Layer, expert: int, rank: int, to_rank: int) -> bool:
    """Whether an expert may leave a rank for another or, where that is -1, for nowhere."""
    if layout.pinned[rank, expert]:
        return False
    if to_rank < 0 and layer.counts[expert] < 2:
        return False
    domain = layout.domain_of[rank]
    if layout.min_domains < 2 or layer.in_domain[domain, expert] > 1:
        return True
    after = _domains(layer, expert) - 1
    if to_rank >= 0 and (
        layout.domain_of[to_rank] == domain or layer.in_domain[layout.domain_of[to_rank], expert] == 0
    ):
        after += 1
    return after >= layout.min_domains


# --- from scratch -----------------------------------------------------------------------------------------------------


@_compiled
def _water_filled(tokens: Floats, counts: Ints, most: Ints, slots: int, is_coldest_first: bool) -> None:
    """Spread the slots that are left over the experts, `most` for each: to the most tokens a replica, or to the fewest.

    Of equals, to the one with the fewest replicas, then to the first.
    """
    for _ in range(slots - counts.sum()):
        best = _int(-1)
        for expert in range(len(tokens)):
            if counts[expert] >= most[expert]:
                continue
            if best >= 0:
                difference = tokens[expert] * counts[best] - tokens[best] * counts[expert]
                if is_coldest_first:
                    difference = -difference
                if difference < 0 or (difference == 0 and counts[expert] >= counts[best]):
                    continue
            best = expert
        if best < 0:
            return
        counts[best] += 1


@_compiled
def _packed(layout: Layout, layer: Layer, wanted: Ints) -> bool:
    """Add replicas to the row until each expert has as many as `wanted`: the heaviest first, to the least loaded rank.

    Where ranks differ in slots, to the one that needs most for each slot that it has left: few slots, heavy experts.
    An expert that is on too few domains goes to a new one. A replica that fits nowhere is left out. False: an expert
    is on too few domains in the end.
    """
    num_ranks = len(layer.loads)
    free = np.zeros(num_ranks, np.int64)
    share = layer.tokens / wanted
    layer.loads[:] = 0
    for slot in range(len(layer.row)):
        if layer.row[slot] < 0:
            free[layout.rank_of[slot]] += 1
        else:
            layer.loads[layout.rank_of[slot]] += share[layer.row[slot]]
    is_even = free.min() == free.max()
    mean = layer.tokens.sum() / num_ranks
    is_covered = True
    for expert in np.argsort(-share, kind="mergesort"):
        domains = _domains(layer, expert) if layout.min_domains > 1 else layer.counts[expert]
        for _ in range(wanted[expert] - layer.counts[expert]):
            best, least = _int(-1), np.inf
            for rank in range(num_ranks):
                if free[rank] == 0 or layer.held[rank, expert]:
                    continue
                load = layer.loads[rank] if is_even else (layer.loads[rank] - mean) / free[rank]
                if load < least and (
                    domains >= layout.min_domains or layer.in_domain[layout.domain_of[rank], expert] == 0
                ):
                    best, least = rank, load
            if best < 0:
                break
            if layer.in_domain[layout.domain_of[best], expert] == 0:
                domains += 1
            slot = layout.first[best]
            while layer.row[slot] >= 0:
                slot += 1
            _put(layout, layer, slot, expert)
            free[best] -= 1
            layer.counts[expert] += 1
            layer.loads[best] += share[expert]
        is_covered = is_covered and domains >= layout.min_domains
    recount(layout, layer)  # replicas that were left out weigh on the others
    return is_covered


@_compiled
def _filled(layout: Layout, layer: Layer) -> None:
    """Use the slots that packing left empty, for the hottest expert that makes no rank the hottest, or the coldest."""
    for slot in range(len(layer.row)):
        if layer.row[slot] >= 0:
            continue
        rank, most = layout.rank_of[slot], layer.loads.max()
        best, best_share = _int(-1), -np.inf
        for expert in range(len(layer.tokens)):
            if layer.held[rank, expert]:
                continue
            share = layer.tokens[expert] / (layer.counts[expert] + 1)
            if layer.loads[rank] + share > most:
                share = -share
            if share > best_share:
                best, best_share = expert, share
        if best >= 0:
            _hand_over(layout, layer, slot, best)


@_compiled
def from_scratch(layout: Layout, layer: Layer, least: Ints, tolerance: float, first: int, end: int) -> float:
    """Plan a layer; what its row holds already stays. The load to which steps should bring its hottest rank.

    `least` [experts]: replicas that each must have. Several numbers of replicas are tried, attempts `first` to `end`,
    and the best packing is taken. Infinite: none has every expert on enough domains.
    """
    num_ranks, num_experts = layer.held.shape
    begin, best_row = layer.row.copy(), layer.row.copy()
    most = np.full(num_experts, num_ranks)
    mean = layer.tokens.sum() / num_ranks
    counts = least.copy()
    _water_filled(layer.tokens, counts, most, len(begin), False)
    enough, best = mean, np.inf
    for expert in range(num_experts):
        enough = max(enough, layer.tokens[expert] / counts[expert])
    enough *= 1 + tolerance
    for attempt in range(first, end):
        if attempt > 0:
            if mean == 0:
                break
            counts[:] = least
            share = _SHARES[attempt - 1] * mean
            for expert in range(num_experts):
                wanted = int(np.ceil(layer.tokens[expert] / share))
                counts[expert] = min(num_ranks, max(counts[expert], wanted))
                most[expert] = counts[expert] if wanted > 1 else num_ranks
            if counts.sum() > len(begin):
                continue
            _water_filled(layer.tokens, counts, most, len(begin), True)
        layer.row[:] = begin
        recount(layout, layer)
        if _packed(layout, layer, counts) and layer.loads.max() < best:
            best = layer.loads.max()
            best_row[:] = layer.row
        if best <= enough:
            break
    layer.row[:] = best_row
    recount(layout, layer)
    if best == np.inf:
        return np.inf
    _filled(layout, layer)
    return float(enough)


# --- in steps ---------------------------------------------------------------------------------------------------------


@_compiled
def repaired(layout: Layout, layer: Layer) -> bool:
    """Put what is missing where it may be: pinned experts, then experts on too few domains. False: it takes more.

    It takes empty slots, else those of replicas that can be spared.
    """
    num_ranks, num_experts = layer.held.shape
    for rank in range(num_ranks):
        for expert in range(num_experts):
            is_missing = layout.pinned[rank, expert] and not layer.held[rank, expert]
            if is_missing and not _put_somewhere(layout, layer, expert, rank, rank + 1):
                return False
    for expert in np.argsort(-layer.tokens, kind="mergesort"):
        for _ in range(_domains(layer, expert), layout.min_domains):
            if not _put_somewhere(layout, layer, expert, _int(0), num_ranks):
                return False
    return True


@_compiled
def _put_somewhere(layout: Layout, layer: Layer, expert: int, first_rank: int, end_rank: int) -> bool:
    """Put an expert on a rank of these, of a domain that lacks it where there are several ranks to choose from."""
    best, least = _int(-1), np.inf
    share = layer.tokens[expert] / (layer.counts[expert] + 1)
    for slot in range(layout.first[first_rank], layout.first[end_rank]):
        rank, other = layout.rank_of[slot], layer.row[slot]
        if layer.held[rank, expert]:
            continue
        if end_rank - first_rank > 1 and layer.in_domain[layout.domain_of[rank], expert] > 0:
            continue
        after = layer.loads[rank] + share
        if other >= 0:
            if not _may_leave(layout, layer, other, rank, _int(-1)):
                continue
            after = max(after - layer.tokens[other] / layer.counts[other], 0.0)
            after += layer.tokens[other] / (layer.counts[other] - 1)  # which the other replicas get
        if after < least:
            best, least = slot, after
    if best < 0:
        return False
    _hand_over(layout, layer, best, expert)
    return True


@_compiled
def _hand_over(layout: Layout, layer: Layer, slot: int, expert: int) -> None:
    """Give a slot to a further replica of an expert; what it held loses one."""
    rank, other = layout.rank_of[slot], layer.row[slot]
    if other >= 0:
        layer.loads[rank] -= layer.tokens[other] / layer.counts[other]
        _take(layout, layer, slot)
        _recounted(layer, other, layer.counts[other] - 1)
    _recounted(layer, expert, layer.counts[expert] + 1)
    layer.loads[rank] += layer.tokens[expert] / layer.counts[expert]
    _put(layout, layer, slot, expert)


@_compiled
def _recounted(layer: Layer, expert: int, count: int) -> None:
    """Split an expert's tokens over another number of replicas, on the ranks that hold it now."""
    before = layer.counts[expert]
    layer.counts[expert] = count
    if before == 0:
        return
    change = layer.tokens[expert] / count - layer.tokens[expert] / before
    for rank in range(len(layer.loads)):
        if layer.held[rank, expert]:
            layer.loads[rank] += change


@_compiled
def improved(layout: Layout, layer: Layer, moves: Moves, noise: Floats, enough: float, most_steps: int) -> int:
    """Relieve the hottest rank step by step until it has at most `enough` tokens; why it stopped, see `STOPPED`.

    A step swaps two slots between the hottest rank and another, or gives the slot of a spare replica, or an empty one,
    to another expert. Of all steps that relieve it enough it is the one with the fewest copies, else the one that
    relieves it most. Where none does, a replica is dropped, or a detour taken. `noise` [experts]: one standard
    deviation of each expert's tokens.
    """
    for _ in range(most_steps):
        hot = _int(np.argmax(layer.loads))
        if layer.loads[hot] <= enough:
            return _TOLERANCE
        if layer.loads[hot] - enough <= _NOISE_PART * _noise_of(layout, layer, noise, hot):
            return _NOISE
        nothing = (max(layer.loads[hot] * _GAIN, enough), _int(1 << 40), layer.loads[hot] * _GAIN)
        swap, mine, theirs, is_refused = _best_swap(layout, layer, moves, enough, hot, nothing)
        slot, newcomer, is_refused_too = _int(-1), _int(-1), False
        if mine < 0 or swap[1] > 0:  # a hand-over has one copy where most swaps have two
            _, slot, newcomer, is_refused_too = _best_hand_over(layout, layer, moves, enough, hot, swap)
        if slot >= 0:
            _counted_hand_over(layout, layer, moves, slot, newcomer)
        elif mine >= 0:
            _swap(layout, layer, moves, mine, theirs)
        elif not _dropped(layout, layer, moves, hot) and not _improved_by_detour(layout, layer, moves, enough, hot):
            return _BUDGET if is_refused or is_refused_too else _NO_STEP
    return _LIMIT


@_compiled
def _noise_of(layout: Layout, layer: Layer, noise: Floats, rank: int) -> float:
    """One standard deviation of a rank's load, its experts' being independent of each other."""
    variance = 0.0
    for slot in range(layout.first[rank], layout.first[rank + 1]):
        expert = layer.row[slot]
        if expert >= 0:
            variance += (noise[expert] / layer.counts[expert]) ** 2
    return float(np.sqrt(variance))


@_compiled
def _best_swap(
    layout: Layout, layer: Layer, moves: Moves, enough: float, hot: int, best: tuple[float, int, float]
) -> tuple[tuple[float, int, float], int, int, bool]:
    """The best swap of a slot of the hottest rank: what it comes to, the two slots, and whether a better one is barred.

    What a step comes to: the load that it leaves or `enough`, its copies, the load that it leaves.
    """
    tokens, row, counts, held, home = layer.tokens, layer.row, layer.counts, layer.held, moves.home
    most, copies = layer.loads[hot], moves.into.sum()
    mine_best, theirs_best, is_refused = _int(-1), _int(-1), False
    coldest = _int(np.argmin(layer.loads))
    for turn in range(len(layer.loads) + 1):  # the coldest rank first: it lets most of the others be passed over
        rank = coldest if turn == 0 else turn - 1
        if rank == hot or (rank == coldest and turn > 0) or (most + layer.loads[rank]) / 2 > best[0]:
            continue
        for mine in range(layout.first[hot], layout.first[hot + 1]):
            a = row[mine]
            if a < 0 or held[rank, a]:
                continue
            share = tokens[a] / counts[a]
            for theirs in range(layout.first[rank], layout.first[rank + 1]):
                b = row[theirs]
                moved = share - (tokens[b] / counts[b] if b >= 0 else 0.0)
                after = max(most - moved, layer.loads[rank] + moved)
                if moved <= 0 or after >= most * _GAIN or max(after, enough) > best[0]:
                    continue
                here, there = 0, 0 if home[rank, a] else 1
                if not home[hot, a]:
                    here -= 1
                if b >= 0 and not home[hot, b]:
                    here += 1
                if b >= 0 and not home[rank, b]:
                    there -= 1
                reached = (max(after, enough), here + there, after)
                if reached >= best:
                    continue
                if (b >= 0 and (held[hot, b] or not _may_leave(layout, layer, b, rank, hot))) or not _may_leave(
                    layout, layer, a, hot, rank
                ):
                    continue
                if (
                    (here + there > 0 and copies + here + there > moves.most)
                    or (here > 0 and moves.into[hot] + here > moves.most_into[hot])
                    or (there > 0 and moves.into[rank] + there > moves.most_into[rank])
                ):
                    is_refused = True
                    continue
                best, mine_best, theirs_best = reached, mine, theirs
    return best, mine_best, theirs_best, is_refused


@_compiled
def _swap(layout: Layout, layer: Layer, moves: Moves, mine: int, theirs: int) -> None:
    """Swap two slots of different ranks; the second may be empty."""
    hot, rank = layout.rank_of[mine], layout.rank_of[theirs]
    a = _take(layout, layer, mine)
    moved = layer.tokens[a] / layer.counts[a]
    if not moves.home[hot, a]:
        moves.into[hot] -= 1
    if not moves.home[rank, a]:
        moves.into[rank] += 1
    if layer.row[theirs] >= 0:
        b = _take(layout, layer, theirs)
        moved -= layer.tokens[b] / layer.counts[b]
        if not moves.home[hot, b]:
            moves.into[hot] += 1
        if not moves.home[rank, b]:
            moves.into[rank] -= 1
        _put(layout, layer, mine, b)
    _put(layout, layer, theirs, a)
    layer.loads[hot] -= moved
    layer.loads[rank] += moved


@_compiled
def _best_hand_over(
    layout: Layout, layer: Layer, moves: Moves, enough: float, hot: int, best: tuple[float, int, float]
) -> tuple[tuple[float, int, float], int, int, bool]:
    """The best slot to give to another expert, where that is better than `best`; like `_best_swap`.

    Either an expert of the hottest rank gets a further replica, or the hottest rank gives up one of its own.
    """
    tokens, row, counts, held, home = layer.tokens, layer.row, layer.counts, layer.held, moves.home
    most, copies = layer.loads[hot], moves.into.sum()
    slot_best, newcomer_best, is_refused = _int(-1), _int(-1), False
    for slot in range(len(row)):
        rank, b = layout.rank_of[slot], row[slot]
        if (b >= 0 and counts[b] < 2) or (b < 0 and rank == hot):
            continue
        share = tokens[b] / counts[b] if b >= 0 else 0.0
        more = tokens[b] / (counts[b] - 1) - share if b >= 0 else 0.0
        if layer.loads[rank] - share >= best[2] and layer.loads[rank] - share > enough:
            continue
        others = -1.0  # the load of the hottest rank that takes over b's tokens; reckoned when it is asked for
        is_hot = rank == hot
        start, end = (0, len(tokens)) if is_hot else (layout.first[hot], layout.first[hot + 1])
        for candidate in range(start, end):
            a = candidate if is_hot else row[candidate]
            if a < 0 or a == b or held[rank, a]:
                continue
            after = layer.loads[rank] - share + tokens[a] / (counts[a] + 1)
            if not is_hot:
                relieved = most - tokens[a] / counts[a] + tokens[a] / (counts[a] + 1)
                if b >= 0 and held[hot, b]:
                    relieved += more
                after = max(after, relieved)
            if after >= most * _GAIN or max(after, enough) > best[0]:
                continue
            if others < 0:
                others = 0.0
                if b >= 0:
                    if not _may_leave(layout, layer, b, rank, _int(-1)):
                        break
                    for other in range(len(layer.loads)):
                        if other != rank and other != hot and held[other, b]:
                            others = max(others, layer.loads[other] + more)
            after = max(after, others)
            if after >= most * _GAIN:
                continue
            cost = 0 if home[rank, a] else 1
            if b >= 0 and not home[rank, b]:
                cost -= 1
            reached = (max(after, enough), cost, after)
            if reached >= best:
                continue
            if cost > 0 and (copies + cost > moves.most or moves.into[rank] + cost > moves.most_into[rank]):
                is_refused = True
                continue
            best, slot_best, newcomer_best = reached, slot, a
    return best, slot_best, newcomer_best, is_refused


@_compiled
def _counted_hand_over(layout: Layout, layer: Layer, moves: Moves, slot: int, expert: int) -> None:
    """Hand over a slot, and count the copies."""
    rank, other = layout.rank_of[slot], layer.row[slot]
    if other >= 0 and not moves.home[rank, other]:
        moves.into[rank] -= 1
    if not moves.home[rank, expert]:
        moves.into[rank] += 1
    _hand_over(layout, layer, slot, expert)


@_compiled
def _dropped(layout: Layout, layer: Layer, moves: Moves, hot: int) -> bool:
    """Empty a slot of the hottest rank, where its other replicas can take over. False: that relieves nothing."""
    best, least = _int(-1), layer.loads[hot] * _GAIN
    for slot in range(layout.first[hot], layout.first[hot + 1]):
        expert = layer.row[slot]
        if expert < 0 or not _may_leave(layout, layer, expert, hot, _int(-1)):
            continue
        share = layer.tokens[expert] / layer.counts[expert]
        more = layer.tokens[expert] / (layer.counts[expert] - 1) - share
        after = layer.loads[hot] - share
        for rank in range(len(layer.loads)):
            if rank != hot and layer.held[rank, expert]:
                after = max(after, layer.loads[rank] + more)
        if after < least:
            best, least = slot, after
    if best < 0:
        return False
    expert = _take(layout, layer, best)
    if not moves.home[hot, expert]:
        moves.into[hot] -= 1
    layer.loads[hot] -= layer.tokens[expert] / layer.counts[expert]
    _recounted(layer, expert, layer.counts[expert] - 1)
    return True


@_compiled
def _improved_by_detour(layout: Layout, layer: Layer, moves: Moves, enough: float, hot: int) -> bool:
    """Hand over a spare replica's slot though that makes other ranks too hot, if a few swaps then relieve those.

    False: no such way was found, and all is as it was. The replicas tried are those that are missed least.
    """
    most = layer.loads[hot]
    begin, into = layer.row.copy(), moves.into.copy()
    passed = np.zeros(len(layer.tokens), np.bool_)
    for _ in range(_DETOURS):
        spare, least = _int(-1), np.inf
        for expert in range(len(layer.tokens)):
            if layer.counts[expert] > 1 and not passed[expert]:
                left = layer.tokens[expert] / (layer.counts[expert] - 1)
                if left < least:
                    spare, least = expert, left
        if spare < 0 or least >= most:
            return False
        passed[spare] = True
        for mine in range(layout.first[hot], layout.first[hot + 1]):
            a = begin[mine]
            if a < 0 or a == spare:
                continue
            slot = _coldest_slot_of(layout, layer, moves, spare, a)
            if slot < 0:
                continue
            _counted_hand_over(layout, layer, moves, slot, a)
            for _ in range(_DETOUR_SWAPS):
                hottest = _int(np.argmax(layer.loads))
                if layer.loads[hottest] < most * _GAIN:
                    break
                nothing = (max(most * _GAIN, enough), _int(1 << 40), layer.loads[hottest] * _GAIN)
                _, out, into_slot, _ = _best_swap(layout, layer, moves, enough, hottest, nothing)
                if out < 0:
                    break
                _swap(layout, layer, moves, out, into_slot)
            if layer.loads.max() < most * _GAIN and moves.into.sum() <= moves.most:
                return True
            layer.row[:] = begin
            moves.into[:] = into
            recount(layout, layer)
    return False


@_compiled
def _coldest_slot_of(layout: Layout, layer: Layer, moves: Moves, spare: int, expert: int) -> int:
    """The slot of a replica that can be spared for another expert, on the coldest rank; -1: there is none."""
    best, least = _int(-1), np.inf
    for slot in range(len(layer.row)):
        rank = layout.rank_of[slot]
        if layer.row[slot] != spare or layer.held[rank, expert] or layer.loads[rank] >= least:
            continue
        added = 0 if moves.home[rank, expert] else 1
        if not moves.home[rank, spare]:
            added -= 1
        if added > 0 and (moves.into.sum() >= moves.most or moves.into[rank] >= moves.most_into[rank]):
            continue
        if _may_leave(layout, layer, spare, rank, _int(-1)):
            best, least = slot, layer.loads[rank]
    return best


@_compiled
def settled(layout: Layout, before: Ints, row: Ints) -> None:
    """Put each expert that its rank held before back into the slot in which it was; no rank holds an expert twice."""
    for rank in range(len(layout.first) - 1):
        for slot in range(layout.first[rank], layout.first[rank + 1]):
            if before[slot] < 0 or row[slot] == before[slot]:
                continue
            for other in range(layout.first[rank], layout.first[rank + 1]):
                if row[other] == before[slot]:
                    row[slot], row[other] = row[other], row[slot]
                    break


@_compiled
def in_common(before: Bools, after: Bools) -> Ints:
    """How many experts each rank of the one has in common with each of the other [ranks, ranks]; both [ranks, experts].

    A product of matrices, but of sparse ones, and without the threads of a library for dense ones.
    """
    num_ranks, num_experts = before.shape
    common = np.zeros((num_ranks, len(after)), np.int64)
    for expert in range(num_experts):
        for rank in range(num_ranks):
            if before[rank, expert]:
                for other in range(len(after)):
                    if after[other, expert]:
                        common[rank, other] += 1
    return common
