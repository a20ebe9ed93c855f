"""Loads and placements as files: npz, so that any tool with numpy reads and writes them.

A load: `load` [layers, experts] or [steps, layers, experts], tokens of each logical expert, any numbers.
A placement: `placement` int32 [layers, ranks, most slots of a rank] (-1: empty, or no slot), `slots_per_rank` int64
[ranks], `share` float32 like `placement`, `epoch` and `num_experts` int64 []. All but `placement` may be left out.

FileError says that a file can't be read or written, EplbInputError which array of it is wrong.
"""

from __future__ import annotations

import io
import os
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import ArrayLike, NDArray

from windtunnel.eplb.load import recorded
from windtunnel.eplb.placement import Placement
from windtunnel.errors import EplbInputError, FileError

_DAMAGE = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, MemoryError, RuntimeError, ValueError)
"""What zipfile raises for bytes that make no sense; RuntimeError for an encrypted file."""
_LOAD = "load"
_PLACEMENT = "placement"
_PLACEMENT_ARRAYS = (_PLACEMENT, "slots_per_rank", "share", "epoch", "num_experts")


def read_load(path: Path) -> NDArray[Any]:
    """The recorded load, [steps, layers, experts], checked; a file of one [layers, experts] has one step.

    Raises FileError and EplbInputError.
    """
    arrays = _read(path, (_LOAD,), "Write it whole by np.savez(FILE, load=counts), which names the array too.")
    with _naming(path):
        return recorded(arrays[_LOAD])


def write_load(path: Path, load: ArrayLike) -> None:
    """Write a load [layers, experts] or [steps, layers, experts]. Raises FileError and EplbInputError."""
    recorded(load)
    _write(path, {_LOAD: np.asarray(load)})


def read_placement(path: Path, num_experts: int | None = None) -> Placement:
    """The placement, checked. Raises FileError and EplbInputError.

    `num_experts` counts where the file doesn't say how many there are; None: as many as occur in it.
    """
    arrays = _read(path, _PLACEMENT_ARRAYS, "`windtunnel eplb plan --output FILE` writes one.")
    slots = arrays[_PLACEMENT]
    epoch = _whole_number(arrays, path, "epoch")
    experts = _whole_number(arrays, path, "num_experts")
    if experts is None:
        experts = num_experts if num_experts is not None else _most(slots) + 1
    slots_per_rank = _slots_per_rank(arrays, path)
    with _naming(path):
        return Placement.of(
            slots,
            experts,
            slots_per_rank=slots_per_rank,
            share=arrays.get("share"),
            epoch=epoch or 0,
        )


def write_placement(path: Path, placement: Placement) -> None:
    """Write a placement. Raises FileError."""
    _write(
        path,
        {
            _PLACEMENT: placement.slots,
            "slots_per_rank": np.array(placement.slots_per_rank, np.int64),
            "share": placement.share,
            "epoch": np.array(placement.epoch, np.int64),
            "num_experts": np.array(placement.num_experts, np.int64),
        },
    )


# --- arrays ---------------------------------------------------------------------------------------------------------


def _whole_number(arrays: Mapping[str, NDArray[Any]], path: Path, name: str) -> int | None:
    if name not in arrays:
        return None
    array = arrays[name]
    if array.dtype.kind not in "iu" or array.size != 1:
        problem = f"dtype {array.dtype}, shape {array.shape}"
        raise EplbInputError(f"{path}: {name}", problem, "It is one whole number.")
    return int(array.reshape(-1)[0])


def _slots_per_rank(arrays: Mapping[str, NDArray[Any]], path: Path) -> tuple[int, ...] | None:
    if "slots_per_rank" not in arrays:
        return None
    array = arrays["slots_per_rank"]
    if array.dtype.kind not in "iu" or array.ndim != 1 or not array.size:
        problem = f"dtype {array.dtype}, shape {array.shape}"
        raise EplbInputError(f"{path}: slots_per_rank", problem, "It is one whole number for each rank.")
    return tuple(array.tolist())


def _most(slots: NDArray[Any]) -> int:
    return int(slots.max()) if slots.dtype.kind in "iu" and slots.size else 0


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Put the file's name before the field that is wrong."""
    try:
        yield
    except EplbInputError as error:
        raise EplbInputError(f"{path}: {error.field}", error.problem, error.remedy) from error


# --- files ----------------------------------------------------------------------------------------------------------


def _read(path: Path, names: tuple[str, ...], remedy: str) -> dict[str, NDArray[Any]]:
    """Those of the arrays that are there; the first must be, and `remedy` tells how one is written.

    No array may hold Python objects: such a file can run any code.
    """
    try:
        with open(path, "rb") as file:
            if not zipfile.is_zipfile(file):
                raise _unreadable(path, "it is no npz file, or its end is missing", remedy)
            with zipfile.ZipFile(file) as archive:
                found = {member.removesuffix(".npy"): member for member in archive.namelist()}
                if names[0] not in found:
                    raise _missing(path, names[0], list(found), remedy)
                there = {name: found[name] for name in names if name in found}
                # whole members first: their checksums are compared before anything is made of their bytes
                contents = {name: archive.read(member) for name, member in there.items()}
    except OSError as error:
        raise _unreadable(path, error.strerror or str(error), "Is this the file that you mean?") from error
    except _DAMAGE as error:
        raise _unreadable(path, f"it is damaged ({error or type(error).__name__})", "Write it anew.") from error
    return {name: _array(content, f"{path}: {name}") for name, content in contents.items()}


def _array(content: bytes, field: str) -> NDArray[Any]:
    try:
        array: NDArray[Any] = np.lib.format.read_array(io.BytesIO(content), allow_pickle=False)
    except Exception as error:  # numpy parses a header as Python, and raises what Python's parsers do
        is_pickled = "allow_pickle" in str(error)
        problem = "it holds Python objects, which are not read" if is_pickled else f"it is no array ({error})"
        raise EplbInputError(field, problem, "Save an array of numbers.") from error
    if array.dtype.kind not in "iuf":
        raise EplbInputError(field, f"dtype {array.dtype}", "Save an array of numbers.")
    return array


def _missing(path: Path, name: str, found: list[str], remedy: str) -> EplbInputError:
    others = f", only {', '.join(found)}" if found else ""
    return EplbInputError(f"{path}: {name}", f"there is no array of that name{others}", remedy)


def _unreadable(path: Path, reason: str, remedy: str) -> FileError:
    return FileError("read", str(path), reason, remedy)


def require_writable(path: Path) -> None:
    """Make the file's folder and prove that a file can be written there; what stands at `path` is untouched.

    Raises FileError.
    """
    with _writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise IsADirectoryError(0, "it is a folder")
        if path.exists() and not os.access(path, os.W_OK):
            raise PermissionError(0, "the file is write-protected")
        if _is_replaceable(path):
            proof = _temporary(path)
            try:
                proof.write_bytes(b"\0")
            finally:
                proof.unlink(missing_ok=True)


def write_whole(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write to a file beside `path` that then takes its place: nobody reads a half of it. Raises FileError."""
    require_writable(path)
    with _writing(path):
        if not _is_replaceable(path):
            with open(path, "wb") as out:
                write(out)
            return
        temporary = _temporary(path)
        try:
            with open(temporary, "wb") as out:
                write(out)
                out.flush()
                os.fsync(out.fileno())
            os.replace(temporary, os.path.realpath(path))
        finally:
            temporary.unlink(missing_ok=True)


def _write(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    write_whole(path, lambda out: np.savez(out, **arrays))  # type: ignore[arg-type]


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        remedy = "Choose another place; what stood there is untouched."
        raise FileError("write", str(path), error.strerror or str(error), remedy) from error


def _is_replaceable(path: Path) -> bool:
    """A pipe or a device can only be written to."""
    return path.is_file() or not path.exists()


def _temporary(path: Path) -> Path:
    """Beside the file itself, not beside a link to it."""
    return Path(os.path.realpath(path)).parent / f".windtunnel-{os.getpid()}.tmp"
