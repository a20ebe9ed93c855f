"""A folder as it is now. In a git work tree, what git would ignore is left out."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from windtunnel.catalog.source.git import git, head_of, is_bare, link, origin_of, repository_name, top_of
from windtunnel.catalog.source.model import SKIPPED_FOLDERS, Repository, SourceFile, is_read
from windtunnel.errors import CatalogSourceError

WORKING_TREE = "working tree"


class FolderSource:
    """A folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.version = WORKING_TREE
        self.spec = str(folder.absolute())
        if is_bare(folder):
            remedy = f"Name a commit or tag: {folder}@HEAD."
            raise CatalogSourceError(str(folder), "it is a repository without a work tree", remedy)
        self._top = top_of(folder)
        self.commit = head_of(folder) if self._top else None
        self._origin = origin_of(folder) if self._top else ""
        self._prefix = ""
        if self._top is not None and not self._top.samefile(folder):
            self._prefix = f"{folder.resolve().relative_to(self._top.resolve()).as_posix()}/"
        self.repository = (
            None if self.commit is None or self._top is None else Repository(self._top, self.commit, self._prefix)
        )
        self.name = folder.resolve().name if self._prefix else repository_name(folder, self._origin)
        self._changed = self._changed_paths() if self.commit else set()

    def _changed_paths(self) -> set[str]:
        """Files that are not as they are in the commit: no permalink is true for them."""
        changed = git(self._folder, "diff", "--name-only", "-z", "--relative", "--no-ext-diff", "HEAD")
        return _names(changed + git(self._folder, "ls-files", "-z", "--others", "--exclude-standard"))

    def files(self) -> Iterator[SourceFile]:
        """Every file that is read, in the order of their paths."""
        for path in sorted(self._paths()):
            try:
                facts = os.stat(self._folder / path, follow_symlinks=False)
            except OSError:
                continue  # deleted since git was asked, or not ours to see
            if stat.S_ISREG(facts.st_mode) and is_read(path, facts.st_size):
                yield SourceFile(path, facts.st_size, f"{facts.st_size}-{facts.st_mtime_ns}")

    def _paths(self) -> Iterator[str]:
        if self._top:
            yield from _names(git(self._folder, "ls-files", "-z", "--cached", "--others", "--exclude-standard"))
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
        return link(self.commit, self._prefix + path, start, end, self._origin)


def _names(listed: bytes) -> set[str]:
    return {os.fsdecode(name) for name in listed.split(b"\0") if name}
