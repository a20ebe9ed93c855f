"""Where a result document goes, and how it gets there whole or not at all."""

from __future__ import annotations

import json
import os
import shutil
import stat
from pathlib import Path
from typing import Any

from windtunnel.errors import FileError
from windtunnel.measure.run import RunFacts

_PROOF_BYTES = 4096
_LONGEST_STEM = 200


def result_path(facts: RunFacts, result_dir: str | None, result_filename: str | None) -> Path:
    """The result file's path, named by vLLM's rule where the user names none."""
    name = result_filename or _default_name(facts)
    return Path(result_dir or "", name)


def _default_name(facts: RunFacts) -> str:
    label = facts.label or facts.backend
    concurrency = "" if facts.max_concurrency is None else f"-concurrency{facts.max_concurrency}"
    model = facts.model_id.rstrip("/").split("/")[-1]
    ramp_up = facts.ramp_up
    if ramp_up is not None:
        load = f"ramp-up-{ramp_up.strategy}-{ramp_up.start_rps:g}qps-{ramp_up.end_rps:g}qps"
    else:
        load = f"{float('inf') if facts.request_rate is None else facts.request_rate}qps"
    stem = f"{label}-{load}{concurrency}-{model}".replace("/", "-")
    return f"{stem[:_LONGEST_STEM]}-{facts.date}.json"


def check_writable(path: Path) -> None:
    """Make the file's folder and prove that a file can be written there.

    Raises FileError; whatever stands at `path` is untouched.
    """
    operation = "write the result to"
    remedy = "Nothing was sent. Choose another place with --result-dir or --result-filename."
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise IsADirectoryError(0, "it is a folder")
        if path.exists() and not os.access(path, os.W_OK):
            raise PermissionError(0, "the file is write-protected")
        if _is_replaceable(path):
            proof = _temporary(path)
            try:
                _write_synced(proof, b"\0" * _PROOF_BYTES, None, 0o600)
            finally:
                proof.unlink(missing_ok=True)
    except OSError as error:
        raise FileError(operation, str(path), error.strerror or str(error), remedy) from error


def write_result(path: Path, document: dict[str, Any], *, append: bool, journal: str) -> None:
    """Write the document: to a new file beside `path` that then takes its place, so no reader sees a part of it.

    `append` keeps what the file held before, and a newline between, as vLLM's --append-result does. Raises FileError,
    which says that the run's data is safe in `journal`; the file is then as it was before.
    """
    data = json.dumps(document, allow_nan=False).encode()
    try:
        if _is_replaceable(path):
            _replace(Path(os.path.realpath(path)), data, append)
        else:
            path.write_bytes(data)
    except OSError as error:
        remedy = f"The run's data is safe in {journal}: once mended, `windtunnel runs recover` makes the same report."
        raise FileError("write the result to", str(path), error.strerror or str(error), remedy) from error


def _is_replaceable(path: Path) -> bool:
    """A pipe or a device (/dev/stdout) can only be written to."""
    return path.is_file() or not path.exists()


def _replace(path: Path, data: bytes, append: bool) -> None:
    before = path if append and path.exists() and path.stat().st_size else None
    mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else None
    temporary = _temporary(path)
    try:
        _write_synced(temporary, data, before, mode)
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _temporary(path: Path) -> Path:
    return path.parent / f".windtunnel-{os.getpid()}.tmp"


def _write_synced(path: Path, data: bytes, before: Path | None, mode: int | None) -> None:
    """Write what `before` holds and the data; `mode` None is the user's default for new files."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
    with open(descriptor, "wb") as out:
        if mode is not None:
            os.fchmod(descriptor, mode)
        if before is not None:
            with open(before, "rb") as old:
                shutil.copyfileobj(old, out)
            out.write(b"\n")
        out.write(data)
        out.flush()
        os.fsync(descriptor)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
