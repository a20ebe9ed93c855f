"""What every transport promises, over the fabric of one process and between processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any, Protocol

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.eplb.transport.exporter import NUM_BYTES, Exporter, pattern
from windtunnel.eplb.transport import (
    HOST,
    MAX_PIECE_BYTES,
    Piece,
    ReadFailed,
    ReadPeerLost,
    Transport,
    make_transport,
)
from windtunnel.eplb.transport.memory import Fabric, MemoryTransport
from windtunnel.eplb.transport.shm import SharedMemoryTransport
from windtunnel.errors import EplbInputError

KINDS = ("allocated", "registered")


class Remote(Protocol):
    """The end that is read from: regions `allocated` with pattern(seed) and `registered` with pattern(seed + 1)."""

    metadata: bytes
    addresses: dict[str, int]

    def kill(self) -> None: ...


class MemoryRemote:
    """An agent of the same fabric."""

    def __init__(self, fabric: Fabric, seed: int) -> None:
        self.agent = MemoryTransport(f"remote-{len(fabric.agents)}", fabric)
        self.fabric = fabric
        self.allocated = self.agent.allocate(NUM_BYTES)
        self.registered = pattern(seed + 1)
        self.allocated[:] = pattern(seed)
        self.agent.register(self.registered.ctypes.data, NUM_BYTES)
        self.addresses = {kind: getattr(self, kind).ctypes.data for kind in KINDS}
        self.metadata = self.agent.metadata()

    def kill(self) -> None:
        self.fabric.kill(self.agent.name)


class Rig:
    """A reader with a landing place, and remotes at will."""

    def __init__(self, reader: Transport, make: Callable[[int], Remote]) -> None:
        self.reader = reader
        self.make = make
        self.landing = reader.allocate(NUM_BYTES)
        self.landing[:] = 0xEE

    def remote(self, peer: int, seed: int) -> Remote:
        made = self.make(seed)
        self.reader.add_peer(peer, made.metadata)
        return made

    def piece(self, remote: Remote, kind: str, start: int, num_bytes: int, to: int = 0) -> Piece:
        return Piece(self.landing.ctypes.data + to, remote.addresses[kind] + start, num_bytes)

    def finish(self, peer: int, pieces: Sequence[Piece]) -> None:
        read = self.reader.read(peer, pieces)
        while not self.reader.poll(read):
            pass
        self.reader.release(read)
        self.wait_drained(read)

    def wait_drained(self, read: Any) -> None:
        while not self.reader.drained(read):
            pass


@pytest.fixture(params=["memory", "shm"])
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    with ExitStack() as ends:
        if request.param == "memory":
            fabric = Fabric(slice_bytes=1000)
            yield Rig(MemoryTransport("reader", fabric), lambda seed: MemoryRemote(fabric, seed))
            return
        reader = SharedMemoryTransport("reader")
        ends.callback(reader.close)

        def make(seed: int) -> Remote:
            made = Exporter(seed)
            ends.callback(made.close)
            return made

        yield Rig(reader, make)


def test_memory_that_a_transport_gives_is_zeroed_and_writable(rig: Rig) -> None:
    memory = rig.reader.allocate(1000)
    assert memory.shape == (1000,) and memory.dtype == np.uint8 and not memory.any()
    memory[:] = 7


@pytest.mark.parametrize("kind", KINDS)
def test_a_read_lands_the_peers_bytes_and_touches_nothing_beside_them(rig: Rig, kind: str) -> None:
    remote = rig.remote(3, seed=1)
    rig.finish(3, [rig.piece(remote, kind, start=100, num_bytes=5000, to=64)])
    assert np.array_equal(rig.landing[64:5064], _region(kind, 1)[100:5100])
    assert (rig.landing[:64] == 0xEE).all() and (rig.landing[5064:] == 0xEE).all()


def test_scattered_pieces_of_both_kinds_of_memory_arrive_in_one_read(rig: Rig) -> None:
    remote = rig.remote(0, seed=1)
    runs = [(kind, start, to) for to, (kind, start) in enumerate((k, s) for s in (0, 777, 60_000) for k in KINDS)]
    rig.finish(0, [rig.piece(remote, kind, start, 500, to * 500) for kind, start, to in runs])
    expected = np.concatenate([_region(kind, 1)[start : start + 500] for kind, start, _ in runs])
    assert np.array_equal(rig.landing[:3000], expected)


def test_the_last_byte_of_a_region_can_be_read_and_the_next_one_cannot(rig: Rig) -> None:
    remote = rig.remote(0, seed=1)
    rig.finish(0, [rig.piece(remote, "allocated", NUM_BYTES - 1, 1)])
    assert rig.landing[0] == pattern(1)[-1]
    for kind in KINDS:
        with pytest.raises(ReadFailed) as failed:
            rig.reader.read(0, [rig.piece(remote, kind, NUM_BYTES - 1, 2)])
        assert not isinstance(failed.value, ReadPeerLost)


def test_an_address_that_no_region_of_the_peer_holds_is_refused(rig: Rig) -> None:
    rig.remote(0, seed=1)
    for remote_address in (0, 4096, 1 << 46):
        with pytest.raises(ReadFailed):
            rig.reader.read(0, [Piece(rig.landing.ctypes.data, remote_address, 8)])


def test_a_read_that_would_land_outside_of_known_memory_is_refused(rig: Rig) -> None:
    remote = rig.remote(0, seed=1)
    bystander = np.full(64, 0xEE, np.uint8)
    with pytest.raises(ReadFailed):
        rig.reader.read(0, [Piece(bystander.ctypes.data, remote.addresses["allocated"], 64)])
    with pytest.raises(ReadFailed):
        rig.reader.read(0, [rig.piece(remote, "allocated", 0, 64, to=NUM_BYTES - 63)])
    assert (bystander == 0xEE).all()


def test_a_read_of_more_bytes_than_a_piece_may_have_is_refused_before_any_lands(rig: Rig) -> None:
    remote = rig.remote(0, seed=1)
    pieces = [rig.piece(remote, "allocated", 0, NUM_BYTES)] * (MAX_PIECE_BYTES // NUM_BYTES + 1)
    with pytest.raises(ReadFailed, match=str(MAX_PIECE_BYTES)):
        rig.reader.read(0, pieces)
    assert (rig.landing == 0xEE).all()


def test_a_read_into_memory_of_a_device_that_is_not_there_is_refused(rig: Rig) -> None:
    remote = rig.remote(0, seed=1)
    with pytest.raises(ReadFailed):
        rig.reader.read(0, [rig.piece(remote, "allocated", 0, 8)], 0)


def test_a_rank_that_was_never_added_is_lost(rig: Rig) -> None:
    with pytest.raises(ReadPeerLost):
        rig.reader.read(9, [Piece(rig.landing.ctypes.data, rig.landing.ctypes.data, 8)])


def test_metadata_of_no_use_is_refused_and_other_peers_stay_readable(rig: Rig) -> None:
    remote = rig.remote(0, seed=1)
    for garbage in (b"", b"\x00", b"remote-0@0", b"\xff" * 100, b"\x93" + b"\x00" * 20, bytes(1 << 20)):
        with pytest.raises(ReadFailed):
            rig.reader.add_peer(1, garbage)
    with pytest.raises(ReadPeerLost):
        rig.reader.read(1, [rig.piece(remote, "allocated", 0, 8)])
    rig.finish(0, [rig.piece(remote, "allocated", 0, 8)])


def test_reads_from_a_peer_that_was_removed_are_lost_at_each_poll(rig: Rig) -> None:
    remote = rig.remote(0, seed=1)
    read = rig.reader.read(0, [rig.piece(remote, "allocated", 0, 5000)])
    rig.reader.remove_peer(0)
    rig.reader.remove_peer(0)
    for _ in range(2):
        with pytest.raises(ReadPeerLost):
            rig.reader.poll(read)
    with pytest.raises(ReadPeerLost):
        rig.reader.read(0, [rig.piece(remote, "allocated", 0, 8)])
    rig.reader.release(read)
    rig.wait_drained(read)


@pytest.mark.parametrize("kind", KINDS)
def test_a_peer_that_ends_under_a_read_is_lost_at_each_poll_and_for_new_reads(rig: Rig, kind: str) -> None:
    remote, other = rig.remote(0, seed=1), rig.remote(1, seed=5)
    read = rig.reader.read(0, [rig.piece(remote, kind, 0, 5000)])
    remote.kill()
    for _ in range(2):
        with pytest.raises(ReadPeerLost):
            rig.reader.poll(read)
    with pytest.raises(ReadPeerLost):
        rig.reader.read(0, [rig.piece(remote, kind, 0, 8)])
    rig.reader.release(read)
    rig.wait_drained(read)
    rig.finish(1, [rig.piece(other, kind, 0, 5000)])
    assert np.array_equal(rig.landing[:5000], _region(kind, 5)[:5000])


def test_a_peer_that_has_ended_cannot_be_added(rig: Rig) -> None:
    remote = rig.make(1)
    remote.kill()
    with pytest.raises(ReadFailed):
        rig.reader.add_peer(0, remote.metadata)


def test_a_rank_that_came_back_is_read_anew_and_reads_from_its_former_life_are_lost(rig: Rig) -> None:
    former = rig.remote(0, seed=1)
    read = rig.reader.read(0, [rig.piece(former, "allocated", 0, 5000)])
    later = rig.remote(0, seed=5)
    with pytest.raises(ReadPeerLost):
        rig.reader.poll(read)
    rig.reader.release(read)
    rig.wait_drained(read)
    rig.finish(0, [rig.piece(later, "allocated", 0, 5000)])
    assert np.array_equal(rig.landing[:5000], pattern(5)[:5000])


def test_nothing_lands_after_a_released_read_has_drained(rig: Rig) -> None:
    remote = rig.remote(0, seed=1)
    read = rig.reader.read(0, [rig.piece(remote, "allocated", 0, 5000)])
    rig.reader.poll(read)
    rig.reader.release(read)
    rig.wait_drained(read)
    rig.landing[:] = 0xEE
    rig.finish(0, [rig.piece(remote, "registered", 0, 8, to=NUM_BYTES - 8)])
    assert (rig.landing[:-8] == 0xEE).all()


def test_the_default_transport_is_found_by_its_name_and_a_wrong_name_gets_the_near_one() -> None:
    found = make_transport("shm", "by name")
    assert isinstance(found, SharedMemoryTransport)
    found.close()
    with pytest.raises(EplbInputError, match="did you mean shm"):
        make_transport("shn", "rank 0")


def test_the_host_is_no_device() -> None:
    assert HOST < 0


def _region(kind: str, seed: int) -> NDArray[np.uint8]:
    return pattern(seed + KINDS.index(kind))
