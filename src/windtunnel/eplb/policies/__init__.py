"""Policies: pure and deterministic functions that decide where experts should live.

`POLICIES` names them; `policy` finds one by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from windtunnel.eplb.placement import Placement
from windtunnel.eplb.topology import Topology
from windtunnel.errors import EplbInputError, MissingExtra, did_you_mean

Split = Literal["even", "weighted"]


class Load(Protocol):
    """What a policy sees of a load window."""

    @property
    def mean(self) -> NDArray[np.float64]:
        """Tokens of each logical expert in a step [layers, experts]; finite, not negative."""

    @property
    def noise(self) -> NDArray[np.float64]:
        """How far the next step's load may be from the mean [layers, experts]: one standard deviation, in tokens."""


@dataclass(frozen=True)
class Constraints:
    """What a placement must keep to, whatever it costs in balance."""

    min_replicas: int = 1
    """Replicas of each expert on different fault domains (see `spread`)."""
    spread: Literal["rank", "node"] = "rank"
    """What counts as a fault domain for `min_replicas`."""
    pinned: Mapping[int, tuple[int, ...]] | None = None
    """Experts that must have a replica on certain ranks, in every layer: expert → ranks."""
    keep_groups: bool = False
    """All replicas of an expert group stay on one node (group-limited routing crosses nodes less)."""


@dataclass(frozen=True)
class Budget:
    """How much may move, and when to stop."""

    moved_ratio: float | None = None
    """Copies into ranks that did not hold the expert ÷ slots; None: any number."""
    bytes_per_rank: int | None = None
    """Bytes that a rank may receive; needs `expert_bytes`."""
    expert_bytes: int | None = None
    """Of one expert in one layer, all its tensors."""
    tolerance: float | None = None
    """Stop where the hottest rank is within this ratio over the best possible; None: the policy's own choice."""
    full_replan: bool | None = None
    """True: start over. False: never. None: only where that balances better than steps from what there is."""


@dataclass(frozen=True)
class Explanation:
    """Why a placement is as it is."""

    policy: str
    balancedness: float
    """Predicted: mean over layers of mean rank load ÷ maximum rank load, tokens split evenly over replicas."""
    balancedness_before: float | None
    """Of the committed placement under this load; None: there was none."""
    copies: int
    """Experts new to a rank, over all layers."""
    moved_ratio: float
    """Copies ÷ live slots of all layers."""
    stopped: Mapping[str, int]
    """Why planning ended, and in how many layers: `tolerance`, `noise`, `budget`, `no better step`, `replanned`, ….
    """


Policy = Callable[[Load, Topology, Placement | None, Constraints, Budget], tuple[Placement, Explanation]]
"""`(load, topology, committed, constraints, budget) → (placement, explanation)`; the placement has the epoch of the
committed one, plus 1. Raises EplbInputError or TooFewSlots."""


class _Known(NamedTuple):
    module: str
    function: str
    needs: tuple[str, ...] = ()
    """Packages of the extra `eplb`."""


POLICIES = {
    "windtunnel": _Known("incremental", "plan", ("numba", "scipy")),
    "deepseek": _Known("deepseek", "plan"),
    "deepseek-flat": _Known("deepseek", "plan_flat"),
}


def policy(name: str) -> Policy:
    """The policy of that name; its module is imported when it is called first. Raises EplbInputError, MissingExtra."""
    known = POLICIES.get(name)
    if known is None:
        remedy = f"There are: {', '.join(POLICIES)}."
        raise EplbInputError("policy", f"no policy {name}{did_you_mean(name, POLICIES)}", remedy)
    for package in known.needs:
        if find_spec(package) is None:
            raise MissingExtra(f"the policy {name}", package, "eplb")

    def plan(
        load: Load, topology: Topology, committed: Placement | None, constraints: Constraints, budget: Budget
    ) -> tuple[Placement, Explanation]:
        module = import_module(f"{__name__}.{known.module}")
        found: Policy = getattr(module, known.function)
        return found(load, topology, committed, constraints, budget)

    return plan
