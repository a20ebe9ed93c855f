"""How a run tells what it is doing, to whoever shows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from msgspec import Struct, field

Notify = Callable[[str], None]
"""Takes a line for the user."""


class Watcher(Protocol):
    """Who is told how a run goes."""

    def notify(self, text: str) -> None:
        """A line for the user."""

    def loading(self, done: int, total: int) -> None:
        """The dataset is being made or read."""

    def begin(self, total: int) -> None:
        """The load begins: so many requests."""

    def progress(self, counts: Counts) -> None:
        """So far."""

    def end(self) -> None:
        """The load is over."""


class Counts(Struct):
    """A run so far."""

    total: int
    sent: int = 0
    completed: int = 0
    failed: int = 0
    in_flight: int = 0
    elapsed_s: float = 0.0
    ttfts_ns: list[int] = field(default_factory=list)
