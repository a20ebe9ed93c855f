"""Finds the endpoint: its address, whether it is ready, and its model."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from windtunnel import errors
from windtunnel.clock import monotonic_ns
from windtunnel.loadgen.caller import Caller
from windtunnel.loadgen.config import ServeConfig
from windtunnel.loadgen.network import Network, reachable_first, resolve
from windtunnel.loadgen.watcher import Notify
from windtunnel.units import NS_PER_S
from windtunnel.wire.control import Address, Work
from windtunnel.wire.http1 import Url, parse_url

CALL_TIMEOUT_S = 30.0
_RETRY_INTERVAL_S = 1.0
_Model = tuple[str, str, str | None, int | None]


class Target(Struct):
    """The endpoint, found."""

    url: Url
    base_path: str
    """What stands before `/v1/models` and `/tokenize` in the server's paths; mostly nothing."""
    addresses: list[Address]
    headers: list[tuple[str, str]]
    model_id: str
    """What results call the model (vLLM's `root` where the server named it)."""
    model_name: str
    """What requests call it."""
    root: str | None
    """Where the server says that the model lies."""
    max_model_len: int | None = None
    """As far as the server was asked and says it."""


def request_headers(config: ServeConfig) -> list[tuple[str, str]]:
    """The key, and what the user added; the latter wins."""
    headers = dict[str, str]()
    if config.target.api_key:
        headers["authorization"] = f"Bearer {config.target.api_key}"
    for name, value in config.target.headers.items():
        headers[name.lower()] = value
    return list(headers.items())


def find_addresses(url: Url, config: ServeConfig, notify: Notify) -> list[Address]:
    """Resolve the host; of several addresses put the first that answers in front, and say which.

    A host that can't be found is an error at once. One that does not answer is not: requests will say so.
    """
    origin = url.origin
    if config.target.proxy is not None:
        return resolve(parse_url(config.target.proxy).origin)
    addresses = resolve(origin)
    if len(addresses) > 1:
        addresses = reachable_first(addresses, min(2.0, config.target.connect_timeout_s))
        others = ", ".join(address.host for address in addresses[1:])
        notify(f"{origin.host} is {addresses[0].host} here (also known: {others})")
    return addresses


def wait_until_ready(
    probe: Callable[[], errors.WindtunnelError | None], url: Url, timeout_s: float, notify: Notify
) -> None:
    """Probe until it succeeds; raises errors.EndpointNotReady with the last reason when the time is over."""
    start_ns = monotonic_ns()
    while (problem := probe()) is not None:
        waited_s = (monotonic_ns() - start_ns) / NS_PER_S
        if waited_s >= timeout_s:
            not_ready = errors.EndpointNotReady(str(url), waited_s, problem.message)
            raise not_ready if _may_pass(problem) else dataclasses.replace(not_ready, remedy=problem.advice)
        notify(f"waiting for {url}, {timeout_s - waited_s:.0f} s left: {problem.message}")
        time.sleep(min(_RETRY_INTERVAL_S, max(0.0, timeout_s - waited_s)))


def _may_pass(problem: errors.WindtunnelError) -> bool:
    """Waiting may help: nothing listens yet, or it does not answer yet."""
    if isinstance(problem, errors.ConnectFailed):
        return problem.phase in ("refused", "reset", "unreachable")
    return isinstance(problem, errors.TimedOut) or (isinstance(problem, errors.HttpStatus) and problem.status == 503)


def find_target(config: ServeConfig, base_url: str, notify: Notify) -> tuple[Target, Caller]:
    """Find the endpoint and the model; the caller is open, for more calls."""
    url = parse_url(base_url.rstrip("/") + config.target.endpoint)
    headers = request_headers(config)
    addresses = find_addresses(url, config, notify)
    network = Network(
        url, headers, insecure=config.target.insecure, proxy=config.target.proxy, addresses=list(addresses)
    )
    caller = Caller(network, config.target.connect_timeout_s)
    try:
        base_path = parse_url(base_url.rstrip("/") + "/").target.rstrip("/")
        models = Url(url.origin, base_path + "/v1/models")
        return Target(url, base_path, addresses, headers, *find_model(config, models, caller, notify)), caller
    except BaseException:
        caller.close()
        raise


def find_model(config: ServeConfig, url: Url, caller: Caller, notify: Notify) -> _Model:
    """(what results call the model, what requests call it, where the server says that it lies, its longest context).

    Without --model the server's first one is taken; raises errors.EndpointNotReady when it names none.
    """
    models: list[dict[str, Any]] = []

    def probe() -> errors.WindtunnelError | None:
        try:
            models[:] = _models(caller.get_json(url.target, timeout_s=CALL_TIMEOUT_S))
        except errors.RequestFailure as failure:
            return failure
        return None

    if config.model is None:
        wait_until_ready(probe, url, config.target.ready_check_timeout_s, notify)
        if not models:
            raise errors.EndpointNotReady(str(url), 0.0, "it lists no model: give its name with --model")
    elif config.tokenizer.name is None and not config.tokenizer.skip and not config.target.is_paced:
        probe()  # only to learn where the model's tokenizer may be: it need not succeed
    wanted = config.served_model_name or config.model
    entry = next((m for m in models if wanted is None or m["id"] == wanted), {})
    if models and not entry:
        served = ", ".join(m["id"] for m in models[:5])
        notify(f"warning: the server lists no model {wanted}; it has: {served}")
    root = entry.get("root") if isinstance(entry.get("root"), str) else None
    name = config.served_model_name or config.model or str(entry["id"])
    length = entry.get("max_model_len")
    return config.model or root or name, name, root, length if isinstance(length, int) else None


def _models(document: Any) -> list[dict[str, Any]]:
    data = document.get("data") if isinstance(document, dict) else None
    if not isinstance(data, list):
        raise errors.MalformedResponse("schema", "response", 0, "no list `data` of models", repr(str(document)[:120]))
    return [entry for entry in data if isinstance(entry, dict) and isinstance(entry.get("id"), str)]


def check_ready(config: ServeConfig, target: Target, caller: Caller, first: Work, notify: Notify) -> None:
    """Send the first request until it succeeds, for --ready-check-timeout-sec; 0 skips it, as in vLLM's client."""
    timeout_s = config.target.ready_check_timeout_s
    if timeout_s <= 0:
        return

    def probe() -> errors.WindtunnelError | None:
        exchange = caller.call(
            "POST",
            target.url.target,
            first.body,
            timeout_s=min(timeout_s, config.target.first_token_timeout_s),
            dialect=config.target.dialect,
            streamed=config.stream,
        )
        exchange.settle()
        return exchange.failure

    wait_until_ready(probe, target.url, timeout_s, notify)
