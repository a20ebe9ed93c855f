"""The pacer resumes scripts in the order of their instants, and never early."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from windtunnel.clock import monotonic_ns
from windtunnel.engine.pacer import Pacer, Script
from windtunnel.engine.server import new_event_loop
from windtunnel.units import NS_PER_MS


def paced(start: Callable[[Pacer, Callable[[], None]], None]) -> Pacer:
    """Run a loop until `start`'s second argument is called."""

    async def run() -> Pacer:
        done = asyncio.Event()
        pacer = Pacer(asyncio.get_running_loop())
        start(pacer, done.set)
        async with asyncio.timeout(10):
            await done.wait()
        return pacer

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(run())


def test_scripts_are_resumed_in_order_and_never_early() -> None:
    order: list[int] = []
    early: list[int] = []

    def start(pacer: Pacer, done: Callable[[], None]) -> None:
        now = monotonic_ns()

        def script(number: int, due_ns: int) -> Script:
            yield due_ns
            if monotonic_ns() < due_ns:
                early.append(number)
            order.append(number)
            if len(order) == 200:
                done()

        for number in range(200):
            position = number * 7 % 200  # out of order
            pacer.start(script(position, now + (10 * NS_PER_MS) + position * NS_PER_MS // 10))

    pacer = paced(start)
    assert order == list(range(200))
    assert not early
    assert pacer.lateness.count == 200
    assert 0 < (pacer.lateness.mean_ns or 0) <= pacer.lateness.max_ns


def test_an_earlier_instant_that_is_added_later_is_not_kept_waiting() -> None:
    order = []

    def start(pacer: Pacer, done: Callable[[], None]) -> None:
        def script(name: str, due_ns: int) -> Script:
            yield due_ns
            order.append(name)
            done()

        pacer.start(script("late", monotonic_ns() + 60_000 * NS_PER_MS))
        pacer.start(script("early", monotonic_ns() + 1 * NS_PER_MS))

    paced(start)
    assert order == ["early"]


def test_a_parked_script_goes_on_when_it_is_resumed_and_only_then() -> None:
    seen = []

    def start(pacer: Pacer, done: Callable[[], None]) -> None:
        def parked() -> Script:
            seen.append("parked")
            yield None
            seen.append("resumed")
            due_ns = monotonic_ns() + 5 * NS_PER_MS
            yield due_ns
            seen.append("after its instant" if monotonic_ns() >= due_ns else "early")
            done()

        script = parked()
        pacer.start(script)
        seen.append("elsewhere")
        pacer.resume(script)
        pacer.resume(script)  # it waits for an instant now, so this one does nothing

    paced(start)
    assert seen == ["parked", "elsewhere", "resumed", "after its instant"]


def test_a_stopped_script_is_cleaned_up_and_never_resumed() -> None:
    seen = []

    def start(pacer: Pacer, done: Callable[[], None]) -> None:
        def stopped() -> Script:
            try:
                yield monotonic_ns() + NS_PER_MS
                seen.append("resumed")
            finally:
                seen.append("cleaned up")

        def last() -> Script:
            yield monotonic_ns() + 5 * NS_PER_MS
            done()

        script = stopped()
        pacer.start(script)
        pacer.stop(script)
        pacer.start(last())

    paced(start)
    assert seen == ["cleaned up"]


def test_a_script_may_start_another_as_it_ends() -> None:
    seen = []

    def start(pacer: Pacer, done: Callable[[], None]) -> None:
        def second() -> Script:
            seen.append("second")
            yield monotonic_ns()
            done()

        def first() -> Script:
            yield monotonic_ns() + NS_PER_MS
            seen.append("first")
            pacer.start(second())

        pacer.start(first())

    paced(start)
    assert seen == ["first", "second"]


def test_a_script_that_fails_takes_no_other_with_it() -> None:
    seen = []

    def start(pacer: Pacer, done: Callable[[], None]) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: seen.append(str(context["exception"])))

        def failing() -> Script:
            yield monotonic_ns() + NS_PER_MS
            raise RuntimeError("a bug")

        def sound() -> Script:
            yield monotonic_ns() + 2 * NS_PER_MS
            seen.append("sound")
            done()

        pacer.start(failing())
        pacer.start(sound())

    paced(start)
    assert seen == ["a bug", "sound"]


@pytest.mark.parametrize("num", [1, 500])
def test_sockets_are_looked_at_while_scripts_never_wait(num: int) -> None:
    rounds = 0

    def start(pacer: Pacer, done: Callable[[], None]) -> None:
        def hasty() -> Script:
            while rounds < 20:
                yield monotonic_ns()

        def count() -> None:
            nonlocal rounds
            rounds += 1
            if rounds < 20:
                asyncio.get_running_loop().call_later(0.001, count)
            else:
                done()

        for _ in range(num):
            pacer.start(hasty())
        count()

    paced(start)
    assert rounds == 20
