"""How long does a client take to get going? From the process's start to the first request's arrival at the server.

    python benchmarks/startup.py --vllm-rs PATH

The instant of arrival is the server's: the ground-truth server writes it into the first token, and the client's result
file brings it back. Beside it the wall time of the whole command for one request, and of `--help`. Interleaved: each
round runs all commands of all clients once.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from overhead import ground_truth, machine, process_tree, tokenizer_folder
from overhead.clients import OURS, PEER, Client, Load, bench_command, environment, version, windtunnel_beside
from overhead.comparison import Spread, aligned
from overhead.distortion import read_tokens

RESULTS = Path(__file__).parent / "results"
ONE_REQUEST = Load(concurrency=1, num_prompts=1, input_tokens=32, output_tokens=4)
FIGURES = {
    "first_request_ms": "start to first request's arrival",
    "one_request_ms": "bench serve with one request, start to exit",
    "help_ms": "bench serve --help",
    "bare_help_ms": "--help",
}
_NS_PER_MS = 1e6


class Rig(NamedTuple):
    """What the runs share."""

    base_url: str
    tokenizer: Path
    folder: Path


def main() -> None:
    options = _options()
    clients = [Client(PEER, options.vllm_rs)] if options.vllm_rs is not None else []
    clients.append(Client(OURS, options.windtunnel or windtunnel_beside(sys.executable)))
    runs: dict[str, list[dict[str, float]]] = {client.name: [] for client in clients}
    with tempfile.TemporaryDirectory(prefix="windtunnel-startup-") as name:
        folder = Path(name)
        tokenizer = tokenizer_folder.make(folder / "tokenizer")
        with ground_truth.serving(ground_truth.build(folder), ttft_ms=5, itl_ms=1) as server:
            rig = Rig(server.base_url, tokenizer, folder)
            for _ in range(options.rounds):
                for client in clients:
                    runs[client.name].append(_round(client, rig))
    print(aligned(_table(runs)))
    print(f"median (least–greatest) of {options.rounds} rounds, ms")
    out = options.out or RESULTS / time.strftime("startup-%Y%m%d-%H%M%S.json")
    out.parent.mkdir(parents=True, exist_ok=True)
    document = {
        "benchmark": "startup",
        "date": time.strftime("%Y-%m-%d %H:%M:%S %z"),
        "machine": machine.facts(),
        "versions": {client.name: version(client) for client in clients},
        "revision": machine.revision(),
        "load": ONE_REQUEST._asdict(),
        "figures": FIGURES,
        "runs": runs,
    }
    out.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    print(f"saved in {out}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vllm-rs", type=Path, metavar="PATH", help="vLLM's Rust client; without it only ours is run")
    parser.add_argument("--windtunnel", type=Path, metavar="PATH", help="default: the one beside this Python")
    parser.add_argument("--rounds", type=int, default=15, help="default: %(default)s")
    parser.add_argument("--out", type=Path, metavar="FILE", help="default: benchmarks/results/startup-DATE.json")
    return parser.parse_args()


def _round(client: Client, rig: Rig) -> dict[str, float]:
    """Each of a client's commands once."""
    result = rig.folder / "result.json"
    result.unlink(missing_ok=True)
    bench = bench_command(
        client, base_url=rig.base_url, tokenizer=rig.tokenizer, load=ONE_REQUEST, seed=0, result=result
    )
    cost = _run(bench, rig)
    arrival_ns, _ = read_tokens(json.loads(result.read_bytes())["generated_texts"][0])
    return {
        "first_request_ms": (arrival_ns - cost.started_ns) / _NS_PER_MS,
        "one_request_ms": cost.wall_s * 1e3,
        "help_ms": _run([str(client.program), "bench", "serve", "--help"], rig).wall_s * 1e3,
        "bare_help_ms": _run([str(client.program), "--help"], rig).wall_s * 1e3,
    }


def _run(command: Sequence[str], rig: Rig) -> process_tree.Cost:
    log = rig.folder / "client.log"
    cost = process_tree.measure(command, environment=environment(rig.folder), log=log, sample_s=None)
    if cost.exit_code:
        words = log.read_text(errors="replace")[-2000:]
        raise SystemExit(f"{command[0]} ended with exit status {cost.exit_code}; its last words:\n{words}")
    return cost


def _table(runs: dict[str, list[dict[str, float]]]) -> list[list[str]]:
    rows = [["figure", *runs]]
    for key, label in FIGURES.items():
        rows.append([label, *(str(Spread.of([run[key] for run in runs[client]])) for client in runs)])
    return rows


if __name__ == "__main__":
    main()
