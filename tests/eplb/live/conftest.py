"""Deaths are died on both transports: on NIXL a dozen in the everyday run, drawn by a seed, and all in the long one."""

from __future__ import annotations

import random

import pytest

SEED = 20261201


@pytest.fixture(params=["shm", "nixl"])
def transport(request: pytest.FixtureRequest) -> str:
    """The transport that experts move by."""
    return str(request.param)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the deaths on NIXL that are not drawn as long."""
    on_nixl = [item for item in items if "[nixl" in item.nodeid and "/live/" in item.nodeid]
    ranks = sorted(item.nodeid for item in on_nixl if "a_rank_that_fails" in item.nodeid)
    others = sorted({item.nodeid for item in on_nixl}.difference(ranks))
    rng = random.Random(SEED)
    drawn = {*rng.sample(ranks, min(9, len(ranks))), *rng.sample(others, min(3, len(others)))}
    for item in on_nixl:
        if item.nodeid not in drawn:
            item.add_marker(pytest.mark.long)
