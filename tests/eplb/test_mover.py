"""The mover brings experts into staging and into slots, and says what became of each read."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import xxhash
from numpy.typing import NDArray

from tests.eplb.simulated import at_once
from windtunnel.eplb.mover import Mover, WeightReader
from windtunnel.eplb.plan import WEIGHT_SOURCE, Copy, Source
from windtunnel.eplb.store import ExpertStore, allocate_staging, allocate_tensors, encode_layout
from windtunnel.eplb.transaction.instructions import (
    Abandon,
    Broke,
    Check,
    Checked,
    Drained,
    Forget,
    Know,
    Landed,
    Overwrite,
    Overwritten,
    Progressed,
    Read,
)
from windtunnel.eplb.transaction.messages import Order, Peer
from windtunnel.eplb.transport.memory import Fabric, MemoryTransport, Point, Trouble

SPECS = [[((6,), np.uint8), ((2,), np.uint16)], [((3,), np.uint8)]]
SLOTS, PIECE_BYTES = 2, 4


class Rank:
    """A rank's bytes, all of one value, and its mover."""

    def __init__(self, fabric: Fabric, rank: int, fill: int, weights: Any = None) -> None:
        self.rank = rank
        self.transport = MemoryTransport(f"rank {rank}", fabric)
        tensors = allocate_tensors(self.transport, SPECS, SLOTS)
        for number, tensor in enumerate([tensor for layer in tensors for tensor in layer]):
            tensor[...] = fill + number
        self.store = ExpertStore(tensors)
        self.staging = allocate_staging(self.transport, 2, 10)
        self.mover = Mover(rank, self.transport, self.store, self.staging, weights and at_once(weights), PIECE_BYTES)

    @property
    def peer(self) -> Peer:
        return Peer(self.rank, 1, self.transport.metadata(), encode_layout(self.store.layout()))

    def until(self, kind: type) -> list[Any]:
        """Step until something of that kind has happened; all that has."""
        happened: list[Any] = []
        for _ in range(100):
            happened += self.mover.step()
            if any(isinstance(what, kind) for what in happened):
                return happened
        raise AssertionError(f"no {kind.__name__}: {happened}")


@pytest.fixture
def fabric() -> Fabric:
    return Fabric(slice_bytes=3)


@pytest.fixture
def ranks(fabric: Fabric) -> tuple[Rank, Rank]:
    reader, peer = Rank(fabric, 0, 10), Rank(fabric, 1, 100)
    reader.mover.take(Know(peer.peer))
    return reader, peer


def order(layer: int = 0, num_bytes: int = 10) -> Order:
    return Order(Copy(layer, 3, 0, 1, (Source(1, 0),), 0), num_bytes, b"")


def read(layer: int = 0, *, rank: int = 1, slot: int = 0, buffer: int = 0, num_bytes: int = 10) -> Read:
    return Read(buffer, 1, order(layer, num_bytes), rank, slot)


GROUP = [100] * 6 + [101, 0] * 2


def test_a_group_comes_whole_tensor_by_tensor_and_piece_by_piece(ranks: tuple[Rank, Rank]) -> None:
    reader, _ = ranks
    reader.mover.take(read())
    happened = reader.until(Landed)
    assert happened == [Progressed(0, 1), Progressed(0, 1), Landed(0, 1)], "10 bytes in pieces of 4"
    assert reader.staging[0].tolist() == GROUP
    assert not reader.mover.busy


def test_reads_into_two_buffers_go_on_side_by_side(ranks: tuple[Rank, Rank]) -> None:
    reader, _ = ranks
    reader.mover.take(read(buffer=0))
    reader.mover.take(read(buffer=1))
    progressed = [what.buffer for what in reader.until(Landed) if isinstance(what, Progressed)]
    assert {0, 1} == set(progressed[:2])


def test_the_checksum_of_what_landed_is_that_of_the_slot_it_came_from(ranks: tuple[Rank, Rank]) -> None:
    reader, peer = ranks
    reader.mover.take(read())
    reader.until(Landed)
    reader.mover.take(Check(0, 1, order()))
    assert reader.until(Checked) == [Checked(0, 1, peer.store.digest(0, 0))]
    assert peer.store.digest(0, 0) == xxhash.xxh3_128_digest(bytes(GROUP))


def test_what_was_staged_is_copied_into_its_slot_and_into_no_other(ranks: tuple[Rank, Rank]) -> None:
    reader, _ = ranks
    reader.mover.take(read())
    reader.until(Landed)
    reader.mover.take(Overwrite(0, order()))
    assert reader.until(Overwritten) == [Overwritten(0)]
    assert [tensor.tolist() for tensor in reader.store.tensors(0, 1)] == [[100] * 6, [101] * 2]
    assert [tensor.tolist() for tensor in reader.store.tensors(0, 0)] == [[10] * 6, [11] * 2]


def test_an_own_slot_and_the_weight_source_are_read_at_once(fabric: Fabric) -> None:
    class Weights:
        def read(self, layer: int, expert: int, into: NDArray[np.uint8]) -> None:
            into[:] = 40 + expert

    reader = Rank(fabric, 0, 10, Weights())
    reader.mover.take(read(rank=0))
    reader.mover.take(read(rank=WEIGHT_SOURCE, buffer=1, layer=1, num_bytes=3))
    assert reader.mover.step() == [Landed(0, 1), Landed(1, 1)]
    assert reader.staging[0].tolist() == [10] * 6 + [11, 0] * 2
    assert reader.staging[1][:3].tolist() == [43] * 3


def test_a_weight_source_that_hangs_holds_nothing_else_up_and_its_buffer_drains_when_it_is_done(fabric: Fabric) -> None:
    storage = HangingWeights()
    reads = WeightReader(storage)
    owner, reader = Rank(fabric, 1, 50), Rank(fabric, 0, 10)
    reader.mover = Mover(0, reader.transport, reader.store, reader.staging, reads.begin, PIECE_BYTES)
    reader.mover.take(Know(owner.peer))
    first, second = Order(Copy(0, 1, 0, 0, ()), 10, b""), Order(Copy(0, 1, 0, 1, ()), 10, b"")
    reader.mover.take(Read(0, 1, first, WEIGHT_SOURCE, -1))
    reader.mover.take(Read(1, 1, second, 1, 0))
    storage.began.wait(20)
    happened: list[Any] = []
    while Landed(1, 1) not in happened:
        happened += reader.mover.step()
    reader.mover.take(Abandon(0, 1))
    assert Drained(0, 1) not in reader.mover.step()
    assert reader.mover.busy
    storage.go_on.set()
    while Drained(0, 1) not in happened:
        happened += reader.mover.step()
    assert not reader.mover.busy
    reads.close()


class HangingWeights:
    """A weight source that begins, and goes on when it is told to."""

    def __init__(self) -> None:
        self.began, self.go_on = threading.Event(), threading.Event()

    def read(self, layer: int, expert: int, into: NDArray[np.uint8]) -> None:
        self.began.set()
        assert self.go_on.wait(20)


@pytest.mark.parametrize(("weights", "reason"), [(None, "no weight source"), ("broken", "disk")])
def test_a_weight_source_that_fails_is_told_in_its_own_words(fabric: Fabric, weights: str | None, reason: str) -> None:
    class Broken:
        def read(self, layer: int, expert: int, into: NDArray[np.uint8]) -> None:
            raise OSError("the disk is gone")

    reader = Rank(fabric, 0, 10, Broken() if weights else None)
    reader.mover.take(read(rank=WEIGHT_SOURCE))
    (broke,) = reader.mover.step()
    assert broke[:3] == (0, 1, "failed") and reason in broke.reason


@pytest.mark.parametrize(("trouble", "kind"), [(Trouble.FAIL, "failed"), (Trouble.LOSE, "lost")])
def test_a_read_that_ends_with_an_error_is_told_once_and_waits_to_be_abandoned(
    ranks: tuple[Rank, Rank], fabric: Fabric, trouble: Trouble, kind: str
) -> None:
    reader, _ = ranks
    fabric.fail_at(Point("rank 0", "rank 1", 3), trouble)
    reader.mover.take(read())
    broke = reader.until(Broke)[-1]
    assert broke[:3] == (0, 1, kind)
    assert reader.mover.step() == [] and reader.mover.busy
    reader.mover.take(Abandon(0, 1))
    assert reader.until(Drained) == [Drained(0, 1)]
    assert not reader.mover.busy


def test_a_peer_that_ended_is_told_as_lost(ranks: tuple[Rank, Rank], fabric: Fabric) -> None:
    reader, _ = ranks
    reader.mover.take(read())
    reader.mover.step()
    fabric.kill("rank 1")
    assert reader.until(Broke)[-1].kind == "lost"


def test_a_read_that_was_given_up_is_drained_only_when_no_byte_can_land_any_more(
    ranks: tuple[Rank, Rank], fabric: Fabric
) -> None:
    reader, _ = ranks
    fabric.stop("rank 1")
    reader.mover.take(read())
    assert reader.mover.step() == []
    reader.mover.take(Abandon(0, 1))
    for _ in range(20):
        assert reader.mover.step() == []
    assert reader.mover.busy
    fabric.land(1)
    assert reader.staging[0][0] == 100, "a byte lands after the release"
    fabric.kill("rank 1")
    assert reader.mover.step() == [Drained(0, 1)]


def test_what_is_given_up_before_it_began_or_after_it_landed_is_drained_at_once(ranks: tuple[Rank, Rank]) -> None:
    reader, _ = ranks
    reader.mover.take(read())
    reader.until(Landed)
    reader.mover.take(Abandon(0, 1))
    reader.mover.take(read(buffer=1))
    reader.mover.take(Abandon(1, 1))
    assert reader.mover.step() == [Drained(0, 1), Drained(1, 1)]


def test_a_rank_that_is_not_known_or_was_forgotten_can_not_be_read_from(ranks: tuple[Rank, Rank]) -> None:
    reader, _ = ranks
    reader.mover.take(read(rank=2))
    reader.mover.take(Forget(1))
    reader.mover.take(read(buffer=1))
    assert [what[:3] for what in reader.mover.step()] == [(0, 1, "lost"), (1, 1, "lost")]


def test_a_rank_that_came_back_is_read_where_it_is_now(ranks: tuple[Rank, Rank], fabric: Fabric) -> None:
    reader, _ = ranks
    reader.mover.take(read())
    reader.mover.step()
    again = Rank(fabric, 1, 200)
    reader.mover.take(Know(again.peer))
    assert reader.until(Broke)[-1].kind == "lost", "the read from its earlier life"
    reader.mover.take(Abandon(0, 1))
    reader.until(Drained)
    reader.mover.take(read())
    reader.until(Landed)
    assert reader.staging[0].tolist() == [200] * 6 + [201, 0] * 2


@pytest.mark.parametrize(
    "layout",
    [b"", b"garbage", encode_layout(ExpertStore([[np.zeros((1, 1))]]).layout())],
    ids=["empty", "garbage", "another model's"],
)
def test_a_peer_whose_layout_is_no_use_is_not_known(ranks: tuple[Rank, Rank], layout: bytes) -> None:
    reader, peer = ranks
    reader.mover.take(Know(Peer(1, 2, peer.transport.metadata(), layout)))
    reader.mover.take(read())
    assert reader.mover.step() == [Broke(0, 1, "lost", "the rank is not known here")]


def test_a_peer_that_has_ended_before_it_is_known_is_no_trouble(ranks: tuple[Rank, Rank], fabric: Fabric) -> None:
    reader, peer = ranks
    fabric.kill("rank 1")
    reader.mover.take(Know(peer.peer))
    reader.mover.take(read())
    assert reader.mover.step()[0].kind == "lost"


def test_a_group_of_another_size_is_not_read(ranks: tuple[Rank, Rank]) -> None:
    reader, _ = ranks
    reader.mover.take(read(num_bytes=9))
    (broke,) = reader.mover.step()
    assert broke.kind == "failed" and "10 bytes, not 9" in broke.reason
