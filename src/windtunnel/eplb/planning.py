"""Planning outside of an engine: a policy with its limits, its time taken, and what its placement is like."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from windtunnel.clock import monotonic_ns
from windtunnel.eplb.balance import arrivals, balancedness, balancedness_weighted, holders
from windtunnel.eplb.placement import EMPTY, Placement
from windtunnel.eplb.plan import Plan, make_plan
from windtunnel.eplb.policies import Budget, Constraints, Explanation, Load, Policy, Split
from windtunnel.eplb.topology import Topology
from windtunnel.errors import TooFewSlots, WindtunnelError


@dataclass(frozen=True)
class Planner:
    """A policy with what it has to keep to."""

    policy: Policy
    constraints: Constraints = field(default_factory=Constraints)
    budget: Budget = field(default_factory=Budget)
    split: Split = "even"
    """`weighted`: the shares of a placement are those that suit the load best."""

    def plan(self, load: Load, topology: Topology, committed: Placement | None) -> tuple[Placement, Explanation, int]:
        """Plan; the third value is the time of the policy's call in ns, without the split of tokens.

        Raises what the policy raises: EplbInputError, TooFewSlots.
        """
        begun_ns = monotonic_ns()
        placement, explanation = self.policy(load, topology, committed, self.constraints, self.budget)
        plan_ns = monotonic_ns() - begun_ns
        if self.split == "weighted":
            placement = best_split(load.mean, placement)
        return placement, explanation, plan_ns

    def warm_up(self, load: Load, topology: Topology, committed: Placement | None) -> None:
        """Plan one layer, so that compiled code is loaded, or made, before the time of a plan is taken."""
        one = None
        if committed is not None:
            per_rank, share = committed.slots_per_rank, committed.share[:1]
            one = Placement.of(committed.slots[:1], committed.num_experts, slots_per_rank=per_rank, share=share)
        try:
            self.plan(_FirstLayer(load.mean[:1], load.noise[:1]), topology, one)
        except WindtunnelError:
            pass  # it is raised again by the plan itself


@dataclass(frozen=True)
class _FirstLayer:
    mean: NDArray[np.float64]
    noise: NDArray[np.float64]


@dataclass(frozen=True)
class Figures:
    """What a placement is like under a load."""

    balancedness: float
    """Mean over layers of mean rank load ÷ maximum rank load, tokens split evenly over replicas."""
    balancedness_weighted: float
    """The same, tokens split as is best for this load: what `split="weighted"` reaches, whatever split is in use."""
    node_crossing_ratio: float | None
    """Tokens that go to another node than most of their expert group's do; None: one node, or no groups."""
    min_replicas: int
    """Ranks that hold an expert: of the expert with the fewest, in any layer."""
    lost_experts_mean: float
    """Experts of a layer that die with one rank: mean over layers and ranks."""
    lost_experts_max: int
    """The same, of the worst rank in the worst layer."""


def figures(load: NDArray[np.float64], placement: Placement, topology: Topology) -> Figures:
    """Take the figures; `load` [layers, experts]."""
    held = holders(placement)
    ranks_of_expert = held.sum(axis=1)
    lost = (held & (ranks_of_expert == 1)[:, None]).sum(axis=2)[:, list(topology.live_ranks)]
    return Figures(
        balancedness=balancedness(load, placement),
        balancedness_weighted=balancedness_weighted(load, best_split(load, placement)),
        node_crossing_ratio=node_crossing_ratio(load, placement, topology),
        min_replicas=int(ranks_of_expert.min()),
        lost_experts_mean=float(lost.mean()),
        lost_experts_max=int(lost.max()),
    )


def node_crossing_ratio(load: NDArray[np.float64], placement: Placement, topology: Topology) -> float | None:
    """The share of tokens that go to another node than the one to which most of their expert group's tokens go.

    0 where each group lives on one node, as group-limited routing likes it. None where there is one node, or where
    the model has no groups that the experts divide into.
    """
    groups, nodes, experts = topology.num_groups, topology.num_nodes, placement.num_experts
    if groups == 1 or nodes == 1 or experts % groups:
        return None
    layer, rank, slot = np.nonzero(placement.slots != EMPTY)
    expert = placement.slots[layer, rank, slot]
    tokens = load[layer, expert] * placement.share[layer, rank, slot]
    of_node = np.zeros((placement.num_layers, groups, nodes))
    np.add.at(of_node, (layer, expert // (experts // groups), np.array(topology.node_of_rank)[rank]), tokens)
    total = of_node.sum()
    return float(1 - of_node.max(axis=2).sum() / total) if total > 0 else 0.0


def best_split(load: NDArray[np.float64], placement: Placement) -> Placement:
    """The placement with the shares that suit the load best; no byte moves."""
    from windtunnel.eplb.policies.split import split_tokens

    return split_tokens(load, placement)


@dataclass(frozen=True)
class Planned:
    """A plan with all that there is to tell of it."""

    placement: Placement
    explanation: Explanation
    before: Figures | None
    """None: nothing was in place."""
    after: Figures
    plan_ns: int
    """Of the policy's call: without the split of tokens, without reading and writing."""
    arrivals: NDArray[np.int64] | None
    """How many experts are new to each rank, over all layers [ranks]; None: nothing was in place."""
    transfers: Plan | None
    """How they get there, layer by layer; None: nothing was in place."""
    num_restored: int
    """Experts, over all layers, that no live rank holds: they come from the weight source."""
    num_slots: int
    """Of the live ranks, over all layers."""

    @property
    def moved_ratio(self) -> float | None:
        """Experts new to a rank ÷ slots of live ranks; None: nothing was in place."""
        return None if self.arrivals is None else int(self.arrivals.sum()) / self.num_slots


def planned(
    planner: Planner, load: Load, topology: Topology, committed: Placement | None, expert_bytes: int | None = None
) -> Planned:
    """Plan, and take the figures before and after. Raises EplbInputError and TooFewSlots."""
    placement, explanation, plan_ns = planner.plan(load, topology, committed)
    return Planned(
        placement=placement,
        explanation=explanation,
        before=None if committed is None else figures(load.mean, committed, topology),
        after=figures(load.mean, placement, topology),
        plan_ns=plan_ns,
        arrivals=None if committed is None else arrivals(committed, placement),
        transfers=None if committed is None else transfers(committed, placement, topology, expert_bytes),
        num_restored=0 if committed is None else len(committed.missing),
        num_slots=topology.num_slots * placement.num_layers,
    )


def transfers(base: Placement, target: Placement, topology: Topology, expert_bytes: int | None) -> Plan:
    """The copies as ranks would make them that have a staging buffer for each slot of a layer, and a checkpoint.

    Bytes and times are 0 where `expert_bytes` is None. Raises EplbInputError.
    """
    sizes = [expert_bytes or 0] * base.num_layers
    staging = topology.slots_per_rank
    return make_plan(base, target, topology, group_bytes=sizes, staging_buffers=staging, weight_source=True)


def engine_placement(layers: int, experts: int, topology: Topology) -> Placement:
    """As engines begin: the experts in order over the live slots, then again from the first until all are full.

    Raises TooFewSlots.
    """
    if topology.num_slots < experts:
        raise TooFewSlots(experts, topology.num_slots, len(topology.live_ranks), "one for each expert")
    is_there = np.arange(topology.width) < np.array(topology.live_slots_per_rank)[:, None]
    one_layer = np.full(is_there.shape, EMPTY, np.int32)
    one_layer[is_there] = np.arange(topology.num_slots) % experts
    return Placement.of(np.tile(one_layer, (layers, 1, 1)), experts, slots_per_rank=topology.slots_per_rank)
