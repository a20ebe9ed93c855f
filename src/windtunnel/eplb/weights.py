"""Where an expert is read from when no rank has it: a checkpoint of safetensors files, or a function of the engine's.

What is read is a *group*, laid out as in the store: the tensors of an expert in one layer, one after the other. An
engine that fuses tensors of a checkpoint (gate and up, say) names them in the order in which they lie in its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from windtunnel.eplb.store import ExpertStore, bytes_of
from windtunnel.errors import EplbInputError, FileError, WindtunnelError, did_you_mean

_INDEX = "*.safetensors.index.json"
_DTYPES = {
    "BOOL": "bool",
    "I8": "int8",
    "I16": "int16",
    "I32": "int32",
    "I64": "int64",
    "F16": "float16",
    "BF16": "bfloat16",
    "F32": "float32",
    "F64": "float64",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu",
}
"""What safetensors' types are called by numpy and torch. Others are not compared."""


class CallbackWeights:
    """Experts that a function gives."""

    def __init__(self, function: Callable[[int, int], Any]) -> None:
        """`function(layer, expert)` gives bytes, an array or a tensor, or a list of them in the group's order.

        It is called on the agent's mover thread, which moves nothing meanwhile.
        """
        self._function = function

    def read(self, layer: int, expert: int, into: NDArray[np.uint8]) -> None:
        """Fill `into` [bytes of a group]. Raises EplbInputError; a WindtunnelError or OSError of the function's."""
        given = _call(self._function, layer, expert)
        try:
            parts = [bytes_of(part) for part in (given if isinstance(given, list | tuple) else [given])]
        except (TypeError, ValueError, AttributeError) as error:
            problem = f"for layer {layer}, expert {expert} the callback gave {type(given).__name__}: {error}"
            raise EplbInputError("weights", problem, "Give bytes, arrays or tensors.") from error
        _check_sizes(layer, expert, "the callback gave", [len(part) for part in parts], len(into))
        at = 0
        for part in parts:
            into[at : at + len(part)] = part
            at += len(part)


class _File(NamedTuple):
    path: Path
    stamp: tuple[int, ...]
    """Another one: the file is not what it was when its header was read."""


class _Tensor(NamedTuple):
    name: str
    file: _File
    dtype: str
    offset: int
    """In its file."""
    num_bytes: int


class SafetensorsWeights:
    """Experts from safetensors files. Headers are read once, weights when they are needed, straight into staging."""

    def __init__(
        self,
        files: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
        names: Callable[[int, int], Sequence[str]],
        store: ExpertStore | None = None,
    ) -> None:
        """`files` is a folder (its index names the files, else all of them count), a file, or several.

        `names(layer, expert)` gives the names of an expert's tensors in the group's order. With `store` each tensor
        must also have the size and type that it has there, and one expert of each layer is looked for at once.
        Raises FileError, EplbInputError.
        """
        self._names = names
        self._store = store
        self._tensors: dict[str, _Tensor] = {}
        for path in _paths(files):
            for tensor in _header(path):
                other = self._tensors.setdefault(tensor.name, tensor)
                if other is not tensor:
                    problem = f"{tensor.name} is in {other.file.path} and in {path}"
                    raise EplbInputError("weights", problem, "Name the files of one checkpoint.")
        if store:
            for layer in range(store.num_layers):
                self._group(layer, 0, store.group_bytes[layer])

    def read(self, layer: int, expert: int, into: NDArray[np.uint8]) -> None:
        """Fill `into` [bytes of a group]. Raises FileError, EplbInputError."""
        at = 0
        for tensor in self._group(layer, expert, len(into)):
            _read(tensor, into[at : at + tensor.num_bytes])
            at += tensor.num_bytes

    def _group(self, layer: int, expert: int, num_bytes: int) -> list[_Tensor]:
        """The tensors of an expert, checked against what they are to fill."""
        names = _call(self._names, layer, expert)
        if isinstance(names, str):
            raise EplbInputError("weights", f"names gave a string, {names!r}", "Give a list of names.")
        for name in names:
            if name not in self._tensors:
                near = did_you_mean(str(name), self._tensors)
                problem = f"layer {layer}, expert {expert}: no file has a tensor {name}{near}"
                raise EplbInputError("weights", problem, "Are these all files, and does names(layer, expert) fit them?")
        found = [self._tensors[name] for name in names]
        words = f"{', '.join(names)} in {', '.join(sorted({str(t.file.path) for t in found}))} have"
        _check_sizes(layer, expert, words, [tensor.num_bytes for tensor in found], num_bytes)
        if self._store:
            _check_tensors(self._store, layer, expert, found)
        return found


def _call(function: Callable[[int, int], Any], layer: int, expert: int) -> Any:
    """What is the engine's may raise anything; the mover knows two kinds of error."""
    try:
        return function(layer, expert)
    except (WindtunnelError, OSError):
        raise
    except Exception as error:
        problem = f"asking for layer {layer}, expert {expert} raised {type(error).__name__}: {error}"
        raise EplbInputError("weights", problem, "Mend the function that was given to the weight source.") from error


def _check_sizes(layer: int, expert: int, words: str, sizes: Sequence[int], num_bytes: int) -> None:
    if sum(sizes) != num_bytes:
        has = " + ".join(map(str, sizes)) or "0"
        problem = f"layer {layer}, expert {expert}: {words} {has} bytes, its slot has {num_bytes}"
        raise EplbInputError("weights", problem, "Give all tensors of the group, in the types of the store.")


def _check_tensors(store: ExpertStore, layer: int, expert: int, found: Sequence[_Tensor]) -> None:
    """Each tensor of the store is filled by one tensor of the files, or by several, whole ones of its type."""
    left = iter(found)
    for number, (block, view) in enumerate(zip(store.layout().layers[layer], store.tensors(layer, 0), strict=True)):
        missing = block.num_bytes
        while missing > 0:
            tensor = next(left)  # sizes agree in sum, so there is one
            missing -= tensor.num_bytes
            problem = ""
            if missing < 0:
                problem = f"has {-missing} bytes more than are left in it"
            elif not _fits(tensor.dtype, str(view.dtype).removeprefix("torch.")):
                problem = f"is {tensor.dtype}, not {view.dtype}"
            if problem:
                where = f"layer {layer}, expert {expert}, tensor {number} of the store"
                problem = f"{where}: {tensor.name} in {tensor.file.path} {problem}"
                raise EplbInputError(
                    "weights", problem, "Are names in the store's order? Convert by a callback if not."
                )


def _fits(stored: str, wanted: str) -> bool:
    """Unsigned integers hold anything: numpy has no bfloat16 and no float8."""
    return wanted.startswith(("uint", "void", "|V")) or _DTYPES.get(stored, wanted) == wanted


def _paths(files: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> list[Path]:
    if not isinstance(files, str | os.PathLike):
        paths = [Path(file) for file in files]
    elif not Path(files).is_dir():
        paths = [Path(files)]
    else:
        folder = Path(files)
        indexes = sorted(folder.glob(_INDEX))
        paths = _indexed(indexes[0]) if indexes else sorted(folder.glob("*.safetensors"))
    if not paths:
        raise EplbInputError("weights", f"no safetensors files: {files}", "Name a checkpoint's folder or its files.")
    return paths


def _indexed(index: Path) -> list[Path]:
    try:
        names = set(msgspec.json.decode(index.read_bytes(), type=_Index).weight_map.values())
    except (OSError, msgspec.DecodeError) as error:
        raise _unreadable(index, error) from error
    return [index.parent / name for name in sorted(names)]


class _Index(msgspec.Struct):
    weight_map: dict[str, str]


class _Entry(msgspec.Struct):
    dtype: str
    data_offsets: tuple[int, int]


def _header(path: Path) -> Iterator[_Tensor]:
    """What is where in a file.

    safetensors checks the file: sizes, offsets, a tail that is missing. It gives no bytes to numpy where numpy lacks
    the type (bfloat16, float8), so these are read by their offsets: 8 bytes of length, the header, the tensors.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with path.open("rb") as file:
            with safe_open(path, framework="np"):
                pass
            stamp = _stamp(file.fileno())
            length = int.from_bytes(file.read(8), "little")
            entries = msgspec.json.decode(file.read(length), type=dict[str, msgspec.Raw])
        entries.pop("__metadata__", None)
        for name, raw in entries.items():
            entry = msgspec.json.decode(raw, type=_Entry)
            begin, end = entry.data_offsets
            yield _Tensor(name, _File(path, stamp), entry.dtype, 8 + length + begin, end - begin)
    except (OSError, SafetensorError, msgspec.DecodeError) as error:
        raise _unreadable(path, error) from error


def _read(tensor: _Tensor, into: NDArray[np.uint8]) -> None:
    """Not by a mapping: where a mapped file is cut short, touching it ends the process."""
    left = into.data
    try:
        with tensor.file.path.open("rb", buffering=0) as file:
            if _stamp(file.fileno()) != tensor.file.stamp:
                raise OSError("it is not the file any more whose header was read")
            file.seek(tensor.offset)
            while left:
                got = file.readinto(left)
                if not got:
                    raise OSError(f"it ended within {tensor.name}")
                left = left[got:]
    except OSError as error:
        raise _unreadable(tensor.file.path, error) from error


def _stamp(fd: int) -> tuple[int, ...]:
    stat = os.fstat(fd)
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns


def _unreadable(path: Path, error: Exception) -> FileError:
    reason = getattr(error, "strerror", None) or str(error)
    return FileError(
        "read weights from", str(path), reason, "Give the files of a whole checkpoint, and leave them alone."
    )
