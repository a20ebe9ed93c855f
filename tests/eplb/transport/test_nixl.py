"""Reads over NIXL between processes in good health, over both fabrics that every machine has."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.eplb.transport.nixl_process import FABRICS, KIB, MIB, Agent, pair, wait_until
from windtunnel.eplb.transport import MAX_PIECE_BYTES, Piece, ReadFailed, ReadPeerLost
from windtunnel.errors import EplbInputError

both_fabrics = pytest.mark.parametrize("fabric", FABRICS)


@pytest.fixture(scope="module", params=FABRICS)
def linked(request: pytest.FixtureRequest) -> Iterator[tuple[Agent, Agent]]:
    """A reader that knows an owner as rank 1, and that tests leave so."""
    with pair(request.param, MAX_PIECE_BYTES + MIB) as (reader, owner):
        yield reader, owner


def test_pieces_land_where_they_are_asked_for_and_nowhere_else(linked: tuple[Agent, Agent]) -> None:
    reader, owner = linked
    end = MAX_PIECE_BYTES + MIB
    reader.fill(0)
    scattered = [
        reader.piece(owner, 40 * KIB, at=64 * KIB, from_=64 * KIB),
        reader.piece(owner, 1, at=200_001, from_=200_001),
        reader.piece(owner, 7, at=end - 7, from_=end - 7),
    ]
    reader.read_all(1, scattered)
    assert reader.count(1) == 40 * KIB + 1 + 7  # the pattern has no zeros
    reader.read_all(1, [reader.piece(owner, MAX_PIECE_BYTES)])
    assert reader.count(1) == MAX_PIECE_BYTES + 7


@both_fabrics
def test_two_peers_of_one_name_are_told_apart_also_when_reads_from_both_are_under_way(fabric: str) -> None:
    size = 4 * MIB
    with (
        Agent(fabric, size, name="owner", seed=1) as first,
        Agent(fabric, size, name="owner", seed=2) as second,
        Agent(fabric, size, name="reader") as reader,
    ):
        reader.add_peer(1, first.metadata())
        reader.add_peer(2, second.metadata())
        quarter = size // 4
        reads = [
            reader.read(1 + part % 2, [reader.piece((first, second)[part % 2], quarter, at=at, from_=at)])
            for part, at in enumerate(range(0, size, quarter))
        ]
        for read in reversed(reads):
            reader.finish(read)
            reader.release(read)
        assert [reader.count(1 + part % 2, part * quarter, quarter) for part in range(4)] == [quarter] * 4
        assert all(reader.drained(read) for read in reads)


def test_memory_of_the_caller_is_read_and_read_into_once_it_is_registered() -> None:
    with Agent("tcp", MIB, name="owner", seed=1) as owner, Agent("tcp", MIB, name="reader") as reader:
        theirs, ours = owner.own_memory(MIB, 5), reader.own_memory(MIB, 6)
        before = owner.metadata()
        reader.add_peer(1, before)
        piece = Piece(ours, theirs, MIB)
        with pytest.raises(ReadFailed, match="not registered here"):
            reader.read(1, [piece])
        reader.register(ours, MIB)
        with pytest.raises(ReadFailed, match="not registered by the peer"):
            reader.read(1, [piece])
        owner.register(theirs, MIB)
        reader.add_peer(1, owner.metadata())
        reader.read_all(1, [piece])
        assert reader.own_memory_equals(5)


def test_what_can_t_be_read_is_refused_with_the_reason_and_harms_nothing(linked: tuple[Agent, Agent]) -> None:
    reader, owner = linked
    whole = MAX_PIECE_BYTES + MIB
    with pytest.raises(ReadFailed, match=f"{MAX_PIECE_BYTES + 1} bytes are asked for at once"):
        reader.read(1, [reader.piece(owner, MAX_PIECE_BYTES), reader.piece(owner, 1, at=MAX_PIECE_BYTES)])
    for past_the_end in (whole - 3, whole, whole + 64 * MIB):
        with pytest.raises(ReadFailed, match=r"4 bytes at 0x[0-9a-f]+ of the host are not registered by the peer"):
            reader.read(1, [reader.piece(owner, 4, from_=past_the_end)])
        with pytest.raises(ReadFailed, match="not registered here"):
            reader.read(1, [reader.piece(owner, 4, at=past_the_end)])
    with pytest.raises(ReadFailed, match="not registered here"):
        reader.read(1, [reader.piece(owner, 4)], 0)  # the host's memory is none of device 0
    with pytest.raises(ReadPeerLost, match="rank 2 is not known here"):
        reader.read(2, [reader.piece(owner, 4)])
    for empty in ([], [reader.piece(owner, 0)]):
        assert reader.poll(reader.read(1, empty))
    reader.read_all(1, [reader.piece(owner, 4)])


def test_metadata_that_is_no_use_is_refused(linked: tuple[Agent, Agent]) -> None:
    reader, owner = linked
    whole = owner.metadata()
    for useless in (b"", b"garbage", whole[:-9], whole[:40], whole.replace(b"nixlSerDes", b"sinSerDesx")):
        with pytest.raises(ReadFailed):
            reader.add_peer(2, useless)
    with pytest.raises(ReadFailed, match="nixlInvalidParamError"):
        reader.add_peer(2, reader.metadata())
    reader.read_all(1, [reader.piece(owner, 4)])


def test_a_fenced_rank_is_not_read_from_and_can_be_known_again(linked: tuple[Agent, Agent]) -> None:
    reader, owner = linked
    reader.remove_peer(1)
    reader.remove_peer(1)
    assert reader.loaded_agents() == 0
    with pytest.raises(ReadPeerLost, match="rank 1 is not known here"):
        reader.read(1, [reader.piece(owner, 4)])
    reader.add_peer(5, owner.metadata())
    reader.add_peer(1, owner.metadata())  # one agent under two numbers: neither is in the other's way
    reader.remove_peer(5)
    reader.read_all(1, [reader.piece(owner, 4)])


def test_memory_stays_mapped_until_the_transport_is_closed_though_nobody_holds_its_array() -> None:
    with pair("shared memory", MIB) as (reader, owner):
        address = owner.allocate(MIB)
        owner.forget_memory()
        reader.read_all(1, [reader.piece(owner, MIB)])
        assert reader.count(1) == MIB
        owner.close()
        wait_until(lambda: not owner.is_mapped(address))
        owner.close()


def test_a_transport_that_is_dropped_without_close_keeps_serving_its_peers() -> None:
    with pair("shared memory", MIB) as (reader, owner):
        owner.drop_transport()
        reader.read_all(1, [reader.piece(owner, MIB)])
        assert reader.count(1) == MIB
        assert owner.exit_code() == 0


def test_an_agent_that_has_nothing_to_do_leaves_the_processor_to_others() -> None:
    with Agent("tcp", MIB) as idle, Agent("tcp", 1, name="clock") as clock:
        before = idle.cpu_s()
        clock.burn(1.0)  # a second of processor time: at least as long by the clock
        assert idle.cpu_s() - before < 0.3


def test_a_process_ends_well_with_and_without_close() -> None:
    with pair("tcp", MIB) as (reader, owner):
        owner.close()
        assert (owner.exit_code(), reader.exit_code()) == (0, 0)


def test_memory_that_can_t_be_registered_is_a_typed_error() -> None:
    with Agent("shared memory", MIB) as agent:
        with pytest.raises(EplbInputError, match="0 bytes"):
            agent.allocate(0)
        with pytest.raises(EplbInputError, match=r"4096 bytes at 0x[0-9a-f]+ of device 63: nixl\w+Error"):
            agent.register(agent.address, 4096, 63)


def _python(code: str, **environment: str) -> str:
    source = str(Path(__file__).parents[3] / "src")
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": source} | environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stdout


def test_without_the_package_the_way_out_is_the_line_that_installs_it() -> None:
    told = _python(
        "import sys\n"
        "sys.modules['nixl_cu12'] = None\n"
        "from windtunnel.eplb.transport import make_transport\n"
        "from windtunnel.errors import EplbInputError\n"
        "try: make_transport('nixl', 'rank 0')\n"
        "except EplbInputError as error: print(error, error.advice)\n"
    )
    assert "can't be imported" in told
    assert "pip install --no-deps nixl-cu12" in told


def test_a_fabric_that_ucx_can_t_start_is_a_typed_error_that_names_it() -> None:
    told = _python(
        "from windtunnel.eplb.transport import make_transport\n"
        "from windtunnel.errors import EplbInputError\n"
        "try: make_transport('nixl', 'rank 0')\n"
        "except EplbInputError as error: print(error, error.advice)\n",
        UCX_TLS="shm",
        UCX_LOG_LEVEL="fatal",
        NIXL_LOG_LEVEL="FATAL",
    )
    assert "UCX_TLS=shm: nixlBackendError" in told
    assert "have tcp in it" in told


@pytest.mark.skipif(not Path("/dev/nvidia0").exists(), reason="no GPU")
def test_experts_move_from_one_gpu_buffer_into_host_memory_and_into_another() -> None:
    with Agent("shared memory", MIB, name="owner") as owner, Agent("shared memory", MIB, name="reader") as reader:
        theirs, ours = owner.device_memory(MIB, 5), reader.device_memory(MIB, 6)
        owner.register(theirs, MIB, 0)
        reader.register(ours, MIB, 0)
        reader.add_peer(1, owner.metadata())
        reader.read_all(1, [Piece(reader.address, theirs, MIB)])
        assert reader.count(5) == MIB
        reader.finish(reader.read(1, [Piece(ours, theirs, MIB)], 0))
        assert reader.device_memory_equals(ours, MIB, 5)
