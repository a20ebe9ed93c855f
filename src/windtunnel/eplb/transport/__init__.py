"""How bytes come from another rank's memory: one-sided reads, so that the one who receives controls them.

A transport is used by one thread. It knows addresses and peers, nothing of experts or epochs: the mover, which does,
translates what a transport raises into the errors that users see. Two implementations: `shm` (one host) and `nixl`.

No transport has a deadline of its own. A read from a peer that hangs is in progress for ever, and a read that was
released may go on writing into its memory until `drained` says otherwise: whoever uses a transport owns both facts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from windtunnel.errors import EplbInputError, did_you_mean

MAX_PIECE_BYTES = 16 << 20
"""What one read asks for at most. NIXL's reads over shared memory block and hold the interpreter's lock meanwhile."""

HOST = -1
"""The device of memory that is the host's."""


class Piece(NamedTuple):
    """A run of bytes to be read: addresses in the reader's and in the peer's address space."""

    local: int
    remote: int
    num_bytes: int


class ReadFailed(Exception):
    """The fabric or the library reports an error; the text is its own."""


class ReadPeerLost(ReadFailed):
    """The peer's process, or the link to it, is gone; or it came back as another generation."""


class Transport(Protocol):
    """Reads from peers' memory. Make one in the process that uses it, after any fork; use it from one thread."""

    def allocate(self, num_bytes: int) -> NDArray[np.uint8]:
        """Zeroed host memory [num_bytes] that peers can read and reads can land in. It stays mapped until `close`."""

    def register(self, address: int, num_bytes: int, device: int = HOST) -> None:
        """Let peers read, and reads land in, memory that is the caller's; it must stay mapped until `close`."""

    def metadata(self) -> bytes:
        """What peers need to read from here: give it to their `add_peer`, after the last `allocate` or `register`."""

    def add_peer(self, peer: int, metadata: bytes) -> None:
        """Know a rank, instead of what was known under its number. Raises ReadFailed where the metadata is no use."""

    def remove_peer(self, peer: int) -> None:
        """Forget a rank that is fenced. Its reads raise ReadPeerLost from now on."""

    def read(self, peer: int, pieces: Sequence[Piece], device: int = HOST) -> Any:
        """Begin to read into `device`, at most MAX_PIECE_BYTES: gives what `poll` takes.

        Raises ReadFailed, ReadPeerLost.
        """

    def poll(self, read: Any) -> bool:
        """Whether all bytes have landed. Moves the transfer on. Raises ReadFailed or ReadPeerLost."""

    def release(self, read: Any) -> None:
        """Be done with a read, in whatever state. This aborts nothing: see `drained`."""

    def drained(self, read: Any) -> bool:
        """Whether no byte of a released read can land any more, as far as the transport itself can know it."""

    def close(self) -> None:
        """Give everything back. Only when no peer reads from here any more, and nothing here waits for one."""


_TRANSPORTS = {"shm": "SharedMemoryTransport", "nixl": "NixlTransport"}
"""The class in the module of that name, which is imported when it is asked for."""


def make_transport(kind: str, name: str) -> Transport:
    """Make a transport; `kind` is `shm` or `nixl`, `name` this agent's, unique among peers. Raises EplbInputError."""
    if kind not in _TRANSPORTS:
        problem = f"no transport {kind}{did_you_mean(kind, _TRANSPORTS)}"
        raise EplbInputError("transport", problem, f"There are: {', '.join(_TRANSPORTS)}.")
    make: Callable[[str], Transport] = getattr(import_module(f"{__name__}.{kind}"), _TRANSPORTS[kind])
    return make(name)
