"""What happened, in order, on one clock: for the log `windtunnel.eplb`, drills and tests."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from windtunnel import clock

_KEPT = 10_000
_WARNINGS = frozenset(
    (
        "lost",
        "evicted",
        "refused",
        "rolled back",
        "can't restore",
        "restore failed",
        "rebalance refused",
        "waiting",
        "coordinator broke",
    )
)
"""What an operator should know without asking; the rest is logged for who debugs."""
_log = logging.getLogger("windtunnel.eplb")


def tell(callback: Callable[..., object], *arguments: object) -> None:
    """Call a function of the engine's. What it raises is logged: a transaction does not stand and fall with it."""
    try:
        callback(*arguments)
    except Exception:
        _log.exception("%s, which the engine gave as a callback, failed", getattr(callback, "__name__", callback))


class Event(Struct, frozen=True):
    """Something that happened."""

    at_ns: int
    """CLOCK_MONOTONIC."""
    who: str
    """`coordinator`, or `rank 3`."""
    what: str
    """`published`, `evicted`, …"""
    facts: dict[str, Any]


class EventLog:
    """The newest events; each goes to `on_event` too."""

    def __init__(self, who: str, on_event: Callable[[Event], None] | None = None) -> None:
        self._who = who
        self._on_event = on_event
        self._events: deque[Event] = deque(maxlen=_KEPT)

    def add(self, what: str, **facts: Any) -> None:
        """Note something, now."""
        event = Event(clock.monotonic_ns(), self._who, what, facts)
        self._events.append(event)
        level = logging.WARNING if what in _WARNINGS else logging.DEBUG
        if _log.isEnabledFor(level):
            told = ", ".join(f"{name} {value}" for name, value in facts.items())
            _log.log(level, "%s: %s%s", self._who, what, f": {told}" if told else "")
        if self._on_event:
            tell(self._on_event, event)

    def all(self) -> list[Event]:
        """Oldest first."""
        return list(self._events)
