"""Runs policies in the Python that has them: one request a line on stdin, one answer a line on stdout.

    PYTHON benchmarks/eplb/worker.py windtunnel|vllm|sglang [FOLDER]

FOLDER has the package, where this Python has it not: a wheel unpacked. Of a peer's package only the policies are
imported, which need torch and nothing else; what the packages around them import is left out.

A request names an npz with the load and the slots in place, and where the planned slots go; the answer has the time of
the call alone. The policies are the installed packages', called as their engines call them. It imports nothing of this
project's before it is told which it is, since other Pythons run it.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import time
import traceback
import types
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import numpy as np

Plan = Callable[[Any, Any, dict[str, int]], Any]
"""`(load, slots in place, shape) → slots [layers, slots]`."""


def windtunnel_policies() -> tuple[dict[str, Plan], Callable[[Any], Any]]:
    from windtunnel.eplb.placement import Placement
    from windtunnel.eplb.policies import Budget, Constraints, policy
    from windtunnel.eplb.topology import Topology

    class Load:
        def __init__(self, mean: Any) -> None:
            self.mean, self.noise = mean, np.zeros_like(mean)

    def planner(name: str, *, full_replan: bool | None = None, from_scratch: bool = False) -> Plan:
        function = policy(name)

        def plan(load: Any, old: Any, shape: dict[str, int]) -> Any:
            topology = Topology.uniform(
                shape["ranks"], shape["slots"], nodes=shape["nodes"], num_groups=shape["groups"]
            )
            committed = None
            if not from_scratch:
                committed = Placement.of(old.reshape(len(old), shape["ranks"], -1), shape["experts"])
            placement, _ = function(load, topology, committed, Constraints(), Budget(full_replan=full_replan))
            return placement.slots.reshape(len(old), -1)

        return plan

    found = {
        "windtunnel": planner("windtunnel"),
        "windtunnel, from scratch": planner("windtunnel", from_scratch=True),
        "windtunnel, full replan": planner("windtunnel", full_replan=True),
        "windtunnel's deepseek": planner("deepseek"),
        "windtunnel's deepseek-flat": planner("deepseek-flat"),
    }
    return found, Load


def vllm_policies() -> tuple[dict[str, Plan], Callable[[Any], Any]]:
    import torch

    _bare("vllm", "vllm.distributed", "vllm.distributed.eplb", "vllm.distributed.eplb.policy")
    from vllm.distributed.eplb.policy.default import DefaultEplbPolicy

    def hierarchical(load: Any, old: Any, s: dict[str, int]) -> Any:
        plan = DefaultEplbPolicy.rebalance_experts
        return plan(load, s["slots"], s["groups"], s["nodes"], s["ranks"], torch.from_numpy(old)).numpy()

    def flat(load: Any, old: Any, s: dict[str, int]) -> Any:
        plan = DefaultEplbPolicy.rebalance_experts
        return plan(load, s["slots"], 1, 1, s["ranks"], torch.from_numpy(old)).numpy()

    return {"vLLM": hierarchical, "vLLM, flat": flat}, torch.from_numpy


def sglang_policies() -> tuple[dict[str, Plan], Callable[[Any], Any]]:
    import torch

    _bare("sglang")
    from sglang.srt.eplb.eplb_algorithms import deepseek, deepseek_vec, elasticity_aware

    def is_hierarchical(s: dict[str, int]) -> bool:
        return s["groups"] % s["nodes"] == 0  # as its "auto" chooses

    def plain(load: Any, old: Any, s: dict[str, int]) -> Any:
        arguments = (load, s["slots"], s["groups"], s["nodes"], s["ranks"], is_hierarchical(s))
        return deepseek.rebalance_experts(*arguments)[0].numpy()

    def vectorised(load: Any, old: Any, s: dict[str, int]) -> Any:
        local = s["slots"] // s["ranks"]
        arguments = (load[None], s["slots"], local, s["groups"], s["nodes"], is_hierarchical(s))
        return deepseek_vec.rebalance_experts(*arguments)[0].numpy()

    def elastic(load: Any, old: Any, s: dict[str, int]) -> Any:
        active = torch.ones(s["ranks"], dtype=torch.int32)
        arguments = (load, s["slots"], s["groups"], s["nodes"], s["ranks"], False, active)
        return elasticity_aware.rebalance_experts(*arguments)[0].numpy()

    found: dict[str, Plan] = {
        "SGLang, deepseek": plain,
        "SGLang, deepseek_vec": vectorised,
        "SGLang, elasticity_aware": elastic,
    }
    return found, torch.from_numpy


def _bare(package: str, *inner: str) -> None:
    """Make packages known without running their `__init__`."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ImportError(f"this Python has no {package}")
    top = spec.submodule_search_locations[0]
    for name in (package, *inner):
        module = types.ModuleType(name)
        module.__path__ = [os.path.join(top, *name.split(".")[1:])]
        sys.modules[name] = module


KINDS = {"windtunnel": windtunnel_policies, "vllm": vllm_policies, "sglang": sglang_policies}


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what a package prints must not be taken for an answer
    kind = sys.argv[1]
    sys.path[:0] = sys.argv[2:]
    policies, to_load = KINDS[kind]()
    print(json.dumps({"policies": list(policies), "version": version(kind)}), file=answers)
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line), policies, to_load)), file=answers)


def answer(request: dict[str, Any], policies: dict[str, Plan], to_load: Callable[[Any], Any]) -> dict[str, Any]:
    with np.load(request["problem"]) as problem:
        load, old = to_load(problem["load"]), problem["slots"]
    plan = policies[request["policy"]]
    try:
        for _ in range(request["warm_ups"]):
            plan(load, old, request["shape"])
        begun_ns = time.perf_counter_ns()
        slots = plan(load, old, request["shape"])
        spent_ns = time.perf_counter_ns() - begun_ns
    except Exception as error:
        traceback.print_exc()
        return {"error": f"{type(error).__name__}: {error}"}
    np.save(request["answer"], slots)
    return {"ns": spent_ns}


if __name__ == "__main__":
    main()
