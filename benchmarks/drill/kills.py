"""Ranks of the reference engine die or hang at random under load: what do users see?

    python benchmarks/drill/kills.py --kills 1000                      # shm
    python benchmarks/drill/kills.py --kills 100 --transport nixl
    python benchmarks/drill/kills.py --hangs 60

Each drill is `windtunnel drill` with a scenario of its own: four ranks that are started again, 25 requests a second,
greedy, and about ten kills of a random rank, 0.8 to 1.6 seconds apart; or four hangs, each resumed. Experts are moving
meanwhile, since each rank that comes back has to be filled. Every output is compared with that of an undisturbed run.

A lost request or a changed token ends it, and keeps the scenario. That service was back within the bound is counted,
and not demanded of each: whatever else the machine does takes service below its level too. A run that is cut off goes
on where it was.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from overhead import machine
from overhead.comparison import Spread, aligned
from windtunnel import __version__

RESULTS = Path(__file__).parents[1] / "results"
PROGRAM = Path(sys.executable).with_name("windtunnel")
RANKS, RATE, PROMPT_TOKENS, OUTPUT_TOKENS = 4, 25, 24, 24
KILLS_EACH, HANGS_EACH = 10, 4
CALM_S = 2.5
"""Before the first action, and after the last."""
BOUNDS = {"kill": {"detect_s": 0.5, "recover_s": 2.5}, "hang": {"detect_s": 2.0, "recover_s": 4.0}}
"""A hang is noticed after a second of silence, by configuration."""
FIGURES = {
    "detect_s": "noticed after (s)",
    "recover_s": "service back at its level after (s)",
    "worst_gap_s": "longest time without any token (s)",
}


def main() -> None:
    options = _options()
    kind, wanted = ("hang", options.hangs) if options.hangs else ("kill", options.kills)
    out = options.out or RESULTS / f"drill-{kind}s-{options.transport}.json"
    document = json.loads(out.read_bytes()) if out.exists() else _new(kind, options)
    done = sum(len(drill["actions"]) for drill in document["drills"])
    while done < wanted:
        seed = options.seed + len(document["drills"])
        drill = _drill(kind, seed, options.transport, min(HANGS_EACH if kind == "hang" else KILLS_EACH, wanted - done))
        document["drills"].append(drill)
        done += len(drill["actions"])
        out.write_text(json.dumps(document, indent=1) + "\n")
        worst = {key: max((a[key] or 0 for a in drill["actions"]), default=None) for key in FIGURES}
        print(f"{done} of {wanted}: {drill['requests']} requests, worst {worst}", flush=True)
    print(aligned(_table(document)))
    print(f"saved in {out}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=1000, help="default: %(default)s")
    parser.add_argument("--hangs", type=int, help="hang ranks instead, and resume them")
    parser.add_argument("--transport", choices=("shm", "nixl"), default="shm", help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="of the first drill; default: %(default)s")
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="default: benchmarks/results/drill-KIND-TRANSPORT.json"
    )
    return parser.parse_args()


def _new(kind: str, options: argparse.Namespace) -> dict[str, Any]:
    return {
        "benchmark": f"drill {kind}s",
        "date": time.strftime("%Y-%m-%d %H:%M:%S %z"),
        "machine": machine.facts(),
        "revision": machine.revision(),
        "windtunnel": __version__,
        "transport": options.transport,
        "seed": options.seed,
        "bounds": BOUNDS[kind],
        "drills": [],
    }


def _drill(kind: str, seed: int, transport: str, num_actions: int) -> dict[str, Any]:
    """Run one; SystemExit where anything was missed."""
    scenario = _scenario(kind, seed, transport, num_actions)
    with tempfile.TemporaryDirectory(prefix="windtunnel-kills-") as folder:
        path = Path(folder) / "scenario.yaml"
        path.write_text(json.dumps(scenario))  # JSON is YAML
        run = subprocess.run([PROGRAM, "drill", path, "--json"], capture_output=True, text=True, check=False)
        if run.returncode:
            kept = RESULTS / f"missed-{kind}-{transport}-{seed}"
            kept.with_suffix(".yaml").write_text(json.dumps(scenario, indent=1))
            kept.with_suffix(".json").write_text(run.stdout)
            raise SystemExit(
                f"the drill with seed {seed} ended with {run.returncode}; see {kept}.*\n{run.stderr[-2000:]}"
            )
    result = json.loads(run.stdout)
    keys = ("label", "at_s", "detect_s", "recover_s", "worst_gap_s")
    return {
        "seed": seed,
        "requests": result["requests"],
        "failed": result["failed"],
        "tokens_changed": result["tokens_changed"],
        "actions": [
            {key: action[key] for key in keys} for action in result["actions"] if action["kind"] == f"{kind}_rank"
        ],
    }


def _scenario(kind: str, seed: int, transport: str, num_actions: int) -> dict[str, Any]:
    rng = random.Random(seed)
    at_s, rank, actions = CALM_S, -1, []
    for _ in range(num_actions):
        rank = rng.choice([other for other in range(RANKS) if other != rank])
        actions.append({"after_s": round(at_s, 3), f"{kind}_rank": rank})
        if kind == "hang":
            actions.append({"after_s": round(at_s + 2.2, 3), "resume_rank": rank})
            at_s += 2.0
        at_s += rng.uniform(0.8, 1.6)
    return {
        "title": f"random {kind}s, seed {seed}",
        "target": {"embedded": {"ranks": RANKS, "transport": transport, "restart": kind == "kill"}},
        "load": {
            "num_prompts": round((at_s + CALM_S) * RATE), "request_rate": RATE, "seed": seed,
            "random_input_len": PROMPT_TOKENS, "random_output_len": OUTPUT_TOKENS, "temperature": 0,
            "ignore_eos": True,
        },
        "actions": actions,
        "expect": {"failed": 0, "tokens_changed": 0},
    }  # fmt: skip


def _table(document: dict[str, Any]) -> list[list[str]]:
    drills, actions = document["drills"], [a for drill in document["drills"] for a in drill["actions"]]
    rows = [
        ["figure", "median (least–greatest)", "within the bound"],
        ["actions, in drills", f"{len(actions)}, {len(drills)}", ""],
        *([key, str(sum(drill[key] for drill in drills)), ""] for key in ("requests", "failed", "tokens_changed")),
    ]
    for key, label in FIGURES.items():
        known = [action[key] for action in actions if action[key] is not None]
        bound = document["bounds"].get(key)
        within = "" if bound is None else f"{sum(value <= bound for value in known)} of {len(actions)} (≤ {bound} s)"
        rows.append([label, str(Spread.of(known)), within])
    return rows


if __name__ == "__main__":
    main()
