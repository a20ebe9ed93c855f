"""The configuration of one `bench serve`: made by the command line, checked once, saved with the run (no secrets)."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

from windtunnel.measure.run import RampUp
from windtunnel.wire.openai import Dialect
from windtunnel.workload.config import DatasetConfig, TokenizerConfig


class TargetConfig(Struct, kw_only=True, frozen=True):
    """Where requests go and how."""

    base_url: str | None = None
    """None: an embedded target is to be started."""
    embedded: str | None = None
    """How the embedded target is written, e.g. `engine:ranks=8` or `paced:ttft=50ms,itl=10ms`."""
    endpoint: str
    """Path of the API's endpoint, e.g. `/v1/completions`."""
    dialect: Dialect
    backend: str
    insecure: bool = False
    proxy: str | None = None
    headers: dict[str, str] = {}
    """Beside our own. Secret: only the names are saved."""
    api_key: str | None = None
    """Secret: never saved."""
    connect_timeout_s: float = 10.0
    first_token_timeout_s: float = 600.0
    stall_timeout_s: float = 120.0
    request_timeout_s: float = 21600.0
    ready_check_timeout_s: float = 0.0

    @property
    def is_paced(self) -> bool:
        """Whether it is the embedded target whose tokens are words: no tokenizer has to be looked for."""
        return self.embedded is not None and not self.embedded.startswith("engine")


class LoadConfig(Struct, kw_only=True, frozen=True):
    """How requests are let go."""

    request_rate: float | None = None
    """Per second; None: no schedule (vLLM's `inf`)."""
    burstiness: float | None = 1.0
    """Shape of the gamma distribution of intervals; None: infinite, so all are alike."""
    max_concurrency: int | None = None
    ramp_up: RampUp | None = None
    num_warmups: int = 0
    workers: int | None = None
    """None: chosen by the load."""
    retries: int = 0


class OutputConfig(Struct, kw_only=True, frozen=True):
    """What is done with the result."""

    save_result: bool = False
    save_detailed: bool = False
    append_result: bool = False
    result_dir: str | None = None
    result_filename: str | None = None
    label: str | None = None
    metadata: dict[str, str] = {}
    runs_dir: str | None = None
    progress: bool = True
    percentile_metrics: list[str] = field(default_factory=lambda: ["ttft", "tpot", "itl"])
    metric_percentiles: list[float] = field(default_factory=lambda: [99.0])
    goodput_ms: dict[str, float] = {}
    max_failed_ratio: float = 0.01

    @property
    def saved(self) -> bool:
        """A result file is wanted."""
        return self.save_result or self.append_result


class ServeConfig(Struct, kw_only=True, frozen=True):
    """All of `windtunnel bench serve`."""

    target: TargetConfig
    dataset: DatasetConfig
    tokenizer: TokenizerConfig
    load: LoadConfig
    output: OutputConfig
    model: str | None = None
    served_model_name: str | None = None
    stream: bool = True
    ignore_eos: bool = False
    logprobs: int | None = None
    extra_body: dict[str, Any] = {}
    """Sampling parameters and --extra-body, merged."""
    lora_modules: list[str] = []
    lora_assignment: str = "random"
    request_id_prefix: str
    profile: bool = False
    dry_run: bool = False
