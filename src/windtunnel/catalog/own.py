"""windtunnel's own errors in the catalog: put there by whoever looks first, so that `explain` works at once.

A wheel brings them in a catalog of its own, made when it was built. In an editable checkout they are read from the
source at the first look, and again when it has changed.
"""

from __future__ import annotations

import os
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import windtunnel
from windtunnel.catalog.source.folder import FolderSource
from windtunnel.catalog.store import Store
from windtunnel.errors import WindtunnelError

PROJECT = "windtunnel"
BUILT = Path(__file__).with_name("windtunnel.sqlite")
"""Made by the build."""


def ensure_own(path: Path) -> None:
    """See that the catalog at `path` has this windtunnel's errors. What stands in the way is no reason to fail."""
    with suppress(WindtunnelError, OSError):
        if BUILT.exists():
            _copy_built(path)
        elif find_spec("tree_sitter_python") is not None:
            _index(path)


def own_source(folder: Path) -> FolderSource:
    """windtunnel's package as a source: it is of its own version, wherever it lies."""
    source = FolderSource(folder)
    source.name, source.version, source.spec = PROJECT, windtunnel.__version__, f"pip:{PROJECT}"
    return source


def _copy_built(path: Path) -> None:
    """A catalog that is not there yet begins as the one that was built; another gets its records."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        temporary.write_bytes(BUILT.read_bytes())
        os.replace(temporary, path)
        return
    with Store.open(path) as store:
        if _has(store, windtunnel.__version__):
            return
    if find_spec("tree_sitter_python") is not None:
        _index(path)


def _has(store: Store, version: str) -> bool:
    return any(project.name == PROJECT and project.tool == version for project in store.projects())


def _index(path: Path) -> None:
    from windtunnel.catalog.indexing import index

    folder = Path(windtunnel.__file__).parent
    if path.exists():
        newest = max(file.stat().st_mtime_ns for file in folder.rglob("*.py"))
        with Store.open(path) as store:
            known = [project for project in store.projects() if project.name == PROJECT]
            if known and known[0].tool == windtunnel.__version__ and newest <= path.stat().st_mtime_ns:
                return
    with Store.open(path, write=True) as store:
        index(own_source(folder), store, project=PROJECT)
        os.utime(path)  # as fresh as what it was read from, whether or not anything had to be written
