"""Where code comes from: a folder, a git repository at a commit, an archive, an installed package."""

from __future__ import annotations

from pathlib import Path

from windtunnel.catalog.source.archive import ArchiveSource
from windtunnel.catalog.source.folder import FolderSource
from windtunnel.catalog.source.git import CommitSource
from windtunnel.catalog.source.model import Source, SourceFile
from windtunnel.catalog.source.package import PackageSource
from windtunnel.errors import CatalogSourceError

__all__ = ["Source", "SourceFile", "open_source"]

_SPELLINGS = "a folder, REPOSITORY@REF, a wheel, an sdist or another archive, or pip:NAME"


def open_source(spec: str, *, python: str | None = None) -> Source:
    """The tree of code that `spec` names. Raises CatalogSourceError.

    `spec` is a folder; a git repository at a commit or tag (`PATH@REF`); a wheel, sdist, zip or npm file; `pip:NAME`,
    a package that the interpreter `python` (None: this one) has installed.
    """
    if spec.startswith("pip:"):
        return PackageSource(spec.removeprefix("pip:"), python)
    path = Path(spec).expanduser()
    if not spec:
        raise CatalogSourceError("SOURCE", "it is empty", f"Name {_SPELLINGS}.")
    if path.is_dir():
        return FolderSource(path)
    if path.is_file():
        return ArchiveSource(path)
    repository, at, ref = spec.rpartition("@")
    if at and Path(repository).expanduser().is_dir():
        return CommitSource(Path(repository).expanduser(), ref)
    if "://" in spec or spec.startswith("git@"):
        raise CatalogSourceError(
            spec, "nothing is fetched from elsewhere", f"Clone or fetch it, then name {_SPELLINGS}."
        )
    raise CatalogSourceError(spec, "there is no such folder or file", f"Name {_SPELLINGS}.")
