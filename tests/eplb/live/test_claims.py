"""A peer that knows the token and says what can't be true is refused; the others don't notice."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import numpy as np
import pytest

from tests.eplb.live.actor import Model
from tests.eplb.live.fleet import Fleet
from windtunnel.eplb import control
from windtunnel.eplb.transaction import messages as m

MODEL = Model()
SIZE = MODEL.layers * MODEL.slots_per_rank[1]
EMPTY_SLOTS = np.full(SIZE, -1, "<i4").tobytes()
HONEST = m.Hello(
    token=MODEL.token,
    rank=1,
    generation=1 << 62,
    term=0,
    slots=MODEL.slots_per_rank[1],
    group_bytes=(MODEL.floats * 4 + MODEL.floats // 4,) * MODEL.layers,
    num_experts=MODEL.experts,
    staging_buffers=4,
    transport="SharedMemoryTransport",
    peer=m.Peer(1, 1 << 62, b"", b""),
    contents=EMPTY_SLOTS,
    since=bytes(SIZE * 8),
    digests=bytes(SIZE * 16),
    committed=None,
    pending=None,
    has_weights=True,
    pid=1,
    host="",
)
ODD = m.PlacementBytes(7, MODEL.experts, (4, 4, 4), (3, 3, 4), b"short", b"")
SMALL = m.PlacementBytes(7, 1, (1,), (1, 1, 1), bytes(4), np.ones(1, "<f4").tobytes())


async def answer_to(hello: m.Hello, port: int) -> Any:
    channel = await control.connect("127.0.0.1", port, m.decode_from_coordinator)
    channel.send(hello)
    answer = await asyncio.wait_for(channel.receive(), 20)
    channel.close()
    return answer


@pytest.mark.parametrize(
    "lie",
    [
        {"contents": EMPTY_SLOTS[:-4]},
        {"contents": np.full(SIZE, MODEL.experts, "<i4").tobytes()},
        {"contents": np.full(SIZE, -7, "<i4").tobytes()},
        {"since": b""},
        {"digests": b"x"},
        {"staging_buffers": -1},
        {"num_experts": 0},
        {"group_bytes": ()},
        {"slots": -4},
        {"rank": -1},
        {"rank": 1 << 40},
        {"committed": ODD},
        {"committed": SMALL},
        {"pending": m.Pending(3, "verified", ODD)},
        {"pending": m.Pending(3, "verified", SMALL)},
        {"transport": "carrier pigeon"},
    ],
    ids=lambda lie: "-".join(lie),
)
def test_a_claim_that_can_not_be_is_refused_and_nobody_else_notices(lie: dict[str, Any], fleet: Fleet) -> None:
    epoch = fleet.state()["epoch"]
    answer = asyncio.run(answer_to(msgspec.structs.replace(HONEST, **lie), fleet.port))
    assert isinstance(answer, m.Refused)
    assert not answer.rejoin
    state = fleet.state()
    assert (state["epoch"], state["live"]) == (epoch, [0, 2])
    fleet.check(0)


def test_the_honest_one_is_let_in(fleet: Fleet) -> None:
    assert isinstance(asyncio.run(answer_to(HONEST, fleet.port)), m.Welcome)
    fleet.settled({0, 2})


@pytest.fixture(scope="module")
def fleet() -> Any:
    """Ranks 0 and 2 serve; rank 1 is gone."""
    with Fleet(MODEL) as made:
        made.kill(1)
        made.settled({0, 2})
        yield made
