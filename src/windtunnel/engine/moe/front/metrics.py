"""What the engine's front tells Prometheus: vLLM's names where they exist. eplb's metrics stand beside them.

`METRICS` is the one definition: the collectors are made from it, and so is the reference.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from windtunnel.engine.moe.core import Engine
from windtunnel.units import NS_PER_S

_LATENCIES = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80)
_LENGTHS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000)
REASONS = ("stop", "length", "abort", "error")


class Metric(NamedTuple):
    """One metric as Prometheus sees it; samples of a counter end in `_total`."""

    name: str
    kind: Literal["gauge", "counter", "histogram"]
    doc: str
    label: str = ""
    """Beside `model_name`; empty: there is none."""
    buckets: tuple[float, ...] = _LATENCIES


METRICS = (
    Metric("vllm:num_requests_running", "gauge", "Generations that go through each step."),
    Metric("vllm:num_requests_waiting", "gauge", "Generations that have no room yet."),
    Metric("vllm:kv_cache_usage_perc", "gauge", "Share of the KV cache's blocks that are in use: 1 is all."),
    Metric("vllm:num_preemptions", "counter", "Generations that gave up their blocks and waited again."),
    Metric("vllm:prompt_tokens", "counter", "Tokens of prompts, of generations that have ended."),
    Metric("vllm:generation_tokens", "counter", "Tokens that were answered."),
    Metric("vllm:prefix_cache_queries", "counter", "Tokens of prompts that were looked up in the prefix cache."),
    Metric("vllm:prefix_cache_hits", "counter", "Tokens of prompts that were found there."),
    Metric("vllm:request_success", "counter", "Generations that have ended, by how.", "finished_reason"),
    Metric("vllm:time_to_first_token_seconds", "histogram", "From a request's last byte to an answer's first token."),
    Metric("vllm:inter_token_latency_seconds", "histogram", "From a token to the next."),
    Metric("vllm:e2e_request_latency_seconds", "histogram", "From a request's last byte to an answer's last token."),
    Metric("vllm:request_prompt_tokens", "histogram", "Tokens of a prompt.", buckets=_LENGTHS),
    Metric("vllm:request_generation_tokens", "histogram", "Tokens of an answer.", buckets=_LENGTHS),
    Metric("windtunnel:engine_steps", "counter", "Steps: each computes tokens of all generations that run."),
    Metric("windtunnel:engine_retried_pairs", "counter",
           "Pairs of a token and an expert that were sent again: their rank died, hung or had moved on."),
)  # fmt: skip


class FrontMetrics:
    """Collectors in a registry, and a method for each fact. For the front's thread."""

    def __init__(self, registry: CollectorRegistry, model: str) -> None:
        self._registry = registry
        self._model = model
        self._collectors = {metric.name: _make(metric, registry, model) for metric in METRICS}
        for reason in REASONS:
            self._collectors["vllm:request_success"].labels(model, reason)
        self._seen: dict[str, int] = {}

    def first_token(self, after_ns: int) -> None:
        """A generation's first token has come."""
        self._collectors["vllm:time_to_first_token_seconds"].observe(after_ns / NS_PER_S)

    def next_token(self, after_ns: int) -> None:
        """A further one."""
        self._collectors["vllm:inter_token_latency_seconds"].observe(after_ns / NS_PER_S)

    def ended(self, reason: str, prompt: int, cached: int, answer: int, after_ns: int) -> None:
        """A generation has ended: with tokens of its prompt, of those that were cached, and of its answer."""
        count = self._collectors
        count["vllm:request_success"].labels(self._model, reason).inc()
        count["vllm:prompt_tokens"].inc(prompt)
        count["vllm:prefix_cache_queries"].inc(prompt)
        count["vllm:prefix_cache_hits"].inc(cached)
        count["vllm:generation_tokens"].inc(answer)
        count["vllm:request_prompt_tokens"].observe(prompt)
        count["vllm:request_generation_tokens"].observe(answer)
        count["vllm:e2e_request_latency_seconds"].observe(after_ns / NS_PER_S)

    def exposed(self, engine: Engine) -> bytes:
        """All metrics, as Prometheus reads them."""
        cache = engine.scheduler.cache
        self._collectors["vllm:num_requests_running"].set(engine.num_running)
        self._collectors["vllm:num_requests_waiting"].set(engine.num_waiting)
        self._collectors["vllm:kv_cache_usage_perc"].set(1 - cache.num_available / cache.num_blocks)
        self._count_up("vllm:num_preemptions", engine.scheduler.num_preempted)
        self._count_up("windtunnel:engine_steps", engine.num_steps)
        self._count_up("windtunnel:engine_retried_pairs", engine.num_retried)
        return generate_latest(self._registry)

    def _count_up(self, name: str, value: int) -> None:
        self._collectors[name].inc(value - self._seen.get(name, 0))
        self._seen[name] = value


def _make(metric: Metric, registry: CollectorRegistry, model: str) -> Any:
    labels = ["model_name", *filter(None, [metric.label])]
    if metric.kind == "histogram":
        collector: Any = Histogram(metric.name, metric.doc, labels, registry=registry, buckets=metric.buckets)
    else:
        kinds: dict[str, Any] = {"gauge": Gauge, "counter": Counter}
        collector = kinds[metric.kind](metric.name, metric.doc, labels, registry=registry)
    return collector if metric.label else collector.labels(model)
