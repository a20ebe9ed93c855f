"""How reads over NIXL end when a peer is killed, stops, hangs, goes, or comes back; nothing here may end the reader."""

from __future__ import annotations

import re
import signal

import pytest

from tests.eplb.transport.nixl_process import FABRICS, KIB, MIB, Agent, pair, wait_until
from windtunnel.eplb.transport import Piece, ReadFailed, ReadPeerLost

both_fabrics = pytest.mark.parametrize("fabric", FABRICS)
LOST = r"lost: nixl(RemoteDisconnect|NotFound|Backend)Error: NIXL_ERR_"


@both_fabrics
def test_reads_from_a_peer_that_was_killed_are_lost_and_other_peers_work_on(fabric: str) -> None:
    with (
        pair(fabric, 2 * MIB) as (reader, owner),
        Agent(fabric, 2 * MIB, name="other", seed=2) as other,
    ):
        reader.add_peer(2, other.metadata())
        owner.kill()
        dead = reader.read(1, [reader.piece(owner, MIB)])
        again = reader.read(1, [reader.piece(owner, 4)])
        assert_lost(reader, dead, again)
        assert reader.drained(dead)
        assert reader.drained(again)
        reader.read_all(2, [reader.piece(other, MIB)])
        assert reader.count(2, 0, MIB) == MIB


@both_fabrics
def test_a_peer_that_was_killed_before_the_first_read_is_lost(fabric: str) -> None:
    with Agent(fabric, MIB, name="owner", seed=1) as owner, Agent(fabric, MIB, name="reader") as reader:
        metadata = owner.metadata()
        reader.add_peer(1, metadata)
        owner.kill()
        assert_lost(reader, reader.read(1, [reader.piece(owner, MIB)]))
        with pytest.raises(ReadFailed):  # depends on the fabric: when it is loaded, or when it is read from
            reader.add_peer(1, metadata)
            reader.finish(reader.read(1, [reader.piece(owner, MIB)]))


def test_a_peer_that_is_killed_while_it_answers_loses_all_reads_which_then_have_drained() -> None:
    with pair("tcp", 4 * MIB) as (reader, owner):
        owner.stop()
        reads = read_pieces(reader, owner, 4)
        assert not any(reader.poll(read) for read in reads)
        owner.kill()
        assert_lost(reader, *reads)
        assert all(reader.drained(read) for read in reads)
        reader.fill(0)
        with Agent("tcp", 4 * MIB, name="owner", seed=2) as next_life:
            reader.add_peer(1, next_life.metadata())
            reader.read_all(1, [reader.piece(next_life, MIB)])
            assert reader.count(2) == MIB
            assert reader.loaded_agents() == 1


def test_a_read_from_a_stopped_peer_is_in_progress_until_the_peer_continues_and_holds_nobody_up() -> None:
    with pair("tcp", 2 * MIB) as (reader, owner), Agent("tcp", 2 * MIB, name="other", seed=2) as other:
        reader.add_peer(2, other.metadata())
        owner.stop()
        hanging = reader.read(1, [reader.piece(owner, MIB)])
        for _ in range(3):
            reader.read_all(2, [reader.piece(other, MIB, at=MIB, from_=MIB)])
            assert not reader.poll(hanging)
        assert reader.count(2, MIB) == MIB
        owner.resume()
        reader.finish(hanging)
        assert reader.count(1, 0, MIB) == MIB


def test_over_shared_memory_a_stopped_peer_s_bytes_land_and_no_call_waits_for_it() -> None:
    with pair("shared memory", 2 * MIB) as (reader, owner):
        owner.stop()
        read = reader.read(1, [reader.piece(owner, MIB)])
        reader.poll(read)  # in progress or not: NIXL may want to hear from the peer once more
        assert reader.count(1, 0, MIB) == MIB
        reader.release(read)
        owner.resume()
        reader.wait_drained(read)


def test_a_read_that_was_released_lands_all_the_same_and_has_drained_only_then() -> None:
    with pair("tcp", MIB) as (reader, owner):
        owner.stop()
        read = reader.read(1, [reader.piece(owner, MIB)])
        reader.release(read)
        reader.fill(0)  # as who takes a release for an abort uses the memory anew
        assert not reader.drained(read)
        owner.resume()
        reader.wait_drained(read)
        assert reader.count(1) == MIB


def test_fencing_a_stopped_peer_stops_no_byte_and_drained_knows_it() -> None:
    with pair("tcp", MIB) as (reader, owner):
        metadata = owner.metadata()
        owner.stop()
        read = reader.read(1, [reader.piece(owner, MIB)])
        reader.remove_peer(1)
        with pytest.raises(ReadPeerLost, match="was fenced"):
            reader.poll(read)
        assert not reader.drained(read)
        reader.add_peer(1, metadata)  # it is let in again while the old read is under way
        with pytest.raises(ReadPeerLost, match="was fenced"):
            reader.poll(read)
        reader.remove_peer(1)
        owner.resume()
        reader.wait_drained(read)
        assert reader.count(1) == MIB
        assert reader.loaded_agents() == 0


def test_a_fenced_peer_that_is_killed_has_drained() -> None:
    with pair("tcp", MIB) as (reader, owner):
        owner.stop()
        read = reader.read(1, [reader.piece(owner, MIB)])
        reader.remove_peer(1)
        assert not reader.drained(read)
        owner.kill()
        reader.wait_drained(read)
        assert reader.loaded_agents() == 0


@pytest.mark.parametrize("fabric", ["tcp", pytest.param("shared memory", marks=pytest.mark.long)])
def test_a_peer_that_comes_back_under_its_name_is_read_from_and_its_old_reads_are_lost(fabric: str) -> None:
    with pair(fabric, MIB) as (reader, owner), Agent(fabric, MIB, name="owner", seed=2) as next_life:
        owner.stop()
        old = reader.read(1, [reader.piece(owner, 4 * KIB)])
        landed = reader.poll(old)
        owner.kill()
        reader.add_peer(1, next_life.metadata())
        if not landed:
            with pytest.raises(ReadPeerLost):
                reader.poll(old)
        reader.read_all(1, [reader.piece(next_life, MIB)])
        reader.wait_drained(old)
        assert reader.count(2) == MIB
        assert reader.loaded_agents() == 1


@pytest.mark.long
def test_an_agent_that_has_more_memory_by_now_is_known_anew_while_a_read_is_under_way() -> None:
    with pair("tcp", MIB) as (reader, owner):
        more = owner.allocate(MIB)
        grown = owner.metadata()
        owner.stop()
        read = reader.read(1, [reader.piece(owner, MIB)])
        reader.add_peer(1, grown)
        with pytest.raises(ReadPeerLost):
            reader.poll(read)
        assert not reader.drained(read)
        owner.resume()
        reader.wait_drained(read)
        assert reader.count(1) == MIB
        reader.read_all(1, [Piece(reader.address, more, MIB)])
        assert reader.count(1) == 0
        reader.remove_peer(1)
        assert reader.loaded_agents() == 0


def test_memory_that_was_deregistered_delivers_while_it_is_mapped_so_that_only_fencing_protects_readers() -> None:
    with pair("tcp", MIB) as (reader, owner):
        owner.withdraw()
        reader.read_all(1, [reader.piece(owner, MIB)])
        assert reader.count(1) == MIB


@both_fabrics
def test_an_owner_that_closes_while_it_is_read_from_lives_on_and_so_does_the_reader(fabric: str) -> None:
    with pair(fabric, 64 * MIB) as (reader, owner):
        reads = read_pieces(reader, owner, 4, 16 * MIB)
        owner.close()
        owner.forget_memory()
        ends = {reader.fails(read).partition(":")[0] for read in reads}
        assert ends <= {"lost", "landed"}
        assert all(reader.drained(read) for read in reads)
        assert (owner.exit_code(), reader.exit_code()) == (0, 0)


def test_a_reader_that_closes_with_reads_under_way_lives_on_and_so_does_the_stopped_owner() -> None:
    with pair("tcp", 2 * MIB) as (reader, owner):
        owner.stop()
        reads = read_pieces(reader, owner, 2)
        reader.close()
        for read in reads:
            with pytest.raises(ReadPeerLost, match="closed"):
                reader.poll(read)
        reader.forget_memory()
        owner.resume()
        with Agent("tcp", 2 * MIB, name="reader") as another:
            another.add_peer(1, owner.metadata())
            another.read_all(1, [another.piece(owner, MIB)])
            assert another.count(1) == MIB
        assert reader.is_alive()


def test_a_reader_that_is_killed_is_no_loss_to_the_owner_over_shared_memory() -> None:
    with pair("shared memory", 2 * MIB) as (reader, owner):
        owner.stop()
        read_pieces(reader, owner, 2)
        reader.kill()
        owner.resume()
        with Agent("shared memory", MIB, name="reader") as another:
            another.add_peer(1, owner.metadata())
            another.read_all(1, [another.piece(owner, MIB)])


def test_reads_without_end_leave_no_handle_and_little_memory() -> None:
    with pair("shared memory", MIB) as (reader, owner):
        reader.read_many(1, [reader.piece(owner, 4 * KIB)], 500)
        before = reader.resident_bytes()
        reader.read_many(1, [reader.piece(owner, 4 * KIB)], 5000)
        assert reader.resident_bytes() - before < 5000 * 200


@pytest.mark.long
def test_memory_that_is_unmapped_under_a_reader_ends_the_owner_over_tcp_which_is_why_it_is_kept() -> None:
    with pair("tcp", 16 * MIB) as (reader, owner):
        owner.unmap()
        assert_lost(reader, reader.read(1, [reader.piece(owner, 16 * MIB)]))
        wait_until(lambda: not owner.process.is_alive())
        assert owner.process.exitcode == -signal.SIGSEGV


@pytest.mark.long
@pytest.mark.parametrize("killed_after_polls", [0, 1, 2, 5, 10, 50, 200])
def test_a_peer_that_is_killed_at_any_moment_of_a_read_is_lost_or_has_delivered(killed_after_polls: int) -> None:
    with pair("tcp", 64 * MIB) as (reader, owner):
        reads = read_pieces(reader, owner, 4, 16 * MIB)
        for _ in range(killed_after_polls):
            reader.poll(reads[0])
        owner.kill()
        for number, read in enumerate(reads):
            if reader.fails(read) == "landed":
                at = number * 16 * MIB
                assert reader.count(1, at, 16 * MIB) == 16 * MIB
            assert reader.drained(read)
        assert reader.is_alive()


@pytest.mark.long
def test_a_hundred_stops_and_continues_lose_no_byte() -> None:
    with pair("tcp", MIB) as (reader, owner):
        for turn in range(100):
            reader.fill(0)
            owner.stop()
            read = reader.read(1, [reader.piece(owner, MIB)])
            if turn % 2:
                reader.remove_peer(1)
            owner.resume()
            reader.wait_drained(read)
            assert reader.count(1) == MIB
            if turn % 2:
                reader.add_peer(1, owner.metadata())


def read_pieces(reader: Agent, owner: Agent, count: int, num_bytes: int = MIB) -> list[int]:
    """Begin `count` reads side by side."""
    starts = [number * num_bytes for number in range(count)]
    return [reader.read(1, [reader.piece(owner, num_bytes, at=at, from_=at)]) for at in starts]


def assert_lost(reader: Agent, *reads: int) -> None:
    """All end with the library's own words, and again when they are asked again."""
    for read in reads:
        for _ in range(2):
            assert re.match(LOST, reader.fails(read))
