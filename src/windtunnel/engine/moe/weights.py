"""Weights of the reference model: integers from a seed, kept in safetensors files.

Each tensor has a generator of its own, seeded by the model's seed and the tensor's name, so no tensor depends on the
order in which they are made. Experts stand in a file for each layer, where `windtunnel.eplb` finds them when no rank
has one any more.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any
from zlib import crc32

import msgspec
import numpy as np
from numpy.typing import NDArray

from windtunnel.engine.moe.arithmetic import MOST_WEIGHT
from windtunnel.engine.moe.config import ModelConfig
from windtunnel.engine.moe.tokenizer import write_tokenizer

FORMAT = 2
"""Of the files and of how weights are made. Another one is another folder."""

EXPERT_TENSORS = ("up", "down")
"""[hidden, 2 · expert size] (gate and up side by side) and [expert size, hidden], int8."""


def expert_shapes(config: ModelConfig) -> tuple[tuple[int, int], tuple[int, int]]:
    """Of the tensors of one expert."""
    return (config.hidden_size, 2 * config.expert_size), (config.expert_size, config.hidden_size)


def expert_name(layer: int, expert: int, tensor: str) -> str:
    """Of a tensor in the files."""
    return f"layers.{layer}.experts.{expert}.{tensor}"


def tensor(config: ModelConfig, name: str, shape: tuple[int, ...], most: int = MOST_WEIGHT) -> NDArray[np.int8]:
    """Integers within ±most, as likely one as the other."""
    rng = np.random.default_rng([config.seed, crc32(name.encode())])
    return rng.integers(-most, most, shape, np.int8, endpoint=True)


def expert_tensors(config: ModelConfig, layer: int, expert: int) -> dict[str, NDArray[np.int8]]:
    """The tensors of one expert by their names in the files."""
    names = [expert_name(layer, expert, part) for part in EXPERT_TENSORS]
    return {name: tensor(config, name, shape) for name, shape in zip(names, expert_shapes(config), strict=True)}


def dense_tensors(config: ModelConfig) -> dict[str, NDArray[Any]]:
    """All that is no routed expert, by name."""
    hidden, shared = config.hidden_size, config.shared_size
    made: dict[str, NDArray[Any]] = {"embedding": tensor(config, "embedding", (config.vocabulary_size, hidden), 127)}
    shapes = {"qkv": (hidden, 3 * hidden), "out": (hidden, hidden), "router": (hidden, config.num_experts)}
    if shared:
        shapes |= {"shared.up": (hidden, 2 * shared), "shared.down": (shared, hidden)}
    for layer in range(config.num_layers):
        for part, shape in shapes.items():
            name = f"layers.{layer}.{part}"
            made[name] = tensor(config, name, shape)
        # some experts are called for more than others, as in models that were trained
        name = f"layers.{layer}.router_bias"
        rng = np.random.default_rng([config.seed, crc32(name.encode())])
        made[name] = np.rint(400 * np.sqrt(hidden / 64) * rng.standard_normal(config.num_experts)).astype(np.int32)
    made["head"] = tensor(config, "head", (hidden, config.vocabulary_size))
    return made


def write_model(config: ModelConfig, folder: Path) -> Path:
    """Make the model's files in a folder of `folder` that is named by its sizes, unless they are there; that folder.

    It appears whole or not at all, whoever else makes it at the same time.
    """
    from safetensors.numpy import save_file

    sizes = msgspec.json.encode({"format": FORMAT, **asdict(config)})
    place = folder / f"moe-{crc32(sizes):08x}"
    if (place / "config.json").exists():
        return place
    folder.mkdir(parents=True, exist_ok=True)
    making = Path(tempfile.mkdtemp(prefix=".making-", dir=folder))
    save_file(dense_tensors(config), making / "model.safetensors")
    for layer in range(config.num_layers):
        experts: dict[str, NDArray[np.int8]] = {}
        for expert in range(config.num_experts):
            experts |= expert_tensors(config, layer, expert)
        save_file(experts, making / f"experts-{layer}.safetensors")
    write_tokenizer(config.vocabulary_size, making)
    (making / "config.json").write_bytes(msgspec.json.format(sizes, indent=2))
    try:
        os.rename(making, place)
    except OSError:  # somebody else was faster
        shutil.rmtree(making)
        if not (place / "config.json").exists():
            raise
    return place


def read_dense(folder: Path) -> dict[str, NDArray[np.float32]]:
    """What `dense_tensors` made, as the numbers that are computed with."""
    from safetensors.numpy import load_file

    return {name: values.astype(np.float32) for name, values in load_file(folder / "model.safetensors").items()}
