"""A git repository: at a commit or tag, without a checkout; and what a folder can learn of the one that it lies in."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from weakref import finalize

from windtunnel.catalog.source.model import SourceFile, is_read
from windtunnel.errors import CatalogSourceError, did_you_mean

_TIMEOUT_S = 60
_FORGE = re.compile(r"^(?:https://|ssh://git@|git@)(github\.com|gitlab\.com|codeberg\.org)[:/](.+?)(?:\.git)?/?$")
_LINES = {
    "github.com": "https://github.com/{repository}/blob/{commit}/{path}#L{start}-L{end}",
    "gitlab.com": "https://gitlab.com/{repository}/-/blob/{commit}/{path}#L{start}-{end}",
    "codeberg.org": "https://codeberg.org/{repository}/src/commit/{commit}/{path}#L{start}-L{end}",
}


def git(folder: Path, *arguments: str, input_: bytes | None = None) -> bytes:
    """What git says. Raises CatalogSourceError with its own words."""
    command = ["git", "-c", "core.quotepath=off", "-C", str(folder), *arguments]
    try:
        result = subprocess.run(command, input=input_, capture_output=True, timeout=_TIMEOUT_S, check=False)
    except FileNotFoundError as error:
        raise CatalogSourceError(str(folder), "git is not installed", "Install it, or name a folder.") from error
    except subprocess.TimeoutExpired as error:
        raise CatalogSourceError(str(folder), f"git did not answer in {_TIMEOUT_S} s", "Try again.") from error
    if result.returncode:
        words = result.stderr.decode("utf-8", "replace").strip().splitlines() or [f"exit code {result.returncode}"]
        raise CatalogSourceError(str(folder), f"git says: {words[-1]}", "Is it a git repository, and the name right?")
    return result.stdout


def head_of(folder: Path) -> str | None:
    """The commit that is checked out there; None: no git, no repository, or no commit yet."""
    try:
        return git(folder, "rev-parse", "--verify", "--quiet", "HEAD").decode().strip() or None
    except CatalogSourceError:
        return None


def link(folder: Path, commit: str | None, path: str, start: int, end: int, origin: str) -> str | None:
    """The address of lines at a forge that is well known, by the repository's `origin`."""
    match = _FORGE.match(origin)
    if commit is None or match is None:
        return None
    return _LINES[match[1]].format(repository=match[2], commit=commit, path=path, start=start, end=end)


def origin_of(folder: Path) -> str:
    """The address that the repository came from; empty: none."""
    try:
        return git(folder, "config", "--get", "remote.origin.url").decode().strip()
    except CatalogSourceError:
        return ""


def repository_name(folder: Path, origin: str) -> str:
    """By its origin, else by its folder."""
    name = origin.rstrip("/").rpartition("/")[2].rpartition(":")[2].removesuffix(".git") if origin else ""
    return name or folder.resolve().name.removesuffix(".git")


class _Batch:
    """One git process that gives one blob after the other."""

    def __init__(self, folder: Path) -> None:
        command = ["git", "-C", str(folder), "cat-file", "--batch"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        finalize(self, _end, self._process)

    def read(self, blob: str) -> bytes:
        asked, told = self._process.stdin, self._process.stdout
        assert asked is not None and told is not None
        asked.write(f"{blob}\n".encode())
        asked.flush()
        size = int(told.readline().split()[2])
        return told.read(size + 1)[:-1]


def _end(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
    process.wait(_TIMEOUT_S)


class CommitSource:
    """A repository at a commit or tag; bare ones too."""

    def __init__(self, folder: Path, ref: str) -> None:
        self._folder = folder
        self.spec = f"{folder}@{ref}"
        known = git(folder, "tag", "--list").decode().split()
        try:
            self.commit: str | None = (
                git(folder, "rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}").decode().strip()
            )
        except CatalogSourceError as error:
            remedy = "`git tag` and `git log` show what there is."
            raise CatalogSourceError(
                self.spec, f"no commit or tag {ref!r}{did_you_mean(ref, known)}", remedy
            ) from error
        self._origin = origin_of(folder)
        self.name = repository_name(folder, self._origin)
        assert self.commit is not None
        self.version = ref if ref in known else self.commit[:12]  # a branch moves
        self._blobs: dict[str, str] = {}

    def files(self) -> Iterator[SourceFile]:
        """Every file that is read, in the order of their paths."""
        found = []
        for entry in git(self._folder, "ls-tree", "-r", "-z", "--long", "--full-tree", str(self.commit)).split(b"\0"):
            if not entry:
                continue
            facts, _, name = entry.partition(b"\t")
            mode, kind, blob, size = facts.decode().split()
            path = name.decode("utf-8", "surrogateescape")
            if kind == "blob" and mode != "120000" and is_read(path, int(size)):
                found.append(SourceFile(path, int(size), blob))
        self._blobs = {file.path: file.stamp for file in found}
        yield from sorted(found, key=lambda file: file.path)

    def read(self, path: str) -> bytes:
        """The content of a file."""
        if not self._blobs:
            list(self.files())
        if path not in self._blobs:
            raise CatalogSourceError(self.spec, f"it has no {path}", "Index it again.")
        return self._batch.read(self._blobs[path])

    @cached_property
    def _batch(self) -> _Batch:
        return _Batch(self._folder)

    def permalink(self, path: str, start: int, end: int) -> str | None:
        """At the forge that the repository came from."""
        return link(self._folder, self.commit, path, start, end, self._origin)
