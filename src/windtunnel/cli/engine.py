"""`windtunnel engine`: the reference mixture-of-experts server."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from windtunnel.cli.console import tell_note
from windtunnel.cli.flags import OURS, Flag
from windtunnel.cli.listening import is_loopback, listening_flags
from windtunnel.cli.packages import require_packages
from windtunnel.cli.parser import CommandParser
from windtunnel.cli.values import COUNT, NAME, PATH, SHARE, SWITCH, TEXT, WAIT
from windtunnel.errors import ConfigurationError

if TYPE_CHECKING:
    from windtunnel.engine.moe.core import EngineConfig
    from windtunnel.engine.moe.front.serve import FrontConfig

_SUMMARY = """\
Serve a small mixture-of-experts model with random weights, whose experts live in rank processes and are balanced while
it serves. Its address stands on standard output when it is ready. SIGTERM or Ctrl-C lets requests end; a second one
ends at once. The front's process is the one part whose death ends service.

  windtunnel engine --port 8000
  windtunnel engine --ranks 8 --slots-per-rank 4 --restart --admin

Defaults stand in [brackets]."""

GROUPS = {
    "model": "its sizes; weights are made from a seed",
    "ranks": "the processes that hold the experts",
    "requests": "how many, and how they share a step",
    "front": "where it is served",
}
_MODEL, _RANKS, _REQUESTS, _FRONT = GROUPS
_SIZES = {
    "num_layers": "Decoder layers.",
    "hidden_size": "Width of activations.",
    "num_heads": "Heads of attention.",
    "num_experts": "Experts of a layer.",
    "top_k": "Experts that a token goes through in a layer.",
    "expert_size": "Inner width of an expert.",
    "shared_size": "Inner width of the expert that all tokens go through; 0: there is none.",
    "vocabulary_size": "Tokens that there are.",
    "max_context": "Tokens of a prompt and its answer together, at most.",
    "seed": "Of the weights.",
}


def _flag_name(key: str) -> str:
    return f"--{key.replace('_', '-')}"


_FLAGS = (
    Flag("--config", _MODEL, NAME, "tiny", "The sizes to begin with; the flags below change them.", OURS,
         choices=("tiny", "small")),
    *(Flag(_flag_name(key), _MODEL, COUNT, None, f"{doc} Without it: the config's.", OURS)
      for key, doc in _SIZES.items()),
    Flag("--models-folder", _MODEL, PATH, None,
         "Where models' files are kept. Without it: $XDG_CACHE_HOME/windtunnel/models.", OURS),
    Flag("--ranks", _RANKS, COUNT, 4, "Processes that hold experts.", OURS),
    Flag("--slots-per-rank", _RANKS, COUNT, 6, "Experts of each layer that a rank has room for.", OURS),
    Flag("--transport", _RANKS, NAME, "shm", "How weights move between ranks; nixl needs nixl-cu12.", OURS,
         choices=("shm", "nixl")),
    Flag("--restart", _RANKS, SWITCH, False, "Bring a rank back whose process has ended.", OURS),
    Flag("--rebalance-interval-steps", _RANKS, COUNT, 100, "Look at the load after as many steps.", OURS),
    Flag("--rebalance-threshold", _RANKS, SHARE, 0.95,
         "Rebalance where balancedness is below this; 0: only on demand.", OURS),
    Flag("--hang-s", _RANKS, WAIT, 1.0, "Silence after which a rank counts as hung.", OURS),
    Flag("--give-up-s", _RANKS, WAIT, 60.0, "Experts that no rank serves for so long fail requests.", OURS),
    Flag("--max-running", _REQUESTS, COUNT, 256, "Generations that share a step, at most.", OURS),
    Flag("--max-waiting", _REQUESTS, COUNT, 1024, "Generations that may wait; further ones get a 503.", OURS),
    Flag("--max-step-tokens", _REQUESTS, COUNT, 512, "Tokens of a step: longer prompts are cut into chunks.", OURS),
    Flag("--kv-tokens", _REQUESTS, COUNT, 131_072, "Tokens that the KV cache has room for.", OURS),
    Flag("--name", _FRONT, TEXT, None, "What the model is called. Without it: windtunnel-tiny, or the config's.", OURS),
    *listening_flags(_FRONT, 0),
    Flag("--admin", _FRONT, SWITCH, False,
         "Serve /admin: what ranks do, and what kills, hangs, slows and restarts them. On loopback only.", OURS),
    Flag("--drain-s", _FRONT, WAIT, 30.0, "How long requests may take to their end when it was told to end.", OURS),
    Flag("--end-with-stdin", _FRONT, SWITCH, False,
         "End when standard input does: whoever holds the other end of the pipe is never outlived.", OURS),
)  # fmt: skip


def parser() -> CommandParser:
    """Of this command's flags."""
    return CommandParser("engine", _SUMMARY, _FLAGS, GROUPS)


def run(arguments: Sequence[str]) -> int:
    """Serve until told to end; the exit code. Raises errors of `windtunnel.errors`."""
    parsed = parser().parse(arguments)
    for note in parsed.notes:
        tell_note(note)
    values = parsed.values
    if values.admin and not is_loopback(values.host):
        problem = f"does not go with --host {values.host}: whoever reaches /admin can kill ranks"
        raise ConfigurationError("--admin", problem, "Leave one of them out.")
    # the ranks share the cores; numpy's library would start threads for each of them
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    require_packages("windtunnel engine", "eplb", "numba", "scipy", "safetensors", "xxhash", "prometheus_client")
    from windtunnel.engine.moe.front.serve import serve

    return serve(_engine_config(values), _front_config(values))


def _engine_config(values: argparse.Namespace) -> EngineConfig:
    from windtunnel.engine.moe.config import config_of
    from windtunnel.engine.moe.core import EngineConfig

    sizes = {key: getattr(values, key) for key in _SIZES if getattr(values, key) is not None}
    folder = values.models_folder
    return EngineConfig(
        config_of(values.config, sizes),
        _models_folder() if folder is None else Path(folder),
        ranks=values.ranks,
        slots_per_rank=values.slots_per_rank,
        transport=values.transport,
        restart=values.restart,
        rebalance_interval_steps=values.rebalance_interval_steps,
        rebalance_threshold=values.rebalance_threshold,
        max_running=values.max_running,
        max_waiting=values.max_waiting,
        max_step_tokens=values.max_step_tokens,
        kv_tokens=values.kv_tokens,
        hang_s=values.hang_s,
        give_up_s=values.give_up_s,
    )


def _front_config(values: argparse.Namespace) -> FrontConfig:
    from windtunnel.engine.moe.front.serve import FrontConfig

    return FrontConfig(
        values.name or f"windtunnel-{values.config}",
        host=values.host,
        port=values.port,
        admin=values.admin,
        drain_s=values.drain_s,
        end_with_stdin=values.end_with_stdin,
    )


def _models_folder() -> Path:
    """By the XDG rule for what can be made again."""
    cache = os.environ.get("XDG_CACHE_HOME")
    base = Path(cache) if cache and os.path.isabs(cache) else Path.home() / ".cache"
    return base / "windtunnel" / "models"
