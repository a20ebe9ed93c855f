from __future__ import annotations

from pathlib import Path

import pytest

from tests.catalog.match.catalogs import made


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A catalog of the tree SHOP, which stands beside it."""
    return made(tmp_path_factory.mktemp("shop"))
