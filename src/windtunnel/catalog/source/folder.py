"""A folder as it is now. In a git work tree, what git would ignore is left out."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from windtunnel.catalog.source.git import git, head_of, link, origin_of, repository_name
from windtunnel.catalog.source.model import SKIPPED_FOLDERS, SourceFile, is_read
from windtunnel.errors import CatalogSourceError

WORKING_TREE = "working tree"


class FolderSource:
    """A folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.version = WORKING_TREE
        self.spec = str(folder)
        self.commit = head_of(folder)
        self._origin = origin_of(folder) if self.commit else ""
        top = Path(os.fsdecode(git(folder, "rev-parse", "--show-toplevel").strip())) if self.commit else None
        self._is_top = top is not None and top.samefile(folder)
        self._prefix = (
            "" if top is None or self._is_top else f"{folder.resolve().relative_to(top.resolve()).as_posix()}/"
        )
        self.name = repository_name(folder, self._origin) if self._is_top else folder.resolve().name
        self._changed = self._changed_paths() if self.commit else set()

    def _changed_paths(self) -> set[str]:
        """Files that are not as they are in the commit: no permalink is true for them."""
        named = git(self._folder, "diff", "--name-only", "-z", "--relative", "HEAD")
        return {os.fsdecode(name) for name in named.split(b"\0") if name}

    def files(self) -> Iterator[SourceFile]:
        """Every file that is read, in the order of their paths."""
        for path in sorted(self._paths()):
            try:
                facts = os.stat(self._folder / path, follow_symlinks=False)
            except OSError:
                continue  # deleted since git was asked, or not ours to see
            if (facts.st_mode & 0o170000) == 0o100000 and is_read(path, facts.st_size):
                yield SourceFile(path, facts.st_size, f"{facts.st_size}-{facts.st_mtime_ns}")

    def _paths(self) -> Iterator[str]:
        if self.commit:
            listed = git(self._folder, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split(b"\0")
            yield from {os.fsdecode(name) for name in listed if name}
            return
        for where, folders, names in os.walk(self._folder):
            folders[:] = [folder for folder in folders if folder not in SKIPPED_FOLDERS]
            if (Path(where) / "pyvenv.cfg").exists():
                folders.clear()
                continue
            inside = Path(where).relative_to(self._folder).as_posix()
            yield from (name if inside == "." else f"{inside}/{name}" for name in names)

    def read(self, path: str) -> bytes:
        """The content of a file."""
        try:
            return (self._folder / path).read_bytes()
        except OSError as error:
            problem = f"can't read {path}: {error.strerror or error}"
            raise CatalogSourceError(self.spec, problem, "Is it still there, and readable?") from error

    def permalink(self, path: str, start: int, end: int) -> str | None:
        """At the forge that the work tree came from, for files that are as in the commit."""
        if path in self._changed:
            return None
        return link(self._folder, self.commit, self._prefix + path, start, end, self._origin)
