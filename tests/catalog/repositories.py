"""Real git repositories, made for a test."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from itertools import count
from pathlib import Path

from tests.catalog.trees import write_tree

_seconds = count(1_700_000_000, 86_400)
"""Each commit is a day younger than the one before, so that their order is theirs and not the clock's."""


def git(folder: Path, *arguments: str) -> str:
    """Run git there, by nobody's configuration; what it prints."""
    date = f"{next(_seconds)} +0000"
    environ = {
        **{name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
        "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull,
        "GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@b.c", "GIT_AUTHOR_DATE": date,
        "GIT_COMMITTER_NAME": "A", "GIT_COMMITTER_EMAIL": "a@b.c", "GIT_COMMITTER_DATE": date,
    }  # fmt: skip
    command = ["git", "-c", "init.defaultBranch=main", "-c", "protocol.file.allow=always", "-C", str(folder)]
    result = subprocess.run([*command, *arguments], check=True, capture_output=True, text=True, env=environ)
    return result.stdout.strip()


def commit(folder: Path, files: Mapping[str, str], tag: str = "") -> str:
    """Write the files and commit all that is there; the commit."""
    write_tree(folder, files)
    if not (folder / ".git").exists():
        git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "a change")
    if tag:
        git(folder, "tag", tag)
    return git(folder, "rev-parse", "HEAD")
