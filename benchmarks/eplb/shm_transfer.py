"""How near do reads over shm come to a memcpy between the same two processes?

    python benchmarks/eplb/shm_transfer.py

One process owns weights, the other reads them. The yardstick is one `memcpy` a copy, from a block of
`multiprocessing.shared_memory` of the owner's into one of the reader's. Beside it the same bytes through the transport
(`read`, `poll`, `release`, in reads of at most 16 MiB), from memory that the transport gave and from memory of the
owner's own; and through the mover into staging, as a rebalance does it, whose checksum is a row of its own.

All go round through memory that is many times the cache, at both ends; each has read all of it once before it is
measured. Interleaved: a round lets each read the next eighth of it, and each round another one begins.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from statistics import quantiles
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # run as a script, this file's own folder would be the first

from overhead import machine
from overhead.comparison import Spread, aligned
from windtunnel import __version__
from windtunnel.eplb.mover import Mover
from windtunnel.eplb.plan import Copy, Source
from windtunnel.eplb.store import Block, ExpertStore, Layout, encode_layout, pieces
from windtunnel.eplb.transaction.instructions import Check, Checked, Know, Landed, Read
from windtunnel.eplb.transaction.messages import Order, Peer
from windtunnel.eplb.transport import HOST
from windtunnel.eplb.transport.shm import SharedMemoryTransport

RESULTS = Path(__file__).parents[1] / "results"
KIB, MIB = 1 << 10, 1 << 20
SIZES = {"64 KiB": 64 * KIB, "1 MiB": MIB, "16 MiB": 16 * MIB, "42 MiB": 42 * MIB}
"""Of a copy; the last is an expert of 7168 × 2048 × 3 in 8 bits."""
BASE = "memcpy"
GOAL_RATIO = 0.8
OWNER = 1
EIGHTHS = 8
Run = Callable[[range], None]
"""Makes the copies of these slots."""


def own(pipe: Connection, block: str, num_bytes: int) -> None:
    """The owner: the same bytes in a block, in memory of the transport, and in memory of its own."""
    values = np.random.default_rng(0).integers(0, 256, num_bytes, np.uint8)
    shared = SharedMemory(block)
    np.frombuffer(shared.buf, np.uint8)[:num_bytes] = values
    shared.close()
    transport = SharedMemoryTransport("owner")
    allocated = transport.allocate(num_bytes)
    allocated[:] = values
    transport.register(values.ctypes.data, num_bytes)
    pipe.send((transport.metadata(), allocated.ctypes.data, values.ctypes.data))
    pipe.recv()


class Reader:
    """The process that is measured."""

    def __init__(self, num_bytes: int, source: SharedMemory, landing: SharedMemory, told: Any) -> None:
        metadata, self._allocated, self._registered = told
        self._num_bytes = num_bytes
        self._source = np.frombuffer(source.buf, np.uint8)
        self._block = np.frombuffer(landing.buf, np.uint8)
        self._transport = SharedMemoryTransport("reader")
        self._landing = self._transport.allocate(num_bytes)
        self._metadata = metadata
        self._transport.add_peer(OWNER, metadata)

    def variants(self, size: int) -> dict[str, Run]:
        """What is compared, for copies of one size."""
        mover = self._mover(size)
        return {
            BASE: lambda slots: self._memcpy(size, slots),
            "shm, memory of the transport": lambda slots: self._read(self._allocated, size, slots),
            "shm, memory of the owner's own": lambda slots: self._read(self._registered, size, slots),
            "mover into staging": lambda slots: _move(mover, size, slots),
            "its checksum alone": lambda slots: _check(mover, size, slots),
        }

    def landed(self, name: str, size: int) -> bool:
        """Whether all bytes have come; the landing place is cleared for the next."""
        into = self._block if name == BASE else self._landing
        used = self._num_bytes // size * size
        whole = np.array_equal(into[:used], self._source[:used])
        if name != "mover into staging":  # whose bytes the checksum is taken of
            into[:] = 0
        return whole

    def close(self) -> None:
        """Let go of the blocks."""
        self._transport.close()
        del self._source, self._block

    def _memcpy(self, size: int, slots: range) -> None:
        source, into = self._source.ctypes.data, self._block.ctypes.data
        for slot in slots:
            ctypes.memmove(into + slot * size, source + slot * size, size)

    def _read(self, remote: int, size: int, slots: range) -> None:
        transport, local = self._transport, self._landing.ctypes.data
        layout = Layout(slots.stop, ((Block(remote, size, size, HOST),),))
        for slot in slots:
            for part in pieces(layout, 0, slot, local + slot * size):
                read = transport.read(OWNER, part)
                while not transport.poll(read):
                    pass
                transport.release(read)

    def _mover(self, size: int) -> Mover:
        count = self._num_bytes // size
        staging = [self._landing[slot * size : (slot + 1) * size] for slot in range(count)]
        mover = Mover(0, self._transport, ExpertStore([[np.zeros((1, size), np.uint8)]]), staging)
        layout = Layout(count, ((Block(self._allocated, size, size, HOST),),))
        mover.take(Know(Peer(OWNER, 1, self._metadata, encode_layout(layout))))
        return mover


def _order(slot: int, size: int) -> Order:
    return Order(Copy(0, slot, 0, 0, (Source(OWNER, slot),)), size, b"")


def _move(mover: Mover, size: int, slots: range) -> None:
    for slot in slots:
        mover.take(Read(slot, 0, _order(slot, size), OWNER, slot))
        while mover.busy:
            happened = mover.step()
        if not isinstance(happened[-1], Landed):
            raise SystemExit(f"a copy failed: {happened}")


def _check(mover: Mover, size: int, slots: range) -> None:
    for slot in slots:
        mover.take(Check(slot, 0, _order(slot, size)))
        if not isinstance(mover.step()[-1], Checked):
            raise SystemExit("a checksum failed")


def main() -> None:
    options = _options()
    num_bytes = options.mib * MIB
    with _processes(num_bytes) as reader:
        runs = {label: _measure(reader, size, num_bytes, options.rounds) for label, size in SIZES.items()}
    ratios = {label: _ratios(of_size) for label, of_size in runs.items()}
    print(aligned(_table(runs, ratios)))
    print(f"median (quartiles) of {options.rounds} rounds; goal: {GOAL_RATIO} of memcpy")
    out = options.out or RESULTS / time.strftime("eplb-shm-transfer-%Y%m%d-%H%M%S.json")
    document = {
        "benchmark": "eplb shm transfer",
        "date": time.strftime("%Y-%m-%d %H:%M:%S %z"),
        "machine": machine.facts(),
        "versions": {"windtunnel": __version__, "numpy": np.__version__},
        "revision": machine.revision(),
        "goal_ratio": GOAL_RATIO,
        "memory_bytes": num_bytes,
        "copy_bytes": SIZES,
        "unit": "GB/s, one value a round",
        "rounds": options.rounds,
        "ratios_to_memcpy": {
            label: {
                name: dict(zip(("median", "quartile_1", "quartile_3"), spread, strict=True))
                for name, spread in of_size.items()
            }
            for label, of_size in ratios.items()
        },
        "runs": {
            label: {name: [round(v, 3) for v in speeds] for name, speeds in of_size.items()}
            for label, of_size in runs.items()
        },
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    print(f"saved in {out}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=336, help="memory that is gone round through; default: %(default)s")
    parser.add_argument("--rounds", type=int, default=160, help="default: %(default)s")
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="default: benchmarks/results/eplb-shm-transfer-DATE.json"
    )
    return parser.parse_args()


@contextmanager
def _processes(num_bytes: int) -> Iterator[Reader]:
    context = multiprocessing.get_context("spawn")
    with ExitStack() as ends:
        blocks = [SharedMemory(create=True, size=num_bytes) for _ in range(2)]
        for block in blocks:
            ends.callback(block.close)
            ends.callback(block.unlink)
        pipe, theirs = context.Pipe()
        owner = context.Process(target=own, args=(theirs, blocks[0].name, num_bytes))
        owner.start()
        ends.callback(owner.join)
        ends.callback(pipe.send, "the end")
        reader = Reader(num_bytes, *blocks, pipe.recv())
        ends.callback(reader.close)
        yield reader


def _measure(reader: Reader, size: int, num_bytes: int, rounds: int) -> dict[str, list[float]]:
    """GB/s of each round."""
    variants = reader.variants(size)
    count = num_bytes // size
    for name, run in variants.items():
        run(range(count))
        if name != "its checksum alone" and not reader.landed(name, size):
            raise SystemExit(f"{name}: what landed is not what was read")
    speeds: dict[str, list[float]] = {name: [] for name in variants}
    names = list(variants)
    each = count // EIGHTHS
    for number in range(rounds):
        slots = range(number % EIGHTHS * each, (number % EIGHTHS + 1) * each)
        first = number % len(names)
        for name in names[first:] + names[:first]:
            begun_ns = time.perf_counter_ns()
            variants[name](slots)
            speeds[name].append(each * size / (time.perf_counter_ns() - begun_ns))
    return speeds


def _ratios(runs: dict[str, list[float]]) -> dict[str, Spread]:
    """Speeds in terms of memcpy's, round by round."""
    return {
        name: _middle([a / b for a, b in zip(speeds, runs[BASE], strict=True)])
        for name, speeds in runs.items()
        if name != BASE
    }


def _middle(values: list[float]) -> Spread:
    """Median and quartiles: on a machine that others use too, the extremes tell of them."""
    low, median, high = quantiles(values, n=4)
    return Spread(median, low, high)


def _table(runs: dict[str, dict[str, list[float]]], ratios: dict[str, dict[str, Spread]]) -> list[list[str]]:
    rows = [["copies of", "through", "GB/s", f"÷ {BASE}"]]
    for label, of_size in runs.items():
        for name, speeds in of_size.items():
            ratio = ratios[label].get(name)
            low = name.startswith(("shm", "mover")) and ratio is not None and ratio.median < GOAL_RATIO
            told = "" if ratio is None else f"{ratio}{' below the goal' if low else ''}"
            rows.append([label, name, str(_middle(speeds)), told])
    return rows


if __name__ == "__main__":
    main()
