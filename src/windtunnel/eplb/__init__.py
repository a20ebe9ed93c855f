"""Expert-parallel load balancing: where experts live, and how they get there while ranks die.

Engines use `Rebalancer` in one process and a `RankAgent` in each rank; planners use the policies alone. Names are
imported when they are used: a rank needs neither numba nor scipy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from windtunnel.eplb.agent import AgentConfig as AgentConfig
    from windtunnel.eplb.agent import RankAgent as RankAgent
    from windtunnel.eplb.cluster import ClusterConfig as ClusterConfig
    from windtunnel.eplb.faults import FailAt as FailAt
    from windtunnel.eplb.load import LoadWindow as LoadWindow
    from windtunnel.eplb.placement import Placement as Placement
    from windtunnel.eplb.plan import make_plan as make_plan
    from windtunnel.eplb.policies import Budget as Budget
    from windtunnel.eplb.policies import Constraints as Constraints
    from windtunnel.eplb.policies import policy as policy
    from windtunnel.eplb.rebalancer import Rebalancer as Rebalancer
    from windtunnel.eplb.rebalancer import RebalancerConfig as RebalancerConfig
    from windtunnel.eplb.rebalancer import RebalanceRecord as RebalanceRecord
    from windtunnel.eplb.recovery import RecoveryPolicy as RecoveryPolicy
    from windtunnel.eplb.routing import Routing as Routing
    from windtunnel.eplb.store import ExpertStore as ExpertStore
    from windtunnel.eplb.store import allocate_tensors as allocate_tensors
    from windtunnel.eplb.topology import Topology as Topology
    from windtunnel.eplb.transport import make_transport as make_transport
    from windtunnel.eplb.weights import CallbackWeights as CallbackWeights
    from windtunnel.eplb.weights import SafetensorsWeights as SafetensorsWeights
    from windtunnel.errors import ExpertLost as ExpertLost
    from windtunnel.errors import RanksMissing as RanksMissing
    from windtunnel.errors import StaleEpoch as StaleEpoch

_WHERE = {
    "windtunnel.errors": ("ExpertLost", "RanksMissing", "StaleEpoch"),
    "agent": ("AgentConfig", "RankAgent"),
    "cluster": ("ClusterConfig",),
    "faults": ("FailAt",),
    "load": ("LoadWindow",),
    "placement": ("Placement",),
    "plan": ("make_plan",),
    "policies": ("Budget", "Constraints", "policy"),
    "rebalancer": ("RebalanceRecord", "Rebalancer", "RebalancerConfig"),
    "recovery": ("RecoveryPolicy",),
    "routing": ("Routing",),
    "store": ("ExpertStore", "allocate_tensors"),
    "topology": ("Topology",),
    "transport": ("make_transport",),
    "weights": ("CallbackWeights", "SafetensorsWeights"),
}
_MODULES = {name: module for module, names in _WHERE.items() for name in names}

__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = _MODULES[name]
    return getattr(import_module(module if "." in module else f"{__name__}.{module}"), name)


def __dir__() -> list[str]:
    return __all__
