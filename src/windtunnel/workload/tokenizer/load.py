"""Find a tokenizer by the name that --tokenizer gives."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from windtunnel.errors import TokenizerError
from windtunnel.workload.tokenizer import builtin, hub, huggingface, tiktoken_files
from windtunnel.workload.tokenizer.server import Post, ServerTokenizer

if TYPE_CHECKING:
    from windtunnel.workload.tokenizer.base import Tokenizer

SERVER = "server"
_MODES = ("auto", "hf", "slow")
"""vLLM's modes that mean a model's ordinary tokenizer; a slow one counts as its fast twin does."""


def load_tokenizer(
    name: str,
    *,
    mode: str = "auto",
    trust_remote_code: bool = False,
    post: Post | None = None,
    model: str | None = None,
) -> Tokenizer:
    """The tokenizer of that name: a folder or file, the built-in one, the server, an encoding, or a hub's repository.

    Args:
        name: as --tokenizer has it.
        mode: vLLM's --tokenizer-mode.
        trust_remote_code: taken for vLLM's sake; code that comes with a tokenizer is never run.
        post: how `server` reaches /tokenize.
        model: for which of its models the server is asked.

    Raises TokenizerError, or MissingExtra for what needs a library that is not installed.
    """
    if mode not in _MODES:
        raise TokenizerError(
            name,
            f"--tokenizer-mode {mode} is a tokenizer of its own, which windtunnel does not have",
            "--tokenizer server lets the server count; or give a folder with a tokenizer.json and leave out the mode.",
        )
    path = Path(name).expanduser()
    if path.exists():
        return _load_path(name, path)
    if name == builtin.NAME:
        return builtin.BuiltinTokenizer()
    if name == SERVER:
        return _server(model, post)
    if _looks_like_path(name):
        raise TokenizerError(name, "no such file or folder", f"Check the path; the current folder is {Path.cwd()}.")
    return _load_named(name)


def _server(model: str | None, post: Post | None) -> Tokenizer:
    if post is None or model is None:
        raise TokenizerError(SERVER, "there is no server to ask here", "Give a folder, a file or a hub name.")
    return ServerTokenizer(model, post)


def _load_path(name: str, path: Path) -> Tokenizer:
    if path.is_dir():
        ranks = sorted(path.glob("*.tiktoken"))
        if len(ranks) == 1 and not (path / huggingface.TOKENIZER).exists():
            return tiktoken_files.load_ranks_file(name, ranks[0])
        return huggingface.load_folder(name, path)
    if path.suffix == ".tiktoken":
        return tiktoken_files.load_ranks_file(name, path)
    if path.suffix == ".json":
        return _load_json(name, path)
    raise TokenizerError(
        name, f"{path.name} is no tokenizer that is known here", "Give a folder, a tokenizer.json or a .tiktoken file."
    )


def _load_json(name: str, path: Path) -> Tokenizer:
    """A tokenizer.json by itself still has its folder's chat template."""
    if path.name == huggingface.TOKENIZER:
        return huggingface.load_folder(name, path.parent)
    return huggingface.load_files(name, path)


def _looks_like_path(name: str) -> bool:
    """Rather than a hub's OWNER/NAME."""
    return name.startswith((".", "~", os.sep)) or name.count("/") > 1 or name.endswith((".json", ".tiktoken", ".model"))


def _load_named(name: str) -> Tokenizer:
    if "/" in name or name not in tiktoken_files.encoding_names():
        return hub.load_from_hub(name)
    try:
        return tiktoken_files.load_encoding(name)
    except TokenizerError:
        if name != "gpt2":  # the one encoding whose name the hub has, too
            raise
        return hub.load_from_hub(name)
