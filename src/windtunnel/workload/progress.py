"""How those who wait hear of the loading of a dataset."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[int, int], None]
"""Told what is done, of how much."""


def unheard(done: int, total: int) -> None:
    """Progress that nobody waits for."""
