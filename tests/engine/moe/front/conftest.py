"""An engine that is served by a process of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from windtunnel.engine.process import EmbeddedTarget

SMALL = "num_layers=2,max_context=512,rebalance_threshold=0,hang_s=0.5"
"""Without rebalancing: its policy would be compiled."""


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="session")
def small(models: Path) -> str:
    """How a small engine is written."""
    return f"engine:admin,{SMALL},models_folder={models}"


@pytest.fixture(scope="module")
def url(small: str) -> Iterator[str]:
    """Of an engine that nobody hurts."""
    with EmbeddedTarget.start(small) as target:
        yield target.url
