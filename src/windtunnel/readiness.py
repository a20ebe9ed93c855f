"""Wait for file descriptors, and for instants that lie closer than epoll's millisecond.

epoll_wait takes whole milliseconds and rounds up; a request or a token that is due in between would leave up to a
millisecond late. An epoll descriptor can itself be waited for with select(), whose time-out has the resolution of the
kernel's timers, so the last stretch before an instant is waited for there.
"""

from __future__ import annotations

import resource
import select
import selectors
from collections.abc import Callable

from windtunnel.clock import monotonic_ns
from windtunnel.units import NS_PER_MS, NS_PER_S

READABLE = select.EPOLLIN
WRITABLE = select.EPOLLOUT
GONE = select.EPOLLHUP | select.EPOLLERR

_FINE_NS = 2 * NS_PER_MS


class Poller:
    """A thin epoll with a handler for each descriptor, whose waits end at an instant, not a millisecond later."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._as_list = [self._epoll.fileno()]
        self.handlers: dict[int, Callable[[int], None]] = {}
        """By descriptor: takes the events that are ready."""
        self.modify = self._epoll.modify
        self.close = self._epoll.close

    def register(self, fileno: int, events: int, handler: Callable[[int], None]) -> None:
        """Watch a descriptor for events."""
        self._epoll.register(fileno, events)
        self.handlers[fileno] = handler

    def unregister(self, fileno: int) -> None:
        """Watch it no more."""
        self._epoll.unregister(fileno)
        del self.handlers[fileno]

    def ready_nowait(self) -> list[tuple[int, int]]:
        """What is ready now, as (descriptor, events)."""
        return self._epoll.poll(0)

    def wait_ready(self, until_ns: int) -> list[tuple[int, int]]:
        """What is ready, as soon as anything is; nothing once `until_ns` (monotonic) has come."""
        wait_ns = until_ns - monotonic_ns()
        if wait_ns <= 0:
            return self._epoll.poll(0)
        if wait_ns > _FINE_NS:
            # whole milliseconds, and stop short of the instant
            ready = self._epoll.poll((wait_ns - _FINE_NS // 2) // NS_PER_MS / 1000)
            if ready:
                return ready
            wait_ns = until_ns - monotonic_ns()
            if wait_ns <= 0:
                return self._epoll.poll(0)
        if not select.select(self._as_list, (), (), wait_ns / NS_PER_S)[0]:
            return []
        return self._epoll.poll(0)


class PreciseSelector(selectors.EpollSelector):
    """asyncio's selector, with waits that are exact below the millisecond. For servers that pace what they send."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """As `selectors.BaseSelector.select`."""
        if timeout is not None and timeout > 0:
            until_ns = monotonic_ns() + round(timeout * NS_PER_S)
            if timeout > 0.002:
                ready = super().select(int((timeout - 0.001) * 1000) / 1000)
                if ready:
                    return ready
            left_ns = until_ns - monotonic_ns()  # epoll may have slept longer than it was asked to
            if left_ns > 0 and not select.select([self.fileno()], (), (), left_ns / NS_PER_S)[0]:
                return []
            timeout = 0
        return super().select(timeout)


def raise_descriptor_limit() -> None:
    """Connections are descriptors: let this process have as many as the system lets it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (ValueError, OSError):
            pass  # some systems name a hard limit that they don't grant
