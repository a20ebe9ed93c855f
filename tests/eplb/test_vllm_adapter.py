"""vLLM's view of our policy: its arrays in, its arrays out; and on a real vLLM, put in by its own plugin loader.

WINDTUNNEL_VLLM_PYTHON names the Python of an environment with vLLM and what windtunnel[eplb] needs; without it, those
tests are skipped.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from windtunnel.eplb import vllm
from windtunnel.eplb.placement import Placement
from windtunnel.eplb.policies import Budget, Constraints
from windtunnel.errors import EplbInputError, TooFewSlots

ROOT = Path(__file__).parents[2]


class Flat(vllm.WindtunnelPolicy):
    policy_name = "deepseek-flat"


class Limited(vllm.WindtunnelPolicy):
    constraints = Constraints(min_replicas=2)


class Cheap(vllm.WindtunnelPolicy):
    budget = Budget(moved_ratio=0.1, full_replan=False)


def load(seed: int = 0, layers: int = 3, experts: int = 16) -> NDArray[np.float64]:
    return np.random.default_rng(seed).zipf(1.6, (layers, experts)).clip(max=500).astype(np.float64)


def held(slots: NDArray[np.int64], ranks: int) -> list[list[set[int]]]:
    return [[set(rank) for rank in layer] for layer in slots.reshape(len(slots), ranks, -1).tolist()]


def new_to_ranks(before: NDArray[np.int64], after: NDArray[np.int64], ranks: int) -> int:
    pairs = zip(held(before, ranks), held(after, ranks), strict=True)
    return sum(len(now - was) for b, a in pairs for was, now in zip(b, a, strict=True))


@pytest.mark.parametrize("policy", [vllm.WindtunnelPolicy, Flat])
def test_every_expert_has_a_slot_and_every_slot_an_expert(policy: type[vllm.WindtunnelPolicy]) -> None:
    slots = policy.slots(load(), 24, 1, 2, 4)
    assert (slots.shape, slots.dtype) == ((3, 24), np.int64)
    assert all(set(layer) == set(range(16)) for layer in slots.tolist())


def test_slots_that_a_plan_leaves_empty_hold_an_expert_of_their_rank_again() -> None:
    slots = vllm.WindtunnelPolicy.slots(load(experts=2), 16, 1, 1, 4)
    assert slots.min() >= 0
    assert all(set(layer) == {0, 1} for layer in slots.tolist())


def test_limits_of_a_subclass_are_kept() -> None:
    slots = Limited.slots(load(), 40, 1, 1, 4)
    assert all(sum(expert in rank for rank in layer) >= 2 for layer in held(slots, 4) for expert in range(16))
    in_place = np.tile(np.arange(24) % 16, (3, 1))
    after = Cheap.slots(load(), 24, 1, 1, 4, in_place)
    new = new_to_ranks(in_place, after, 4)
    assert 0 < new <= 0.1 * 72


def test_what_is_in_place_with_another_number_of_slots_is_planned_from_scratch() -> None:
    fresh = vllm.WindtunnelPolicy.slots(load(), 24, 1, 1, 4)
    other = np.tile(np.arange(20) % 16, (3, 1))
    assert np.array_equal(vllm.WindtunnelPolicy.slots(load(), 24, 1, 1, 4, other), fresh)


def test_a_placement_with_holes_as_while_ranks_join_is_filled() -> None:
    in_place = np.tile(np.r_[np.arange(16), np.full(8, -1)], (3, 1))
    slots = vllm.WindtunnelPolicy.slots(load(), 24, 1, 1, 6, in_place)
    assert slots.min() >= 0
    assert all(set(layer) == set(range(16)) for layer in slots.tolist())


def test_a_load_of_zeros_as_while_vllm_starts_has_a_plan() -> None:
    slots = vllm.WindtunnelPolicy.slots(np.zeros((2, 16)), 24, 1, 1, 4)
    assert all(set(layer) == set(range(16)) for layer in slots.tolist())


def test_what_makes_no_sense_is_refused_by_name() -> None:
    with pytest.raises(EplbInputError, match="num_replicas: 22 slots on 4 ranks"):
        vllm.WindtunnelPolicy.slots(load(), 22, 1, 1, 4)
    with pytest.raises(TooFewSlots):
        vllm.WindtunnelPolicy.slots(load(), 12, 1, 1, 4)
    with pytest.raises(EplbInputError, match="load"):
        vllm.WindtunnelPolicy.slots(load() * np.nan, 24, 1, 1, 4)


def test_the_plugin_does_nothing_unless_a_policy_is_named() -> None:
    unset = plugin_in_a_process({})
    assert (unset.returncode, unset.stdout) == (0, "False\n")
    assert "no policy windtunel; did you mean windtunnel?" in plugin_in_a_process({vllm.CHOICE: "windtunel"}).stderr


def plugin_in_a_process(environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    code = "import sys\nfrom windtunnel.eplb.vllm import plugin\nplugin()\nprint('vllm' in sys.modules)"
    base = {name: value for name, value in os.environ.items() if name != vllm.CHOICE}
    return subprocess.run([sys.executable, "-c", code], env=base | environ, capture_output=True, text=True, timeout=60)


# --- with vLLM ------------------------------------------------------------------------------------------------------

PYTHON = os.environ.get("WINDTUNNEL_VLLM_PYTHON")
needs_vllm = pytest.mark.skipif(not PYTHON, reason="WINDTUNNEL_VLLM_PYTHON names no Python with vLLM")

IN_VLLM = """
import inspect, json, sys
import torch
from vllm.plugins import load_general_plugins
load_general_plugins()
from vllm.distributed.eplb.policy import EPLB_POLICIES, AbstractEplbPolicy, DefaultEplbPolicy
policy = EPLB_POLICIES["default"]
out = {"class": f"{policy.__module__}.{policy.__qualname__}", "is_policy": issubclass(policy, AbstractEplbPolicy)}
theirs, ours = (list(inspect.signature(c.rebalance_experts).parameters) for c in (AbstractEplbPolicy, policy))
out["same_signature"] = theirs == ours
weight = torch.tensor(json.loads(sys.argv[1]))
started = DefaultEplbPolicy.rebalance_experts(weight, 24, 1, 2, 4, None)
drifted = weight * torch.linspace(0.9, 1.1, weight.shape[1])
for name, chosen in ("ours", policy), ("theirs", DefaultEplbPolicy):
    slots = chosen.rebalance_experts(drifted.to(torch.bfloat16), 24, 1, 2, 4, started)
    out[name] = {"slots": slots.tolist(), "dtype": str(slots.dtype), "device": str(slots.device)}
out["started"] = started.tolist()
print(json.dumps(out))
"""


def in_vllm(tmp_path: Path, code: str, *arguments: str, plugin: str, **environ: str) -> dict[str, Any]:
    """Run code in vLLM's environment, our package and an entry point of `vllm.general_plugins` on its path."""
    info = tmp_path / "a_plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: a-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[vllm.general_plugins]\na_plugin = {plugin}\n")
    assert PYTHON is not None
    done = subprocess.run(
        [PYTHON, "-c", code, *arguments],
        # what another numba compiled must not take the place of what ours did
        env=os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{tmp_path}", "NUMBA_CACHE_DIR": str(tmp_path)} | environ,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@needs_vllm
@pytest.mark.timeout(600)
def test_vllm_plans_with_ours_once_its_plugins_are_loaded(tmp_path: Path) -> None:
    weight = load(3, experts=16)
    chosen = {vllm.CHOICE: "windtunnel"}
    weights = json.dumps(weight.tolist())
    found = in_vllm(tmp_path, IN_VLLM, weights, plugin="windtunnel.eplb.vllm:plugin", **chosen)
    assert found["class"] == "windtunnel.eplb.vllm.ChosenPolicy"
    assert found["is_policy"] and found["same_signature"]
    ours, theirs = found["ours"], found["theirs"]
    assert (ours["dtype"], ours["device"]) == (theirs["dtype"], theirs["device"]) == ("torch.int64", "cpu")
    slots, started = np.array(ours["slots"]), np.array(found["started"])
    assert slots.shape == np.array(theirs["slots"]).shape
    assert Placement.of(slots.reshape(3, 4, 6), 16).missing == ()
    new = new_to_ranks(started, slots, 4)
    assert new <= 0.25 * slots.size  # it went on from what was in place


@needs_vllm
@pytest.mark.timeout(600)
def test_the_plugin_of_the_how_to_records_the_loads_that_vllm_plans_for(tmp_path: Path) -> None:
    how_to = (ROOT / "docs/how-to/record-load-traces.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", how_to, re.DOTALL)
    (tmp_path / "record_loads.py").write_text(next(block for block in blocks if "def plugin" in block))
    code = """
import json, torch
from vllm.plugins import load_general_plugins
load_general_plugins()
from vllm.distributed.eplb.policy import EPLB_POLICIES
for step in range(3):
    EPLB_POLICIES["default"].rebalance_experts(torch.full((2, 16), step + 1), 24, 1, 1, 4, None)
print(json.dumps({}))
"""
    in_vllm(tmp_path, code, plugin="record_loads:plugin", LOADS_FOLDER=str(tmp_path / "loads"))
    (path,) = (tmp_path / "loads").iterdir()
    with np.load(path) as archive:
        assert archive["load"].shape == (3, 2, 16)
        assert archive["load"][:, 0, 0].tolist() == [1, 2, 3]
