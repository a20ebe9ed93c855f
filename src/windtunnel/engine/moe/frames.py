"""What the front and an expert rank say to each other over their socket: frames of bytes, no I/O.

A frame is a length, a kind and a body. Work carries activations of tokens for slots of one layer, as int8, since they
are integers within ±127; an answer carries as many back, in the same order.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_HEAD = struct.Struct("<IB")
_WORK = struct.Struct("<QqHI")
_ANSWER = struct.Struct("<QBI")
_MOST_BYTES = 1 << 30


class Kind(IntEnum):
    """Of a frame."""

    READY = 1
    """From a rank: it serves. The body is empty."""
    WORK = 2
    ANSWER = 3
    SLOW = 4
    """To a rank: wait so many nanoseconds before each answer (8 bytes)."""
    FAIL_AT = 5
    """To a rank: `transition\\nhow\\noccurrence`."""


class Status(IntEnum):
    """How work ended."""

    DONE = 0
    STALE = 1
    """The rank does not answer for that epoch, or not any more."""
    ELSEWHERE = 2
    """A slot holds another expert than the front believes."""


class Work(NamedTuple):
    """Pairs of a token and a slot, in the order of slots."""

    number: int
    """Comes back with the answer."""
    epoch: int
    layer: int
    slots: NDArray[np.uint16]
    """[pairs]"""
    experts: NDArray[np.uint16]
    """What the slots hold, as the front believes [pairs]."""
    activations: NDArray[np.int8]
    """[pairs, hidden]"""


class Answer(NamedTuple):
    """What became of work."""

    number: int
    status: Status
    activations: NDArray[np.int8]
    """[pairs, hidden]; without pairs where the status is not DONE."""


def frame(kind: Kind, body: bytes = b"") -> bytes:
    """The bytes of a frame."""
    return _HEAD.pack(len(body), kind) + body


def work_frame(work: Work) -> bytes:
    """The bytes of work."""
    head = _WORK.pack(work.number, work.epoch, work.layer, len(work.slots))
    return frame(Kind.WORK, head + work.slots.tobytes() + work.experts.tobytes() + work.activations.tobytes())


def work_of(body: bytes) -> Work:
    """What `work_frame` made."""
    number, epoch, layer, num_pairs = _WORK.unpack_from(body)
    slots = np.frombuffer(body, np.uint16, num_pairs, _WORK.size)
    experts = np.frombuffer(body, np.uint16, num_pairs, _WORK.size + 2 * num_pairs)
    activations = np.frombuffer(body, np.int8, offset=_WORK.size + 4 * num_pairs)
    return Work(number, epoch, layer, slots, experts, activations.reshape(num_pairs, -1))


def answer_frame(answer: Answer) -> bytes:
    """The bytes of an answer."""
    head = _ANSWER.pack(answer.number, answer.status, len(answer.activations))
    return frame(Kind.ANSWER, head + answer.activations.tobytes())


def answer_of(body: bytes) -> Answer:
    """What `answer_frame` made."""
    number, status, num_pairs = _ANSWER.unpack_from(body)
    activations = np.frombuffer(body, np.int8, offset=_ANSWER.size).reshape(num_pairs, -1 if num_pairs else 0)
    return Answer(number, Status(status), activations)


class Frames:
    """Bytes as they come → whole frames."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, data: bytes) -> list[tuple[Kind, bytes]]:
        """The frames that are whole now."""
        self._bytes += data
        whole: list[tuple[Kind, bytes]] = []
        at = 0
        while len(self._bytes) - at >= _HEAD.size:
            size, kind = _HEAD.unpack_from(self._bytes, at)
            if size > _MOST_BYTES:
                raise ValueError(f"a frame of {size} bytes")
            end = at + _HEAD.size + size
            if len(self._bytes) < end:
                break
            whole.append((Kind(kind), bytes(self._bytes[at + _HEAD.size : end])))
            at = end
        del self._bytes[:at]
        return whole
