"""Lets requests go by the load's rules and looks after them until each has its record.

Rules. A request may go when it is due and, under a cap, a slot is free. In a closed loop everything is due from the
start: the opening burst fills the slots as fast as it can be sent, and each further request is ready at the instant at
which the one before it was done. `ready_ns` is that instant, so `sent_ns - ready_ns` is this client's own lateness.

Order of work. Sending comes first, then reading (a kernel stamp doesn't mind waiting a little), then decoding, which is
done in slices while nothing is ready.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable

from windtunnel import errors
from windtunnel.clock import monotonic_ns
from windtunnel.loadgen.connection import Connection, KernelClock
from windtunnel.loadgen.exchange import Exchange
from windtunnel.loadgen.network import REDIRECTS, Network, Route
from windtunnel.readiness import Poller
from windtunnel.units import NS_PER_MS, NS_PER_S
from windtunnel.wire.control import Setup, Work
from windtunnel.wire.http1 import parse_url

_SENDS_A_STEP = 32
_EVENTS_BETWEEN_SENDS = 32
_READS_A_SLICE = 64
_MAX_UNDECODED_READS = 256
_MAX_JUDGE_DELAY_NS = 100 * NS_PER_MS
_FIRST_BACKOFF_S = 0.5
_MAX_BACKOFF_S = 30.0
_CLOCK_REFRESH_NS = 100 * NS_PER_MS
_FAR_NS = 3600 * NS_PER_S

Sink = Callable[[Exchange], None]
"""Takes each request that is over and judged."""


class Driver:
    """One load worker's loop over all of its connections."""

    def __init__(self, setup: Setup, poller: Poller, sink: Sink) -> None:
        self._setup = setup
        self._poller = poller
        self._sink = sink
        self._clock = KernelClock()
        self._network = Network(
            parse_url(setup.url), setup.headers, insecure=setup.insecure, proxy=setup.proxy, addresses=setup.addresses
        )
        self._first_route = self._network.route(self._network.url)
        self._routes: dict[int, Route] = {}
        """By request, where it was redirected."""
        self._busy: set[Connection] = set()
        self._pending: deque[Work] = deque()
        self._retries: list[tuple[int, int, Exchange]] = []
        self._over: deque[Exchange] = deque()
        self._free: deque[int | None] | None = None
        self._start_ns = 0
        self._scheduled = True
        self._undecoded: dict[Exchange, None] = {}
        """Answers that go on and of which much has piled up, in order, each once."""
        self._next_sweep_ns = 0
        self._sweep_ns = self._sweep_interval_ns()
        self._freed = False
        """A request was over since the last look at what may go."""
        self.in_flight = 0
        self.sent = 0
        self._stopped = False

    # --- a phase ----------------------------------------------------------------------------------------------

    def begin(self, items: list[Work], start_ns: int, *, scheduled: bool) -> None:
        """Begin to send `items`, which are in order of their due instants, at `start_ns`."""
        self._pending.extend(items)
        self._start_ns = start_ns
        self._scheduled = scheduled
        slots = self._setup.slots
        self._free = None if slots is None else deque([None] * slots)

    @property
    def finished(self) -> bool:
        """Nothing is left to send, to wait for or to judge."""
        return not (self._pending or self.in_flight or self._over)

    def step(self, until_ns: int) -> None:
        """Do what is to be done, and wait for more until `until_ns` at the longest."""
        now_ns = monotonic_ns()
        self._let_go(now_ns, _SENDS_A_STEP)
        if self._retries and self._retries[0][0] <= now_ns:
            self._retry_due(now_ns)
        if now_ns >= self._next_sweep_ns:
            self._sweep(now_ns)
        idle_work = self._over or self._undecoded
        if idle_work:
            ready = self._poller.ready_nowait()
        else:
            ready = self._poller.wait_ready(min(until_ns, self._next_instant_ns()))
        handlers = self._poller.handlers
        for count, (fileno, events) in enumerate(ready):
            handler = handlers.get(fileno)
            if handler is not None:
                handler(events)
            if self._freed:
                self._freed = False
                self._let_go(monotonic_ns(), 1)
            elif self._scheduled and count % _EVENTS_BETWEEN_SENDS == 0:
                self._let_go(monotonic_ns(), _SENDS_A_STEP)
        if idle_work and (not ready or self._undecoded or self._overdue(now_ns)):
            self._do_idle_work()

    def stop(self, why: str) -> None:
        """Cancel what is in flight; what was not sent stays unsent."""
        self._stopped = True
        self._pending.clear()
        now_ns = monotonic_ns()
        for connection in list(self._busy):
            exchange = connection.exchange
            if exchange is not None:
                exchange.decode()
                exchange.fail(errors.Cancelled(why, exchange.reader.tokens), now_ns)
                connection.drop(exchange)
        for _, _, exchange in self._retries:
            exchange.fail(errors.Cancelled(why, 0), now_ns)
            self._finish(exchange)
        self._retries.clear()

    def close(self) -> None:
        """Close all connections."""
        for connection in self._busy:
            connection.close()
        self._network.close_idle()

    # --- letting go -------------------------------------------------------------------------------------------

    def _let_go(self, now_ns: int, most: int) -> None:
        """Send what may go, `most` requests at most: a burst must not keep answers from being read."""
        pending = self._pending
        free = self._free
        while pending and most and (free is None or free):
            due_ns = self._start_ns + pending[0].due_ns
            if due_ns > now_ns:
                return
            freed_ns = free.popleft() if free else None
            if self._scheduled:
                ready_ns: int | None = due_ns if freed_ns is None else max(due_ns, freed_ns)
            else:
                ready_ns = freed_ns
            exchange = Exchange(pending.popleft(), self._setup.dialect, self._setup.streamed, due_ns, ready_ns)
            self.in_flight += 1
            self._send(exchange)
            most -= 1

    def _send(self, exchange: Exchange) -> None:
        exchange.begin_attempt(monotonic_ns())
        if exchange.attempts == 1:
            self.sent += 1
        self._dispatch(exchange)

    def _dispatch(self, exchange: Exchange) -> None:
        route = self._routes.get(exchange.work.index, self._first_route)
        idle = route.endpoint.idle
        connection = idle.pop() if idle else Connection(route.endpoint, self._poller, self._clock, self)
        self._busy.add(connection)
        connection.send(exchange, route.write("POST", exchange.work.request_id, exchange.work.body))

    def _retry_due(self, now_ns: int) -> None:
        while self._retries and self._retries[0][0] <= now_ns:
            self._send(heapq.heappop(self._retries)[2])

    # --- being told by connections ----------------------------------------------------------------------------

    def exchange_over(self, connection: Connection, exchange: Exchange) -> None:
        """Judge later; free the slot now."""
        self._busy.discard(connection)
        if exchange.failure is None and exchange.response.status in REDIRECTS and self._redirect(exchange):
            return
        if self._retry(exchange):
            return
        self._finish(exchange)

    def exchange_stale(self, connection: Connection, exchange: Exchange) -> None:
        """The server had closed a kept connection: send again on another."""
        self._busy.discard(connection)
        exchange.begin_again()
        exchange.reconnects += 1
        self._dispatch(exchange)

    def _finish(self, exchange: Exchange) -> None:
        self.in_flight -= 1
        self._freed = True
        self._routes.pop(exchange.work.index, None)
        if self._free is not None:
            self._free.append(exchange.done_ns)
        self._over.append(exchange)

    def _retry(self, exchange: Exchange) -> bool:
        """Let it wait for another attempt, where one is allowed and makes sense."""
        if self._stopped or exchange.attempts > self._setup.retries:
            return False
        if exchange.failure is None and exchange.response.status == 200:
            return False
        exchange.settle()
        if not exchange.retryable:
            return False
        wait_s = exchange.retry_after_s()
        if wait_s is None:
            wait_s = min(_MAX_BACKOFF_S, _FIRST_BACKOFF_S * 2 ** (exchange.attempts - 1))
        now_ns = monotonic_ns()
        wait_ns = round(wait_s * NS_PER_S)
        if exchange.sent_ns is None or now_ns + wait_ns - exchange.sent_ns > self._setup.timeouts.request_ns:
            return False
        exchange.retry_wait_ns += wait_ns
        heapq.heappush(self._retries, (now_ns + wait_ns, exchange.work.index, exchange))
        return True

    def _redirect(self, exchange: Exchange) -> bool:
        """Follow a redirect; False, with the exchange failed, where that is not possible."""
        here = self._routes.get(exchange.work.index, self._first_route).url
        try:
            route = self._network.redirect(here, exchange.response, exchange.redirects)
        except errors.RequestFailure as failure:
            exchange.fail(failure, monotonic_ns())
            return False
        exchange.redirects += 1
        self._routes[exchange.work.index] = route
        exchange.begin_again()
        self._dispatch(exchange)
        return True

    # --- looking after ----------------------------------------------------------------------------------------

    def _next_instant_ns(self) -> int:
        instant = self._next_sweep_ns if self.in_flight else monotonic_ns() + _FAR_NS
        if self._pending and (self._free is None or self._free):
            instant = min(instant, self._start_ns + self._pending[0].due_ns)
        if self._retries:
            instant = min(instant, self._retries[0][0])
        return instant

    def _sweep_interval_ns(self) -> int:
        times = self._setup.timeouts
        shortest = min(times.connect_ns, times.first_token_ns, times.stall_ns, times.request_ns)
        return min(max(shortest // 8, 2 * NS_PER_MS), _CLOCK_REFRESH_NS)

    def _sweep(self, now_ns: int) -> None:
        """Judge time-outs, take in what has piled up undecoded, follow the wall clock."""
        self._clock.refresh()
        timeouts = self._setup.timeouts
        for connection in list(self._busy):
            exchange = connection.exchange
            if exchange is None:
                continue
            if exchange.expire(now_ns, timeouts, connection.connecting):
                connection.drop(exchange)
            elif exchange.num_undecoded > _MAX_UNDECODED_READS:
                self._undecoded[exchange] = None
        self._next_sweep_ns = now_ns + self._sweep_ns

    def _overdue(self, now_ns: int) -> bool:
        """A request has been over for so long that it shall be judged though there is other work."""
        return bool(self._over) and now_ns - (self._over[0].done_ns or now_ns) > _MAX_JUDGE_DELAY_NS

    def _decode_over(self, exchange: Exchange) -> bool:
        """Decode a slice of an answer that is over, and judge it at its end; True when it is judged."""
        try:
            if not exchange.decode(_READS_A_SLICE):
                return False
            exchange.settle()
        except Exception as error:  # whatever one answer holds, it must not end the load of all
            problem = f"windtunnel can't read it: {type(error).__name__}: {error}"
            exchange.fail(errors.MalformedResponse("schema", "response", 0, problem, ""), exchange.done_ns or 0)
        return True

    def _do_idle_work(self) -> None:
        """A slice of decoding for the answer that has been over longest, and for one that goes on."""
        if self._over and self._decode_over(self._over[0]):
            self._sink(self._over.popleft())
        exchange = next(iter(self._undecoded), None)
        if exchange is not None and exchange.decode(_READS_A_SLICE):
            del self._undecoded[exchange]
