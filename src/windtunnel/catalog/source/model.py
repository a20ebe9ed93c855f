"""What every source has, and what none reads."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from windtunnel.catalog.extract import language_of

MOST_FILE_BYTES = 4 << 20
"""Larger files are data in the clothes of code."""

SKIPPED_FOLDERS = frozenset((
    ".git", ".hg", ".svn", ".tox", ".nox", ".venv", "venv", "node_modules", "__pycache__", "site-packages",
    ".mypy_cache", ".ruff_cache", ".pytest_cache", ".eggs",
))  # fmt: skip
_NO_CODE = re.compile(r"\.min\.[cm]?js$|\.d\.[cm]?ts$")
"""Minified, or declarations only."""


@dataclass(frozen=True)
class SourceFile:
    """A file of a source that is in a language that is read."""

    path: str
    """Within the source, with `/`."""
    num_bytes: int
    stamp: str
    """Changes when the content may have changed: a blob id, a checksum, or size and time of the last change."""


class Repository(NamedTuple):
    """Where git has the history of a source's files."""

    folder: Path
    commit: str
    prefix: str = ""
    """What stands before a source's path in the repository: a folder with its slash."""


class Source(Protocol):
    """A tree of code that can be read as often as one likes. Errors are CatalogSourceError."""

    @property
    def name(self) -> str:
        """A repository's, package's or folder's name: the project's default name."""

    @property
    def version(self) -> str:
        """A package's version, a tag or commit, or `working tree`."""

    @property
    def commit(self) -> str | None:
        """The commit, where one is known."""

    @property
    def repository(self) -> Repository | None:
        """Where git has the history of its files; None: nowhere that is known."""

    @property
    def spec(self) -> str:
        """What opens it again."""

    def files(self) -> Iterator[SourceFile]:
        """Every file in a language that is read, in the order of their paths."""

    def read(self, path: str) -> bytes:
        """The content of a file."""

    def permalink(self, path: str, start: int, end: int) -> str | None:
        """An address of the lines, pinned to the commit or version; None where there is none."""


def is_read(path: str, num_bytes: int) -> bool:
    """Whether a file is read at all, by its name and size."""
    if language_of(path) is None or num_bytes > MOST_FILE_BYTES or _NO_CODE.search(path):
        return False
    if any("\ud800" <= character <= "\udfff" for character in path):  # no UTF-8: it can't be stored or shown
        return False
    return not any(folder in SKIPPED_FOLDERS for folder in path.split("/")[:-1])
