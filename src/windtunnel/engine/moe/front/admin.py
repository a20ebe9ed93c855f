"""`/admin`: what the engine's ranks are doing, and what hurts them on purpose. For drills on this machine.

Who can reach it can kill ranks, so the front listens on loopback where it is served. A deed takes `content-type:
application/json`, which no page of another site can send without asking first.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Literal, TypeVar
from urllib.parse import parse_qs, urlsplit

import msgspec
import numpy as np
from msgspec import Struct

from windtunnel.clock import monotonic_ns
from windtunnel.engine.bodies import BadRequest, decode
from windtunnel.engine.moe.core import Engine
from windtunnel.engine.moe.front.answers import event
from windtunnel.engine.moe.front.generating import in_words
from windtunnel.engine.routes import STREAM_HEAD, Routes, answer_json
from windtunnel.engine.server import Exchange
from windtunnel.eplb.balance import balancedness
from windtunnel.eplb.events import Event
from windtunnel.eplb.faults import FailAt
from windtunnel.eplb.rebalancer import RebalanceRecord
from windtunnel.errors import WindtunnelError
from windtunnel.wire.http1 import write_response_head
from windtunnel.wire.openai import error_body

_KEPT = 10_000
_LONGEST_DELAY_S = 60.0


class _Rank(Struct, forbid_unknown_fields=True):
    rank: int


class _Slow(Struct, forbid_unknown_fields=True):
    rank: int
    delay_s: float


class _FailAt(Struct, forbid_unknown_fields=True):
    rank: int
    transition: str
    how: Literal["kill", "hang", "slow"] = "kill"
    occurrence: int = 1


_Body = TypeVar("_Body", _Rank, _Slow, _FailAt)


class Events:
    """The newest events, and those who follow them. Events may come from any thread."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._kept: deque[Event] = deque(maxlen=_KEPT)
        self._followers: set[Exchange] = set()

    def add(self, event: Event) -> None:
        """Keep an event and tell it."""
        self._loop.call_soon_threadsafe(self._add, event)

    def follow(self, exchange: Exchange) -> None:
        """Send the events that are kept, `after` an instant where the query names one, then all that come."""
        after = parse_qs(urlsplit(exchange.request.target).query).get("after", ["-1"])[-1]
        if not after.lstrip("-").isdecimal():
            raise BadRequest(f"after takes an instant in nanoseconds, not {after!r}", param="after")
        kept = b"".join(_event(one) for one in self._kept if one.at_ns > int(after))
        exchange.write(write_response_head(200, list(STREAM_HEAD)) + kept)
        self._followers.add(exchange)
        exchange.on_gone = partial(self._followers.discard, exchange)

    def _add(self, event: Event) -> None:
        self._kept.append(event)
        data = _event(event)
        for exchange in list(self._followers):
            if exchange.writable:
                exchange.write(data)
            else:  # it doesn't read; with the last instant that it has, it can ask for the rest
                self._followers.discard(exchange)
                exchange.reset()


def _event(one: Event) -> bytes:
    return event(msgspec.json.encode(one, enc_hook=str))


class Admin:
    """Answers `/admin`. For the loop's thread."""

    def __init__(self, engine: Engine, events: Events) -> None:
        self._engine = engine
        self._loop = asyncio.get_running_loop()
        fleet = engine.fleet
        self.routes: Routes = {
            "/admin/ranks": ("GET", self._answer_ranks),
            "/admin/events": ("GET", events.follow),
            "/admin/rebalance": ("POST", self._rebalance),
            "/admin/kill_rank": self._deed(_Rank, lambda body: fleet.kill(body.rank)),
            "/admin/hang_rank": self._deed(_Rank, lambda body: fleet.hang(body.rank)),
            "/admin/resume_rank": self._deed(_Rank, lambda body: fleet.resume(body.rank)),
            "/admin/restart_rank": self._deed(_Rank, lambda body: engine.restart_rank(body.rank)),
            "/admin/slow_rank": self._deed(_Slow, self._slow),
            "/admin/fail_at": self._deed(
                _FailAt, lambda body: fleet.fail_at(body.rank, FailAt(body.transition, body.how, body.occurrence))
            ),
        }

    def _deed(
        self, kind: type[_Body], do: Callable[[_Body], None]
    ) -> tuple[Literal["POST"], Callable[[Exchange], None]]:
        def answer(exchange: Exchange) -> None:
            _require_json(exchange)
            body = decode(exchange.request.body, kind)
            at_ns = monotonic_ns()
            try:
                do(body)
            except WindtunnelError as error:
                raise BadRequest(in_words(error), param=getattr(error, "field", None)) from error
            answer_json(exchange, {"at_ns": at_ns})

        return "POST", answer

    def _slow(self, body: _Slow) -> None:
        if not 0 <= body.delay_s <= _LONGEST_DELAY_S:
            raise BadRequest(f"delay_s is 0 to {_LONGEST_DELAY_S:.0f}, not {body.delay_s}", param="delay_s")
        self._engine.fleet.slow(body.rank, body.delay_s)

    def _answer_ranks(self, exchange: Exchange) -> None:
        engine = self._engine
        table, window = engine.rebalancer.table, engine.rebalancer.window
        live = engine.rebalancer.live_ranks
        routed = () if table is None else np.flatnonzero((table.placement.slots >= 0).any(axis=(0, 2))).tolist()
        ranks = [
            {
                "rank": rank,
                "pid": engine.fleet.pid(rank),
                "state": engine.fleet.state(rank),
                "live": rank in live,
                "routed": rank in routed,
            }
            for rank in range(engine.config.ranks)
        ]
        balance = None if table is None or window is None else balancedness(window.mean, table.placement)
        answer_json(
            exchange,
            {
                "at_ns": monotonic_ns(),
                "epoch": None if table is None else table.epoch,
                "balancedness": balance,
                "ranks": ranks,
            },
        )

    def _rebalance(self, exchange: Exchange) -> None:
        """Answered when it has ended."""
        _require_json(exchange)
        gone = asyncio.Event()
        exchange.on_gone = gone.set
        at_ns = monotonic_ns()

        def ended(future: Future[RebalanceRecord]) -> None:
            self._loop.call_soon_threadsafe(tell, future)

        def tell(future: Future[RebalanceRecord]) -> None:
            if gone.is_set():
                return
            if (error := future.exception()) is None:
                record = msgspec.structs.asdict(future.result())
                answer_json(exchange, {"outcome": record["result"], **record, "asked_at_ns": at_ns})
            elif isinstance(error, WindtunnelError):
                exchange.respond(409, error_body(in_words(error), "conflict", 409))
            else:
                exchange.respond(500, error_body(f"{type(error).__name__}: {error}", "internal_error", 500))

        try:
            future = self._engine.rebalance()
        except WindtunnelError as error:
            raise BadRequest(in_words(error), 409) from error
        future.add_done_callback(ended)


def _require_json(exchange: Exchange) -> None:
    kind = (exchange.request.header("content-type") or "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise BadRequest("a deed takes `content-type: application/json`", 415)
