"""Read a dataset's file: open it, and tell what is wrong with its JSON, and where."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

from windtunnel.errors import ConfigurationError, DatasetError, FileError
from windtunnel.workload.config import DatasetConfig

UTF8_MARK = b"\xef\xbb\xbf"
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_CHECK = "Check --dataset-path."


def dataset_path(config: DatasetConfig) -> Path:
    """The dataset's file. Raises ConfigurationError when no path is given, FileError when it is no readable file."""
    if config.path is None:
        raise ConfigurationError(
            "--dataset-path", f"the dataset {config.name} needs a file", "Give --dataset-path FILE."
        )
    path = Path(config.path).expanduser()
    try:
        with path.open("rb"):
            return path
    except OSError as error:
        raise unreadable(path, error) from error


def unreadable(path: Path, error: OSError) -> FileError:
    """The error for a dataset that the system won't let us read."""
    return FileError("read", str(path), error.strerror or str(error), _CHECK)


def raise_broken(path: Path, data: bytes, error: Exception, remedy: str, line: int | None = None) -> NoReturn:
    """Raise DatasetError for JSON that msgspec refused: not UTF-8, broken, too deep, or of another shape."""
    raise DatasetError(str(path), _problem(data, error), remedy, line) from error


def _problem(data: bytes, error: Exception) -> str:
    if data.startswith(_UTF16_MARKS):
        return "it is UTF-16, not UTF-8"
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as unicode_error:
        return f"it is not UTF-8 (byte {unicode_error.start})"
    if isinstance(error, RecursionError):
        return "its JSON is nested too deeply"
    return str(error).replace("Input data was truncated", "its JSON ends early")
