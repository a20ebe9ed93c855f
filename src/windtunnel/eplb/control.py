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
import os
import socket
import struct
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
_LENGTH = struct.Struct("<I")
_LINGER_S = 1.0
"""How long a closed channel may take to get its last messages out."""
_BACKLOG = 512
_UNREAD_BYTES = 64 << 10
"""Read at once; and about as much is taken from the network before anybody asks for it."""

Decode = Callable[[bytes | bytearray], Any]

_not_for_children: set[Any] = set()
"""Sockets that a forked child must not hold: it would keep an address taken, and a dead process's connections open."""


def _leave_to_the_parent() -> None:
    for inherited in _not_for_children:
        inherited._sock.close()  # asyncio hands out a wrapper that can't be closed
    _not_for_children.clear()


os.register_at_fork(after_in_child=_leave_to_the_parent)


class StrangerLimits(NamedTuple):
    """What a server grants to connections that it has not admitted."""

    hello_bytes: int = 4 << 20
    """Of one message. A Hello carries two placements and the digests of a rank's slots: some 100 KB in large models."""
    hello_s: float = 5.0
    """Time to be admitted."""
    connections: int = 256
    """Strangers at a time; for one more, the one who has waited longest is turned away."""
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


class Channel(asyncio.BufferedProtocol):
    """A connection over which messages go both ways. Belongs to one event loop.

    Either `receive` asks for one message after the other, or `deliver` passes each on in the turn of the loop that read
    it: what a transaction waits for should not wait for a task to be woken.
    """

    _transport: asyncio.Transport

    def __init__(
        self, decode: Decode, door: _Door | None = None, on_connected: Callable[[Channel], None] | None = None
    ) -> None:
        """`decode` makes messages of bytes; `door` is where a stranger stands, None for a channel without bounds."""
        self.peer_address = Address("?", 0)
        self._decode = decode
        self._door = door
        self._on_connected = on_connected
        self._arriving = memoryview(bytearray(_UNREAD_BYTES))
        self._unread = bytearray()
        self._wanted_bytes = 0
        """What `receive` waits for."""
        self._take: Callable[[Any], None] | None = None
        self._trouble: Exception | None = None
        self._news = asyncio.Event()
        """Something came for whoever waits, or nothing will any more."""
        self._lost = asyncio.Event()

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
        self._transport.write(_LENGTH.pack(len(body)) + body)
        most = self._door.limits.small_bytes if self._door else MAX_UNSENT_BYTES
        if self._transport.get_write_buffer_size() > most:
            self.abort()

    async def receive(self) -> Any | None:
        """The next message; None: the channel is closed, by whichever side or the network.

        Raises ControlGarbage.
        """
        if not await self._has(_LENGTH.size):
            return None
        end, door = self._frame_bytes(), self._door
        if not door or end - _LENGTH.size <= door.limits.small_bytes:
            return self._pop(end) if await self._has(end) else None
        async with door.large:
            return self._pop(end) if await self._has(end) else None

    async def deliver(self, take: Callable[[Any], None]) -> None:
        """Call `take` with each message as it comes, until the channel is closed.

        Raises ControlGarbage, and what `take` raises; nothing is delivered after that.
        """
        self._take = take
        self._transport.resume_reading()
        self._deliver()
        while self._take is not None and not self.closed:
            self._news.clear()
            await self._news.wait()
        if self._trouble:
            raise self._trouble

    @property
    def closed(self) -> bool:
        """Whether this side has closed it, or knows that the other side has."""
        return self._transport.is_closing()

    def close(self) -> None:
        """Close it once what was sent is out, or after a second."""
        self._transport.close()
        self._news.set()
        if self._transport.get_write_buffer_size():
            asyncio.get_running_loop().call_later(_LINGER_S, self._transport.abort)

    def abort(self) -> None:
        """Close it at once; what the network has not taken is lost."""
        self._transport.abort()
        self._news.set()

    async def wait_closed(self) -> None:
        """Wait until the socket is closed, after `close` or `abort`."""
        await self._lost.wait()

    # --- what the event loop calls --------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is connected."""
        self._transport = cast(asyncio.Transport, transport)  # what asyncio makes of a TCP connection
        self._socket = transport.get_extra_info("socket")
        _not_for_children.add(self._socket)
        self.peer_address = Address(*(transport.get_extra_info("peername") or ("?", 0))[:2])
        if self._on_connected:
            self._on_connected(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where bytes are to be put. A plain Protocol would have memory mapped and unmapped for each read."""
        return self._arriving

    def buffer_updated(self, num_bytes: int) -> None:
        """Some bytes came."""
        self._unread += self._arriving[:num_bytes]
        if self._take is not None:
            self._deliver()
            return
        if len(self._unread) > max(self._wanted_bytes, _UNREAD_BYTES):
            self._transport.pause_reading()
        self._news.set()

    def eof_received(self) -> None:
        """The other side sends no more."""
        self.close()

    def connection_lost(self, error: Exception | None) -> None:
        """The socket is closed."""
        _not_for_children.discard(self._socket)
        self._news.set()
        self._lost.set()

    # --- frames ---------------------------------------------------------------------------------------------------

    async def _has(self, num_bytes: int) -> bool:
        """Wait until as many bytes are there; False: they won't come any more."""
        self._wanted_bytes = num_bytes
        while len(self._unread) < num_bytes and not self.closed:
            self._transport.resume_reading()
            self._news.clear()
            await self._news.wait()
        self._wanted_bytes = 0
        return len(self._unread) >= num_bytes

    def _deliver(self) -> None:
        try:
            while self._take is not None and not self.closed and len(self._unread) >= _LENGTH.size:
                end = self._frame_bytes()
                if len(self._unread) < end:
                    return
                self._take(self._pop(end))
        except Exception as error:  # it is `deliver` that raises it
            self._take, self._trouble = None, error
            self._news.set()

    def _frame_bytes(self) -> int:
        """Of the next frame, with its length. Raises ControlGarbage."""
        (length,) = _LENGTH.unpack_from(self._unread)
        most = self._door.limits.hello_bytes if self._door else MAX_FRAME_BYTES
        if length > most:
            raise ControlGarbage(
                f"a frame of {format_bytes(length)} is announced; at most {format_bytes(most)} are taken"
            )
        return _LENGTH.size + int(length)

    def _pop(self, end: int) -> Any:
        """The message in the next frame. Raises ControlGarbage."""
        body = self._unread[_LENGTH.size : end]
        del self._unread[:end]
        try:
            return self._decode(body)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise ControlGarbage(f"a frame of {format_bytes(len(body))} is no message: {error}") from error


class _Door:
    """Where connections stand until they are admitted."""

    def __init__(self, limits: StrangerLimits) -> None:
        self.limits = limits
        self.large = asyncio.Semaphore(limits.large_at_a_time)
        self._waiting: dict[Channel, asyncio.TimerHandle] = {}

    def enter(self, channel: Channel) -> None:
        """Who waits longest makes room: a member says who it is at once, whoever floods the door does not."""
        if len(self._waiting) >= self.limits.connections:
            longest = next(iter(self._waiting))
            self.leave(longest)
            longest.abort()
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
        self._sockets: tuple[Any, ...] = ()
        self.address = Address("", 0)
        """Where it listens, with the port that the system chose for port 0."""

    async def listen(self, host: str, port: int) -> None:
        """Begin to accept. Raises OSError."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._make_channel, host, port, backlog=_BACKLOG)
        self._sockets = self._server.sockets
        _not_for_children.update(self._sockets)
        self.address = Address(*self._server.sockets[0].getsockname()[:2])

    async def close(self) -> None:
        """Stop to accept, abort all channels, and wait until no callback runs any more."""
        assert self._server is not None
        _not_for_children.difference_update(self._sockets)
        self._server.close()
        sessions = dict(self._sessions)
        for task, channel in sessions.items():
            channel.abort()
            task.cancel()
        await asyncio.gather(*sessions, return_exceptions=True)
        await self._server.wait_closed()

    def _make_channel(self) -> Channel:
        return Channel(self._decode, self._door, self._connected)

    def _connected(self, channel: Channel) -> None:
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
            loop = asyncio.get_running_loop()
            _, channel = await loop.create_connection(lambda: Channel(decode), host, port)
    except TimeoutError as error:
        raise TimeoutError(f"no connection to {Address(host, port)} within {timeout_s:g} s") from error
    return channel


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
