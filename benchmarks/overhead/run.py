"""What does a benchmark client cost, and how much does it distort? Clients side by side, against the truth.

    python benchmarks/overhead/run.py --vllm-rs PATH
    python benchmarks/overhead/run.py --vllm-rs PATH --concurrency 1 100 500 1000

Each client runs as shipped, in a process of its own, with the same flags; A B A B, the same seed within a pair. The
ground-truth server stays the same for all.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # run as a script, this file's own folder would be the first

from overhead import comparison, ground_truth, machine, process_tree, tokenizer_folder
from overhead.clients import OURS, PEER, Client, Load, bench_command, environment, version, windtunnel_beside
from overhead.distortion import distortion, figures
from overhead.ground_truth import GroundTruth

RESULTS = Path(__file__).parents[1] / "results"
NUM_PROMPTS = {1: 50, 100: 1000, 500: 2000, 1000: 2000}
"""By concurrency: enough requests for a run of some seconds."""
_BYTES_PER_MB = 1e6


def main() -> None:
    options = _options()
    clients = _clients(options)
    document: dict[str, Any] = {
        "benchmark": "overhead",
        "date": time.strftime("%Y-%m-%d %H:%M:%S %z"),
        "machine": machine.facts(),
        "versions": {client.name: version(client) for client in clients},
        "revision": machine.revision(),
        "truth": {"ttft_ms": options.ttft_ms, "itl_ms": options.itl_ms},
        "memory_sample_s": process_tree.SAMPLE_S,
        "figures": {f.key: {"label": f.label, "unit": f.unit} for f in (*comparison.FIGURES, *comparison.NOISE)},
        "measurements": [],
    }
    out = options.out or RESULTS / time.strftime("overhead-%Y%m%d-%H%M%S.json")
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="windtunnel-overhead-") as name:
        folder = Path(name)
        program = ground_truth.build(folder)
        tokenizer = tokenizer_folder.make(folder / "tokenizer")
        for concurrency in options.concurrency:
            num_prompts = options.num_prompts or NUM_PROMPTS.get(concurrency, 2 * concurrency)
            load = Load(concurrency, num_prompts, options.input_len, options.output_len)
            with ground_truth.serving(program, ttft_ms=options.ttft_ms, itl_ms=options.itl_ms) as server:
                document["measurements"].append(_measure(clients, load, options, server, tokenizer, folder))
            out.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    print(f"\nsaved in {out}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vllm-rs", type=Path, metavar="PATH", help="vLLM's Rust client; without it only ours is run")
    parser.add_argument("--windtunnel", type=Path, metavar="PATH", help="default: the one beside this Python")
    parser.add_argument("--workers", type=int, nargs="+", default=[], metavar="N", help="ours also with --workers N")
    parser.add_argument("--pairs", type=int, default=5, help="runs of each client (default: %(default)s)")
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1000], help="default: 1000; also 1, 100, 500")
    parser.add_argument("--num-prompts", type=int, help=f"default by concurrency: {NUM_PROMPTS}, else twice as many")
    parser.add_argument("--input-len", type=int, default=32, help="tokens (default: %(default)s)")
    parser.add_argument("--output-len", type=int, default=100, help="tokens (default: %(default)s)")
    parser.add_argument("--ttft-ms", type=float, default=50, help="the server's (default: %(default)s)")
    parser.add_argument("--itl-ms", type=float, default=10, help="the server's (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the first pair; each further one takes the next")
    parser.add_argument("--out", type=Path, metavar="FILE", help="default: benchmarks/results/overhead-DATE.json")
    return parser.parse_args()


def _clients(options: argparse.Namespace) -> list[Client]:
    """The peer first, so that each pair is peer, ours."""
    ours = options.windtunnel or windtunnel_beside(sys.executable)
    clients = [Client(PEER, options.vllm_rs)] if options.vllm_rs is not None else []
    clients.append(Client(OURS, ours))
    clients += [Client(f"{OURS} --workers {n}", ours, ("--workers", str(n))) for n in options.workers]
    for client in clients:
        if not os.access(client.program, os.X_OK):
            raise SystemExit(f"{client.name}: {client.program} is no program")
    return clients


def _measure(
    clients: Sequence[Client],
    load: Load,
    options: argparse.Namespace,
    server: GroundTruth,
    tokenizer: Path,
    folder: Path,
) -> dict[str, Any]:
    """All pairs at one load."""
    print(f"\n{load.num_prompts} requests, {load.concurrency} at once, {load.input_tokens} tokens in, "
          f"{load.output_tokens} out; {options.pairs} pairs")  # fmt: skip
    runs: dict[str, list[dict[str, float]]] = {client.name: [] for client in clients}
    log: list[dict[str, Any]] = []
    for pair in range(options.pairs):
        for client in clients:
            run = _run(client, load, options.seed + pair, server, tokenizer, folder)
            runs[client.name].append(run)
            log.append({"client": client.name, "pair": pair, "seed": options.seed + pair, "figures": run})
            print(f"  pair {pair + 1} {client.name}: " + _in_short(run))
    peer = clients[0].name if len(clients) > 1 else None
    print("\n" + comparison.aligned(comparison.table(runs, peer)))
    print("median (least–greatest) of the runs; ratios pair by pair")
    return {
        "load": load._asdict(),
        "runs": log,
        "ratios_to": peer,
        "ratios": comparison.compare(runs, peer) if peer is not None else {},
    }


def _run(client: Client, load: Load, seed: int, server: GroundTruth, tokenizer: Path, folder: Path) -> dict[str, float]:
    """One run of one client, as figures."""
    result, log = folder / "result.json", folder / "client.log"
    result.unlink(missing_ok=True)
    command = bench_command(client, base_url=server.base_url, tokenizer=tokenizer, load=load, seed=seed, result=result)
    load_average = os.getloadavg()[0]
    spent_before = _spent_s(server)
    cost = process_tree.measure(command, environment=environment(folder), log=log)
    others_s = _spent_s(server) - spent_before - cost.user_s - cost.system_s
    if not result.exists():
        words = log.read_text(errors="replace")[-2000:]
        raise SystemExit(f"{client.name} left no result (exit status {cost.exit_code}); its last words:\n{words}")
    return {
        "exit_code": cost.exit_code,
        "cpu_s": cost.user_s + cost.system_s,
        "cpu_user_s": cost.user_s,
        "cpu_system_s": cost.system_s,
        "peak_pss_mb": cost.peak_pss_bytes / _BYTES_PER_MB,
        "max_rss_mb": cost.max_rss_bytes / _BYTES_PER_MB,
        "wall_s": cost.wall_s,
        **figures(distortion(json.loads(result.read_bytes()))),
        "others_cpu_s": max(0.0, others_s),
        "load_average_before": load_average,
    }


def _spent_s(server: GroundTruth) -> float:
    """Processor seconds of the whole machine, but for the server and for us."""
    return process_tree.machine_cpu_s() - process_tree.cpu_s(server.pid) - time.process_time()


def _in_short(run: dict[str, float]) -> str:
    words = [f"{figure.key} {run[figure.key]:.4g}" for figure in comparison.FIGURES if figure.key in run]
    if run["exit_code"]:
        words.append(f"EXIT STATUS {run['exit_code']:.0f}")
    if run["unusable_requests"]:
        words.append(f"UNUSABLE REQUESTS {run['unusable_requests']:.0f}")
    return ", ".join(words)


if __name__ == "__main__":
    main()
