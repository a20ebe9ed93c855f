"""A git repository: at a commit or tag, without a checkout; and what a folder can learn of the one that it lies in."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from urllib.parse import quote
from weakref import finalize

from windtunnel.catalog.source.model import Repository, SourceFile, is_read
from windtunnel.errors import CatalogSourceError, did_you_mean

_TIMEOUT_S = 60
_GIT = ("git", "--no-optional-locks", "-c", "core.quotepath=off", "-c", "core.fsmonitor=false")
"""Nothing is written, and no program is run that the repository's own configuration names."""
_FORGE = re.compile(
    r"^(?:https://(?:[^@/]*@)?|ssh://git@|git@)(github\.com|gitlab\.com|codeberg\.org)[:/](.+?)(?:\.git)?/?$"
)
_LINES = {
    "github.com": "https://github.com/{repository}/blob/{commit}/{path}#L{start}-L{end}",
    "gitlab.com": "https://gitlab.com/{repository}/-/blob/{commit}/{path}#L{start}-{end}",
    "codeberg.org": "https://codeberg.org/{repository}/src/commit/{commit}/{path}#L{start}-L{end}",
}


def git(folder: Path, *arguments: str, timeout_s: float = _TIMEOUT_S) -> bytes:
    """What git says. Raises CatalogSourceError with its own words."""
    command = [*_GIT, "-C", str(folder), *arguments]
    try:
        result = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout_s, check=False, env=_environ()
        )
    except FileNotFoundError as error:
        raise CatalogSourceError(str(folder), "git is not installed", "Install it, or name a folder.") from error
    except subprocess.TimeoutExpired as error:
        raise CatalogSourceError(str(folder), f"git did not answer in {timeout_s:.0f} s", "Try again.") from error
    if result.returncode:
        words = result.stderr.decode("utf-8", "replace").strip().splitlines() or [f"exit code {result.returncode}"]
        raise CatalogSourceError(str(folder), f"git says: {words[-1]}", "Is it a git repository, and the name right?")
    return result.stdout


def _environ() -> dict[str, str]:
    """What a partial clone has not is not fetched, and git asks nobody for a password."""
    return {**os.environ, "GIT_NO_LAZY_FETCH": "1", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}


def top_of(folder: Path) -> Path | None:
    """The top of the work tree that the folder lies in; None: in none, or git leaves the folder out of it."""
    try:
        top = Path(os.fsdecode(git(folder, "rev-parse", "--show-toplevel").removesuffix(b"\n")))
    except CatalogSourceError:
        return None
    try:
        git(top, "check-ignore", "--quiet", str(folder.resolve()))
    except CatalogSourceError:  # it is not ignored
        return top
    return None


def is_bare(folder: Path) -> bool:
    """Whether the folder is a repository without a work tree."""
    try:
        return git(folder, "rev-parse", "--is-bare-repository").strip() == b"true"
    except CatalogSourceError:
        return False


def head_of(folder: Path) -> str | None:
    """The commit that is checked out there; None: no git, no repository, or no commit yet."""
    try:
        return git(folder, "rev-parse", "--verify", "--quiet", "HEAD").decode().strip() or None
    except CatalogSourceError:
        return None


def link(commit: str | None, path: str, start: int, end: int, origin: str) -> str | None:
    """The address of lines at a forge that is well known, by the repository's `origin`."""
    match = _FORGE.match(origin)
    if commit is None or match is None:
        return None
    return _LINES[match[1]].format(repository=match[2], commit=commit, path=quote(path), start=start, end=end)


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
        command = [*_GIT, "-C", str(folder), "cat-file", "--batch"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=_environ())
        finalize(self, _end, self._process)

    def read(self, blob: str) -> bytes | None:
        """The blob's content; None: the repository does not have it."""
        asked, told = self._process.stdin, self._process.stdout
        assert asked is not None and told is not None
        asked.write(f"{blob}\n".encode())
        asked.flush()
        head = told.readline().split()
        return told.read(int(head[2]) + 1)[:-1] if len(head) == 3 else None


def _end(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
    process.wait(_TIMEOUT_S)


class CommitSource:
    """A repository at a commit or tag; bare ones too."""

    def __init__(self, folder: Path, ref: str) -> None:
        self._folder = folder
        self.spec = f"{folder.absolute()}@{ref}"
        known = git(folder, "tag", "--list").decode().split()
        try:
            self.commit: str | None = (
                git(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}")
                .decode()
                .strip()
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
        self.spec = f"{folder.absolute()}@{self.version}"
        self.repository = Repository(top_of(folder) or folder, self.commit)
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
        data = self._batch.read(self._blobs[path])
        if data is None:
            raise CatalogSourceError(self.spec, f"the repository does not have {path} here", "Fetch it with git.")
        return data

    @cached_property
    def _batch(self) -> _Batch:
        return _Batch(self._folder)

    def permalink(self, path: str, start: int, end: int) -> str | None:
        """At the forge that the repository came from."""
        return link(self.commit, path, start, end, self._origin)
