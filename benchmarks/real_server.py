"""windtunnel and vLLM's two clients on one real server, interleaved: what each says of it.

    .venv/bin/python benchmarks/real_server.py --url http://127.0.0.1:8000 --model M --tokenizer FOLDER \
        --vllm-rs PATH --vllm PATH
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

from overhead.clients import Client, environment, version, windtunnel_beside
from overhead.comparison import Spread, aligned
from overhead.machine import facts, revision

FIGURES = (
    "completed", "failed", "total_input_tokens", "total_output_tokens", "duration", "output_throughput",
    "median_ttft_ms", "p99_ttft_ms", "median_tpot_ms", "median_itl_ms", "max_concurrent_requests",
)  # fmt: skip


class Case(NamedTuple):
    """A load, and the flags that make it."""

    name: str
    flags: tuple[str, ...]


CHAT = ("--backend", "openai-chat", "--endpoint", "/v1/chat/completions")
CASES = (
    Case("completions, text, closed loop of 4", ("--max-concurrency", "4")),
    Case("completions, text, Poisson 8/s", ("--request-rate", "8")),
    Case("chat, closed loop of 4", ("--max-concurrency", "4", *CHAT)),
    Case("completions, token ids, closed loop of 4", ("--max-concurrency", "4", "--prompt-token-ids")),
)  # fmt: skip
WITHOUT_TOKEN_IDS = "vllm"
"""vLLM's Python client sends text only."""


def run_once(client: Client, case: Case, options: argparse.Namespace, seed: int, folder: Path) -> dict[str, Any]:
    """One run's figures, or why there are none."""
    result = folder / "result.json"
    result.unlink(missing_ok=True)
    command = [
        str(client.program), "bench", "serve", "--base-url", options.url, "--model", options.model,
        "--tokenizer", str(options.tokenizer), "--num-prompts", str(options.num_prompts),
        "--random-input-len", "64", "--random-output-len", "16", "--seed", str(seed), "--num-warmups", "2",
        "--save-result", "--result-dir", str(folder), "--result-filename", result.name, "--disable-tqdm", *case.flags,
    ]  # fmt: skip
    quiet = dict(environment(folder)) | {"HF_HUB_OFFLINE": "1", "NO_COLOR": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=quiet, timeout=300, check=False)
    if not result.exists():
        words = (done.stderr or done.stdout).strip().splitlines()
        return {"exit": done.returncode, "no_result": words[-1][:200] if words else ""}
    document = json.loads(result.read_text())
    return {"exit": done.returncode} | {key: document[key] for key in FIGURES if key in document}


def table(case: Case, clients: list[Client], runs: dict[str, list[dict[str, Any]]]) -> str:
    """Each figure's median and spread, client by client."""
    rows = [[case.name, *(client.name for client in clients)]]
    for key in ("exit", *FIGURES):
        cells = []
        for client in clients:
            values = [run[key] for run in runs[client.name] if isinstance(run.get(key), int | float)]
            spread = Spread.of(values)
            cells.append("–" if spread is None else str(spread))
        rows.append([key, *cells])
    return aligned(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--tokenizer", required=True, type=Path)
    parser.add_argument("--vllm-rs", type=Path, help="vLLM's Rust client")
    parser.add_argument("--vllm", type=Path, help="vLLM's Python client")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--num-prompts", type=int, default=40)
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).parent / "results" / f"real-server-{date.today()}.json"
    )
    options = parser.parse_args()
    clients = [Client("windtunnel", windtunnel_beside(sys.executable))]
    clients += [Client("vllm-rs", options.vllm_rs)] if options.vllm_rs else []
    clients += [Client("vllm", options.vllm)] if options.vllm else []
    recorded: dict[str, Any] = {"machine": facts(), "revision": revision(), "cases": {}}
    recorded["versions"] = {client.name: version(client) for client in clients}
    with tempfile.TemporaryDirectory() as folder:
        for case in CASES:
            able = [c for c in clients if not (c.name == WITHOUT_TOKEN_IDS and "--prompt-token-ids" in case.flags)]
            runs: dict[str, list[dict[str, Any]]] = {client.name: [] for client in able}
            for seed in range(options.rounds):
                for client in able:
                    runs[client.name].append(run_once(client, case, options, seed, Path(folder)))
            recorded["cases"][case.name] = {"flags": case.flags, "runs": runs}
            print(table(case, able, runs), end="\n\n", flush=True)
            for client in able:
                for words in {run["no_result"] for run in runs[client.name] if "no_result" in run}:
                    print(f"{client.name} wrote no result: {words}\n")
    options.out.parent.mkdir(exist_ok=True)
    options.out.write_text(json.dumps(recorded, indent=1) + "\n")


if __name__ == "__main__":
    main()
