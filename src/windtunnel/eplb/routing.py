"""Which epoch's placement tokens are routed by, and who still uses which: what decides when a slot may be overwritten.

Reading takes no lock. A reader notes in a cell of its own which view it uses, then looks again whether that view is
still the one to use; whoever withdraws a view first makes it unfindable and then looks at the cells. So either the
reader sees the change and looks again, or its note is seen. (Readers' epochs: the idea is that of read-copy-update.)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import get_ident

import numpy as np
from numpy.typing import NDArray

from windtunnel.eplb.placement import Placement
from windtunnel.eplb.transaction.instructions import LetGo, ReadersGone, RoutersGone, View
from windtunnel.errors import ExpertLost, StaleEpoch


class Routing:
    """One epoch's placement, as tokens are routed by it. Immutable."""

    def __init__(self, placement: Placement) -> None:
        self.placement = placement
        self.epoch = placement.epoch
        self.replicas: NDArray[np.int32] = placement.replicas
        """`rank * width + slot` of each replica [layers, experts, most replicas]; padded by -1."""
        self.width = int(placement.slots.shape[2])
        """The most slots of a rank."""
        self._missing = set(placement.missing)
        self.has_missing = bool(self._missing)
        """Whether some expert can't be routed to: then ask `require` before a token is sent."""

    def require(self, layer: int, expert: int) -> None:
        """Raise ExpertLost where no live rank holds the expert."""
        if (layer, expert) in self._missing:
            raise ExpertLost(layer, expert, len(self._missing))

    def places(self, layer: int, expert: int) -> list[tuple[int, int]]:
        """The (rank, slot) pairs that hold the expert; raises ExpertLost where there are none."""
        self.require(layer, expert)
        return [divmod(int(place), self.width) for place in self.replicas[layer, expert] if place >= 0]


class ViewTable:
    """The views of one process: which one to route by, which ones are answered for, and who uses them.

    Any thread may use `routing` and `reading`; the rest is called by one thread only.
    """

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._serving: dict[int, View] = {}
        self._routed: tuple[View, Routing] | None = None
        self._routers: dict[int, dict[int, int]] = {}
        """How often each thread uses each view, as a router: by thread, then by the view's number."""
        self._readers: dict[int, dict[int, int]] = {}
        self._waits: list[LetGo] = []
        """What `due` has not told yet."""

    @property
    def table(self) -> Routing | None:
        """What to route by; None before the first epoch. To hold on to it for a step, use `routing`."""
        routed = self._routed
        return routed[1] if routed else None

    @contextmanager
    def routing(self) -> Iterator[Routing]:
        """Route by the newest epoch until the block ends: no slot that it names is overwritten meanwhile."""
        uses = self._routers.setdefault(get_ident(), {})
        while True:
            routed = self._routed
            if routed is None:
                raise StaleEpoch(self._rank, "the newest epoch", "none")
            view, table = routed
            _use(uses, view.number)
            if self._routed is routed:
                break
            _leave(uses, view.number)
        try:
            yield table
        finally:
            _leave(uses, view.number)

    @contextmanager
    def reading(self, epoch: int) -> Iterator[View]:
        """Answer for an epoch that somebody routed by, until the block ends. Raises StaleEpoch."""
        uses = self._readers.setdefault(get_ident(), {})
        while True:
            view = self._serving.get(epoch)
            if view is None:
                known = ", ".join(f"epoch {e}" for e in sorted(self._serving)) or "none"
                raise StaleEpoch(self._rank, f"epoch {epoch}", known)
            _use(uses, view.number)
            if self._serving.get(epoch) is view:
                break
            _leave(uses, view.number)
        try:
            yield view
        finally:
            _leave(uses, view.number)

    def serve(self, view: View) -> None:
        """Answer for the view's epoch by this view."""
        self._serving[view.placement.epoch] = view

    def route_by(self, view: View) -> None:
        """Route by this view from now on; `due` tells when nobody routes by an earlier one any more."""
        table = self.table
        if table is None or table.placement is not view.placement:
            table = Routing(view.placement)
        self._routed = (view, table)
        self._waits.append(RoutersGone(view.number))

    def withdraw(self, number: int) -> None:
        """Answer by a view no longer; `due` tells when nobody reads it or routes by it any more."""
        for epoch, view in list(self._serving.items()):
            if view.number == number:
                del self._serving[epoch]
        self._waits.append(ReadersGone(number))

    def stop(self) -> None:
        """Neither route nor answer any more: this process is no member."""
        self._serving = {}
        self._routed = None
        self._waits = []

    @property
    def is_waiting(self) -> bool:
        """Whether `due` has something to tell, now or later."""
        return bool(self._waits)

    def due(self) -> list[LetGo]:
        """Who has let go of which view; each is told once. To be asked again while `is_waiting`."""
        due: list[LetGo] = []
        waits, self._waits = self._waits, []
        for wait in waits:
            (self._waits if self._is_awaited(wait) else due).append(wait)
        return due

    def is_used(self) -> bool:
        """Whether somebody reads or routes by any view."""
        return bool(_in_use(self._readers) or _in_use(self._routers))

    def _is_awaited(self, wait: LetGo) -> bool:
        routed = _in_use(self._routers)
        if isinstance(wait, RoutersGone):
            return any(view < wait.view for view in routed)
        return wait.view in routed | _in_use(self._readers)


def _use(uses: dict[int, int], number: int) -> None:
    uses[number] = uses.get(number, 0) + 1


def _leave(uses: dict[int, int], number: int) -> None:
    if uses[number] == 1:
        del uses[number]
    else:
        uses[number] -= 1


def _in_use(by_thread: dict[int, dict[int, int]]) -> set[int]:
    """Views that any thread uses. `list` of a dict is one step under the interpreter's lock."""
    return {number for uses in list(by_thread.values()) for number in list(uses)}
