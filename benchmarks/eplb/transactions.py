"""What does the protocol cost? A transaction without moves beside a bare echo of three rounds.

    python benchmarks/eplb/transactions.py

One process coordinates, one a rank; both exchanges run in the same event loops, on connections of their own, in turn.
A transaction without moves asks each rank three times (prepare, publish, retire) and waits for all; so does the echo,
with 64 bytes each way. Ratios are taken pair by pair: median (least–greatest) of the rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import sys
import time
from concurrent.futures import Future
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from overhead import machine
from overhead.comparison import Spread, aligned
from windtunnel.eplb.agent import AgentConfig, RankAgent
from windtunnel.eplb.rebalancer import Rebalancer
from windtunnel.eplb.store import ExpertStore, allocate_tensors
from windtunnel.eplb.topology import Topology
from windtunnel.eplb.transport import make_transport

RESULTS = Path(__file__).parents[1] / "results"
ECHO_BYTES = 64
ROUNDS_PER_ECHO = 3


class Case(NamedTuple):
    """A model as the protocol sees it."""

    name: str
    layers: int
    experts: int
    ranks: int
    slots: int
    """Of a rank."""


CASES = (
    Case("small", 3, 8, 4, 4),
    Case("58 layers, 256 experts", 58, 256, 4, 72),
)


def run_rank(pipe: Connection, case: Case, rank: int, port: int, echo_port: int) -> None:
    moving = make_transport("shm", f"rank-{rank}")
    specs = [[((16,), np.float32)] for _ in range(case.layers)]
    tensors = allocate_tensors(moving, specs, case.slots)
    first = np.arange(rank * case.slots, (rank + 1) * case.slots) % case.experts
    contents = np.tile(first, (case.layers, 1))
    for layer in range(case.layers):
        tensors[layer][0][:] = first[:, None] + 1000 * layer
    agent = RankAgent(rank, ExpertStore(tensors), moving, contents, case.experts, AgentConfig(port=port))
    with agent:
        loop = agent._loop
        assert loop is not None
        echoing = asyncio.run_coroutine_threadsafe(_answer_echoes(echo_port), loop)
        pipe.send("here")
        pipe.recv()
        echoing.cancel()


async def _answer_echoes(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while True:
        writer.write(await reader.readexactly(ECHO_BYTES))


class Echo:
    """The coordinator's side of the echo."""

    def __init__(self) -> None:
        self._streams: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def listen(self) -> int:
        """The port."""
        server = await asyncio.start_server(lambda *stream: self._streams.append(stream), "127.0.0.1", 0)
        return int(server.sockets[0].getsockname()[1])

    async def ask_all(self) -> None:
        """Three times: send to all, wait for all."""
        for _ in range(ROUNDS_PER_ECHO):
            for _, writer in self._streams:
                writer.write(bytes(ECHO_BYTES))
            await asyncio.gather(*(reader.readexactly(ECHO_BYTES) for reader, _ in self._streams))


def measure(case: Case, rounds: int, repeats: int) -> list[dict[str, float]]:
    """Medians of `repeats` exchanges of each kind, round by round."""
    context = multiprocessing.get_context("forkserver")
    with Rebalancer(Topology.uniform(case.ranks, case.ranks * case.slots)) as rebalancer:
        loop, cluster, echo = rebalancer._require_loop(), rebalancer._cluster, Echo()
        echo_port = asyncio.run_coroutine_threadsafe(echo.listen(), loop).result()
        ranks = []
        for rank in range(case.ranks):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=run_rank, args=(theirs, case, rank, rebalancer.address[1], echo_port), daemon=True
            )
            process.start()
            ranks.append((process, ours))
        for _, pipe in ranks:
            pipe.recv()
        rebalancer.wait_ready()
        measured: Future[list[dict[str, float]]] = Future()

        async def all_rounds() -> None:
            found = []
            for _ in range(rounds):
                took: dict[str, list[int]] = {"echo": [], "transaction": []}
                for _ in range(repeats):
                    for name, exchange in (
                        ("echo", echo.ask_all),
                        ("transaction", lambda: cluster._transact(cluster.committed, ())),
                    ):
                        began_ns = time.perf_counter_ns()
                        outcome = await exchange()
                        took[name].append(time.perf_counter_ns() - began_ns)
                        assert outcome is None or outcome.committed
                found.append({f"{name}_ms": median(times) / 1e6 for name, times in took.items()})
            measured.set_result(found)

        loop.call_soon_threadsafe(cluster.submit, all_rounds)
        result = measured.result()
        for process, pipe in ranks:
            pipe.send("enough")
            process.join()
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15, help="default: %(default)s")
    parser.add_argument(
        "--repeats", type=int, default=40, help="exchanges of each kind in a round; default: %(default)s"
    )
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="default: benchmarks/results/eplb-transactions-DATE.json"
    )
    options = parser.parse_args()
    runs = {case.name: measure(case, options.rounds, options.repeats) for case in CASES}
    table = [["model", "echo, ms", "transaction, ms", "ratio"]]
    for name, found in runs.items():
        ratios = [run["transaction_ms"] / run["echo_ms"] for run in found]
        columns = [Spread.of([run[key] for run in found]) for key in ("echo_ms", "transaction_ms")]
        table.append([name, *map(str, columns), str(Spread.of(ratios))])
    print(aligned(table))
    document: dict[str, Any] = {
        "benchmark": "eplb transactions",
        "date": time.strftime("%Y-%m-%d %H:%M:%S %z"),
        "machine": machine.facts(),
        "revision": machine.revision(),
        "cases": {case.name: case._asdict() for case in CASES},
        "repeats": options.repeats,
        "runs": runs,
    }
    out = options.out or RESULTS / time.strftime("eplb-transactions-%Y%m%d-%H%M%S.json")
    out.write_text(json.dumps(document, indent=1) + "\n")
    print(f"saved in {out}")


if __name__ == "__main__":
    main()
