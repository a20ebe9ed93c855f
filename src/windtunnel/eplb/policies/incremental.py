"""The policy `windtunnel`: from what is in place, step by step, as few copies as the balance needs.

A layer is planned from scratch too, which is cheap: that tells how much balance is to be had. Steps from the committed
placement then stop where they come near it. Where they end clearly behind it, the layer takes the plan from scratch,
its ranks renumbered so that most experts stay in place. The loops are in `kernels.py`.

No rank ever holds an expert twice: a second replica there relieves no rank, and survives nothing. So slots stay empty
where there are more than experts times ranks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from windtunnel.eplb.balance import checked_load, explained, holders
from windtunnel.eplb.placement import EMPTY, Placement
from windtunnel.eplb.policies import Budget, Constraints, Explanation, Load
from windtunnel.eplb.policies.kernels import (
    NUM_ATTEMPTS,
    STOPPED,
    Layer,
    Moves,
    from_scratch,
    improved,
    recount,
    repaired,
    settled,
)
from windtunnel.eplb.policies.parts import Part, check_groups, groups_fit, groups_on_nodes, of_nodes, whole
from windtunnel.eplb.policies.renumbering import renumbered
from windtunnel.eplb.topology import Topology
from windtunnel.errors import EplbInputError

_TOLERANCE = 0.0095
"""A balancedness of 0.99, where that can be had."""
_SCRATCH_TOLERANCE = 0.0015
_CLEARLY = 0.05
"""The hottest rank has that much more to do after steps than after a plan from scratch."""
_STEPS_PER_SLOT = 2
_SCRATCH_STEPS_PER_RANK = 2
_SMALL_SLOTS = 64
"""So few slots are packed in all ways, and each improved: greed errs more where there is little to choose from."""
_UNLIMITED = 1 << 40

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Rows = list[Ints]
"""One for each part of a layer."""


def plan(
    load: Load, topology: Topology, committed: Placement | None, constraints: Constraints, budget: Budget
) -> tuple[Placement, Explanation]:
    """Plan from what is committed, or from scratch where nothing is.

    What coverage and constraints demand is placed whatever the budget; all else keeps to it. Experts that are pinned to
    a dead rank are not held to that until it lives. Raises EplbInputError, which names the field, and TooFewSlots.
    """
    tokens, noise = checked_load(load.mean), checked_load(load.noise, field="noise")
    if noise.shape != tokens.shape:
        raise EplbInputError("noise", f"shape {noise.shape} for a load of {tokens.shape}", "They have the same axes.")
    _check(topology, committed, budget, tokens.shape)
    greatest = tokens.max(axis=1, keepdims=True)
    unit = np.where(greatest > 0, greatest, 1)  # numbers near 1: products of two loads stay finite
    with np.errstate(over="ignore"):
        noise = noise / unit
    planning = _Planning(topology, constraints, budget, tokens / unit, noise, committed)
    slots, stopped = planning.planned()
    placement = Placement.of(
        slots,
        tokens.shape[1],
        slots_per_rank=topology.slots_per_rank,
        epoch=0 if committed is None else committed.epoch + 1,
    )
    return placement, explained("windtunnel", tokens, topology, committed, placement, Counter(sorted(stopped)))


@dataclass
class _Planned:
    """One layer on its way."""

    parts: list[Part]
    states: list[Layer]
    homes: list[NDArray[np.bool_]]
    scratch_parts: list[Part]
    scratch: Rows
    even: float
    """The load of each rank if all had the same; of the part where that is most."""
    best: float
    """The hottest rank's load after the plan from scratch."""
    is_sound: bool
    """Every expert is where it must be."""
    stopped: str = ""
    into: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    """Copies into each rank of the topology."""

    def enough(self, tolerance: float) -> float:
        """The load at which the hottest rank is good enough.

        Within the tolerance of the bound that no plan passes; where none comes near it, within half of it of the plan
        from scratch.
        """
        return max(self.even * (1 + tolerance), self.best * (1 + tolerance / 2))

    @property
    def hottest(self) -> float:
        """The load of the hottest rank, over the best there is; 1: as good."""
        most = max(float(state.loads.max()) for state in self.states)
        return most / self.best if self.best > 0 else 1.0


class _Planning:
    """A plan in the making; loads are in units of the layer's greatest."""

    def __init__(
        self,
        topology: Topology,
        constraints: Constraints,
        budget: Budget,
        tokens: Floats,
        noise: Floats,
        committed: Placement | None,
    ) -> None:
        self.topology, self.constraints, self.budget = topology, constraints, budget
        self.tokens, self.noise = tokens, noise
        self.whole = whole(topology, constraints, tokens.shape[1])
        if constraints.keep_groups:
            check_groups(topology, constraints, tokens.shape[1])
        self.tolerance = _TOLERANCE if budget.tolerance is None else budget.tolerance
        self.before: Ints | None = None
        if committed is not None:
            width = min(committed.slots.shape[2], topology.width)
            self.before = np.full((len(tokens), topology.num_ranks, topology.width), EMPTY, np.int64)
            self.before[:, :, :width] = committed.slots[:, :, :width]
            self.before[:, ~np.array(topology.live)] = EMPTY
            self.home = holders(committed)
            self.home[:, ~np.array(topology.live)] = False
        self.most = _UNLIMITED
        if budget.moved_ratio is not None:
            self.most = int(budget.moved_ratio * topology.num_slots * len(tokens) + 1e-9)
        self.most_into = np.full(topology.num_ranks, _UNLIMITED)
        if budget.bytes_per_rank is not None and budget.expert_bytes is not None:
            self.most_into[:] = budget.bytes_per_rank // budget.expert_bytes
        self.into = np.zeros(topology.num_ranks, np.int64)
        """Copies so far into each rank, over all layers."""

    def planned(self) -> tuple[NDArray[np.int32], list[str]]:
        """The slots [layers, ranks, width], and for each layer why it ended."""
        if self.before is None:
            rows = [self._from_scratch(layer) for layer in range(len(self.tokens))]
            slots = [self._slots_of(parts, of_parts) for parts, of_parts, _ in rows]
            return np.stack(slots), ["from scratch"] * len(slots)
        layers = [self._begun(layer) for layer in range(len(self.tokens))]
        for number in _worst_first(layers):
            if not layers[number].is_sound:
                self._replan(layers[number], number, must=True)
        if self.budget.full_replan:
            self._replan_where_it_fits(layers, range(len(layers)))
        self._take_steps(layers)
        if self.budget.full_replan is None:
            much = 1 + max(_CLEARLY, self.tolerance)
            behind = [n for n, layer in enumerate(layers) if layer.hottest > much and layer.stopped != "noise"]
            self._replan_where_it_fits(layers, behind)
        return np.stack([self._settled(n, layer) for n, layer in enumerate(layers)]), [x.stopped for x in layers]

    # --- one layer ----------------------------------------------------------------------------------------------------

    def _parts(self, node_of_group: Ints | None) -> list[Part]:
        if node_of_group is None:
            return [self.whole]
        return of_nodes(self.topology, self.constraints, self.tokens.shape[1], node_of_group)

    def _from_scratch(self, layer: int) -> tuple[list[Part], Rows, float]:
        """A layer's parts, their rows, and the load of the hottest rank."""
        nodes = None
        if self.constraints.keep_groups:
            nodes = groups_on_nodes(self.topology, self.constraints, self.tokens[layer])
        rows, most = [], 0.0
        parts = self._parts(nodes)
        for part in parts:
            state = part.layer(self.tokens[layer][part.experts], part.pins)
            self._fill(part, state)
            rows.append(state.row)
            most = max(most, float(state.loads.max()))
        return parts, rows, most

    def _fill(self, part: Part, state: Layer) -> None:
        """Plan a part from scratch. Raises TooFewSlots."""
        tolerance = min(self.tolerance, _SCRATCH_TOLERANCE)
        begin, best_row, best = state.row.copy(), state.row, np.inf
        is_small = len(begin) <= _SMALL_SLOTS
        attempts = [(n, n + 1) for n in range(NUM_ATTEMPTS)] if is_small else [(0, NUM_ATTEMPTS)]
        for first, end in attempts:
            state.row[:] = begin
            enough = from_scratch(part.layout, state, part.least, tolerance, first, end)
            if np.isinf(enough) and first == 0:
                begin = part.fewest
                state.row[:] = begin
                enough = from_scratch(part.layout, state, part.least, tolerance, first, end)
            if np.isinf(enough):
                continue
            noise = np.zeros(len(part.experts))
            improved(part.layout, state, _free_moves(part), noise, enough, _SCRATCH_STEPS_PER_RANK * len(part.ranks))
            if state.loads.max() < best:
                best, best_row = state.loads.max(), state.row.copy()
            if best <= enough:
                break
        state.row[:] = best_row
        recount(part.layout, state)

    def _begun(self, layer: int) -> _Planned:
        """A layer as it is committed, repaired where it has to be."""
        assert self.before is not None
        scratch_parts, scratch, best = self._from_scratch(layer)
        nodes = self._nodes_of_groups(self.home[layer])
        is_sound = nodes is None or groups_fit(self.topology, self.constraints, self.tokens.shape[1], nodes)
        parts = self._parts(nodes) if is_sound else scratch_parts
        even = max(self.tokens[layer][part.experts].sum() / len(part.ranks) for part in parts)
        out = _Planned(parts, [], [], scratch_parts, scratch, even, best, is_sound)
        for part in parts:
            state = self._state(layer, part, self.before[layer])
            out.is_sound = bool(repaired(part.layout, state)) and out.is_sound
            out.states.append(state)
            out.homes.append(np.ascontiguousarray(self.home[layer][np.ix_(part.ranks, part.experts)]))
        out.into = self._into_of(out)
        self.into += out.into
        return out

    def _state(self, layer: int, part: Part, slots: NDArray[Any]) -> Layer:
        """A part's state by a layer's slots [ranks, width]; experts that do not belong to the part are left out."""
        local = np.full(self.tokens.shape[1] + 1, EMPTY)  # the last one is for empty slots
        local[part.experts] = np.arange(len(part.experts))
        state = part.layer(self.tokens[layer][part.experts], local[slots.reshape(-1)[part.slots]])
        recount(part.layout, state)
        return state

    def _nodes_of_groups(self, held: NDArray[np.bool_]) -> Ints | None:
        """The node of each group by what ranks hold [ranks, experts]; None: groups need not be kept."""
        if not self.constraints.keep_groups:
            return None
        size = held.shape[1] // self.topology.num_groups
        on_node = np.zeros((self.topology.num_nodes, self.topology.num_groups), bool)
        rank, expert = np.nonzero(held)
        on_node[np.array(self.topology.node_of_rank)[rank], expert // size] = True
        return np.where(on_node.sum(axis=0) == 1, on_node.argmax(axis=0), -1)

    def _take_steps(self, layers: list[_Planned]) -> None:
        """Step by step to the tolerance; where the budget is short, the worst layers first, and all equally far."""
        levels = [self.tolerance]
        if self.most < _UNLIMITED or self.most_into.min() < _UNLIMITED:
            worst = max(layer.hottest for layer in layers) - 1
            while levels[-1] * 2 < worst and len(levels) < 12:
                levels.append(max(levels[-1] * 2, 0.001))
        for level in reversed(levels):
            for number in _worst_first(layers):
                if layers[number].stopped != "replanned":
                    self._improve(layers[number], number, level)

    def _improve(self, layer: _Planned, number: int, level: float) -> None:
        self.into -= layer.into
        enough = layer.enough(level)
        hottest = int(np.argmax([state.loads.max() for state in layer.states]))
        left = self.most - int(self.into.sum())
        for place, (part, state, home) in enumerate(zip(layer.parts, layer.states, layer.homes, strict=True)):
            into = _into(state, home)
            others = int(layer.into.sum() - into.sum())
            moves = Moves(home, into, (self.most_into - self.into)[part.ranks], left - others)
            noise = np.ascontiguousarray(self.noise[number][part.experts])
            why = improved(part.layout, state, moves, noise, enough, _STEPS_PER_SLOT * len(part.slots))
            layer.into = self._into_of(layer)
            if place == hottest:
                layer.stopped = STOPPED[why]
        self.into += layer.into

    def _into_of(self, layer: _Planned) -> Ints:
        into = np.zeros(self.topology.num_ranks, np.int64)
        for part, state, home in zip(layer.parts, layer.states, layer.homes, strict=True):
            into[part.ranks] += _into(state, home)
        return into

    # --- replanning ---------------------------------------------------------------------------------------------------

    def _replan_where_it_fits(self, layers: list[_Planned], which: Sequence[int]) -> None:
        for number in _worst_first(layers):
            if number in which and layers[number].stopped != "replanned":
                self._replan(layers[number], number, must=False)

    def _replan(self, layer: _Planned, number: int, *, must: bool) -> None:
        """Take the plan from scratch, renumbered; where that is not a must, only within the budget."""
        slots = self._renumbered(number, layer)
        held = np.zeros_like(self.home[number])
        rank, slot = np.nonzero(slots != EMPTY)
        held[rank, slots[rank, slot]] = True
        into = np.count_nonzero(held & ~self.home[number], axis=1)
        after = self.into - layer.into + into
        if not must and (after.sum() > self.most or ((after > self.most_into) & (into > layer.into)).any()):
            layer.stopped = "budget"
            return
        self.into, layer.into, layer.stopped = after, into, "replanned"
        layer.parts = self._parts(self._nodes_of_groups(held))
        layer.states = [self._state(number, part, slots) for part in layer.parts]

    def _renumbered(self, number: int, layer: _Planned) -> NDArray[np.int32]:
        slots = self._slots_of(layer.scratch_parts, layer.scratch)
        ranks = self.whole.ranks
        held = np.zeros((len(ranks), self.tokens.shape[1]), bool)
        rank, slot = np.nonzero(slots[ranks] != EMPTY)
        held[rank, slots[ranks][rank, slot]] = True
        by_node = self.constraints.keep_groups or (
            self.constraints.spread == "node" and self.constraints.min_replicas > 1
        )
        kinds = [
            ("pinned", int(rank)) if self.whole.layout.pinned[place].any() else self.topology.slots_per_rank[rank]
            for place, rank in enumerate(ranks)
        ]
        nodes = [self.topology.node_of_rank[rank] for rank in ranks] if by_node else None
        takes = renumbered(self.home[number][ranks], held, kinds, nodes)
        slots[ranks] = slots[ranks[takes]]
        return slots

    # --- slots --------------------------------------------------------------------------------------------------------

    def _slots_of(self, parts: list[Part], rows: Rows) -> NDArray[np.int32]:
        """A layer's slots [ranks, width]."""
        slots = np.full(self.topology.num_ranks * self.topology.width, EMPTY, np.int32)
        for part, row in zip(parts, rows, strict=True):
            slots[part.slots] = np.where(row == EMPTY, EMPTY, part.experts[row])
        return slots.reshape(self.topology.num_ranks, self.topology.width)

    def _settled(self, number: int, layer: _Planned) -> NDArray[np.int32]:
        """A layer's slots, each expert that stays on a rank in the slot that it has there."""
        assert self.before is not None
        slots = self._slots_of(layer.parts, [state.row for state in layer.states]).reshape(-1)
        row = slots[self.whole.slots].astype(np.int64)
        settled(self.whole.layout, self.before[number].reshape(-1)[self.whole.slots], row)
        slots[self.whole.slots] = row
        return slots.reshape(self.topology.num_ranks, self.topology.width)


def _free_moves(part: Part) -> Moves:
    """Moves that cost nothing."""
    unlimited = np.full(len(part.ranks), _UNLIMITED)
    return Moves(np.ones(part.layout.pinned.shape, bool), np.zeros(len(part.ranks), np.int64), unlimited, _UNLIMITED)


def _into(state: Layer, home: NDArray[np.bool_]) -> Ints:
    """Copies into each rank of a part."""
    return np.asarray(np.count_nonzero(state.held & ~home, axis=1), np.int64)


def _worst_first(layers: list[_Planned]) -> list[int]:
    return sorted(range(len(layers)), key=lambda number: -layers[number].hottest)


def _check(topology: Topology, committed: Placement | None, budget: Budget, shape: tuple[int, ...]) -> None:
    """Raise EplbInputError for what does not fit together."""
    if committed is not None:
        theirs = (committed.num_layers, committed.num_ranks, committed.num_experts)
        mine = (shape[0], topology.num_ranks, shape[1])
        if theirs != mine:
            words = "{} layers, {} ranks, {} experts"
            problem = f"{words.format(*theirs)}, and the load and the topology have {words.format(*mine)}"
            raise EplbInputError(
                "committed", problem, "Plan from a placement of this model on these ranks, or from none."
            )
    for name in ("moved_ratio", "tolerance", "bytes_per_rank"):
        value = getattr(budget, name)
        if value is not None and not value >= 0:
            raise EplbInputError(name, f"{value}", "It is 0 or more.")
    if budget.bytes_per_rank is not None and (budget.expert_bytes is None or budget.expert_bytes < 1):
        problem = f"bytes_per_rank is given, and an expert has {budget.expert_bytes} bytes"
        raise EplbInputError("expert_bytes", problem, "Say how many bytes an expert of one layer has.")
