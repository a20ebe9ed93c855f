"""How well, how fast and with how much moved do policies balance? Ours beside vLLM's and SGLang's, as installed.

    python benchmarks/eplb/policies.py --vllm PATH --sglang PATH
    python benchmarks/eplb/policies.py --shapes A D --rounds 1              # ours only, quickly

Each package runs in a process of its own. PATH is a Python that has the package, a venv, or a folder into which its
wheel was unpacked (`pip download --no-deps vllm`, then `python -m zipfile -e`); with a folder, --torch-python names a
Python that has torch. A package that is not there is left out. Times are of the policy's call alone, on data that is
there, after one call to warm up; interleaved: each round calls each policy once. What comes out is judged by the same
code for all.

"windtunnel" goes on from what is in place, as do vLLM's; "from scratch" has nothing in place, and "full replan" starts
over and renumbers ranks so that most experts stay.

Static: the placement that engines begin with, and four loads; balancedness on the load that was planned for. Drift:
each step multiplies each load by a lognormal; all begin with the same placement, planned for the first step's load;
balancedness on the load that was planned for and on the next step's, and the share of slots that were copied between
ranks, means of five plans.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[1]))  # run as a script, this file's own folder would be the first

from eplb.cases import DRIFT_LOADS, DRIFT_PLANS, LOADS, SHAPES, Load, Shape, drifting_load, engine_slots, static_load
from overhead import machine
from overhead.comparison import Spread, aligned
from windtunnel.eplb.balance import balancedness, copies_between
from windtunnel.eplb.placement import Placement

RESULTS = Path(__file__).parents[1] / "results"
WORKER = Path(__file__).with_name("worker.py")
BASE = "vLLM, flat"
"""What times are compared with."""
OURS = "windtunnel"
OURS_FROM_SCRATCH = "windtunnel, from scratch"

RECORDED = {
    "note": "Measured on 30 November 2026 on two cores of an AMD EPYC, with the anchors' own code, which is not run "
    "here; times are not comparable with those of another day.",
    "balancedness": {
        "Ascend FlashLB": {
            "A": (0.999, 0.999, 0.987, 0.996),
            "B": (0.996, 0.995, 0.912, 0.989),
            "C": (0.727, 0.555, 0.402, 0.756),
            "D": (1.000, 1.000, 1.000, 0.997),
            "E": (0.999, 1.000, 0.995, 0.997),
        },
        "best evolved program": {
            "A": (0.9999, 0.999, 0.9991, 0.9995),
            "B": (0.9986, None, 0.9719, 0.9941),
            "C": (0.727, 0.555, 0.402, 0.756),
            "D": (1.000, 1.000, 1.000, 1.000),
            "E": (1.000, 1.000, 1.000, 1.000),
        },
    },
    "ms, zipf 0.9": {
        "Ascend FlashLB": {"A": 324.5, "B": 632.7, "C": 560.4, "D": 18.6, "E": 165.9},
        "best evolved program": {"A": 299, "B": 365},
    },
    "moved_ratio at 5 % drift, zipf 0.9": {
        "Ascend FlashLB": {"A": 0.059, "B": 0.111, "C": 0.443, "D": 0.078, "E": 0.238}
    },
}
"""Loads in the order of `LOADS`."""


class Worker:
    """The process that runs a package's policies."""

    def __init__(self, kind: str, command: Sequence[Path], folder: Path) -> None:
        self.log = folder / f"{kind}.log"
        self._folder = folder
        with open(self.log, "wb") as log:
            python, *packages = map(str, command)
            self._process = subprocess.Popen(
                [python, str(WORKER), kind, *packages],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        hello = self._answer()
        self.policies: list[str] = hello["policies"]
        self.version: str = hello["version"]

    def plan(
        self, policy: str, problem: Path, shape: Shape, *, warm_ups: int
    ) -> tuple[NDArray[Any] | None, float, str]:
        """The slots, the time in ms, and the error where there are no slots."""
        assert self._process.stdin is not None
        answer = self._folder / "answer.npy"
        request = {"policy": policy, "problem": str(problem), "answer": str(answer), "shape": shape._asdict()}
        self._process.stdin.write(json.dumps(request | {"warm_ups": warm_ups}) + "\n")
        self._process.stdin.flush()
        told = self._answer()
        if "error" in told:
            return None, 0.0, told["error"]
        return np.load(answer), told["ns"] / 1e6, ""

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            words = self.log.read_text(errors="replace")[-2000:]
            raise SystemExit(f"{self._process.args} ended; its last words:\n{words}")
        out: dict[str, Any] = json.loads(line)
        return out


class Bench(NamedTuple):
    """What all measurements share."""

    workers: dict[str, Worker]
    """By policy."""
    folder: Path
    seed: int

    def run(
        self, policy: str, load: Load, slots: NDArray[Any], shape: Shape, *, warm_ups: int
    ) -> tuple[NDArray[Any] | None, float, str]:
        """Let a policy plan from the slots that are in place."""
        problem = self.folder / "problem.npz"
        np.savez(problem, load=load, slots=slots)
        return self.workers[policy].plan(policy, problem, shape, warm_ups=warm_ups)


def main() -> None:
    options = _options()
    commands = _commands(options)
    with tempfile.TemporaryDirectory(prefix="windtunnel-eplb-") as name, ExitStack() as stack:
        workers = [stack.enter_context(_worker(kind, command, Path(name))) for kind, command in commands.items()]
        bench = Bench({policy: worker for worker in workers for policy in worker.policies}, Path(name), options.seed)
        document: dict[str, Any] = {
            "benchmark": "eplb-policies",
            "date": time.strftime("%Y-%m-%d %H:%M:%S %z"),
            "machine": machine.facts(),
            "versions": {kind: w.version for kind, w in zip(commands, workers, strict=True)},
            "revision": machine.revision(),
            "seed": options.seed,
            "rounds": options.rounds,
            "shapes": {shape: SHAPES[shape]._asdict() for shape in options.shapes},
            "recorded": RECORDED,
            "static": [],
            "drift": [],
        }
        out = options.out or RESULTS / time.strftime("eplb-policies-%Y%m%d-%H%M%S.json")
        for shape in options.shapes:
            document["static"] += [static(bench, shape, kind, options.rounds) for kind in LOADS]
            print("\n" + static_table(shape, document["static"]))
            for sigma in options.drift:
                document["drift"] += [drift(bench, shape, kind, sigma) for kind in DRIFT_LOADS]
            print("\n" + drift_table(shape, document["drift"]))
            out.parent.mkdir(parents=True, exist_ok=True)
            out.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    print(f"\nsaved in {out}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--vllm", type=Path, metavar="PATH", help="a Python or venv that has vLLM, or its wheel unpacked"
    )
    parser.add_argument("--sglang", type=Path, metavar="PATH", help="the same for SGLang")
    parser.add_argument("--torch-python", type=Path, metavar="PATH", help="a Python with torch, for unpacked wheels")
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES), help="default: all")
    parser.add_argument("--rounds", type=int, default=5, help="timed calls of each policy (default: %(default)s)")
    parser.add_argument("--drift", type=float, nargs="+", default=[0.05], metavar="SIGMA", help="default: 0.05")
    parser.add_argument("--seed", type=int, default=0, help="of the loads (default: %(default)s)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="default: benchmarks/results/eplb-policies-DATE.json")
    return parser.parse_args()


def _commands(options: argparse.Namespace) -> dict[str, list[Path]]:
    """For each package the Python that runs it and, where that has it not, the folder that does."""
    commands = {}
    for kind in ("vllm", "sglang"):
        path: Path | None = getattr(options, kind)
        if path is None or not path.exists():
            print(f"{kind} is left out: {f'there is no {path}' if path else f'--{kind} is not given'}")
        elif path.is_file():
            commands[kind] = [path]
        elif (path / "bin" / "python").exists():
            commands[kind] = [path / "bin" / "python"]
        elif (path / kind).is_dir():
            commands[kind] = [options.torch_python or Path(sys.executable), path]
        else:
            print(f"{kind} is left out: {path} is no Python, no venv, and has no folder {kind}")
    return commands | {"windtunnel": [Path(sys.executable)]}


@contextmanager
def _worker(kind: str, command: Sequence[Path], folder: Path) -> Iterator[Worker]:
    worker = Worker(kind, command, folder)
    try:
        yield worker
    finally:
        worker.close()


def placed(slots: NDArray[Any], shape: Shape) -> Placement:
    """The slots [layers, slots] as a placement, checked; every expert must be there."""
    placement = Placement.of(slots.reshape(len(slots), shape.ranks, -1), shape.experts)
    assert not placement.missing
    return placement


# --- static ---------------------------------------------------------------------------------------------------------


def static(bench: Bench, name: str, kind: str, rounds: int) -> dict[str, Any]:
    """All policies at one load, from the placement that engines begin with."""
    shape = SHAPES[name]
    load, begin = static_load(shape, kind, bench.seed), engine_slots(shape)
    found: dict[str, dict[str, Any]] = {policy: {"ms": []} for policy in bench.workers}
    for round_ in range(rounds):
        for policy, figures in found.items():
            if "error" in figures:
                continue
            slots, ms, error = bench.run(policy, load, begin, shape, warm_ups=1 if round_ == 0 else 0)
            if slots is None:
                figures["error"] = error
            else:
                figures["ms"].append(ms)
                figures |= judged(slots, begin, load, shape)
    initial = balancedness(load, placed(begin, shape))
    return {"shape": name, "load": kind, "initial_balancedness": initial, "policies": found}


def judged(slots: NDArray[Any], before: NDArray[Any], load: Load, shape: Shape) -> dict[str, Any]:
    """Balancedness on the load, the share of slots that were copied, and wasted replicas a layer."""
    placement = placed(slots, shape)
    in_rank = np.sort(placement.slots, axis=2)
    twice = (in_rank[:, :, 1:] == in_rank[:, :, :-1]) & (in_rank[:, :, 1:] >= 0)
    return {
        "balancedness": balancedness(load, placement),
        "moved_ratio": copies_between(placed(before, shape), placement) / slots.size,
        "twice_on_a_rank_per_layer": float(twice.sum() / shape.layers),
    }


def static_table(name: str, cases: Sequence[dict[str, Any]]) -> str:
    """Balancedness at each load; then the median time, and its ratio to vLLM's flat policy round by round."""
    of_shape = [case for case in cases if case["shape"] == name]
    rows = [[f"{name}: {_in_words(SHAPES[name])}", *LOADS, "ms, zipf 0.9", f"÷ {BASE}", "ms, lognormal", f"÷ {BASE}"]]
    for policy in of_shape[0]["policies"]:
        row = [policy]
        row += [_number(case["policies"][policy].get("balancedness"), ".4f") for case in of_shape]
        for kind in ("zipf 0.9", "lognormal 1.0"):
            timed = next(case["policies"] for case in of_shape if case["load"] == kind)
            row += [_times(timed[policy]["ms"]), _ratio(timed, policy)]
        rows.append(row)
    for policy, by_shape in RECORDED["balancedness"].items():  # type: ignore[attr-defined]
        rows.append([f"{policy} (recorded)", *(_number(v, ".4f") for v in by_shape[name]), *[""] * 4])
    return aligned(rows)


def _in_words(shape: Shape) -> str:
    return (
        f"{shape.layers} layers, {shape.experts} experts, {shape.slots} slots, {shape.ranks} ranks, {shape.nodes} nodes"
    )


def _number(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)


def _times(ms: Sequence[float]) -> str:
    spread = Spread.of(ms)
    return "–" if spread is None else f"{spread.median:.1f} ({spread.least:.1f}–{spread.greatest:.1f})"


def _ratio(timed: dict[str, dict[str, Any]], policy: str) -> str:
    if BASE not in timed or policy == BASE or not timed[policy]["ms"]:
        return ""
    spread = Spread.of([ours / theirs for ours, theirs in zip(timed[policy]["ms"], timed[BASE]["ms"], strict=True)])
    assert spread is not None
    return f"{spread.median:.2f}" + (" worse" if policy.startswith(OURS) and spread.median > 1 else "")


# --- drift ----------------------------------------------------------------------------------------------------------


def drift(bench: Bench, name: str, kind: str, sigma: float) -> dict[str, Any]:
    """All policies on a load that drifts, each going on from its own placement."""
    shape = SHAPES[name]
    loads = drifting_load(shape, kind, sigma, bench.seed)
    current = next(loads)
    begin, _, error = bench.run(OURS_FROM_SCRATCH, current, engine_slots(shape), shape, warm_ups=0)
    if begin is None:
        raise SystemExit(f"no placement to begin with: {error}")
    steps = [next(loads) for _ in range(DRIFT_PLANS + 1)]
    found: dict[str, dict[str, Any]] = {"none": _stays(placed(begin, shape), steps)}
    for policy in bench.workers:
        found[policy] = _drifted(bench, policy, begin, steps, shape)
    return {"shape": name, "load": kind, "sigma": sigma, "plans": DRIFT_PLANS, "policies": found}


def _stays(placement: Placement, steps: Sequence[Load]) -> dict[str, Any]:
    balanced = [balancedness(load, placement) for load in steps]
    return {"planned": fmean(balanced[:-1]), "next": fmean(balanced[1:]), "moved_ratio": 0.0, "ms": []}


def _drifted(bench: Bench, policy: str, begin: NDArray[Any], steps: Sequence[Load], shape: Shape) -> dict[str, Any]:
    slots = begin
    plans, following, times = [], [], []
    for load, afterwards in pairwise(steps):
        planned, ms, error = bench.run(policy, load, slots, shape, warm_ups=1 if not plans else 0)
        if planned is None:
            return {"error": error, "ms": []}
        plans.append(judged(planned, slots, load, shape))
        following.append(balancedness(afterwards, placed(planned, shape)))
        times.append(ms)
        slots = planned
    return {
        "planned": fmean(plan["balancedness"] for plan in plans),
        "next": fmean(following),
        "moved_ratio": fmean(plan["moved_ratio"] for plan in plans),
        "ms": times,
    }


def drift_table(name: str, cases: Sequence[dict[str, Any]]) -> str:
    """For each load: balancedness as planned and on the next step, and what was moved."""
    of_shape = [case for case in cases if case["shape"] == name]
    head = [f"{name}: drift"]
    for case in of_shape:
        title = f"{case['load']}, {case['sigma']:g}"
        head += [f"{title}: planned", "next", "moved", "ms"]
    rows = [head]
    for policy in of_shape[0]["policies"]:
        row = [policy]
        for case in of_shape:
            figures = case["policies"][policy]
            row += [_number(figures.get("planned"), ".4f"), _number(figures.get("next"), ".4f")]
            row += [_number(figures.get("moved_ratio"), ".1%"), _times(figures["ms"])]
        rows.append(row)
    return aligned(rows)


if __name__ == "__main__":
    main()
