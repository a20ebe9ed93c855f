"""Single calls of the run's own process: the model's name, the ready check, /tokenize, the profiler.

They go over the same connections, exchanges and routes as the load, one at a time.
"""

from __future__ import annotations

from typing import Any

import msgspec

from windtunnel import errors
from windtunnel.clock import monotonic_ns
from windtunnel.loadgen.connection import Connection, KernelClock
from windtunnel.loadgen.exchange import Exchange
from windtunnel.loadgen.network import REDIRECTS, Network, Route
from windtunnel.readiness import Poller
from windtunnel.units import s_to_ns
from windtunnel.wire.control import Timeouts, Work
from windtunnel.wire.http1 import Url
from windtunnel.wire.openai import Dialect


class Caller:
    """Calls the target; keeps its connection between calls. Close it when done."""

    def __init__(self, network: Network, connect_timeout_s: float) -> None:
        self._network = network
        self._connect_timeout_s = connect_timeout_s
        self._poller = Poller()
        self._clock = KernelClock()
        self._over: Exchange | None = None
        self._stale = False

    def close(self) -> None:
        """Close its connections."""
        self._network.close_idle()
        self._poller.close()

    def call(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        *,
        timeout_s: float,
        dialect: Dialect = "completions",
        streamed: bool = False,
    ) -> Exchange:
        """One request to a path of the target's; the exchange comes back judged, its failure in `failure`."""
        work = Work(0, "", body, 0, 0, None)
        exchange = Exchange(work, dialect, streamed, 0, None)
        url = Url(self._network.url.origin, path)
        exchange.begin_attempt(monotonic_ns())
        try:
            route = self._network.route(url)
            self._send(method, route, exchange, timeout_s)
            while exchange.failure is None and exchange.response.status in REDIRECTS:
                route = self._network.redirect(route.url, exchange.response, exchange.redirects)
                exchange.redirects += 1
                exchange.begin_again()
                self._send(method, route, exchange, timeout_s)
        except errors.RequestFailure as failure:
            exchange.fail(failure, monotonic_ns())
        return exchange

    def _send(self, method: str, route: Route, exchange: Exchange, timeout_s: float) -> None:
        deadline_ns = monotonic_ns() + s_to_ns(timeout_s)
        timeouts = Timeouts(s_to_ns(self._connect_timeout_s), *[s_to_ns(timeout_s)] * 3)
        for _ in range(2):  # a kept connection may turn out closed, once
            self._over, self._stale = None, False
            idle = route.endpoint.idle
            connection = idle.pop() if idle else Connection(route.endpoint, self._poller, self._clock, self)
            connection.send(exchange, route.write(method, "", exchange.work.body))
            while self._waiting:
                for fileno, events in self._poller.wait_ready(min(deadline_ns, monotonic_ns() + 50_000_000)):
                    handler = self._poller.handlers.get(fileno)
                    if handler is not None:
                        handler(events)
                if self._waiting and exchange.expire(monotonic_ns(), timeouts, connection.connecting):
                    connection.drop(exchange)
            if not self._stale:
                return

    @property
    def _waiting(self) -> bool:
        return self._over is None and not self._stale

    def exchange_over(self, connection: Connection, exchange: Exchange) -> None:
        """Note it."""
        self._over = exchange

    def exchange_stale(self, connection: Connection, exchange: Exchange) -> None:
        """Note it."""
        exchange.begin_again()
        self._stale = True

    # --- what is asked of every server ------------------------------------------------------------------------

    def get_json(self, path: str, *, timeout_s: float) -> Any:
        """The JSON at a path; raises errors.RequestFailure."""
        exchange = self.call("GET", path, timeout_s=timeout_s)
        return self._json(exchange)

    def post_json(self, path: str, body: dict[str, Any], *, timeout_s: float = 60.0) -> tuple[int, Any]:
        """(status, JSON) of a POST, whatever the status; raises errors.RequestFailure when there is no answer."""
        exchange = self.call("POST", path, msgspec.json.encode(body), timeout_s=timeout_s)
        if exchange.failure is not None:
            raise exchange.failure
        try:
            return exchange.response.status, msgspec.json.decode(exchange.body)
        except msgspec.DecodeError:
            return exchange.response.status, None

    def _json(self, exchange: Exchange) -> Any:
        if exchange.failure is None and exchange.response.status != 200:
            exchange.settle()
        if exchange.failure is not None:
            raise exchange.failure
        body = exchange.body
        try:
            return msgspec.json.decode(body)
        except msgspec.DecodeError as error:
            excerpt = repr(body[:120].decode("utf-8", "backslashreplace"))
            raise errors.MalformedResponse("json", "response", 0, str(error), excerpt) from error
