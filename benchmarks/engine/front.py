"""How fast is the reference engine through its front: time to its address, and tokens a second at 64 streams.

    python benchmarks/engine/front.py

Each round starts an engine of the tiny config with its defaults, so experts move while it serves, and puts the same
load on it twice: `windtunnel bench serve` with 64 streams of 128 tokens. The second run of a round finds its experts
balanced. Client, front and ranks share the machine's cores.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from overhead import machine
from overhead.comparison import Spread, aligned

RESULTS = Path(__file__).parents[1] / "results"
PROGRAM = Path(sys.executable).with_name("windtunnel")
STREAMS, PROMPTS, INPUT_TOKENS, OUTPUT_TOKENS = 64, 192, 32, 128
FIGURES = {
    "start_s": "start of the process to its address (s)",
    "first_tokens_per_s": f"{STREAMS} streams, experts placed as they come, then balanced (tokens/s)",
    "balanced_tokens_per_s": f"{STREAMS} streams, balanced from the start (tokens/s)",
    "first_balancedness": "balancedness after the first run (1 is even)",
    "balanced_balancedness": "balancedness after the second",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="default: %(default)s")
    parser.add_argument("--transport", choices=("shm", "nixl"), default="shm", help="default: %(default)s")
    parser.add_argument("--out", type=Path, metavar="FILE", help="default: benchmarks/results/engine-front-DATE.json")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="windtunnel-engine-") as name:
        _round(Path(name), options.transport, 0)  # makes the model, compiles the policy
        rounds = [_round(Path(name), options.transport, seed) for seed in range(1, options.rounds + 1)]
    table = [["figure", "median (least–greatest)"]]
    table += [[label, str(Spread.of([one[key] for one in rounds]))] for key, label in FIGURES.items()]
    print(aligned(table))
    out = options.out or RESULTS / time.strftime("engine-front-%Y%m%d-%H%M%S.json")
    document = {
        "benchmark": "engine front",
        "date": time.strftime("%Y-%m-%d %H:%M:%S %z"),
        "machine": machine.facts(),
        "revision": machine.revision(),
        "transport": options.transport,
        "load": {"streams": STREAMS, "prompts": PROMPTS, "input_tokens": INPUT_TOKENS, "output_tokens": OUTPUT_TOKENS},
        "figures": FIGURES,
        "rounds": rounds,
    }
    out.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    print(f"saved in {out}")


def _round(folder: Path, transport: str, seed: int) -> dict[str, float]:
    command = [PROGRAM, "engine", "--admin", "--transport", transport, "--models-folder", folder, "--end-with-stdin"]
    began = time.monotonic()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as engine:
        assert engine.stdin is not None
        assert engine.stdout is not None
        url = engine.stdout.readline().strip()
        found = {"start_s": time.monotonic() - began}
        for name in ("first", "balanced"):
            found[f"{name}_tokens_per_s"] = _bench(folder, url, seed)
            found[f"{name}_balancedness"] = _get(f"{url}/admin/ranks")["balancedness"]
        engine.stdin.close()
    return found


def _bench(folder: Path, url: str, seed: int) -> float:
    model = _get(f"{url}/v1/models")["data"][0]["root"]
    command: list[Any] = [
        PROGRAM, "bench", "serve", "--base-url", url, "--tokenizer", model, "--num-prompts", PROMPTS,
        "--max-concurrency", STREAMS, "--random-input-len", INPUT_TOKENS, "--random-output-len", OUTPUT_TOKENS,
        "--ignore-eos", "--seed", seed, "--save-result", "--result-dir", folder, "--result-filename", "result.json",
        "--runs-dir", folder / "runs", "--disable-tqdm",
    ]  # fmt: skip
    subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    result = json.loads((folder / "result.json").read_bytes())
    if result["completed"] != PROMPTS:
        raise SystemExit(f"only {result['completed']} of {PROMPTS} requests were completed")
    rate: float = result["output_throughput"]
    return rate


def _get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.load(answer)


if __name__ == "__main__":
    main()
