"""What is known of a run beside its records: what was asked for, and when it began and ended."""

from __future__ import annotations

from msgspec import Struct, field


class RampUp(Struct, frozen=True):
    """A request rate that grows over the run's requests."""

    strategy: str
    """`linear` or `exponential`."""
    start_rps: float
    end_rps: float


class RunFacts(Struct, kw_only=True, frozen=True):
    """What a report needs to know of a run. Saved in the journal's header, so that a recovered run reports the same."""

    run_id: str
    date: str
    """Local time at the start, `YYYYmmdd-HHMMSS`, as vLLM's result files have it."""
    version: str
    target: str
    """The endpoint's address, without secrets."""
    clock_monotonic_ns: int | None = None
    """An instant near the start, on the clock of the records …"""
    clock_realtime_ns: int | None = None
    """… and the same instant on CLOCK_REALTIME."""

    backend: str
    label: str | None = None
    model_id: str
    model_name: str | None = None
    """What requests call the model, where that differs (--served-model-name)."""
    tokenizer_id: str | None = None
    num_prompts: int
    max_model_len: int | None = None
    metadata: dict[str, str] = {}

    request_rate: float | None = None
    """Requests per second; None: no schedule, as fast as --max-concurrency lets (vLLM's `inf`)."""
    burstiness: float | None = 1.0
    """None: infinite, so that all intervals are alike."""
    max_concurrency: int | None = None
    ramp_up: RampUp | None = None
    num_warmups: int = 0
    workers: int = 1
    seeds: dict[str, int] = {}

    ignore_eos: bool = False
    streamed: bool = True
    goodput_ms: dict[str, float] = {}
    """Service level objectives: a metric's key to its bound in ms."""
    percentile_metrics: list[str] = field(default_factory=lambda: ["ttft", "tpot", "itl"])
    metric_percentiles: list[float] = field(default_factory=lambda: [99.0])
    max_failed_ratio: float = 0.01

    @property
    def has_schedule(self) -> bool:
        """Whether a request rate or a ramp-up says when each request is due; else the run is a closed loop."""
        return self.request_rate is not None or self.ramp_up is not None


class RunEnd(Struct, kw_only=True, frozen=True):
    """When the measured part of a run began and ended, and why it ended. Instants are CLOCK_MONOTONIC ns."""

    start_ns: int
    end_ns: int
    reason: str = "done"
    """`done`; `SIGINT` or `SIGTERM`; `worker lost`; or `unfinished`: the journal has no last line (recovered)."""
    num_without_result: int = 0
    """Requests of the run that left no result: never sent, or lost with what was to send them."""

    @property
    def duration_s(self) -> float:
        """The measured part's length in seconds."""
        return (self.end_ns - self.start_ns) / 1e9
