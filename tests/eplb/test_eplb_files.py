"""Loads and placements come back from their files as they were; a file that is wrong is named with its array."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from windtunnel.eplb.files import read_load, read_placement, write_load, write_placement
from windtunnel.eplb.placement import Placement
from windtunnel.errors import EplbInputError, FileError

SLOTS = np.array([[[0, 1, 2], [3, 1, -1]], [[3, 2, 1], [0, 1, -1]]], np.int32)
SHARE = np.array([[[1, 0.25, 1], [1, 0.75, 0]], [[1, 1, 0.5], [1, 0.5, 0]]], np.float32)


def a_placement() -> Placement:
    return Placement.of(SLOTS, 5, slots_per_rank=(3, 2), share=SHARE, epoch=7)


def saved(path: Path, **arrays: Any) -> Path:
    np.savez(path, **arrays)
    return path


def test_a_placement_comes_back_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "placement.npz"
    write_placement(path, a_placement())
    back = read_placement(path)
    assert back == a_placement()
    assert back.slots_per_rank == (3, 2) and back.epoch == 7 and back.num_experts == 5
    assert back.share.dtype == np.float32 and np.array_equal(back.share, SHARE)
    assert os.listdir(path.parent) == ["placement.npz"]


def test_a_placement_file_has_the_arrays_that_are_documented(tmp_path: Path) -> None:
    path = tmp_path / "placement.npz"
    write_placement(path, a_placement())
    with np.load(path) as archive:
        assert {name: (archive[name].dtype.str, archive[name].shape) for name in archive.files} == {
            "placement": ("<i4", (2, 2, 3)),
            "slots_per_rank": ("<i8", (2,)),
            "share": ("<f4", (2, 2, 3)),
            "epoch": ("<i8", ()),
            "num_experts": ("<i8", ()),
        }


def test_of_a_placement_only_the_slots_are_needed(tmp_path: Path) -> None:
    path = saved(tmp_path / "p.npz", placement=np.array([[[0, 1], [2, 0]]], np.int64))
    placement = read_placement(path)
    assert (placement.num_experts, placement.epoch, placement.slots_per_rank) == (3, 0, (2, 2))
    assert placement.share[0, 0, 0] == 0.5
    assert read_placement(path, num_experts=4).num_experts == 4


@pytest.mark.parametrize("dtype", ["u1", "i4", "i8", "u8", "f2", "f4", "f8", ">i4"])
def test_a_load_of_any_numbers_comes_back_with_its_steps(tmp_path: Path, dtype: str) -> None:
    load = np.arange(24).reshape(4, 2, 3).astype(dtype)
    write_load(tmp_path / "loads.npz", load)
    assert np.array_equal(read_load(tmp_path / "loads.npz"), load)


def test_a_load_without_steps_is_one_step(tmp_path: Path) -> None:
    write_load(tmp_path / "loads.npz", np.ones((2, 3)))
    assert read_load(tmp_path / "loads.npz").shape == (1, 2, 3)


def test_compressed_files_are_read(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "loads.npz", load=np.ones((2, 3)), other=np.zeros(4))
    assert read_load(tmp_path / "loads.npz").sum() == 6


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.full((2, 3), np.nan), "load: step 0, layer 0, expert 0 has nan tokens"),
        (np.full((2, 3), -1), "load: step 0, layer 0, expert 0 has -1 tokens"),
        (np.ones(3), "load: 1 axes"),
        (np.ones((1, 0, 3)), "load: shape"),
        (np.full((2, 3), "a"), "load: dtype <U1"),
        (np.ones((2, 3), bool), "load: dtype bool"),
        (np.ones((2, 3), complex), "load: dtype complex128"),
        (np.full((2, 3), None), "load: it holds Python objects"),
    ],
)
def test_a_load_that_makes_no_sense_is_refused_with_the_file_and_the_array(
    tmp_path: Path, array: Any, words: str
) -> None:
    path = saved(tmp_path / "loads.npz", load=array)
    with pytest.raises(EplbInputError) as refused:
        read_load(path)
    assert str(refused.value).startswith(f"{path}: {words}")


def test_a_missing_array_is_named_with_how_one_is_written(tmp_path: Path) -> None:
    path = saved(tmp_path / "x.npz", loads=np.ones((2, 3)))
    with pytest.raises(EplbInputError, match=r"x\.npz: load: there is no array of that name") as refused:
        read_load(path)
    assert refused.value.problem == "there is no array of that name, only loads"
    assert "np.savez(FILE, load=counts)" in refused.value.advice
    with pytest.raises(EplbInputError, match=r"x\.npz: placement: there is no array of that name"):
        read_placement(path)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"placement": SLOTS.astype(float)}, "placement: dtype float64"),
        ({"placement": SLOTS[0]}, "placement: 2 axes"),
        ({"placement": np.where(SLOTS == 3, 9, SLOTS)}, "placement: layer 0, rank 1, slot 0 holds expert 9"),
        ({"share": SHARE[:1]}, "share: shape"),
        ({"share": SHARE * 2}, "share: "),
        ({"slots_per_rank": np.array([3, 1])}, "placement: layer 0, rank 1: slot 1 is used"),
        ({"slots_per_rank": np.array([3.0, 2.0])}, "slots_per_rank: dtype float64"),
        ({"slots_per_rank": np.array(3)}, "slots_per_rank: dtype int64, shape"),
        ({"epoch": np.array([1, 2])}, "epoch: dtype int64, shape"),
        ({"num_experts": np.array(2.5)}, "num_experts: dtype float64"),
        ({"num_experts": np.array(0)}, "num_experts: 0 experts"),
        ({"epoch": np.array("x")}, "epoch: dtype <U1"),
    ],
)
def test_a_placement_that_makes_no_sense_is_refused(tmp_path: Path, changed: dict[str, Any], words: str) -> None:
    arrays = {"placement": SLOTS, "share": SHARE, "slots_per_rank": np.array([3, 2]), "num_experts": np.array(5)}
    path = saved(tmp_path / "p.npz", **(arrays | changed))
    with pytest.raises(EplbInputError) as refused:
        read_placement(path)
    assert str(refused.value).startswith(f"{path}: {words}")


def test_python_objects_in_a_file_are_not_run(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> Any:
            return (os.mkdir, (str(tmp_path / "sprung"),))

    saved(tmp_path / "p.npz", load=np.array([[Trap()]], object))
    (tmp_path / "q.npz").write_bytes(pickle.dumps(Trap()))
    with pytest.raises(EplbInputError):
        read_load(tmp_path / "p.npz")
    with pytest.raises(FileError, match="no npz"):
        read_load(tmp_path / "q.npz")
    assert not (tmp_path / "sprung").exists()


def test_what_is_no_npz_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.ones((2, 3)))
    (tmp_path / "empty.npz").write_bytes(b"")
    for name in ("a.npy", "empty.npz"):
        with pytest.raises(FileError, match="it is no npz file"):
            read_load(tmp_path / name)


def test_a_file_that_is_cut_short_or_damaged_is_refused_wherever_it_is(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "whole.npz", load=np.arange(600.0).reshape(2, 300))
    whole = (tmp_path / "whole.npz").read_bytes()
    path = tmp_path / "broken.npz"
    for end in range(0, len(whole), 37):
        path.write_bytes(whole[:end])
        with pytest.raises(FileError, match=r"broken\.npz"):
            read_load(path)
    for place in range(0, len(whole), 7):  # a flipped byte is found, or stands where it means nothing
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        try:
            assert read_load(path).shape == (1, 2, 300)
        except (FileError, EplbInputError) as error:
            assert "broken.npz" in str(error)


def test_a_file_that_is_not_there_or_is_a_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="No such file"):
        read_load(tmp_path / "nowhere.npz")
    with pytest.raises(FileError, match="Is a directory"):
        read_load(tmp_path)


def test_where_nothing_can_be_written_it_is_told_and_nothing_is_left(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="can't write"):
        write_placement(tmp_path / "file" / "p.npz", a_placement())
    (tmp_path / "folder.npz").mkdir()
    (tmp_path / "folder.npz" / "x").write_text("")
    with pytest.raises(FileError, match="can't write"):
        write_placement(tmp_path / "folder.npz", a_placement())
    assert sorted(os.listdir(tmp_path)) == ["file", "folder.npz"]


def test_a_file_without_permission_is_told(tmp_path: Path) -> None:
    saved(tmp_path / "p.npz", load=np.ones((2, 3))).chmod(0)
    tmp_path.chmod(0o511)
    reading = f"read_load(Path({str(tmp_path / 'p.npz')!r}))"
    writing = f"write_load(Path({str(tmp_path / 'q.npz')!r}), [[1]])"
    for command, word in ((reading, "read"), (writing, "write")):
        with pytest.raises(FileError, match=rf"can't {word} .*Permission denied"):
            as_nobody(f"from pathlib import Path\nfrom windtunnel.eplb.files import *\n{command}")


def as_nobody(code: str) -> None:
    """Run it in a process without root's rights, and raise the FileError that it ends with."""
    told = f"""
import os, sys
from windtunnel.errors import FileError
from windtunnel.eplb import files
if os.geteuid() == 0:
    os.setuid(65534)
try:
    exec({code!r})
except FileError as error:
    print("\\n".join([error.operation, error.path, error.reason, error.remedy]))
"""
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, timeout=60, check=True)
    if done.stdout:
        raise FileError(*done.stdout.splitlines())


def test_a_load_that_makes_no_sense_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(EplbInputError, match="load: "):
        write_load(tmp_path / "loads.npz", np.full((2, 3), np.inf))
    assert os.listdir(tmp_path) == []
