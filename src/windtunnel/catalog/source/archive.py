"""A wheel, an sdist, a zip, or an npm package: read as it is, nothing is unpacked."""

from __future__ import annotations

import lzma
import re
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import msgspec

from windtunnel.catalog.source.model import MOST_FILE_BYTES, SourceFile, is_read
from windtunnel.errors import CatalogSourceError

_BROKEN = (OSError, EOFError, zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, RuntimeError)
"""RuntimeError: it is encrypted, or packed in a way that is not known here."""
_KINDS = "A wheel (.whl), an sdist or another .tar.*, .tgz or .zip file can be read."
_MOST_TOTAL_BYTES = 2 << 30
_MOST_RATIO = 200
"""A file that unpacks to more than this many times its size is no source text."""


_IDENTITY = re.compile(r"^(?:[^/]+\.dist-info/METADATA|PKG-INFO|package\.json)$")
"""Where the archive itself tells its name and version; deeper ones are of what it brings along."""


class _Entry(msgspec.Struct, frozen=True):
    name: str
    num_bytes: int
    stamp: str

    @property
    def path(self) -> str:
        return self.name.removeprefix("./")


class ArchiveSource:
    """An archive file."""

    commit: str | None = None
    repository = None

    def __init__(self, path: Path) -> None:
        self._path = path
        self.spec = str(path.absolute())
        self._tarred: dict[str, bytes] = {}
        """A tar file can't be read in any order: what is read of one is kept."""
        try:
            entries = list(self._zip_entries() if _is_zip(path) else self._tar_entries())
        except _BROKEN as error:
            reason = str(error).partition("\n")[0].rstrip(":")  # tarfile lists all compressions that it is not
            raise CatalogSourceError(self.spec, f"it is no archive, or a broken one: {reason}", _KINDS) from error
        top = _common_top([entry.path for entry in entries])
        self._names = {entry.path.removeprefix(top): entry for entry in entries if _is_inside(entry.name)}
        self.name, self.version = self._identity()

    def _zip_entries(self) -> Iterator[_Entry]:
        with zipfile.ZipFile(self._path) as archive:
            for info in archive.infolist():
                if not info.is_dir() and info.file_size <= _MOST_RATIO * max(info.compress_size, 1024):
                    yield _Entry(info.filename, info.file_size, f"{info.CRC:08x}-{info.file_size}")

    def _tar_entries(self) -> Iterator[_Entry]:
        total = 0
        with tarfile.open(self._path) as archive:
            for member in archive:
                total += member.size
                if total > _MOST_TOTAL_BYTES:
                    raise tarfile.TarError(f"it unpacks to more than {_MOST_TOTAL_BYTES >> 30} GiB")
                if not member.isfile():
                    continue
                inside = member.name.removeprefix("./").partition("/")[2]  # as if there were a common folder
                wanted = is_read(inside or member.name, member.size) or _IDENTITY.match(member.name.rpartition("/")[2])
                stamp = ""
                if wanted and member.size <= MOST_FILE_BYTES and (file := archive.extractfile(member)):
                    self._tarred[member.name] = data = file.read()
                    stamp = f"{zlib.crc32(data):08x}-{member.size}"
                yield _Entry(member.name, member.size, stamp)

    def _identity(self) -> tuple[str, str]:
        """Name and version: by the metadata, else by the file's name."""
        for path in filter(_IDENTITY.match, self._names):
            data = self.read(path)
            try:
                package = msgspec.json.decode(data, type=_Package) if path == "package.json" else _package_of(data)
            except msgspec.DecodeError:
                continue
            if package.name and package.version:
                return package.name, package.version
        stem = re.sub(r"\.(tar\.\w+|tgz|zip|whl)$", "", self._path.name)
        match = re.match(r"(.+?)[-_]v?(\d[\w.+-]*)$", stem)
        return (match[1], match[2]) if match else (stem, "unknown version")

    def files(self) -> Iterator[SourceFile]:
        """Every file that is read, in the order of their paths."""
        for path, entry in sorted(self._names.items()):
            if is_read(path, entry.num_bytes):
                yield SourceFile(path, entry.num_bytes, entry.stamp)

    def read(self, path: str) -> bytes:
        """The content of a file."""
        entry = self._names.get(path)
        if entry is None or (self._tarred and entry.name not in self._tarred):
            raise CatalogSourceError(self.spec, f"it has no {path}", "Index it again.")
        if self._tarred:
            return self._tarred[entry.name]
        try:
            if not hasattr(self, "_open"):
                self._open = zipfile.ZipFile(self._path)
            with self._open.open(entry.name) as file:
                return file.read(MOST_FILE_BYTES + 1)
        except _BROKEN as error:
            raise CatalogSourceError(self.spec, f"can't read {path}: {error}", "Fetch the file again.") from error

    def permalink(self, path: str, start: int, end: int) -> str | None:
        """None: an archive has no address of lines."""
        return None


class _Package(msgspec.Struct):
    name: str = ""
    version: str = ""


def _package_of(metadata: bytes) -> _Package:
    head = metadata.decode("utf-8", "replace").replace("\r\n", "\n").partition("\n\n")[0]
    fields = dict(re.findall(r"^(Name|Version): *(.+?)\s*$", head, re.MULTILINE))
    return _Package(fields.get("Name", ""), fields.get("Version", ""))


def _is_zip(path: Path) -> bool:
    """By its beginning: a tar file may end with a zip file that it holds."""
    with path.open("rb") as file:
        return file.read(4) in (b"PK\x03\x04", b"PK\x05\x06")


def _common_top(names: list[str]) -> str:
    """The one folder that everything lies in, as in an sdist or an npm package; empty: there is none."""
    tops = {name.partition("/")[0] for name in names}
    return f"{tops.pop()}/" if len(tops) == 1 and all("/" in name for name in names) else ""


def _is_inside(name: str) -> bool:
    return not name.startswith("/") and ".." not in name.split("/")
