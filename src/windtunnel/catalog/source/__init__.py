"""Where code comes from: a folder, a git repository at a commit, an archive, an installed package."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class SourceFile:
    """A file of a source that is in a language that is read."""

    path: str
    """Within the source, with `/`."""
    num_bytes: int
    stamp: str
    """Changes when the content may have changed: a blob id, a checksum, or size and time of the last change."""


class Source(Protocol):
    """A tree of code that can be read as often as one likes. Errors are CatalogSourceError."""

    name: str
    """A repository's, package's or folder's name: the project's default name."""
    version: str
    """A package's version, a tag or commit, or `working tree`."""
    commit: str | None

    def files(self) -> Iterator[SourceFile]:
        """Every file in a language that is read, in the order of their paths."""

    def read(self, path: str) -> bytes:
        """The content of a file."""

    def permalink(self, path: str, start: int, end: int) -> str | None:
        """An address of the lines, pinned to the commit or version; None where there is none."""
