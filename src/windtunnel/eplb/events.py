"""What happened, in order, on one clock: for logs, drills and tests."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from windtunnel import clock

_KEPT = 10_000


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
        if self._on_event:
            self._on_event(event)

    def all(self) -> list[Event]:
        """Oldest first."""
        return list(self._events)
