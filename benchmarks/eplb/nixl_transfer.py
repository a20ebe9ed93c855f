"""What does our transport add to NIXL's own reads?

    python benchmarks/eplb/nixl_transfer.py

One process owns weights, the other reads them, over UCX with shared memory and over TCP on the loopback. The yardstick
is a plain loop over NIXL: a transfer per expert, made from addresses, posted, and polled until it is done. Beside it
the same loop with descriptor lists that were prepared before; the transport (an expert in reads of at most 16 MiB, side
by side); and the mover into staging, several copies at once as in a rebalance, whose checksum is a row of its own. All
use one agent, one connection and the same registrations, so that nothing else differs.

An expert is a group of three tensors. Interleaved: a round lets each read all experts, and each round another one
begins. What lands is compared with what was to be read, once per way before it is measured.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import quantiles
from typing import Any

import numpy as np
from nixl_cu12 import _bindings as nixl
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[1]))  # run as a script, this file's own folder would be the first

from overhead import machine
from overhead.comparison import Spread, aligned
from windtunnel import __version__
from windtunnel.eplb.agent import AgentConfig
from windtunnel.eplb.mover import Mover
from windtunnel.eplb.plan import Copy, Source
from windtunnel.eplb.store import ExpertStore, allocate_staging, allocate_tensors, decode_layout, encode_layout, pieces
from windtunnel.eplb.transaction.instructions import Broke, Check, Checked, Know, Landed, Read
from windtunnel.eplb.transaction.messages import Order, Peer
from windtunnel.eplb.transport import MAX_PIECE_BYTES, make_transport

RESULTS = Path(__file__).parents[1] / "results"
FABRICS = {"shared memory": "shm,tcp", "tcp": "tcp"}
"""UCX_TLS; shared memory needs TCP beside it, to learn that a peer has ended."""
KIB, MIB = 1 << 10, 1 << 20
EXPERTS = {
    "1 MiB": (512 * KIB, 256 * KIB, 256 * KIB),
    "15 MiB": (5 * MIB, 5 * MIB, 5 * MIB),
    "42 MiB": (14 * MIB, 14 * MIB, 14 * MIB),
}
"""Bytes of an expert's tensors; the last is an expert of 7168 × 2048 × 3 in 8 bits."""
MEMORY_BYTES = {"shared memory": 126 * MIB, "tcp": 42 * MIB}
"""Read in a round, about."""
BASE, PREPARED, TRANSPORT, MOVER, CHECKSUM = (
    "plain NIXL",
    "plain NIXL, prepared lists",
    "transport",
    "mover into staging",
    "its checksum alone",
)
GOAL_RATIO = 0.9
OWNER = 1
Run = Callable[[], None]


def own(pipe: Connection, tensors: tuple[int, ...], count: int) -> None:
    """Own `count` experts."""
    made = make_transport("nixl", "owner")
    layers = allocate_tensors(made, [[((size,), np.uint8) for size in tensors]], count)
    for number, tensor in enumerate(layers[0]):
        tensor[:] = np.random.default_rng(number).integers(0, 256, tensor.shape, np.uint8)
    pipe.send((made.metadata(), encode_layout(ExpertStore(layers).layout())))
    pipe.recv()
    made.close()


class Reader:
    """What is measured, in a process of its own."""

    def __init__(self, tensors: tuple[int, ...], count: int, metadata: bytes, layout: bytes) -> None:
        self._size, self._count = sum(tensors), count
        self._transport: Any = make_transport("nixl", "reader")
        self._staging = allocate_staging(self._transport, count, self._size)
        self._layout = decode_layout(layout)
        self._mover = Mover(0, self._transport, ExpertStore([[np.zeros((1, self._size), np.uint8)]]), self._staging)
        self._mover.take(Know(Peer(OWNER, 1, metadata, layout)))
        self._nixl, self._backends = self._transport._nixl, [self._transport._backend]
        self._owner = next(iter(self._transport._agents))
        self._spans = [self._addresses(number) for number in range(count)]
        self._prepared = [
            (
                self._nixl.prepXferDlist(nixl.NIXL_INIT_AGENT, local, self._backends),
                self._nixl.prepXferDlist(self._owner, remote, self._backends),
            )
            for local, remote in map(_descriptors, self._spans)
        ]
        self._indices = np.arange(len(tensors), dtype=np.int32)
        self.variants: dict[str, Run] = {
            BASE: self._plain,
            PREPARED: self._plain_prepared,
            TRANSPORT: self._through_transport,
            MOVER: self._through_mover,
            CHECKSUM: self._checksums,
        }

    def measure(self, rounds: int, expected: list[bytes]) -> dict[str, list[float]]:
        """GB/s of each round."""
        for name, run in self.variants.items():
            run()
            if name != CHECKSUM and [ExpertStore.digest_of(staged) for staged in self._staging] != expected:
                raise SystemExit(f"{name}: what landed is not what was to be read")
            if name != MOVER:  # whose bytes the checksums are taken of
                self._clear()
        speeds: dict[str, list[float]] = {name: [] for name in self.variants}
        names = list(self.variants)
        for number in range(rounds):
            first = number % len(names)
            for name in names[first:] + names[:first]:
                begun_ns = time.perf_counter_ns()
                self.variants[name]()
                speeds[name].append(self._count * self._size / (time.perf_counter_ns() - begun_ns))
        return speeds

    def _clear(self) -> None:
        for staged in self._staging:
            staged[:] = 0

    def _addresses(self, number: int) -> list[list[tuple[int, int, int]]]:
        """Of one expert's tensors, in staging and in the owner's memory."""
        whole = pieces(self._layout, 0, number, self._staging[number].ctypes.data, self._size)[0]
        return [
            [(piece.local, piece.num_bytes, 0) for piece in whole],
            [(piece.remote, piece.num_bytes, 0) for piece in whole],
        ]

    def _plain(self) -> None:
        for local, remote in map(_descriptors, self._spans):
            self._finish(self._nixl.createXferReq(nixl.NIXL_READ, local, remote, self._owner, b"", self._backends))

    def _plain_prepared(self) -> None:
        for local, remote in self._prepared:
            handle = self._nixl.makeXferReq(
                nixl.NIXL_READ, local, self._indices, remote, self._indices, b"", self._backends, False
            )
            self._finish(handle)

    def _finish(self, handle: int) -> None:
        state = self._nixl.postXferReq(handle, b"")
        while state != nixl.NIXL_SUCCESS:
            state = self._nixl.getXferStatus(handle)
        self._nixl.releaseXferReq(handle)

    def _through_transport(self) -> None:
        for number, staged in enumerate(self._staging):
            parts = pieces(self._layout, 0, number, staged.ctypes.data)
            for under_way in [self._transport.read(OWNER, part) for part in parts]:
                while not self._transport.poll(under_way):
                    pass
                self._transport.release(under_way)

    def _through_mover(self) -> None:
        waiting, under_way = list(range(self._count)), 0
        while waiting or under_way:
            while waiting and under_way < AgentConfig.max_reads:
                number = waiting.pop()
                self._mover.take(Read(number, 0, self._order(number), OWNER, number))
                under_way += 1
            for happened in self._mover.step():
                if isinstance(happened, Broke):
                    raise SystemExit(f"a copy failed: {happened}")
                under_way -= isinstance(happened, Landed)

    def _checksums(self) -> None:
        for number in range(self._count):
            self._mover.take(Check(number, 0, self._order(number)))
            if not isinstance(self._mover.step()[-1], Checked):
                raise SystemExit("a checksum failed")

    def _order(self, number: int) -> Order:
        return Order(Copy(0, number, 0, 0, (Source(OWNER, number),)), self._size, b"")


def _descriptors(spans: list[list[tuple[int, int, int]]]) -> tuple[Any, Any]:
    return nixl.nixlXferDList(nixl.DRAM_SEG, spans[0]), nixl.nixlXferDList(nixl.DRAM_SEG, spans[1])


def read(pipe: Connection, tensors: tuple[int, ...], count: int, rounds: int, told: Any) -> None:
    """The reader's process."""
    reader = Reader(tensors, count, *told)
    pipe.send(reader.measure(rounds, _expected(tensors, count)))


def _expected(tensors: tuple[int, ...], count: int) -> list[bytes]:
    parts: list[NDArray[np.uint8]] = [
        np.random.default_rng(number).integers(0, 256, (count, size), np.uint8) for number, size in enumerate(tensors)
    ]
    return [ExpertStore.digest_of(np.concatenate([part[number] for part in parts])) for number in range(count)]


def main() -> None:
    options = _options()
    runs = {
        fabric: {label: _measure(fabric, tensors, options.rounds) for label, tensors in EXPERTS.items()}
        for fabric in FABRICS
    }
    ratios = {
        fabric: {label: _ratios(speeds) for label, speeds in of_fabric.items()} for fabric, of_fabric in runs.items()
    }
    print(aligned(_table(runs, ratios)))
    print(f"median (quartiles) of {options.rounds} rounds; goal: {GOAL_RATIO} of plain NIXL")
    out = options.out or RESULTS / time.strftime("eplb-nixl-transfer-%Y%m%d-%H%M%S.json")
    document = {
        "benchmark": "eplb nixl transfer",
        "date": time.strftime("%Y-%m-%d %H:%M:%S %z"),
        "machine": machine.facts(),
        "versions": {"windtunnel": __version__, "nixl-cu12": version("nixl-cu12"), "numpy": np.__version__},
        "revision": machine.revision(),
        "goal_ratio": GOAL_RATIO,
        "ucx_tls": FABRICS,
        "most_bytes_of_a_read": MAX_PIECE_BYTES,
        "tensor_bytes": EXPERTS,
        "unit": "GB/s, one value a round",
        "rounds": options.rounds,
        "ratios_to_plain_nixl": {
            fabric: {
                label: {
                    name: dict(zip(("median", "quartile_1", "quartile_3"), spread, strict=True))
                    for name, spread in of_size.items()
                }
                for label, of_size in of_fabric.items()
            }
            for fabric, of_fabric in ratios.items()
        },
        "runs": {
            fabric: {
                label: {name: [round(v, 3) for v in speeds] for name, speeds in of_size.items()}
                for label, of_size in of_fabric.items()
            }
            for fabric, of_fabric in runs.items()
        },
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    print(f"saved in {out}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100, help="default: %(default)s")
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="default: benchmarks/results/eplb-nixl-transfer-DATE.json"
    )
    return parser.parse_args()


def _measure(fabric: str, tensors: tuple[int, ...], rounds: int) -> dict[str, list[float]]:
    """By way: GB/s of each round. Two new processes, since UCX takes its settings from a process's environment."""
    os.environ["UCX_TLS"] = FABRICS[fabric]
    context = multiprocessing.get_context("spawn")
    count = MEMORY_BYTES[fabric] // sum(tensors)
    to_owner, owners = context.Pipe()
    to_reader, readers = context.Pipe()
    owner = context.Process(target=own, args=(owners, tensors, count))
    owner.start()
    reader = context.Process(target=read, args=(readers, tensors, count, rounds, to_owner.recv()))
    reader.start()
    readers.close()
    speeds: dict[str, list[float]] = to_reader.recv()
    reader.join()
    to_owner.send("the end")
    owner.join()
    return speeds


def _ratios(runs: dict[str, list[float]]) -> dict[str, Spread]:
    """Speeds in terms of plain NIXL's, round by round."""
    return {
        name: _middle([a / b for a, b in zip(speeds, runs[BASE], strict=True)])
        for name, speeds in runs.items()
        if name != BASE
    }


def _middle(values: list[float]) -> Spread:
    """Median and quartiles: on a machine that others use too, the extremes tell of them."""
    low, median, high = quantiles(values, n=4)
    return Spread(median, low, high)


def _table(
    runs: dict[str, dict[str, dict[str, list[float]]]], ratios: dict[str, dict[str, dict[str, Spread]]]
) -> list[list[str]]:
    rows = [["over", "expert of", "through", "GB/s", f"÷ {BASE}"]]
    for fabric, of_fabric in runs.items():
        for label, of_size in of_fabric.items():
            for name, speeds in of_size.items():
                ratio = ratios[fabric][label].get(name)
                low = name in (TRANSPORT, MOVER) and ratio is not None and ratio.median < GOAL_RATIO
                told = "" if ratio is None else f"{ratio}{' below the goal' if low else ''}"
                rows.append([fabric, label, name, str(_middle(speeds)), told])
    return rows


if __name__ == "__main__":
    main()
