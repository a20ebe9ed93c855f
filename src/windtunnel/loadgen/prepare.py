"""All that happens before the first request of the load: the endpoint, the model, the tokenizer, the prompts."""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct

from windtunnel import errors
from windtunnel.clock import monotonic_ns
from windtunnel.loadgen.caller import Caller
from windtunnel.loadgen.config import ServeConfig
from windtunnel.loadgen.network import Network, reachable_first, resolve
from windtunnel.units import NS_PER_S
from windtunnel.wire.control import Address, Work
from windtunnel.wire.http1 import Url, parse_url
from windtunnel.wire.openai import request_body
from windtunnel.workload.arrivals import arrival_offsets_ns
from windtunnel.workload.sample import Sample
from windtunnel.workload.seeds import ARRIVALS, LORA, generator
from windtunnel.workload.tokenizer.base import Tokenizer
from windtunnel.workload.tokenizer.load import load_tokenizer

_Model = tuple[str, str, str | None, int | None]
_VERIFIED_PROMPTS = 10
_CALL_TIMEOUT_S = 30.0
_RETRY_INTERVAL_S = 1.0
_TOKENIZE_TRIES = 3

Notify = Callable[[str], None]
"""Takes a line for the user."""


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
            raise errors.EndpointNotReady(str(url), waited_s, problem.message)
        notify(f"waiting for {url}, {timeout_s - waited_s:.0f} s left: {problem.message}")
        time.sleep(min(_RETRY_INTERVAL_S, max(0.0, timeout_s - waited_s)))


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
            models[:] = _models(caller.get_json(url.target, timeout_s=_CALL_TIMEOUT_S))
        except errors.RequestFailure as failure:
            return failure
        return None

    if config.model is None:
        wait_until_ready(probe, url, config.target.ready_check_timeout_s, notify)
        if not models:
            raise errors.EndpointNotReady(str(url), 0.0, "it lists no model: give its name with --model")
    elif config.tokenizer.name is None and not config.tokenizer.skip and config.target.embedded is None:
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


# --- tokenizer --------------------------------------------------------------------------------------------------


def find_tokenizer(config: ServeConfig, target: Target, caller: Caller, notify: Notify) -> Tokenizer | None:
    """The tokenizer that the user named, or the model's, or the server's own over /tokenize."""
    settings = config.tokenizer
    if settings.skip:
        return None

    def post(path: str, body: dict[str, Any]) -> tuple[int, Any]:
        return caller.post_json(
            target.base_path + path, {"model": target.model_name, **body}, timeout_s=_CALL_TIMEOUT_S
        )

    def load(name: str) -> Tokenizer:
        trust = settings.trust_remote_code
        return load_tokenizer(name, mode=settings.mode, trust_remote_code=trust, post=post, model=target.model_name)

    if settings.name is not None:
        return load(settings.name)
    if config.target.embedded is not None:
        return load("windtunnel-words")
    root = target.root if target.root is not None and os.path.isdir(target.root) else None
    reason = ""
    for name in dict.fromkeys(name for name in (root, target.model_id) if name):
        try:
            return load(name)
        except errors.WindtunnelError as error:
            reason = error.message
    try:
        tokenizer = load("server")
        tokenizer.count("a")
    except errors.WindtunnelError:
        raise errors.TokenizerError(
            target.model_id,
            f"none was found for this model ({reason})",
            "Name one with --tokenizer (folder, tokenizer.json, a hub's name), or do without: --skip-tokenizer-init",
        ) from None
    notify("no tokenizer of the model's is at hand: the server's /tokenize and /detokenize are used")
    return tokenizer


def template_tokens(
    config: ServeConfig, target: Target, tokenizer: Tokenizer | None, caller: Caller, notify: Notify
) -> int:
    """How many tokens the server's chat template adds to a prompt: `random` makes room for them, others count them."""
    if config.target.dialect != "chat" or tokenizer is None:
        return 0
    text = "hello"
    try:
        status, whole = caller.post_json(
            target.base_path + "/tokenize",
            {"model": target.model_name, "messages": [{"role": "user", "content": text}]},
            timeout_s=_CALL_TIMEOUT_S,
        )
    except errors.RequestFailure:
        return 0
    if status != 200 or not isinstance(whole, dict) or not isinstance(whole.get("count"), int):
        notify("how many tokens the chat template adds is unknown (no /tokenize): prompts will be longer by them")
        return 0
    added = max(0, int(whole["count"]) - len(tokenizer.encode(text)))
    if added and config.dataset.name == "random":
        notify(f"the chat template adds {added} tokens: prompts are made that much shorter, so that its count is right")
    return added


def verify_prompts(
    samples: list[Sample], config: ServeConfig, target: Target, tokenizer: Tokenizer, caller: Caller, notify: Notify
) -> None:
    """Let the server count ten prompts; say so when it can't or counts otherwise.

    Raises errors.HttpStatus when /tokenize goes on answering with a 5xx.
    """
    texts = [sample for sample in samples if isinstance(sample.prompt, str)]
    step = max(1, len(texts) // _VERIFIED_PROMPTS)
    checked = texts[::step][:_VERIFIED_PROMPTS]
    wrong: list[tuple[int, int]] = []
    for sample in checked:
        count = _server_count(sample, config, target, caller, notify)
        if count is None:
            return
        if count != sample.prompt_tokens:
            wrong.append((sample.prompt_tokens, count))
    if wrong:
        expected, counted = wrong[0]
        error = errors.TokenCountMismatch(tokenizer.name, len(checked), len(wrong), expected, counted)
        notify(f"warning: {error.message}. {error.advice}")


def _server_count(sample: Sample, config: ServeConfig, target: Target, caller: Caller, notify: Notify) -> int | None:
    body: dict[str, Any] = {"model": target.model_name}
    if config.target.dialect == "chat":
        body["messages"] = [{"role": "user", "content": sample.prompt}]
    else:
        body["prompt"] = sample.prompt
    for attempt in range(_TOKENIZE_TRIES):
        try:
            status, answer = caller.post_json(target.base_path + "/tokenize", body, timeout_s=_CALL_TIMEOUT_S)
        except errors.RequestFailure as failure:
            notify(f"warning: prompts are not verified: {failure.message}")
            return None
        if status < 500:
            break
        time.sleep(0.2 * 2**attempt)
    else:
        raise errors.HttpStatus(status, "from /tokenize, three times", str(answer)[:200])
    count = answer.get("count") if isinstance(answer, dict) else None
    if status != 200 or not isinstance(count, int):
        unavailable = errors.TokenizeUnavailable(f"{target.url.origin}/tokenize", f"HTTP {status}")
        notify(f"warning: {unavailable.message}. {unavailable.advice}")
        return None
    return count


# --- what is sent -----------------------------------------------------------------------------------------------


def schedule(config: ServeConfig, num: int) -> list[int]:
    """When each request is due, in ns after the start; all 0 in a closed loop."""
    load = config.load
    if load.request_rate is None and load.ramp_up is None:
        return [0] * num
    rng = generator(config.dataset.seed, ARRIVALS)
    burstiness = math.inf if load.burstiness is None else load.burstiness
    offsets = arrival_offsets_ns(num, load.request_rate, burstiness, load.ramp_up, rng)
    return [int(offset) for offset in offsets]


def make_work(config: ServeConfig, target: Target, samples: list[Sample], due_ns: list[int]) -> list[Work]:
    """Each sample as the bytes that are sent."""
    modules = config.lora_modules
    rng = generator(config.dataset.seed, LORA)
    work: list[Work] = []
    for index, (sample, due) in enumerate(zip(samples, due_ns, strict=True)):
        model = target.model_name
        if modules:
            model = modules[
                index % len(modules) if config.lora_assignment == "round-robin" else int(rng.integers(len(modules)))
            ]
        body = request_body(
            config.target.dialect,
            model,
            sample.prompt,
            sample.output_tokens,
            stream=config.stream,
            ignore_eos=config.ignore_eos,
            logprobs=config.logprobs,
            extra=config.extra_body,
        )
        work.append(
            Work(
                index,
                f"{config.request_id_prefix}{index}",
                body,
                due,
                sample.prompt_tokens,
                sample.output_tokens,
                model if modules else None,
            )
        )
    return work


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


def redact(config: ServeConfig) -> dict[str, Any]:
    """The configuration as it is saved: names of headers, no key, no password."""
    document: dict[str, Any] = msgspec.to_builtins(config)
    target = document["target"]
    target["headers"] = dict.fromkeys(target["headers"], "…")
    if target["embedded"]:
        target["embedded"] = re.sub(r"\bkey=[^,]*", "key=…", target["embedded"])
    target["api_key"] = "…" if target["api_key"] else None
    target["endpoint"] = target["endpoint"].partition("?")[0]
    for name in ("base_url", "proxy"):
        if target[name]:
            target[name] = str(parse_url(target[name])).rstrip("/")
    return document
