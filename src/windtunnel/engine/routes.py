"""Which function answers which path, for both embedded targets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

import msgspec

from windtunnel.engine.bodies import BadRequest
from windtunnel.engine.server import Exchange
from windtunnel.wire.openai import error_body

STREAM_HEAD = (("content-type", "text/event-stream; charset=utf-8"), ("transfer-encoding", "chunked"))
"""Of a stream of events."""
Answer = Callable[[Exchange], None]
"""Answers a request, now or later. Raises BadRequest."""
Routes = Mapping[str, tuple[str, Answer]]
"""By path: the method that it takes (GET takes HEAD too), and who answers."""


def answer(routes: Routes, exchange: Exchange, check: Callable[[Exchange, str], None] | None = None) -> None:
    """Answer one request, with OpenAI's error object where it is refused. `check` may refuse it by its path."""
    path = urlsplit(exchange.request.target).path
    method, answer = routes.get(path, ("", None))
    try:
        if answer is None:
            raise BadRequest(f"there is no {path} here", 404)
        if exchange.request.method not in (method, "HEAD" if method == "GET" else method):
            raise BadRequest(f"{path} takes {method}, not {exchange.request.method}", 405)
        if check is not None:
            check(exchange, path)
        answer(exchange)
    except BadRequest as error:
        exchange.respond(error.status, error_body(str(error), code=error.status, param=error.param))


def answer_json(exchange: Exchange, document: object) -> None:
    """Status 200 and a document."""
    exchange.respond(200, msgspec.json.encode(document))


def answer_empty(exchange: Exchange) -> None:
    """Status 200 and nothing else."""
    exchange.respond(200, b"")
