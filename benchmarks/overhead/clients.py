"""The clients that are compared: how each is called, and which version it is."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from overhead.ground_truth import MODEL

OURS = "windtunnel"
PEER = "vllm-rs"


class Client(NamedTuple):
    """A program with vLLM's flags."""

    name: str
    program: Path
    flags: tuple[str, ...] = ()
    """Its own, beside those that every client gets."""


class Load(NamedTuple):
    """What a run sends."""

    concurrency: int
    num_prompts: int
    input_tokens: int
    output_tokens: int


def bench_command(client: Client, *, base_url: str, tokenizer: Path, load: Load, seed: int, result: Path) -> list[str]:
    """The client's command line: the same flags for all, but for its own."""
    return [
        str(client.program), "bench", "serve",
        "--base-url", base_url,
        "--model", MODEL,
        "--tokenizer", str(tokenizer),
        "--num-prompts", str(load.num_prompts),
        "--max-concurrency", str(load.concurrency),
        "--random-input-len", str(load.input_tokens),
        "--random-output-len", str(load.output_tokens),
        "--seed", str(seed),
        "--ignore-eos",
        "--save-result", "--save-detailed",
        "--result-dir", str(result.parent),
        "--result-filename", result.name,
        "--disable-tqdm",
        *client.flags,
    ]  # fmt: skip


def environment(folder: Path) -> Mapping[str, str]:
    """Ours, with places for state and caches in `folder`, so that a run neither finds nor leaves anything."""
    return os.environ | {"XDG_STATE_HOME": str(folder / "state"), "XDG_CACHE_HOME": str(folder / "cache")}


def version(client: Client) -> str:
    """What it says of itself."""
    said = subprocess.run([client.program, "--version"], capture_output=True, text=True, check=True).stdout
    return said.strip().removeprefix(f"{client.name} ").strip()


def windtunnel_beside(python: str) -> Path:
    """The `windtunnel` of the environment that this Python belongs to."""
    return Path(python).with_name("windtunnel")
