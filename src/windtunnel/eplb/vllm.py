"""vLLM plans its expert placement with a policy of ours, put in from an entry point of `vllm.general_plugins`.

vLLM finds its policy in the dict `EPLB_POLICIES` under a name that its configuration knows, and knows only "default".
So `register` puts ours there. It has the signature of `AbstractEplbPolicy.rebalance_experts`; tensors go in and out,
and torch is imported only when it is called, by vLLM's process, which has it.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from importlib import import_module
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from windtunnel.eplb.load import LoadWindow
from windtunnel.eplb.placement import EMPTY, Placement
from windtunnel.eplb.policies import Budget, Constraints, policy
from windtunnel.eplb.topology import Topology
from windtunnel.errors import EplbInputError

NAME_IN_VLLM = "default"
CHOICE = "WINDTUNNEL_VLLM_EPLB"
"""The environment variable that names a policy of ours for `plugin`."""


class WindtunnelPolicy:
    """A policy for vLLM. A subclass may name another policy, constraints and a budget."""

    policy_name: ClassVar[str] = "windtunnel"
    constraints: ClassVar[Constraints] = Constraints()
    budget: ClassVar[Budget] = Budget()

    @classmethod
    def rebalance_experts(
        cls,
        weight: Any,
        num_replicas: int,
        num_groups: int,
        num_nodes: int,
        num_ranks: int,
        old_global_expert_indices: Any = None,
    ) -> Any:
        """The logical expert of each slot, an int64 tensor [layers, num_replicas]; see `slots`."""
        in_place = None if old_global_expert_indices is None else _array(old_global_expert_indices)
        slots = cls.slots(_array(weight), num_replicas, num_groups, num_nodes, num_ranks, in_place)
        return import_module("torch").from_numpy(slots)

    @classmethod
    def slots(
        cls,
        load: NDArray[Any],
        num_slots: int,
        num_groups: int,
        num_nodes: int,
        num_ranks: int,
        in_place: NDArray[Any] | None = None,
    ) -> NDArray[np.int64]:
        """The logical expert of each slot [layers, num_slots], for a load [layers, logical experts].

        `in_place` [layers, num_slots] is what the slots hold now, -1 for none. Where it belongs to another number of
        slots, as when vLLM changes its number of ranks, the plan starts over. All ranks of vLLM plan for themselves,
        and get the same from the same load. Raises EplbInputError and TooFewSlots.
        """
        if num_ranks < 1 or num_slots % num_ranks:
            problem = f"{num_slots} slots on {num_ranks} ranks do not divide"
            raise EplbInputError("num_replicas", problem, "vLLM gives each rank equally many.")
        topology = Topology.uniform(num_ranks, num_slots, nodes=num_nodes, num_groups=num_groups)
        window = LoadWindow.of(load)
        committed = None if in_place is None else _committed(in_place, window.shape, num_ranks, num_slots)
        placement, _ = policy(cls.policy_name)(window, topology, committed, cls.constraints, cls.budget)
        return _without_empty_slots(placement.slots).reshape(window.shape[0], num_slots).astype(np.int64)


def register(policy_class: type[WindtunnelPolicy] = WindtunnelPolicy) -> None:
    """Make vLLM plan with this policy, in this process; once more does no harm.

    Call it from a plugin of the group `vllm.general_plugins`, which vLLM loads in each of its processes.
    """
    module = import_module("vllm.distributed.eplb.policy")
    policies: MutableMapping[str, Any] = module.EPLB_POLICIES
    module.AbstractEplbPolicy.register(policy_class)
    policies[NAME_IN_VLLM] = policy_class


def plugin() -> None:
    """Register the policy that the environment's WINDTUNNEL_VLLM_EPLB names; without it, leave vLLM as it is.

    Raises EplbInputError for a name that is unknown.
    """
    if name := os.environ.get(CHOICE):
        policy(name)
        register(type("ChosenPolicy", (WindtunnelPolicy,), {"policy_name": name}))


def _array(tensor: Any) -> NDArray[Any]:
    """A tensor on any device, or what numpy takes."""
    if hasattr(tensor, "detach"):
        tensor = tensor.detach().cpu()
        if tensor.is_floating_point():
            tensor = tensor.double()  # numpy has no bfloat16
        tensor = tensor.numpy()
    return np.asarray(tensor)


def _committed(in_place: NDArray[Any], shape: tuple[int, int], ranks: int, slots: int) -> Placement | None:
    layers, experts = shape
    return Placement.of(in_place.reshape(layers, ranks, -1), experts) if in_place.shape == (layers, slots) else None


def _without_empty_slots(slots: NDArray[np.int32]) -> NDArray[np.int32]:
    """vLLM has no empty slots: what we leave empty takes the rank's own first expert once more."""
    first = np.take_along_axis(slots, np.argmax(slots != EMPTY, axis=2)[..., None], axis=2)
    return np.where(slots == EMPTY, first, slots)
