"""When requests are let go: schedules, slots, and what their records say of it."""

from __future__ import annotations

from tests.engine.serving import paced
from tests.loadgen.driving import drive
from windtunnel.measure.record import Record

MS = 1_000_000


def most_in_flight(records: list[Record]) -> int:
    events = [(record.sent_ns or 0, 1) for record in records] + [(record.done_ns or 0, -1) for record in records]
    most = now = 0
    for _, change in sorted(events):
        now += change
        most = max(most, now)
    return most


def test_a_cap_is_never_exceeded_and_is_used() -> None:
    with paced() as url:
        records = drive(url, 40, slots=4)
    assert most_in_flight(records) == 4


def test_without_a_cap_all_go_at_once() -> None:
    with paced("ttft=300ms,itl=1ms") as url:
        records = drive(url, 50, slots=None)
    assert most_in_flight(records) == 50
    assert all(record.ready_ns is None for record in records)


def test_in_a_closed_loop_a_request_is_ready_when_one_before_it_is_done() -> None:
    with paced() as url:
        records = drive(url, 12, slots=3)
    done = {record.done_ns for record in records}
    assert [record.ready_ns is None for record in records] == [True] * 3 + [False] * 9
    assert all(record.ready_ns in done for record in records[3:])
    assert all((record.sent_ns or 0) >= (record.ready_ns or 0) for record in records)


def test_a_schedule_is_kept_and_never_early() -> None:
    due_s = [0.0, 0.0005, 0.03, 0.031, 0.09]
    with paced() as url:
        records = drive(url, due_s=due_s, slots=None)
    start = records[0].scheduled_ns
    assert [record.scheduled_ns - start for record in records] == [round(s * 1e9) for s in due_s]
    assert all(record.ready_ns == record.scheduled_ns for record in records)
    assert all((record.sent_ns or 0) >= record.scheduled_ns for record in records)


def test_under_a_cap_the_wait_for_a_slot_is_between_scheduled_and_ready() -> None:
    """Asked for 100 requests a second of 100 ms each with two slots: the tenth waits for about 400 ms."""
    with paced("ttft=93ms,itl=1ms") as url:
        records = drive(url, due_s=[i * 0.01 for i in range(10)], slots=2)
    waits_ns = [(record.ready_ns or 0) - record.scheduled_ns for record in records]
    assert waits_ns[:2] == [0, 0]
    assert waits_ns[9] >= 250 * MS
    assert most_in_flight(records) == 2


def test_connections_are_kept_and_used_again() -> None:
    with paced() as url:
        records = drive(url, 20, slots=2)
    assert sum(record.connected_ns is not None for record in records) == 2
