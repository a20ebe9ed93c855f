"""Checkpoints and callbacks as sources of experts: the right bytes, or an error that names what is wrong."""

from __future__ import annotations

import json
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from windtunnel.eplb.store import ExpertStore
from windtunnel.eplb.weights import CallbackWeights, SafetensorsWeights
from windtunnel.errors import EplbInputError, FileError, TransferFailed

LAYERS, EXPERTS, SLOTS = 2, 4, 2
GROUP_BYTES = 24 + 24 + 48 + 3


def names(layer: int, expert: int) -> list[str]:
    where = f"model.layers.{layer}.experts.{expert}"
    return [f"{where}.gate.weight", f"{where}.up.weight", f"{where}.down.weight", f"{where}.scale"]


def tensors(layer: int, expert: int) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng([layer, expert])
    floats = [rng.standard_normal(shape, np.float32) for shape in ((2, 3), (2, 3), (3, 4))]
    return [*floats, rng.integers(-128, 128, 3, np.int8)]


def group(layer: int, expert: int) -> bytes:
    return b"".join(tensor.tobytes() for tensor in tensors(layer, expert))


def store(down: Any = np.float32) -> ExpertStore:
    """As an engine has it: gate and up are one tensor."""
    shapes: list[tuple[tuple[int, ...], Any]] = [((4, 3), np.float32), ((3, 4), down), ((3,), np.int8)]
    return ExpertStore([[np.zeros((SLOTS, *shape), dtype) for shape, dtype in shapes] for _ in range(LAYERS)])


def read(weights: Any, layer: int, expert: int, num_bytes: int = GROUP_BYTES) -> bytes:
    """Into the middle of a buffer, whose other bytes must stay."""
    buffer = np.full(num_bytes + 16, 0xEE, np.uint8)
    weights.read(layer, expert, buffer[8:-8])
    assert (buffer[:8] == 0xEE).all() and (buffer[-8:] == 0xEE).all()
    return buffer[8:-8].tobytes()


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """One file a layer, and an index."""
    folder, weight_map = tmp_path / "checkpoint", {}
    folder.mkdir()
    for layer in range(LAYERS):
        held = {n: t for e in range(EXPERTS) for n, t in zip(names(layer, e), tensors(layer, e), strict=True)}
        file = f"model-{layer + 1:05}-of-{LAYERS:05}.safetensors"
        save_file(held, folder / file, metadata={"format": "np"})
        weight_map |= dict.fromkeys(held, file)
    index = {"metadata": {"total_size": 1}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def write_raw(path: Path, held: dict[str, tuple[str, list[int], bytes]]) -> None:
    """A safetensors file by hand: types that numpy lacks."""
    header: dict[str, Any] = {}
    at = 0
    for name, (dtype, shape, data) in held.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in held.values()))


@pytest.mark.parametrize("how", ["folder", "folder without index", "files", "text"])
def test_each_expert_of_a_checkpoint_comes_as_the_bytes_of_its_group(checkpoint: Path, how: str) -> None:
    if how == "folder without index":
        (checkpoint / "model.safetensors.index.json").unlink()
    files: Any = {"files": sorted(checkpoint.glob("*.safetensors")), "text": str(checkpoint)}.get(how, checkpoint)
    weights = SafetensorsWeights(files, names, store())
    for layer in range(LAYERS):
        for expert in range(EXPERTS):
            assert read(weights, layer, expert) == group(layer, expert)


def test_what_was_read_is_what_a_store_then_holds(checkpoint: Path) -> None:
    held = store()
    staged = np.zeros(GROUP_BYTES, np.uint8)
    SafetensorsWeights(checkpoint, names, held).read(1, 3, staged)
    held.overwrite(1, 0, staged)
    fused, down, scale = held.tensors(1, 0)
    gate, up, *others = tensors(1, 3)
    assert np.array_equal(fused, np.concatenate([gate, up]))
    assert np.array_equal(down, others[0]) and np.array_equal(scale, others[1])


def test_files_that_the_index_does_not_name_are_left_alone(checkpoint: Path) -> None:
    shutil.copy(checkpoint / "model-00001-of-00002.safetensors", checkpoint / "consolidated.safetensors")
    assert read(SafetensorsWeights(checkpoint, names, store()), 0, 1) == group(0, 1)


def test_types_that_numpy_lacks_come_as_their_bytes(tmp_path: Path) -> None:
    file, rng = tmp_path / "model.safetensors", np.random.default_rng(3)
    weight, scale = rng.bytes(24), rng.bytes(8)
    write_raw(file, {"other": ("U8", [5], bytes(5)), "w": ("F8_E4M3", [4, 6], weight), "s": ("BF16", [4], scale)})
    raw = ExpertStore([[np.zeros((SLOTS, 24), np.uint8), np.zeros((SLOTS, 4), np.uint16)]])
    weights = SafetensorsWeights(file, lambda layer, expert: ["w", "s"], raw)
    assert read(weights, 0, 0, 32) == weight + scale


def test_a_checkpoint_larger_than_a_group_is_not_read_into_memory(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    huge = 64 << 30
    header = json.dumps(
        {
            "w": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]},
            "rest": {"dtype": "U8", "shape": [huge], "data_offsets": [4, 4 + huge]},
        }
    ).encode()
    with file.open("wb") as out:
        out.write(struct.pack("<Q", len(header)) + header + b"abcd")
        out.truncate(8 + len(header) + 4 + huge)  # a hole: it takes no disk
    assert read(SafetensorsWeights(file, lambda layer, expert: ["w"]), 0, 0, 4) == b"abcd"


def test_a_missing_file_is_named_before_an_expert_is_lost(checkpoint: Path) -> None:
    (checkpoint / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(FileError, match=r"model-00002-of-00002\.safetensors: No such file"):
        SafetensorsWeights(checkpoint, names)


@pytest.mark.parametrize("kept", [0, 7, 8, 100, -1])
def test_a_file_that_was_cut_short_is_named(checkpoint: Path, kept: int) -> None:
    file = checkpoint / "model-00002-of-00002.safetensors"
    file.write_bytes(file.read_bytes()[:kept])
    with pytest.raises(FileError, match=r"model-00002-of-00002\.safetensors"):
        SafetensorsWeights(checkpoint, names)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"weight_map": {"a": 3}}'])
def test_an_index_that_is_none_is_named(checkpoint: Path, content: bytes) -> None:
    (checkpoint / "model.safetensors.index.json").write_bytes(content)
    with pytest.raises(FileError, match=r"index\.json"):
        SafetensorsWeights(checkpoint, names)


def test_a_file_without_permission_and_a_folder_in_its_place_are_named(checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(FileError, match="Is a directory"):
        SafetensorsWeights([tmp_path], names)
    file = checkpoint / "model-00001-of-00002.safetensors"
    file.chmod(0)
    if os.access(file, os.R_OK):
        pytest.skip("this user may read everything")
    with pytest.raises(FileError, match="Permission denied"):
        SafetensorsWeights(checkpoint, names)


def test_an_empty_folder_has_no_weights(tmp_path: Path) -> None:
    with pytest.raises(EplbInputError, match="no safetensors files"):
        SafetensorsWeights(tmp_path, names)
    with pytest.raises(EplbInputError, match="no safetensors files"):
        SafetensorsWeights([], names)


def test_a_tensor_in_two_files_is_refused(checkpoint: Path) -> None:
    first = checkpoint / "model-00001-of-00002.safetensors"
    again = shutil.copy(first, checkpoint / "again.safetensors")
    with pytest.raises(EplbInputError, match=r"weight is in .*00001.* and in .*again"):
        SafetensorsWeights([first, again], names)


def change(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    other = file.with_suffix(".new")
    other.write_bytes(data)
    other.replace(file)


def cut(file: Path) -> None:
    os.truncate(file, file.stat().st_size - 1)


@pytest.mark.parametrize("harm", [change, cut, Path.unlink])
def test_a_file_that_changes_under_a_serving_engine_is_an_error_and_no_crash(
    checkpoint: Path, harm: Callable[[Path], None]
) -> None:
    weights = SafetensorsWeights(checkpoint, names, store())
    harm(checkpoint / "model-00002-of-00002.safetensors")
    with pytest.raises(FileError, match="model-00002-of-00002"):
        read(weights, 1, 3)
    assert read(weights, 0, 3) == group(0, 3)


def test_an_expert_that_no_file_has_is_named_with_the_nearest_tensor(checkpoint: Path) -> None:
    weights = SafetensorsWeights(checkpoint, names)
    with pytest.raises(EplbInputError, match=rf"layer 1, expert {EXPERTS}: .*did you mean") as failed:
        read(weights, 1, EXPERTS)
    assert names(1, EXPERTS)[0] in str(failed.value)
    with pytest.raises(EplbInputError, match="no file has a tensor"):
        SafetensorsWeights(checkpoint, lambda layer, expert: [f"nothing like {layer}"], store())


def test_a_wrong_size_is_told_tensor_by_tensor(checkpoint: Path) -> None:
    weights = SafetensorsWeights(checkpoint, lambda layer, expert: names(layer, expert)[:3])
    with pytest.raises(EplbInputError, match=r"layer 0, expert 1: .*00001.* 24 \+ 24 \+ 48 bytes, its slot has 99"):
        read(weights, 0, 1)


def test_a_wrong_type_is_told_before_anything_is_lost(checkpoint: Path) -> None:
    with pytest.raises(EplbInputError, match=r"tensor 1 of the store: .*down\.weight in .* is F32, not int32"):
        SafetensorsWeights(checkpoint, names, store(np.int32))


def test_tensors_in_another_order_than_the_stores_are_refused(checkpoint: Path) -> None:
    def down_first(layer: int, expert: int) -> list[str]:
        gate, up, down, scale = names(layer, expert)
        return [gate, down, up, scale]

    with pytest.raises(EplbInputError, match=r"tensor 0 of the store: .*down\.weight .* 24 bytes more than are left"):
        SafetensorsWeights(checkpoint, down_first, store())


def test_names_that_are_no_list_or_raise_are_the_callers_error(checkpoint: Path) -> None:
    with pytest.raises(EplbInputError, match="names gave a string"):
        read(SafetensorsWeights(checkpoint, lambda layer, expert: names(layer, expert)[0]), 0, 0)
    with pytest.raises(EplbInputError, match=r"layer 0, expert 2 raised KeyError: 2"):
        read(SafetensorsWeights(checkpoint, lambda layer, expert: {}[expert]), 0, 2)


@pytest.mark.parametrize(
    "given",
    [
        lambda parts: b"".join(part.tobytes() for part in parts),
        lambda parts: bytearray(b"".join(part.tobytes() for part in parts)),
        lambda parts: memoryview(b"".join(part.tobytes() for part in parts)),
        lambda parts: parts,
        lambda parts: (np.concatenate(parts[:2]), np.asfortranarray(parts[2]), parts[3].tobytes()),
    ],
    ids=["bytes", "bytearray", "memoryview", "arrays", "a mix, not contiguous"],
)
def test_a_callback_may_give_bytes_or_arrays(given: Callable[[Any], Any]) -> None:
    weights = CallbackWeights(lambda layer, expert: given(tensors(layer, expert)))
    assert read(weights, 1, 2) == group(1, 2)


@pytest.mark.parametrize("given", [b"short", [b"a", b"b"], [], b""])
def test_a_callback_that_gives_a_wrong_size_is_told_both(given: Any) -> None:
    with pytest.raises(EplbInputError, match=f"the callback gave .* bytes, its slot has {GROUP_BYTES}"):
        read(CallbackWeights(lambda layer, expert: given), 0, 0)


@pytest.mark.parametrize("given", [None, 3, "text", [None], np.array([None]), {"a": b""}])
def test_a_callback_that_gives_no_bytes_is_told_what_it_gave(given: Any) -> None:
    with pytest.raises(EplbInputError, match=rf"layer 0, expert 1 the callback gave {type(given).__name__}"):
        read(CallbackWeights(lambda layer, expert: given), 0, 1)


def test_what_a_callback_raises_is_told_as_the_callers_error_and_known_errors_pass() -> None:
    def fail(error: Exception) -> Callable[[int, int], bytes]:
        def function(layer: int, expert: int) -> bytes:
            raise error

        return function

    with pytest.raises(EplbInputError, match="layer 0, expert 1 raised ZeroDivisionError: over") as told:
        read(CallbackWeights(fail(ZeroDivisionError("over"))), 0, 1)
    assert isinstance(told.value.__cause__, ZeroDivisionError)
    for error in (OSError("the disk is gone"), TransferFailed(-1, 0, 1, 8, "the store is gone")):
        with pytest.raises(type(error)) as passed:
            read(CallbackWeights(fail(error)), 0, 1)
        assert passed.value is error


def test_a_callback_may_give_torch_tensors() -> None:
    torch = pytest.importorskip("torch")
    values = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    weights = CallbackWeights(lambda layer, expert: [values.to(torch.bfloat16).T, torch.nn.Parameter(values)])
    turned = values.T.contiguous().to(torch.bfloat16).view(torch.uint16).numpy().tobytes()
    assert read(weights, 0, 0, 12 + 24) == turned + values.numpy().tobytes()
