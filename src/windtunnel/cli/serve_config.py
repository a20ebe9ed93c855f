"""From the flags of `bench serve` to its configuration: every check that can be made before anything is sent."""

from __future__ import annotations

import math
import os
import re
from argparse import Namespace
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from windtunnel.cli.target import DIALECTS, target_of
from windtunnel.errors import ConfigurationError, did_you_mean
from windtunnel.loadgen.config import LoadConfig, OutputConfig, ServeConfig
from windtunnel.measure.run import RampUp
from windtunnel.workload.config import DatasetConfig, TokenizerConfig

_SAMPLING = ("top_p", "top_k", "min_p", "temperature", "frequency_penalty", "presence_penalty", "repetition_penalty")

RESULT_KEYS = (
    "date", "endpoint_type", "backend", "label", "model_id", "tokenizer_id", "num_prompts", "request_rate",
    "burstiness", "max_concurrency", "ramp_up_strategy", "ramp_up_start_rps", "ramp_up_end_rps",
    "rps_change_events", "duration", "completed", "failed", "total_input_tokens", "total_output_tokens",
    "total_input_sequences", "request_throughput", "request_goodput", "output_throughput",
    "input_sequence_throughput", "total_token_throughput", "input_lens", "output_lens", "ttfts", "itls",
    "latencies", "start_times", "queue_times", "generated_texts", "errors", "max_output_tokens_per_s",
    "max_concurrent_requests", "rtfx", "probe_completed", "probe_failed", "windtunnel", "max_model_len",
    "input_throughput",
)  # fmt: skip
"""The keys of the result file, beside those of the metrics."""
_METRIC_KEY = re.compile(r"(mean|median|std|p[0-9.]+)_\w+_ms|(spec_decode|diffusion)_\w+")


class Configured(NamedTuple):
    """A configuration, and what the user should be told about it."""

    config: ServeConfig
    notes: list[str]


def configure(values: Namespace, given: Collection[str], environ: Mapping[str, str]) -> Configured:
    """Check the flags against each other and make the configuration; raises ConfigurationError."""
    dialect = DIALECTS[values.backend]
    dataset = _dataset(values, given)
    if dataset.prompt_token_ids and dialect == "chat":
        remedy = "Give --backend openai, or leave --prompt-token-ids out."
        raise ConfigurationError("--prompt-token-ids", "chat takes messages, not token ids", remedy)
    config = ServeConfig(
        target=target_of(values, given, environ),
        dataset=dataset,
        tokenizer=_tokenizer(values),
        load=_load(values),
        output=_output(values),
        model=_not_empty("--model", values.model),
        served_model_name=_not_empty("--served-model-name", values.served_model_name),
        stream=not values.no_stream,
        ignore_eos=values.ignore_eos or values.dataset_name == "random",
        logprobs=values.logprobs,
        extra_body=_extra_body(values),
        lora_modules=values.lora_modules or [],
        lora_assignment=values.lora_assignment,
        request_id_prefix=_request_id_prefix(values.request_id_prefix),
        profile=values.profile,
        dry_run=values.dry_run,
    )
    return Configured(config, _notes(values, given))


def _dataset(values: Namespace, given: Collection[str]) -> DatasetConfig:
    name: str = values.dataset_name
    if name == "random" and values.dataset_path is not None:
        remedy = "Give --dataset-name custom (JSONL) or sharegpt for a file, or leave --dataset-path out."
        raise ConfigurationError("--dataset-path", "random prompts are made, not read from a file", remedy)
    if name != "random" and not values.dataset_path:
        raise ConfigurationError("--dataset-name", f"{name} needs a file", "Give it with --dataset-path.")
    if name == "random" and values.skip_tokenizer_init:
        remedy = "Leave --skip-tokenizer-init out, or give another dataset."
        raise ConfigurationError("--skip-tokenizer-init", "random prompts can't be made without a tokenizer", remedy)
    if name == "custom" and values.prompt_token_ids and values.skip_tokenizer_init:
        remedy = "Leave one of the two out."
        raise ConfigurationError("--skip-tokenizer-init", "--prompt-token-ids needs a tokenizer", remedy)
    input_ratio, output_ratio = _range_ratios(values.random_range_ratio)
    return DatasetConfig(
        name=name,
        path=values.dataset_path,
        num_prompts=values.num_prompts,
        seed=values.seed,
        input_len=values.random_input_len if values.input_len is None else values.input_len,
        output_len=_output_len(values),
        prefix_len=values.random_prefix_len,
        input_range_ratio=input_ratio,
        output_range_ratio=output_ratio,
        prompt_token_ids=values.prompt_token_ids,
        shuffle=not values.disable_shuffle,
        oversample=not values.no_oversample,
        skip_chat_template=values.skip_chat_template,
        chat_template_kwargs=values.chat_template_kwargs,
        max_model_len=values.max_model_len,
    )


def _output_len(values: Namespace) -> int | None:
    """--output-len wins over the dataset's own flag; None is what the dataset says (written -1)."""
    name: str = values.dataset_name
    length: int | None = values.output_len
    if length is None:
        length = getattr(values, f"{name}_output_len")
    if length != -1:
        return length
    if name == "random":
        raise ConfigurationError("--output-len", "random prompts say no length themselves", "Give a number from 1.")
    return None


def _range_ratios(value: float | dict[str, Any]) -> tuple[float, float]:
    """For prompt and answer."""
    remedy = 'It takes a number from 0 to below 1, or \'{"input": 0.3, "output": 0.5}\'.'
    if isinstance(value, dict):
        if value.keys() != {"input", "output"}:
            raise ConfigurationError("--random-range-ratio", "its keys have to be input and output", remedy)
        pair = (value["input"], value["output"])
    else:
        pair = (value, value)
    for ratio in pair:
        if isinstance(ratio, bool) or not isinstance(ratio, int | float) or not 0 <= ratio < 1:
            raise ConfigurationError("--random-range-ratio", f"{ratio} is not from 0 to below 1", remedy)
    return float(pair[0]), float(pair[1])


def _tokenizer(values: Namespace) -> TokenizerConfig:
    return TokenizerConfig(
        name=_not_empty("--tokenizer", values.tokenizer),
        mode=values.tokenizer_mode,
        trust_remote_code=values.trust_remote_code,
        skip=values.skip_tokenizer_init,
    )


def _load(values: Namespace) -> LoadConfig:
    return LoadConfig(
        request_rate=None if math.isinf(values.request_rate) else values.request_rate,
        burstiness=None if math.isinf(values.burstiness) else values.burstiness,
        max_concurrency=values.max_concurrency,
        ramp_up=_ramp_up(values),
        num_warmups=values.num_warmups,
        workers=values.workers,
        retries=values.retries,
    )


def _ramp_up(values: Namespace) -> RampUp | None:
    strategy: str | None = values.ramp_up_strategy
    start: float | None = values.ramp_up_start_rps
    end: float | None = values.ramp_up_end_rps
    if strategy is None:
        return None
    if not math.isinf(values.request_rate):
        remedy = "Leave one of them out: a ramp says the rate itself."
        raise ConfigurationError("--request-rate", "does not go with --ramp-up-strategy", remedy)
    if start is None or end is None:
        missing = "--ramp-up-start-rps" if start is None else "--ramp-up-end-rps"
        raise ConfigurationError("--ramp-up-strategy", f"needs {missing}", f"Give {missing} too.")
    if start > end:
        remedy = f"A ramp goes up: --ramp-up-start-rps {end:g} --ramp-up-end-rps {start:g}."
        raise ConfigurationError("--ramp-up-start-rps", f"{start:g} is above --ramp-up-end-rps {end:g}", remedy)
    if start == 0:
        remedy = "Start above 0, e.g. --ramp-up-start-rps 1."
        raise ConfigurationError("--ramp-up-start-rps", "at a rate of 0 the first request is never due", remedy)
    return RampUp(strategy, start, end)


def _output(values: Namespace) -> OutputConfig:
    return OutputConfig(
        save_result=values.save_result,
        save_detailed=values.save_detailed,
        append_result=values.append_result,
        result_dir=values.result_dir or None,
        result_filename=values.result_filename or None,
        label=values.label or None,
        metadata=_metadata(values.metadata or []),
        runs_dir=values.runs_dir or None,
        progress=not values.disable_tqdm,
        percentile_metrics=_percentile_metrics(values.percentile_metrics),
        metric_percentiles=_percentiles(values.metric_percentiles),
        goodput_ms=_goodput(values.goodput or []),
        max_failed_ratio=values.max_failed_ratio,
    )


def _metadata(items: list[str]) -> dict[str, str]:
    metadata = {}
    for item in items:
        key, equals, value = (part.strip() for part in item.partition("="))
        if not equals or not key:
            remedy = "Write KEY=VALUE, e.g. --metadata version=0.33 tp=2."
            raise ConfigurationError("--metadata", f"{item!r} is not KEY=VALUE", remedy)
        if key in RESULT_KEYS or _METRIC_KEY.fullmatch(key):
            remedy = f"Give it another name, e.g. my_{key}={value}."
            raise ConfigurationError("--metadata", f"{key} is a key of the result itself", remedy)
        metadata[key] = value
    return metadata


def _percentile_metrics(text: str | None) -> list[str]:
    if text is None:
        return ["ttft", "tpot", "itl"]
    from windtunnel.measure.metrics import METRICS  # brings numpy

    names = _split(text)
    for name in names:
        if name not in METRICS:
            problem = f"{name!r} is not a metric{did_you_mean(name, METRICS)}"
            raise ConfigurationError("--percentile-metrics", problem, f"There are: {', '.join(METRICS)}.")
    return names


def _percentiles(text: str) -> list[float]:
    remedy = "Write percentiles from 0 to 100 with commas between: --metric-percentiles 50,90,99.9"
    percentiles = []
    for part in _split(text):
        try:
            value = float(part)
        except ValueError:
            raise ConfigurationError("--metric-percentiles", f"{part!r} is not a number", remedy) from None
        if not 0 <= value <= 100:
            raise ConfigurationError("--metric-percentiles", f"{part} is not from 0 to 100", remedy)
        percentiles.append(value)
    return percentiles


def _split(text: str) -> list[str]:
    """Each part once, in the order given."""
    return list(dict.fromkeys(part.strip() for part in text.split(",")))


def _goodput(items: list[str]) -> dict[str, float]:
    if not items:
        return {}
    from windtunnel.measure.metrics import GOODPUT_KEYS  # brings numpy

    bounds = {}
    for item in items:
        key, _, text = item.partition(":")
        remedy = "Write METRIC:MILLISECONDS, e.g. --goodput ttft:200 e2el:5000."
        if key not in GOODPUT_KEYS:
            problem = f"{key!r} is not a metric of single requests{did_you_mean(key, GOODPUT_KEYS)}"
            raise ConfigurationError("--goodput", problem, f"There are: {', '.join(GOODPUT_KEYS)}.")
        try:
            bounds[key] = float(text)
        except ValueError:
            raise ConfigurationError("--goodput", f"{item!r} has no number of milliseconds", remedy) from None
        if not 0 <= bounds[key] < math.inf:
            raise ConfigurationError("--goodput", f"{item!r} has no finite bound from 0", remedy)
    return bounds


def _extra_body(values: Namespace) -> dict[str, Any]:
    """Sampling parameters, with --extra-body laid over them, as vLLM has it."""
    sampling = {key: getattr(values, key) for key in _SAMPLING if getattr(values, key) is not None}
    extra: dict[str, Any] = values.extra_body or {}
    if "stream" in extra:
        raise ConfigurationError("--extra-body", "stream is not set here", "Give --no-stream, or leave it out.")
    return sampling | extra


def _request_id_prefix(prefix: str | None) -> str:
    if prefix is None:
        return f"bench-{os.urandom(4).hex()}-"
    if not prefix.isascii() or not prefix.isprintable() or prefix != prefix.strip():
        remedy = "It goes into a header: give printable ASCII, without spaces at its ends."
        raise ConfigurationError("--request-id-prefix", f"{prefix!r} can't begin a request's id", remedy)
    return prefix


def _not_empty(flag: str, value: str | None) -> str | None:
    if value is not None and not value.strip():
        raise ConfigurationError(flag, "is empty", "Give a name, or leave the flag out.")
    return value


def _notes(values: Namespace, given: Collection[str]) -> list[str]:
    """What was asked for and has no effect: vLLM's clients say nothing about it."""
    idle: list[tuple[str, str]] = []
    if not values.save_result and not values.append_result:
        idle += [
            (key, "--save-result or --append-result") for key in ("save_detailed", "result_dir", "result_filename")
        ]
    if values.ramp_up_strategy is None:
        idle += [(key, "--ramp-up-strategy") for key in ("ramp_up_start_rps", "ramp_up_end_rps")]
    return [f"--{key.replace('_', '-')} has no effect without {need}" for key, need in idle if key in given]
