"""A package as an interpreter has it installed: found by asking that interpreter, never downloaded."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from windtunnel.catalog.source.model import SourceFile, is_read
from windtunnel.errors import CatalogSourceError, did_you_mean

_TIMEOUT_S = 60
_ASK = """
import sys
sys.path[:] = [place for place in sys.path if place]  # what lies in the current folder is not installed
import importlib.metadata as m, json
name = sys.argv[1]
try:
    d = m.distribution(name)
except m.PackageNotFoundError:
    print(json.dumps({"known": sorted({str(x.metadata["Name"]) for x in m.distributions()})}))
else:
    url = d.read_text("direct_url.json")
    print(json.dumps({"name": d.metadata["Name"], "version": d.version, "root": str(d.locate_file("")),
                      "files": [str(f) for f in d.files or ()], "url": url}))
"""


class _Found(msgspec.Struct):
    name: str = ""
    version: str = ""
    root: str = ""
    files: list[str] = []
    url: str | None = None
    known: list[str] | None = None


class _DirectUrl(msgspec.Struct):
    url: str
    dir_info: dict[str, bool] = {}


class PackageSource:
    """An installed package."""

    commit: str | None = None
    repository = None

    def __init__(self, name: str, python: str | None) -> None:
        self.spec = f"pip:{name}"
        interpreter = python or sys.executable
        found = self._ask(interpreter, name)
        if found.known is not None:
            remedy = (
                f"`{Path(interpreter).name} -m pip install {name}` installs it; --python names another interpreter."
            )
            problem = f"{interpreter} has no package {name!r}{did_you_mean(name, found.known)}"
            raise CatalogSourceError(self.spec, problem, remedy)
        self.name, self.version = found.name, found.version
        self._root = Path(found.root)
        self._paths = [path for path in found.files if ".." not in path.split("/") and not os.path.isabs(path)]
        if found.url and (editable := _editable_folder(found.url)):
            self._root, self._paths = editable
        if not any(is_read(path, 0) for path in self._paths):
            raise CatalogSourceError(self.spec, "no source files of it are installed", "Name its sdist or repository.")

    def _ask(self, interpreter: str, name: str) -> _Found:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
            raise CatalogSourceError(self.spec, f"{name!r} is no package's name", "Write pip:NAME, without a version.")
        command = [interpreter, "-c", _ASK, name]
        try:
            result = subprocess.run(command, capture_output=True, timeout=_TIMEOUT_S, check=False)
            return msgspec.json.decode(result.stdout, type=_Found)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CatalogSourceError(
                self.spec, f"can't run {interpreter}: {error}", "Name another --python."
            ) from error
        except msgspec.DecodeError as error:
            words = result.stderr.decode("utf-8", "replace").strip().splitlines() or ["it said nothing"]
            problem = f"{interpreter} could not tell: {words[-1]}"
            raise CatalogSourceError(self.spec, problem, "Name another --python.") from error

    def files(self) -> Iterator[SourceFile]:
        """Every file that is read, in the order of their paths."""
        for path in sorted(self._paths):
            try:
                facts = os.stat(self._root / path)
            except OSError:
                continue
            if stat.S_ISREG(facts.st_mode) and is_read(path, facts.st_size):
                yield SourceFile(path, facts.st_size, f"{facts.st_size}-{facts.st_mtime_ns}")

    def read(self, path: str) -> bytes:
        """The content of a file."""
        try:
            return (self._root / path).read_bytes()
        except OSError as error:
            problem = f"can't read {path}: {error.strerror or error}"
            raise CatalogSourceError(self.spec, problem, "Is the package still installed?") from error

    def permalink(self, path: str, start: int, end: int) -> str | None:
        """None: an installed package does not say which commit it was made from."""
        return None


def _editable_folder(direct_url: str) -> tuple[Path, list[str]] | None:
    """The folder that an editable installation points at, and the files in it."""
    from windtunnel.catalog.source.folder import FolderSource

    url = msgspec.json.decode(direct_url, type=_DirectUrl)
    if not url.dir_info.get("editable") or not url.url.startswith("file://"):
        return None
    folder = Path(url.url.removeprefix("file://"))
    if not folder.is_dir():
        return None
    return folder, [file.path for file in FolderSource(folder).files()]
