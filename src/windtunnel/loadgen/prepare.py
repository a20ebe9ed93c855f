"""What a run sends, made before its first request: tokenizer, verified prompts, schedule, request bytes."""

from __future__ import annotations

import math
import os
import time
from typing import Any

from windtunnel import errors
from windtunnel.loadgen.caller import Caller
from windtunnel.loadgen.config import ServeConfig
from windtunnel.loadgen.target import CALL_TIMEOUT_S, Target
from windtunnel.loadgen.watcher import Notify
from windtunnel.wire.control import Work
from windtunnel.wire.openai import request_body
from windtunnel.workload.arrivals import arrival_offsets_ns
from windtunnel.workload.sample import Sample
from windtunnel.workload.seeds import ARRIVALS, LORA, generator
from windtunnel.workload.tokenizer.base import Tokenizer
from windtunnel.workload.tokenizer.load import load_tokenizer

_VERIFIED_PROMPTS = 10
_TOKENIZE_TRIES = 3

# --- tokenizer --------------------------------------------------------------------------------------------------


def find_tokenizer(config: ServeConfig, target: Target, caller: Caller, notify: Notify) -> Tokenizer | None:
    """The tokenizer that the user named, or the model's, or the server's own over /tokenize."""
    settings = config.tokenizer
    if settings.skip:
        return None

    def post(path: str, body: dict[str, Any]) -> tuple[int, Any]:
        return caller.post_json(target.base_path + path, {"model": target.model_name, **body}, timeout_s=CALL_TIMEOUT_S)

    def load(name: str) -> Tokenizer:
        trust = settings.trust_remote_code
        return load_tokenizer(name, mode=settings.mode, trust_remote_code=trust, post=post, model=target.model_name)

    if settings.name is not None:
        return load(settings.name)
    if config.target.is_paced:
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
            timeout_s=CALL_TIMEOUT_S,
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
            status, answer = caller.post_json(target.base_path + "/tokenize", body, timeout_s=CALL_TIMEOUT_S)
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
