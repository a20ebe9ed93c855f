"""A rank's slots: groups of tensors as bytes, in arrays, in torch's tensors, and where `.cpu()` must fetch them."""

from __future__ import annotations

import ctypes
from typing import Any

import msgspec
import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.eplb.store import (
    Block,
    ExpertStore,
    Layout,
    allocate_staging,
    allocate_tensors,
    bytes_of,
    decode_layout,
    encode_layout,
    pieces,
)
from windtunnel.eplb.transport import HOST, ReadFailed
from windtunnel.eplb.transport.memory import Fabric, MemoryTransport
from windtunnel.errors import EplbInputError

SLOTS = 4


class Device:
    """Where a tensor is, as torch tells it."""

    def __init__(self, kind: str) -> None:
        self.type, self.index = kind, None if kind == "cpu" else 1


class Buffer:
    """What the store uses of a torch tensor, over numpy. On `cuda` its pointer is none that the host may follow."""

    def __init__(self, array: np.ndarray[Any, Any], kind: str = "cpu") -> None:
        self.array, self.device = array, Device(kind)
        self.shape, self.dtype = array.shape, array.dtype

    def is_contiguous(self) -> bool:
        return self.array.flags.c_contiguous

    def data_ptr(self) -> int:
        return int(self.array.ctypes.data) + (1 << 56 if self.device.type == "cuda" else 0)

    def element_size(self) -> int:
        return self.array.itemsize

    def numel(self) -> int:
        return self.array.size

    def __getitem__(self, slot: int) -> Buffer:
        return Buffer(self.array[slot], self.device.type)

    def detach(self) -> Buffer:
        return self

    def contiguous(self) -> Buffer:
        return self

    def cpu(self) -> Buffer:
        return Buffer(self.array.copy(), "cpu")

    def new_empty(self, shape: tuple[int, ...], device: str) -> Buffer:
        return Buffer(np.empty(shape, self.dtype), device)

    def copy_(self, other: Buffer) -> None:
        self.array[...] = other.array


def layer(seed: int = 0) -> list[np.ndarray[Any, Any]]:
    """Weights, scales of another type and of an odd size, biases."""
    rng = np.random.default_rng(seed)
    return [
        rng.standard_normal((SLOTS, 3, 5), np.float32),
        rng.integers(-128, 128, (SLOTS, 7), np.int8),
        rng.standard_normal((SLOTS, 2)),
    ]


def group(tensors: list[np.ndarray[Any, Any]], slot: int) -> bytes:
    return b"".join(tensor[slot].tobytes() for tensor in tensors)


def on(kind: str, tensors: list[np.ndarray[Any, Any]]) -> list[Any]:
    return list(tensors) if kind == "numpy" else [Buffer(tensor, kind) for tensor in tensors]


@pytest.mark.parametrize("kind", ["numpy", "cpu", "cuda"])
def test_a_group_goes_out_and_into_another_slot_byte_by_byte(kind: str) -> None:
    tensors = layer()
    before = [group(tensors, slot) for slot in range(SLOTS)]
    store = ExpertStore([on(kind, tensors)])
    staged = np.zeros(store.group_bytes[0], np.uint8)
    store.copy_out(0, 1, staged)
    assert staged.tobytes() == before[1]
    store.overwrite(0, 3, staged)
    assert [group(tensors, slot) for slot in range(SLOTS)] == [before[0], before[1], before[2], before[1]]


@pytest.mark.parametrize("kind", ["numpy", "cpu", "cuda"])
def test_a_slot_and_a_staged_group_of_the_same_bytes_have_the_same_xxh3(kind: str) -> None:
    tensors = layer()
    store = ExpertStore([on(kind, tensors)])
    staged = np.frombuffer(group(tensors, 2), np.uint8)
    assert store.digest(0, 2) == ExpertStore.digest_of(staged) == xxhash.xxh3_128_digest(group(tensors, 2))
    assert store.digest(0, 1) != store.digest(0, 2)


def test_a_staged_group_is_seen_in_the_shapes_and_types_of_its_slots_without_a_copy() -> None:
    tensors = layer()
    store = ExpertStore([tensors])
    staged = np.frombuffer(bytearray(group(tensors, 2)), np.uint8)
    views = store.staged(0, staged)
    for view, tensor in zip(views, tensors, strict=True):
        assert view.dtype == tensor.dtype and np.array_equal(view, tensor[2]) and np.shares_memory(view, staged)
    assert all(np.shares_memory(view, tensor) for view, tensor in zip(store.tensors(0, 2), tensors, strict=True))


def test_layers_may_have_groups_of_different_sizes() -> None:
    store = ExpertStore([layer(), layer()[:1]])
    assert (store.num_layers, store.slots, store.group_bytes) == (2, SLOTS, (60 + 7 + 16, 60))


@given(st.lists(st.integers(1, 40), min_size=1, max_size=5), st.integers(0, SLOTS - 1), st.integers(1, 50))
def test_the_pieces_of_a_group_cover_it_once_in_order_and_keep_their_bound(
    sizes: list[int], slot: int, most: int
) -> None:
    blocks = tuple(Block(1000 * (n + 1), size + 3, size, HOST) for n, size in enumerate(sizes))
    reads = pieces(Layout(SLOTS, (blocks,)), 0, slot, 1 << 20, most)
    flat = [piece for read in reads for piece in read]
    assert all(0 < sum(piece.num_bytes for piece in read) <= most for read in reads)
    assert len(reads) == -(-sum(sizes) // most)
    remote = [address for p in flat for address in range(p.remote, p.remote + p.num_bytes)]
    local = [address for p in flat for address in range(p.local, p.local + p.num_bytes)]
    assert remote == [b.address + slot * b.stride_bytes + at for b in blocks for at in range(b.num_bytes)]
    assert local == list(range(1 << 20, (1 << 20) + sum(sizes)))


def test_a_layout_arrives_as_it_was_sent() -> None:
    layout = ExpertStore([layer(), layer(1)]).layout()
    assert decode_layout(encode_layout(layout)) == layout


@pytest.mark.parametrize("field", range(3))
@pytest.mark.parametrize("value", [0, -8])
def test_a_layout_that_would_lead_pieces_astray_is_refused(field: int, value: int) -> None:
    block = [4096, 64, 64, HOST]
    block[field] = value
    with pytest.raises(msgspec.DecodeError):
        decode_layout(msgspec.msgpack.encode([SLOTS, [[block]]]))


def test_tensors_of_a_transport_are_read_by_peers_and_those_of_the_caller_once_registered() -> None:
    fabric = Fabric()
    owner, reader = MemoryTransport("owner", fabric), MemoryTransport("reader", fabric)
    specs = [[((3, 5), np.float32), ((7,), np.int8), ((2,), np.float64)]]
    (tensors,) = allocate_tensors(owner, specs, SLOTS)
    for tensor, values in zip(tensors, layer(), strict=True):
        tensor[:] = values
    own = layer(9)
    theirs = ExpertStore([tensors]), ExpertStore([own])
    staging = allocate_staging(reader, 2, theirs[0].group_bytes[0])
    reader.add_peer(0, owner.metadata())

    def read(store: ExpertStore) -> bytes:
        for part in pieces(store.layout(), 0, 2, staging[1].ctypes.data):
            landing = reader.read(0, part)
            while not reader.poll(landing):
                pass
        return staging[1].tobytes()

    assert read(theirs[0]) == group(tensors, 2)
    with pytest.raises(ReadFailed, match="not registered"):
        read(theirs[1])
    theirs[1].register(owner)
    assert read(theirs[1]) == group(own, 2)
    assert not staging[0].any()


def test_tensors_and_staging_of_a_transport_never_share_bytes_and_are_aligned() -> None:
    transport = MemoryTransport("one", Fabric())
    made = allocate_tensors(transport, [[((3,), np.int8), ((5,), np.float64)], [((1,), np.uint8)]], SLOTS)
    ExpertStore(made)  # which refuses those that do
    for tensor in [t for tensors in made for t in tensors] + allocate_staging(transport, 3, 100):
        assert tensor.ctypes.data % 16 == 0 and not tensor.any()
    with pytest.raises(EplbInputError, match="0 buffers"):
        allocate_staging(transport, 0, 100)


WHOLE = np.zeros((2 * SLOTS, 6), np.float32)
READ_ONLY = np.frombuffer(bytes(64), np.float32).reshape(SLOTS, 4)


@pytest.mark.parametrize(
    ("layers", "words"),
    [
        ([], "there are none"),
        ([[]], "layer 0 is list, without tensors"),
        ([[WHOLE], []], "layer 1 is list"),
        ([WHOLE], "layer 0 is ndarray"),
        (WHOLE, "layer 0 is ndarray"),
        ([["weights"]], "layer 0, tensor 0 is str, no array or tensor"),
        ([[WHOLE[:SLOTS], [1.0, 2.0]]], "layer 0, tensor 1 is list"),
        ([[WHOLE[:, :3]]], "layer 0, tensor 0 is not contiguous"),
        ([[Buffer(WHOLE[:, :3])]], "layer 0, tensor 0 is not contiguous"),
        ([[WHOLE.T]], "not contiguous"),
        ([[READ_ONLY]], "layer 0, tensor 0 is read-only"),
        ([[np.array([None] * SLOTS)]], "Python objects"),
        ([[np.zeros((0, 4))]], "of shape (0, 4) has no slots"),
        ([[np.zeros((SLOTS, 0))]], "slots without bytes"),
        ([[np.zeros(())]], "of shape () has no slots"),
        ([[Buffer(np.zeros(()))]], "of shape () has no slots"),
        ([[WHOLE[:SLOTS]], [WHOLE[SLOTS:], np.zeros((5, 2))]], "layer 1, tensor 1 has 5 slots, others have 4"),
        ([[WHOLE], [WHOLE]], "layer 0, tensor 0 and layer 1, tensor 0 share memory"),
        ([[WHOLE[:SLOTS], WHOLE[SLOTS - 1 : -1]]], "layer 0, tensor 0 and layer 0, tensor 1 share memory"),
        ([[WHOLE[1:5], WHOLE[:4]]], "layer 0, tensor 1 and layer 0, tensor 0 share memory"),
        ([[WHOLE[:SLOTS], Buffer(WHOLE[SLOTS:], "cuda")]], "layer 0, tensor 1 is on another device"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_can_be_no_store_is_refused_and_named(layers: Any, words: str) -> None:
    with pytest.raises(EplbInputError) as refused:
        ExpertStore(layers)
    assert words in str(refused.value) and refused.value.field == "layers" and refused.value.advice


def test_tensors_that_touch_do_not_overlap() -> None:
    store = ExpertStore([[WHOLE[SLOTS:]], [WHOLE[:SLOTS]]])
    assert store.slots == SLOTS


@pytest.mark.parametrize("slot", [-1, SLOTS])
def test_a_slot_that_a_rank_does_not_have_is_no_memory_of_its(slot: int) -> None:
    store = ExpertStore([layer()])
    staged = np.zeros(store.group_bytes[0], np.uint8)
    for touch in (
        lambda: store.overwrite(0, slot, staged),
        lambda: store.copy_out(0, slot, staged),
        lambda: store.digest(0, slot),
    ):
        with pytest.raises(EplbInputError, match="slot"):
            touch()


def test_bytes_of_a_tensor_keep_it_alive() -> None:
    made = bytes_of(Buffer(np.arange(1000, dtype=np.int64)))
    ctypes.memset(ctypes.create_string_buffer(8000), 1, 8000)  # memory that was given back would be taken by now
    assert np.array_equal(made.view(np.int64), np.arange(1000))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e4m3fn"])
def test_torch_tensors_are_taken_by_pointer(dtype: str) -> None:
    torch = pytest.importorskip("torch")
    _check_torch(torch, torch.device("cpu"), dtype)


def test_tensors_of_a_gpu_are_reached() -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    _check_torch(torch, torch.device("cuda"), "bfloat16")


def _check_torch(torch: Any, device: Any, dtype: str) -> None:
    """Out, into another slot, and seen in staging."""
    values = (torch.arange(SLOTS * 6, dtype=torch.float32) % 16).reshape(SLOTS, 2, 3)

    class EngineParameter(torch.nn.Parameter):  # type: ignore[misc]
        pass  # engines have their own

    tensor = EngineParameter(values.to(device, getattr(torch, dtype)), requires_grad=dtype == "float32")
    store = ExpertStore([[tensor]])
    assert store.group_bytes == (6 * tensor.element_size(),)
    staged = np.zeros(store.group_bytes[0], np.uint8)
    store.copy_out(0, 1, staged)
    assert store.digest(0, 1) == store.digest_of(staged)
    store.overwrite(0, 3, staged)
    (view,) = store.staged(0, staged)
    assert view.dtype == tensor.dtype and view.shape == (2, 3) and view.device.type == device.type
    for told in (view, tensor[3], tensor[1]):
        assert torch.equal(told.detach().cpu().float(), values[1])
    assert torch.equal(tensor[2].detach().cpu().float(), values[2])
