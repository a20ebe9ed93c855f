"""What the commands of the catalog share: the store, the project, JSON."""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from windtunnel.cli.flags import OURS, Flag
from windtunnel.cli.values import NAME, PATH, SWITCH
from windtunnel.errors import MissingExtra

if TYPE_CHECKING:
    from windtunnel.catalog.store import Store

GROUP = "flags"
GROUPS = {GROUP: ""}

STORE = Flag(
    "--store", GROUP, PATH, None, "The catalog's file. Without it: $XDG_DATA_HOME/windtunnel/catalog.sqlite, which is "
    "~/.local/share/windtunnel/catalog.sqlite.", OURS,
)  # fmt: skip
PROJECT = Flag("--project", GROUP, NAME, None, "Only this project.", OURS)
JSON = Flag("--json", GROUP, SWITCH, False, "Print JSON.", OURS)


def store_path(values: argparse.Namespace) -> Path:
    """Where the catalog is."""
    from windtunnel.catalog.store import default_store

    return Path(values.store).expanduser() if values.store else default_store()


def open_store(values: argparse.Namespace, *, write: bool = False) -> Store:
    """The catalog that a command line names; windtunnel's own errors are in the default one. Raises StoreMissing."""
    from windtunnel.catalog.own import ensure_own
    from windtunnel.catalog.store import Store

    path = store_path(values)
    if values.store is None:
        ensure_own(path)
    return Store.open(path, write=write)


def require_reader() -> None:
    """Raise MissingExtra where source trees can't be read."""
    try:
        import tree_sitter  # noqa: F401
    except ImportError as error:
        raise MissingExtra("reading source code", "tree-sitter", "catalog") from error


def width() -> int:
    """Of the terminal, or 80."""
    return shutil.get_terminal_size((80, 24)).columns if sys.stdout.isatty() else 80


def versioned(text: str) -> tuple[str, str | None]:
    """`NAME@VERSION` → name and version."""
    name, at, version = text.rpartition("@")
    return (name, version) if at and name else (text, None)
