"""A rank's slots in memory. All tensors of an expert in one layer (weights, scales, biases) are one *group*.

A group moves as a whole: it lies in its tensors' slots, scattered, or in a staging buffer, one tensor after the other.
Tensors are numpy arrays, or torch tensors, which are taken by pointer: torch is not imported. Memory of a device is
reached by the tensor's own methods.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Annotated, Any

import numpy as np
import xxhash
from msgspec import Meta, Struct, msgpack
from numpy.typing import DTypeLike, NDArray

from windtunnel.eplb.transport import HOST, MAX_PIECE_BYTES, Piece, Transport
from windtunnel.errors import EplbInputError

_ALIGNMENT = 64
_Positive = Annotated[int, Meta(gt=0)]


class Block(Struct, frozen=True, array_like=True):
    """One tensor of a layer, with slots as its first axis."""

    address: _Positive
    stride_bytes: _Positive
    """From one slot to the next."""
    num_bytes: _Positive
    """Of one slot."""
    device: int


class Layout(Struct, frozen=True, array_like=True):
    """Where the groups of a rank are, in its own address space."""

    slots: _Positive
    layers: tuple[tuple[Block, ...], ...]

    def group_bytes(self, layer: int) -> int:
        """Of one expert in a layer."""
        return sum(block.num_bytes for block in self.layers[layer])


def encode_layout(layout: Layout) -> bytes:
    """As it travels."""
    return msgpack.encode(layout)


def decode_layout(data: bytes) -> Layout:
    """Raises msgspec.DecodeError."""
    return msgpack.decode(data, type=Layout)


def pieces(
    layout: Layout, layer: int, slot: int, staging_address: int, most_bytes: int = MAX_PIECE_BYTES
) -> list[list[Piece]]:
    """The reads, each of at most `most_bytes`, that bring a group into a staging buffer."""
    reads: list[list[Piece]] = [[]]
    room, local = most_bytes, staging_address
    for block in layout.layers[layer]:
        remote, left = block.address + slot * block.stride_bytes, block.num_bytes
        while left:
            if not room:
                reads.append([])
                room = most_bytes
            size = min(left, room)
            reads[-1].append(Piece(local, remote, size))
            local, remote, left, room = local + size, remote + size, left - size, room - size
    return reads


class ExpertStore:
    """The slots of one rank, in all layers."""

    def __init__(self, layers: Sequence[Sequence[Any]]) -> None:
        """`layers` has the tensors of each layer, each with slots as first axis and contiguous.

        Raises EplbInputError, which names layer and tensor.
        """
        self._layers = [_tensors(tensors, f"layer {layer}") for layer, tensors in enumerate(layers)]
        if not self._layers:
            raise EplbInputError("layers", "there are none", "Pass the tensors of each layer that has experts.")
        blocks = tuple(
            tuple(_block(tensor, _where(layer, number)) for number, tensor in enumerate(tensors))
            for layer, tensors in enumerate(self._layers)
        )
        slots = int(self._layers[0][0].shape[0])
        for layer, tensors in enumerate(self._layers):
            for number, tensor in enumerate(tensors):
                if tensor.shape[0] != slots:
                    problem = f"{_where(layer, number)} has {tensor.shape[0]} slots, others have {slots}"
                    raise EplbInputError("layers", problem, "The first axis of all tensors of a rank is its slots.")
        self._layout = Layout(slots, blocks)
        _check_apart(self._layout)

    @property
    def num_layers(self) -> int:
        """Layers of the model that have experts."""
        return len(self._layers)

    @property
    def slots(self) -> int:
        """Slots in each layer."""
        return self._layout.slots

    @property
    def group_bytes(self) -> tuple[int, ...]:
        """Bytes of one expert in each layer."""
        return tuple(self._layout.group_bytes(layer) for layer in range(self.num_layers))

    def layout(self) -> Layout:
        """What peers need to read from here."""
        return self._layout

    def tensors(self, layer: int, slot: int) -> list[Any]:
        """The tensors of the expert in a slot: views, not copies."""
        return [tensor[slot] for tensor in self._layers[layer]]

    def register(self, transport: Transport) -> None:
        """Let peers read all tensors; needed where they are not from `allocate_tensors`. Raises as the transport does.

        A tensor that is forgotten is an expert whose scales move without its weights: hence all at once.
        """
        for block in (block for blocks in self._layout.layers for block in blocks):
            transport.register(block.address, block.stride_bytes * self.slots, block.device)

    def staged(self, layer: int, staging: NDArray[np.uint8]) -> list[Any]:
        """The tensors of a staged group of a layer, in the shapes and types of its slots.

        Views of the buffer, which is the host's; where the store is on a device, copies there.
        """
        views = []
        for tensor, block, data in self._split(layer, staging):
            if isinstance(tensor, np.ndarray):
                views.append(data.view(tensor.dtype).reshape(tensor.shape[1:]))
            else:
                torch = sys.modules["torch"]  # whoever has a tensor of it has imported it
                view = torch.from_numpy(data).view(tensor.dtype).reshape(tensor.shape[1:])
                views.append(view if block.device == HOST else view.to(tensor.device))
        return views

    def digest(self, layer: int, slot: int) -> bytes:
        """xxh3-128 of a slot's group [16 bytes]."""
        hashed = xxhash.xxh3_128()
        for part in self._parts(layer, slot):
            hashed.update(part.data)
        return hashed.digest()

    @staticmethod
    def digest_of(staged: NDArray[np.uint8]) -> bytes:
        """xxh3-128 of a staged group: equal to the `digest` of a slot with the same bytes."""
        return xxhash.xxh3_128_digest(staged.data)

    def overwrite(self, layer: int, slot: int, staged: NDArray[np.uint8]) -> None:
        """Copy a staged group into a slot."""
        self._check_slot(slot)
        for tensor, block, data in self._split(layer, staged):
            if block.device == HOST:
                np.copyto(_bytes_at(block.address + slot * block.stride_bytes, block.num_bytes), data)
            else:
                host = tensor.new_empty(tensor.shape[1:], device="cpu")
                np.copyto(_bytes_at(host.data_ptr(), block.num_bytes), data)
                tensor.detach()[slot].copy_(host)

    def copy_out(self, layer: int, slot: int, into: NDArray[np.uint8]) -> None:
        """Copy a slot's group into a staging buffer."""
        for part, (_, _, data) in zip(self._parts(layer, slot), self._split(layer, into), strict=True):
            np.copyto(data, part)

    def _parts(self, layer: int, slot: int) -> Iterator[NDArray[np.uint8]]:
        """The bytes of a slot's tensors: as they lie there, or copies of a device's memory."""
        self._check_slot(slot)
        for tensor, block in zip(self._layers[layer], self._layout.layers[layer], strict=True):
            if block.device == HOST:
                yield _bytes_at(block.address + slot * block.stride_bytes, block.num_bytes)
            else:
                yield bytes_of(tensor[slot])

    def _split(self, layer: int, group: NDArray[np.uint8]) -> Iterator[tuple[Any, Block, NDArray[np.uint8]]]:
        """The tensors of a layer, and the part of a group that is each one's."""
        at = 0
        for tensor, block in zip(self._layers[layer], self._layout.layers[layer], strict=True):
            yield tensor, block, group[at : at + block.num_bytes]
            at += block.num_bytes

    def _check_slot(self, slot: int) -> None:
        """Slots are addresses here: a wrong one is somebody else's memory."""
        if not 0 <= slot < self.slots:
            raise EplbInputError("slot", f"{slot}", f"This rank has slots 0 to {self.slots - 1}.")


def bytes_of(data: Any) -> NDArray[np.uint8]:
    """The bytes of an array, a tensor or a buffer, in its order: of the thing itself where they can be had, or a copy.

    Raises TypeError, ValueError, AttributeError for what has none.
    """
    if isinstance(data, np.ndarray):
        return np.ascontiguousarray(data).reshape(-1).view(np.uint8)
    if hasattr(data, "data_ptr"):
        host = data.detach().cpu().contiguous()
        return _bytes_at(host.data_ptr(), host.numel() * host.element_size(), host)
    return np.frombuffer(data, np.uint8)


def allocate_staging(transport: Transport, buffers: int, group_bytes: int) -> list[NDArray[np.uint8]]:
    """Staging buffers [group_bytes] in memory that reads can land in."""
    if buffers < 1:
        raise EplbInputError("staging_buffers", f"{buffers} buffers", "A rank needs at least one.")
    stride = _aligned(group_bytes)
    memory = transport.allocate(buffers * stride)
    return [memory[number * stride : number * stride + group_bytes] for number in range(buffers)]


def allocate_tensors(
    transport: Transport, layers: Sequence[Sequence[tuple[tuple[int, ...], DTypeLike]]], slots: int
) -> list[list[NDArray[Any]]]:
    """Arrays for a store, in memory that peers read fast: for each layer its tensors' (shape without slots, dtype)."""
    sizes = [
        [_aligned(slots * int(np.prod(shape)) * np.dtype(dtype).itemsize) for shape, dtype in tensors]
        for tensors in layers
    ]
    memory, at = transport.allocate(sum(map(sum, sizes))), 0
    made: list[list[NDArray[Any]]] = []
    for tensors, layer_sizes in zip(layers, sizes, strict=True):
        made.append([])
        for (shape, dtype), size in zip(tensors, layer_sizes, strict=True):
            num_bytes = slots * int(np.prod(shape)) * np.dtype(dtype).itemsize
            made[-1].append(memory[at : at + num_bytes].view(dtype).reshape(slots, *shape))
            at += size
    return made


def _aligned(num_bytes: int) -> int:
    return -(-num_bytes // _ALIGNMENT) * _ALIGNMENT


def _where(layer: int, number: int) -> str:
    return f"layer {layer}, tensor {number}"


def _tensors(tensors: Any, where: str) -> list[Any]:
    """Of one layer. A tensor in their place would be taken for its slots."""
    if not isinstance(tensors, Sequence) or not tensors:
        problem = f"{where} is {type(tensors).__name__}, without tensors"
        raise EplbInputError("layers", problem, "Pass a list of lists: for each layer its tensors, at least one.")
    return list(tensors)


def _block(tensor: Any, where: str) -> Block:
    if isinstance(tensor, np.ndarray):
        if tensor.dtype.hasobject:
            raise EplbInputError("layers", f"{where} has Python objects", "Pass arrays of numbers.")
        contiguous, writable = tensor.flags.c_contiguous, tensor.flags.writeable
        address, item_bytes, device = tensor.ctypes.data, tensor.itemsize, HOST
    else:
        try:
            contiguous, writable = tensor.is_contiguous(), True
            address, item_bytes = int(tensor.data_ptr()), int(tensor.element_size())
            device = HOST if tensor.device.type == "cpu" else int(tensor.device.index or 0)
        except AttributeError as error:
            problem = f"{where} is {type(tensor).__name__}, no array or tensor"
            raise EplbInputError("layers", problem, "Pass numpy arrays or torch tensors.") from error
    if not contiguous or not writable:
        state = "read-only" if contiguous else "not contiguous"
        raise EplbInputError("layers", f"{where} is {state}", "Pass contiguous, writable memory.")
    num_bytes = int(np.prod(tensor.shape[1:], dtype=np.int64)) * item_bytes
    if not tensor.shape or not tensor.shape[0] or not num_bytes or not address:
        problem = f"{where} of shape {tuple(tensor.shape)} has no slots, or slots without bytes"
        raise EplbInputError("layers", problem, "Slots are the first axis; leave empty tensors out.")
    return Block(address, num_bytes, num_bytes, device)


def _check_apart(layout: Layout) -> None:
    """One device, and no byte in two tensors: to overwrite one would overwrite the other."""
    blocks = [(b, _where(layer, n)) for layer, blocks in enumerate(layout.layers) for n, b in enumerate(blocks)]
    if len({block.device for block, _ in blocks}) > 1:
        other = next(where for block, where in blocks if block.device != blocks[0][0].device)
        raise EplbInputError("layers", f"{other} is on another device", "Keep a rank's experts on one device.")
    blocks.sort(key=lambda found: found[0].address)
    for (block, where), (later, other) in pairwise(blocks):
        if block.address + layout.slots * block.stride_bytes > later.address:
            raise EplbInputError("layers", f"{where} and {other} share memory", "Give each tensor memory of its own.")


def _bytes_at(address: int, num_bytes: int, owner: Any = None) -> NDArray[np.uint8]:
    """Memory as an array, which keeps `owner`."""
    memory = (ctypes.c_uint8 * num_bytes).from_address(address)
    memory.owner = owner  # type: ignore[attr-defined]
    return np.ctypeslib.as_array(memory)
