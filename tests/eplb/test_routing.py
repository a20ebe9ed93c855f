"""Readers never wait; whoever withdraws a view knows when nobody uses it any more."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator

import pytest

from windtunnel.eplb.placement import Placement
from windtunnel.eplb.routing import Routing, ViewTable
from windtunnel.eplb.transaction.instructions import ReadersGone, RoutersGone, View
from windtunnel.errors import ExpertLost, StaleEpoch


def view(number: int, epoch: int, slots: object = ((0, 1), (1, -1))) -> View:
    return View(number, Placement.of([slots], 3, epoch=epoch), {})


def due(views: ViewTable) -> list[tuple[type, int]]:
    return [(type(what), what.view) for what in views.due()]


@pytest.fixture
def table() -> ViewTable:
    views = ViewTable(0)
    for number in (1, 2):
        views.serve(view(number, number))
    views.route_by(view(1, 1))
    assert due(views) == [(RoutersGone, 1)]
    return views


def test_a_table_tells_where_each_replica_is() -> None:
    routing = Routing(view(1, 4).placement)
    assert routing.epoch == 4 and routing.has_missing
    assert routing.places(0, 0) == [(0, 0)]
    assert routing.places(0, 1) == [(0, 1), (1, 0)]
    assert routing.replicas[0].tolist() == [[0, -1], [1, 2], [-1, -1]]


def test_an_expert_that_nobody_holds_is_named_before_it_is_routed_to() -> None:
    routing = Routing(view(1, 4).placement)
    routing.require(0, 1)
    for ask in (routing.require, routing.places):
        with pytest.raises(ExpertLost) as raised:
            ask(0, 2)
        assert (raised.value.layer, raised.value.expert, raised.value.num_missing) == (0, 2, 1)


def test_before_the_first_epoch_nothing_can_be_routed() -> None:
    views = ViewTable(7)
    assert views.table is None
    with pytest.raises(StaleEpoch), views.routing():
        pass


def test_a_router_keeps_its_epoch_while_a_newer_one_is_published(table: ViewTable) -> None:
    with table.routing() as routing:
        table.route_by(view(2, 2))
        assert routing.epoch == 1 and table.table is not None and table.table.epoch == 2
        assert due(table) == [] and table.is_waiting
    assert due(table) == [(RoutersGone, 2)]
    assert due(table) == [] and not table.is_waiting, "it is told once"


def test_an_epoch_that_is_not_served_is_refused_with_those_that_are(table: ViewTable) -> None:
    with pytest.raises(StaleEpoch) as raised, table.reading(5):
        pass
    assert raised.value.asked == "epoch 5" and "serves epoch 1, epoch 2" in str(raised.value)


def test_a_view_that_was_withdrawn_is_found_no_more_and_known_to_be_read(table: ViewTable) -> None:
    with table.reading(1) as held:
        table.withdraw(held.number)
        assert due(table) == [] and table.is_used()
        with pytest.raises(StaleEpoch), table.reading(1):
            pass
    assert due(table) == [(ReadersGone, 1)] and not table.is_used()


def test_who_routes_by_a_view_that_was_withdrawn_may_read_it_too(table: ViewTable) -> None:
    with table.routing():
        table.withdraw(1)
        table.withdraw(2)
        assert due(table) == [(ReadersGone, 2)] and table.is_waiting
    assert due(table) == [(ReadersGone, 1)]


def test_the_same_epoch_can_be_answered_by_a_later_view(table: ViewTable) -> None:
    with table.reading(2) as before:
        table.serve(view(3, 2))
        table.withdraw(before.number)
        with table.reading(2) as after:
            assert (before.number, after.number) == (2, 3)
        assert due(table) == []
    with table.reading(2):
        assert due(table) == [(ReadersGone, 2)]


def test_a_view_of_the_same_placement_keeps_the_table_that_was_made_of_it(table: ViewTable) -> None:
    first = view(1, 1)
    table.route_by(first)
    made = table.table
    table.route_by(View(2, first.placement, {}))
    assert table.table is made


def test_blocks_may_be_nested_and_end_by_an_error(table: ViewTable) -> None:
    with pytest.raises(ZeroDivisionError), table.reading(1), table.reading(1), table.routing():
        raise ZeroDivisionError
    assert not table.is_used()


def test_a_process_that_is_no_member_neither_routes_nor_answers(table: ViewTable) -> None:
    with table.reading(1), table.routing():
        table.withdraw(1)
        table.stop()
        assert table.table is None and table.is_used() and not table.is_waiting
        with pytest.raises(StaleEpoch), table.routing():
            pass
    assert not table.is_used()


def test_what_another_thread_reads_is_seen(table: ViewTable) -> None:
    reads, may_end = threading.Event(), threading.Event()

    def read() -> None:
        with table.reading(1):
            reads.set()
            assert may_end.wait(30)

    thread = threading.Thread(target=read)
    thread.start()
    assert reads.wait(30)
    table.withdraw(1)
    assert due(table) == []
    may_end.set()
    thread.join()
    assert due(table) == [(ReadersGone, 1)]


@pytest.fixture
def many_switches() -> Iterator[None]:
    """Let the interpreter change threads often."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(2e-5)
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize("how", ["reading", "routing"])
def test_nobody_finds_memory_that_was_given_away_however_threads_interleave(how: str, many_switches: None) -> None:
    """Each epoch has a cell of memory, which is spoilt once nobody uses that epoch: no user must ever see that."""
    views, spoilt, stop = ViewTable(0), {0: False}, threading.Event()
    seen: list[str] = []
    uses = [0] * 3

    def publish(number: int) -> None:
        spoilt[number] = False
        if how == "reading":
            views.serve(view(number, 1))
            views.withdraw(number - 1)
        else:
            views.route_by(view(number, number))

    def use(thread: int) -> None:
        while not stop.is_set():
            with contextlib.ExitStack() as stack:
                if how == "reading":
                    number = stack.enter_context(views.reading(1)).number
                else:
                    number = stack.enter_context(views.routing()).epoch
                seen.extend(f"view {number} is spoilt" for _ in range(20) if spoilt[number])
                uses[thread] += 1

    publish(0)
    threads = [threading.Thread(target=use, args=(thread,)) for thread in range(3)]
    for thread in threads:
        thread.start()
    changes = 0
    while changes < 200 or min(uses) < 50:
        publish(changes + 1)
        while views.is_waiting:
            views.due()
        spoilt[changes] = True
        changes += 1
    stop.set()
    for thread in threads:
        thread.join()
    assert seen == [] and not views.is_used()
