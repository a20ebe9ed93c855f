"""Sizes of the reference model."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from windtunnel.engine.moe.arithmetic import exact_inner_size
from windtunnel.errors import EngineConfigError, did_you_mean


@dataclass(frozen=True)
class ModelConfig:
    """Sizes of a model. Raises EngineConfigError, which names the field, where they do not fit together."""

    num_layers: int
    hidden_size: int
    num_heads: int
    num_experts: int
    top_k: int
    expert_size: int
    """Inner size of an expert's two matrices."""
    shared_size: int
    """Of the expert that every token goes through; 0: there is none."""
    vocabulary_size: int
    max_context: int
    """Tokens of a prompt and its answer together, at most."""
    seed: int = 0
    """Of the weights."""

    def __post_init__(self) -> None:
        for field in fields(self):
            least = 0 if field.name in ("shared_size", "seed") else 1
            if getattr(self, field.name) < least:
                raise EngineConfigError(field.name, f"{getattr(self, field.name)}", f"Give at least {least}.")
        if self.hidden_size % (2 * self.num_heads):
            problem = f"{self.hidden_size} does not divide into {self.num_heads} heads of an even size"
            raise EngineConfigError("hidden_size", problem, "Take a multiple of twice num_heads.")
        if self.top_k > self.num_experts:
            problem = f"{self.top_k} of {self.num_experts} experts"
            raise EngineConfigError("top_k", problem, "Choose at most num_experts.")
        for name in ("hidden_size", "expert_size", "shared_size"):
            if getattr(self, name) > exact_inner_size():
                problem = f"{getattr(self, name)}: sums would no longer be exact"
                raise EngineConfigError(name, problem, f"Give at most {exact_inner_size():,}.")

    @property
    def head_size(self) -> int:
        """Of each of attention's heads."""
        return self.hidden_size // self.num_heads


CONFIGS = {
    "tiny": ModelConfig(
        num_layers=4, hidden_size=64, num_heads=4, num_experts=16, top_k=2, expert_size=64, shared_size=64,
        vocabulary_size=1024, max_context=4096,
    ),
    "small": ModelConfig(
        num_layers=8, hidden_size=256, num_heads=8, num_experts=32, top_k=4, expert_size=256, shared_size=256,
        vocabulary_size=1024, max_context=8192,
    ),
}  # fmt: skip


def config_of(name: str, sizes: dict[str, Any]) -> ModelConfig:
    """A config by its name, with other sizes where `sizes` has them."""
    if name not in CONFIGS:
        raise EngineConfigError(
            "config", f"{name!r} is none{did_you_mean(name, CONFIGS)}", f"One of {', '.join(CONFIGS)}."
        )
    known = [field.name for field in fields(ModelConfig)]
    for size in sizes:
        if size not in known:
            raise EngineConfigError(
                size, f"no size of the model{did_you_mean(size, known)}", f"One of {', '.join(known)}."
            )
    return replace(CONFIGS[name], **sizes)
