"""Shared memory between real processes that stop, die, come back and lie."""

from __future__ import annotations

import gc
import os
import resource
import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from msgspec import msgpack

from tests.eplb.transport.exporter import NUM_BYTES, Exporter, pattern
from windtunnel.eplb.transport import MAX_PIECE_BYTES, Piece, ReadFailed, ReadPeerLost
from windtunnel.eplb.transport.shm import SharedMemoryTransport
from windtunnel.errors import EplbInputError

KINDS = ("allocated", "registered")
Start = Callable[..., Exporter]


@pytest.fixture
def reader() -> Iterator[SharedMemoryTransport]:
    made = SharedMemoryTransport("reader")
    yield made
    made.close()


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[Exporter] = []

    def begin(seed: int = 1, num_bytes: int = NUM_BYTES, *, own_child: bool = False) -> Exporter:
        started.append(Exporter(seed, num_bytes, own_child=own_child))
        return started[-1]

    yield begin
    for exporter in started:
        exporter.close()


@pytest.fixture(scope="module")
def unharmed() -> Iterator[Exporter]:
    """One for all tests that do nothing to it."""
    exporter = Exporter()
    yield exporter
    exporter.close()


def fetch(reader: SharedMemoryTransport, pieces: list[Piece], peer: int = 0) -> None:
    read = reader.read(peer, pieces)
    assert reader.poll(read)
    reader.release(read)


@pytest.mark.parametrize("kind", KINDS)
def test_a_read_sees_what_the_peer_has_written_by_now(reader: SharedMemoryTransport, start: Start, kind: str) -> None:
    peer, into = start(), reader.allocate(NUM_BYTES)
    reader.add_peer(0, peer.metadata)
    for seed in (1, 11):
        peer.tell(("fill", seed))
        fetch(reader, [Piece(into.ctypes.data, peer.addresses[kind], NUM_BYTES)])
        assert np.array_equal(into, pattern(seed + KINDS.index(kind)))


@pytest.mark.parametrize("kind", KINDS)
def test_a_peer_that_is_stopped_can_still_be_read(reader: SharedMemoryTransport, start: Start, kind: str) -> None:
    peer, into = start(), reader.allocate(NUM_BYTES)
    reader.add_peer(0, peer.metadata)
    peer.stop()
    fetch(reader, [Piece(into.ctypes.data, peer.addresses[kind], NUM_BYTES)])
    assert np.array_equal(into, pattern(1 + KINDS.index(kind)))


@pytest.mark.parametrize("kind", KINDS)
def test_a_peer_that_was_killed_and_not_reaped_is_lost(reader: SharedMemoryTransport, start: Start, kind: str) -> None:
    peer, into = start(own_child=True), reader.allocate(NUM_BYTES)
    reader.add_peer(0, peer.metadata)
    piece = Piece(into.ctypes.data, peer.addresses[kind], NUM_BYTES)
    read = reader.read(0, [piece])
    peer.kill_unreaped()
    with pytest.raises(ReadPeerLost, match=str(peer.pid)):
        reader.poll(read)
    with pytest.raises(ReadPeerLost, match=str(peer.pid)):
        reader.read(0, [piece])


@pytest.mark.parametrize("kind", KINDS)
def test_a_peer_killed_in_mid_read_gives_the_right_bytes_or_is_lost(
    reader: SharedMemoryTransport, start: Start, kind: str
) -> None:
    peer, into = start(num_bytes=MAX_PIECE_BYTES), reader.allocate(MAX_PIECE_BYTES)
    reader.add_peer(0, peer.metadata)
    expected, begun = pattern(1 + KINDS.index(kind), MAX_PIECE_BYTES), threading.Event()
    killer = threading.Thread(target=lambda: (begun.wait(), peer.kill()))
    killer.start()
    whole = 0
    with pytest.raises(ReadPeerLost):
        while True:
            into[:] = 0
            fetch(reader, [Piece(into.ctypes.data, peer.addresses[kind], MAX_PIECE_BYTES)])
            assert np.array_equal(into, expected)
            whole += 1
            begun.set()
    killer.join()
    assert whole


def test_more_pieces_than_one_system_call_takes_arrive_in_one_read(
    reader: SharedMemoryTransport, unharmed: Exporter
) -> None:
    into = reader.allocate(NUM_BYTES)
    reader.add_peer(0, unharmed.metadata)
    count = 2500
    remote, local = unharmed.addresses["registered"], into.ctypes.data
    fetch(reader, [Piece(local + 20 * n, remote + 20 * (count - 1 - n), 20) for n in range(count)])
    rows = pattern(2)[: count * 20].reshape(count, 20)
    assert np.array_equal(into[: count * 20].reshape(count, 20), rows[::-1])


def test_memory_that_the_peer_has_unmapped_is_an_error_and_not_a_loss(
    reader: SharedMemoryTransport, start: Start
) -> None:
    peer, into = start(), reader.allocate(NUM_BYTES)
    reader.add_peer(0, peer.metadata)
    peer.tell("unmap")
    with pytest.raises(ReadFailed, match="Bad address") as failed:
        fetch(reader, [Piece(into.ctypes.data, peer.addresses["registered"], NUM_BYTES)])
    assert not isinstance(failed.value, ReadPeerLost)
    fetch(reader, [Piece(into.ctypes.data, peer.addresses["allocated"], NUM_BYTES)])


def test_another_process_with_the_pid_of_a_peer_is_not_taken_for_it(
    reader: SharedMemoryTransport, unharmed: Exporter
) -> None:
    host, pid, started, regions = msgpack.decode(unharmed.metadata)
    earlier = msgpack.encode([host, pid, str(int(started) - 1), regions])
    with pytest.raises(ReadPeerLost, match="another one by now"):
        reader.add_peer(0, earlier)


def test_a_peer_on_another_host_is_refused_with_the_way_out(reader: SharedMemoryTransport, unharmed: Exporter) -> None:
    _, *rest = msgpack.decode(unharmed.metadata)
    with pytest.raises(ReadFailed, match="use nixl"):
        reader.add_peer(0, msgpack.encode(["elsewhere", *rest]))


@pytest.mark.parametrize(
    "lie",
    [
        {"pid": 0},
        {"pid": 1 << 40},
        {"fd": 9999},
        {"fd": 1 << 40},
        {"num_bytes": 1 << 40},
        {"num_bytes": 0},
        {"num_bytes": -1},
        {"address": -1},
        {"address": 1 << 63},
    ],
    ids=str,
)
def test_metadata_that_cannot_be_true_is_refused_and_leaves_nothing_open(
    reader: SharedMemoryTransport, unharmed: Exporter, lie: dict[str, int]
) -> None:
    host, pid, started, regions = msgpack.decode(unharmed.metadata)
    address, num_bytes, fd = regions[0]
    told = {"pid": pid, "address": address, "num_bytes": num_bytes, "fd": fd} | lie
    region = [told["address"], told["num_bytes"], told["fd"]]
    before = _held()
    with pytest.raises(ReadFailed):
        reader.add_peer(0, msgpack.encode([host, told["pid"], started, [*regions, region]]))
    assert _held() == before


def test_no_mutilation_of_metadata_raises_anything_but_read_failed(
    reader: SharedMemoryTransport, unharmed: Exporter
) -> None:
    metadata, rng = unharmed.metadata, np.random.default_rng(5)
    refused = 0
    for length in range(len(metadata)):
        with pytest.raises(ReadFailed):
            reader.add_peer(0, metadata[:length])
    for _ in range(300):
        mutilated = bytearray(metadata)
        mutilated[rng.integers(len(metadata))] = rng.integers(256)
        try:
            reader.add_peer(0, bytes(mutilated))
        except ReadFailed:
            refused += 1
    assert refused > 100


def test_a_piece_of_negative_size_is_refused(reader: SharedMemoryTransport, unharmed: Exporter) -> None:
    into = reader.allocate(NUM_BYTES)
    reader.add_peer(0, unharmed.metadata)
    for local, remote in ((0, 8), (8, 8)):
        with pytest.raises(ReadFailed):
            reader.read(0, [Piece(into.ctypes.data + local, unharmed.addresses["allocated"] + remote, -8)])


def test_everything_is_given_back_when_peers_die_come_back_and_the_transport_closes(start: Start) -> None:
    start().close()  # whatever starting a process keeps open here, it does by now
    before = _held()
    reader = SharedMemoryTransport("reader")
    into = reader.allocate(NUM_BYTES)
    for generation in range(5):
        peer = start(generation)
        reader.add_peer(0, peer.metadata)
        fetch(reader, [Piece(into.ctypes.data, peer.addresses["allocated"], NUM_BYTES)])
        assert np.array_equal(into, pattern(generation))
        peer.kill()
        peer.close()
    reader.close()
    reader.close()
    del into
    assert _held() == before


def test_arrays_outlive_the_transport_that_gave_them() -> None:
    transport = SharedMemoryTransport("short-lived")
    array = transport.allocate(1 << 20)
    array[:] = 7
    transport.close()
    before = _held()
    assert int(array.sum()) == 7 << 20
    del array
    assert _held() < before


def test_nothing_appears_in_dev_shm_not_even_from_processes_that_were_killed(
    reader: SharedMemoryTransport, start: Start
) -> None:
    names = set(os.listdir("/dev/shm"))
    peer = start()
    reader.allocate(NUM_BYTES)
    reader.add_peer(0, peer.metadata)
    during = set(os.listdir("/dev/shm"))
    peer.kill()
    after = set(os.listdir("/dev/shm"))
    assert not [name for name in (during | after) - names if "windtunnel" in name]


def test_a_process_with_thousands_of_open_files_reads_and_notices_a_death(
    reader: SharedMemoryTransport, start: Start
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 3000:
        pytest.skip("this machine allows no process that many files")
    peer, into = start(), reader.allocate(NUM_BYTES)
    null = os.open(os.devnull, os.O_RDONLY)
    files = [null]
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 3000), hard))
        while files[-1] < 2000:
            files.append(os.dup(null))
        reader.add_peer(0, peer.metadata)
        piece = Piece(into.ctypes.data, peer.addresses["allocated"], 8)
        fetch(reader, [piece])
        peer.kill()
        with pytest.raises(ReadPeerLost):
            reader.read(0, [piece])
    finally:
        for fd in files:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_memory_of_a_device_and_no_memory_at_all_are_refused(reader: SharedMemoryTransport) -> None:
    with pytest.raises(EplbInputError, match="host memory"):
        reader.register(4096, 4096, device=0)
    with pytest.raises(EplbInputError, match="0 bytes"):
        reader.allocate(0)
    before = _held()
    for too_many in (1 << 55, 1 << 70):
        with pytest.raises(EplbInputError, match=f"{too_many} bytes: "):
            reader.allocate(too_many)
    assert _held() == before


def _held() -> tuple[int, int]:
    """Open files, and mappings of ours; what waits to be collected is not held."""
    gc.collect()
    with open("/proc/self/maps", encoding="ascii", errors="replace") as maps:
        mapped = sum("memfd:windtunnel" in line for line in maps)
    return len(os.listdir("/proc/self/fd")), mapped
