"""How coordinator and ranks reach each other: msgpack messages over TCP, each behind its length.

Who connects is a stranger until `Channel.admit` is called on its side of the server. A stranger gets little memory and
little time, so that random bytes, a half frame, a port scan or a flood of connections costs nothing worth having.
Nothing here waits for the other side: what a peer that has stopped does not take is kept up to a bound, and then the
channel is closed.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import socket
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, cast

import msgspec

from windtunnel.eplb.transaction.messages import decode_from_rank, encode
from windtunnel.errors import EplbInputError
from windtunnel.units import format_bytes

MAX_FRAME_BYTES = 64 << 20
MAX_UNSENT_BYTES = 128 << 20
"""Kept for a peer that doesn't read. One that has more coming is taken for stopped, and its channel is closed."""
CONNECT_TIMEOUT_S = 5.0
_LENGTH_BYTES = 4
_LINGER_S = 1.0
"""How long a closed channel may take to get its last messages out."""
_BACKLOG = 512

Decode = Callable[[bytes], Any]


class StrangerLimits(NamedTuple):
    """What a server grants to connections that it has not admitted."""

    hello_bytes: int = 4 << 20
    """Of one message. A Hello carries two placements and the digests of a rank's slots: some 100 KB in large models."""
    hello_s: float = 5.0
    """Time to be admitted."""
    connections: int = 256
    """Strangers at a time; one more is turned away, and may try again."""
    small_bytes: int = 64 << 10
    """A message up to this size is read at once; of larger ones, a few at a time. Also bounds what is kept unsent."""
    large_at_a_time: int = 16


class ControlGarbage(Exception):
    """What came is no message. The channel is of no use any more: close it."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Address(NamedTuple):
    """Where a control channel ends."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Channel:
    """A connection over which messages go both ways. Belongs to one event loop."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, decode: Decode, door: _Door | None = None
    ) -> None:
        """`decode` makes messages of bytes; `door` is where a stranger stands, None for a channel without bounds."""
        self._reader = reader
        # what asyncio makes of a TCP connection; StreamWriter itself only promises the base class
        self._transport = cast(asyncio.Transport, writer.transport)
        self._writer = writer
        self._decode = decode
        self._door = door
        self.peer_address = Address(*(writer.get_extra_info("peername") or ("?", 0))[:2])
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def admit(self) -> None:
        """The other side has proved who it is: the bounds for strangers are lifted."""
        door, self._door = self._door, None
        if door:
            door.leave(self)

    def send(self, message: Any) -> None:
        """Hand a message to the network, without waiting; nothing happens where the channel is closed.

        Aborts the channel where the other side has left too much unread. Raises EplbInputError for a message that
        no receiver would take.
        """
        body = encode(message)
        if len(body) > MAX_FRAME_BYTES:
            problem = f"a {type(message).__name__} of {format_bytes(len(body))}"
            raise EplbInputError("message", problem, f"Messages have at most {format_bytes(MAX_FRAME_BYTES)}.")
        if self.closed:
            return
        self._transport.write(len(body).to_bytes(_LENGTH_BYTES, "little") + body)
        most = self._door.limits.small_bytes if self._door else MAX_UNSENT_BYTES
        if self._transport.get_write_buffer_size() > most:
            self.abort()

    async def receive(self) -> Any | None:
        """The next message; None: the channel is closed, by whichever side or the network.

        Raises ControlGarbage.
        """
        try:
            length = int.from_bytes(await self._reader.readexactly(_LENGTH_BYTES), "little")
            body = await self._read_body(length)
        except (asyncio.IncompleteReadError, OSError):
            return None
        try:
            return self._decode(body)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise ControlGarbage(f"a frame of {format_bytes(length)} is no message: {error}") from error

    async def _read_body(self, length: int) -> bytes:
        door = self._door
        most = door.limits.hello_bytes if door else MAX_FRAME_BYTES
        if length > most:
            raise ControlGarbage(
                f"a frame of {format_bytes(length)} is announced; at most {format_bytes(most)} are taken"
            )
        if not door or length <= door.limits.small_bytes:
            return await self._reader.readexactly(length)
        async with door.large:
            return await self._reader.readexactly(length)

    @property
    def closed(self) -> bool:
        """Whether this side has closed it, or knows that the other side has."""
        return self._transport.is_closing()

    def close(self) -> None:
        """Close it once what was sent is out, or after a second."""
        self._writer.close()
        if self._transport.get_write_buffer_size():
            asyncio.get_running_loop().call_later(_LINGER_S, self._transport.abort)

    def abort(self) -> None:
        """Close it at once; what the network has not taken is lost."""
        self._transport.abort()

    async def wait_closed(self) -> None:
        """Wait until the socket is closed, after `close` or `abort`."""
        try:
            await self._writer.wait_closed()
        except OSError:
            pass


class _Door:
    """Where connections stand until they are admitted."""

    def __init__(self, limits: StrangerLimits) -> None:
        self.limits = limits
        self.large = asyncio.Semaphore(limits.large_at_a_time)
        self._waiting: dict[Channel, asyncio.TimerHandle] = {}

    @property
    def is_full(self) -> bool:
        return len(self._waiting) >= self.limits.connections

    def enter(self, channel: Channel) -> None:
        later = asyncio.get_running_loop().call_later
        self._waiting[channel] = later(self.limits.hello_s, channel.abort)

    def leave(self, channel: Channel) -> None:
        if timer := self._waiting.pop(channel, None):
            timer.cancel()


class ControlServer:
    """Accepts channels. Made by `serve`."""

    def __init__(self, on_connection: Callable[[Channel], Awaitable[None]], decode: Decode, door: _Door) -> None:
        """`on_connection` is called for each channel, which is closed when it returns."""
        self._on_connection = on_connection
        self._decode = decode
        self._door = door
        self._sessions: dict[asyncio.Task[None], Channel] = {}
        self._server: asyncio.Server | None = None
        self.address = Address("", 0)
        """Where it listens, with the port that the system chose for port 0."""

    async def listen(self, host: str, port: int) -> None:
        """Begin to accept. Raises OSError."""
        self._server = await asyncio.start_server(self._connected, host, port, backlog=_BACKLOG)
        self.address = Address(*self._server.sockets[0].getsockname()[:2])

    async def close(self) -> None:
        """Stop to accept, abort all channels, and wait until no callback runs any more."""
        assert self._server is not None
        self._server.close()
        sessions = dict(self._sessions)
        for task, channel in sessions.items():
            channel.abort()
            task.cancel()
        await asyncio.gather(*sessions, return_exceptions=True)
        await self._server.wait_closed()

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._door.is_full:
            writer.transport.abort()
            return
        channel = Channel(reader, writer, self._decode, self._door)
        self._door.enter(channel)
        task = asyncio.create_task(self._attend(channel))
        self._sessions[task] = channel
        task.add_done_callback(self._sessions.pop)

    async def _attend(self, channel: Channel) -> None:
        try:
            await self._on_connection(channel)
        except ControlGarbage:
            pass  # a stranger's: nobody is to be told; a member's callback knows of it first
        except Exception as error:  # a bug of the callback's; the other channels go on
            context = {"message": f"the control channel of {channel.peer_address} broke", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)
        finally:
            self._door.leave(channel)
            channel.close()
            await channel.wait_closed()


async def connect(host: str, port: int, decode: Decode, *, timeout_s: float = CONNECT_TIMEOUT_S) -> Channel:
    """Reach a server. Raises OSError, of which TimeoutError is one."""
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_connection(host, port)
    except TimeoutError as error:
        raise TimeoutError(f"no connection to {Address(host, port)} within {timeout_s:g} s") from error
    return Channel(reader, writer, decode)


async def serve(
    host: str,
    port: int,
    on_connection: Callable[[Channel], Awaitable[None]],
    *,
    token: str = "",
    decode: Decode = decode_from_rank,
    limits: StrangerLimits | None = None,
) -> ControlServer:
    """Listen on one address; port 0 lets the system choose. A channel is closed when `on_connection` returns.

    The callback has to compare the tokens (`same_token`) and then to `admit` the channel; `token` is only asked for
    here because an address that other machines can reach is refused without one. Raises EplbInputError.
    """
    where = await _resolve(host, port)
    if not token and not ipaddress.ip_address(where.partition("%")[0]).is_loopback:
        remedy = "Give Rebalancer and ranks the same token, or listen on 127.0.0.1."
        raise EplbInputError("token", f"there is none, and other machines can reach {host or where}", remedy)
    server = ControlServer(on_connection, decode, _Door(limits or StrangerLimits()))
    try:
        await server.listen(where, port)
    except (OSError, OverflowError) as error:
        problem = f"can't listen on {Address(host, port)}: {getattr(error, 'strerror', None) or error}"
        raise EplbInputError("host, port", problem, "Choose an address of this machine and a free port.") from error
    return server


async def _resolve(host: str, port: int) -> str:
    """The IP address that a name stands for; of several, the first."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, OverflowError, UnicodeError) as error:
        raise EplbInputError("host, port", f"{host}:{port} is no address: {error}", "Check both.") from error
    return str(found[0][4][0])


def same_token(ours: str, theirs: str) -> bool:
    """Whether two tokens are equal, in a time that doesn't tell how much of them is."""
    return hmac.compare_digest(ours.encode(errors="surrogatepass"), theirs.encode(errors="surrogatepass"))
