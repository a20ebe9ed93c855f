"""What the run's process and its load workers say to each other: msgpack messages, each behind its length."""

from __future__ import annotations

from msgspec import Struct, msgpack

from windtunnel.wire.openai import Dialect

_LENGTH_BYTES = 4


class Address(Struct, frozen=True, array_like=True):
    """Where a connection goes."""

    family: int
    host: str
    """An IP address."""
    port: int
    scope: tuple[int, int] | None = None
    """IPv6's flow and scope."""

    @property
    def sockaddr(self) -> tuple[str | int, ...]:
        """As the socket module takes it."""
        return (self.host, self.port, *(self.scope or ()))


class Timeouts(Struct, frozen=True):
    """In nanoseconds."""

    connect_ns: int
    first_token_ns: int
    stall_ns: int
    request_ns: int


class Setup(Struct, frozen=True, tag="setup"):
    """The first message to a worker. Secrets go this way, never by argument or environment."""

    worker: int
    url: str
    addresses: list[Address]
    headers: list[tuple[str, str]]
    dialect: Dialect
    streamed: bool
    timeouts: Timeouts
    insecure: bool
    proxy: str | None
    retries: int
    slots: int | None
    """How many requests may be in flight here; None: any number."""
    journal: str


class Work(Struct, frozen=True, array_like=True):
    """One request, ready to send."""

    index: int
    request_id: str
    body: bytes
    due_ns: int
    """After the run's start."""
    prompt_tokens: int
    output_tokens: int | None
    model: str | None = None


class Load(Struct, frozen=True, tag="load"):
    """Requests to be sent in the next phase, in order."""

    items: list[Work]
    last: bool
    """These complete the phase's requests: the worker answers `Ready`."""


class Start(Struct, frozen=True, tag="start"):
    """Begin a phase."""

    start_ns: int
    recorded: bool
    """False: a warm-up, of which only failures are told."""
    scheduled: bool
    """False: a closed loop; its opening burst is sent as fast as it can be."""


class Stop(Struct, frozen=True, tag="stop"):
    """Cancel what is in flight, send nothing more."""

    why: str


class Ready(Struct, frozen=True, tag="ready"):
    """A worker has all of a phase's requests and waits for its start."""


class Progress(Struct, frozen=True, tag="progress"):
    """What has happened since the last one."""

    sent: int
    completed: int
    failed: int
    ttfts_ns: list[int]


class Unwritten(Struct, frozen=True, tag="unwritten"):
    """Lines that the journal did not take, and why."""

    lines: list[bytes]
    reason: str


class Finished(Struct, frozen=True, tag="finished"):
    """A phase is over; `failures` are messages of a warm-up's."""

    failures: list[str]


class Broken(Struct, frozen=True, tag="broken"):
    """The worker met an error of ours."""

    traceback: str


Message = Setup | Load | Start | Stop | Ready | Progress | Unwritten | Finished | Broken

_encoder = msgpack.Encoder()
_decoder = msgpack.Decoder(Message)


def write_message(message: Message) -> bytes:
    """The message's bytes."""
    body = _encoder.encode(message)
    return len(body).to_bytes(_LENGTH_BYTES, "little") + body


class MessageReader:
    """Bytes in, messages out."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Message]:
        """The messages that these bytes complete."""
        self._buffer += data
        messages: list[Message] = []
        start = 0
        while len(self._buffer) - start >= _LENGTH_BYTES:
            end = start + _LENGTH_BYTES + int.from_bytes(self._buffer[start : start + _LENGTH_BYTES], "little")
            if len(self._buffer) < end:
                break
            messages.append(_decoder.decode(memoryview(self._buffer)[start + _LENGTH_BYTES : end]))
            start = end
        if start:
            del self._buffer[:start]
        return messages
