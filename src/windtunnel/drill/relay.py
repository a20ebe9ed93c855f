"""A TCP relay between the load and the target, whose link can be made slow, narrow, lossy or be cut while it is used.

Theory of operation. Each connection has two directions. What is read on one side waits in a queue until its delay is
over and the link has room for it, and is then written on the other; a queue that is full lets TCP hold the sender back.
All of it runs in a thread of its own, so that nothing that the drill does meanwhile slows the link. A bound socket that
never listens holds the port while the link is cut: connections are refused then, and nobody else can take the port.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable

from windtunnel.clock import monotonic_ns
from windtunnel.readiness import PreciseSelector
from windtunnel.units import NS_PER_S, s_to_ns
from windtunnel.wire.http1 import Origin

_READ_BYTES = 64 * 1024
_QUEUED_BYTES = 1 << 20
"""Of one direction; a link's delay times its bandwidth has to fit."""
_SLICE_S = 0.02
"""A narrow link takes pieces of so long, so that connections share it and a change is felt at once."""
_RST_ON_CLOSE = struct.pack("ii", 1, 0)
_HOST = "127.0.0.1"


class Relay:
    """A relay to `origin` in a thread of its own; a context manager. Methods may be called from any thread."""

    def __init__(self, origin: Origin) -> None:
        """Raises OSError where no port is to be had."""
        self._holder = _bound_socket(0)
        self.port: int = self._holder.getsockname()[1]
        self._loop = asyncio.SelectorEventLoop(PreciseSelector())
        self._link = _Link(origin, self.port)
        self._thread = threading.Thread(target=self._run, name="relay", daemon=True)
        self._stop = asyncio.Event()

    def __enter__(self) -> Relay:
        self._thread.start()
        self._wait(self._link.open)
        return self

    def __exit__(self, *exception: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self._holder.close()

    @property
    def origin(self) -> Origin:
        """Where it is reached."""
        return Origin("http", _HOST, self.port)

    def delay(self, delay_s: float) -> None:
        """What comes from now on waits so long, either way; 0 ends it."""
        self._wait(lambda: self._link.set_delay(delay_s))

    def narrow(self, bytes_per_s: float | None) -> None:
        """So much goes through either way, all connections together; None ends it."""
        self._wait(lambda: self._link.set_bandwidth(bytes_per_s))

    def drop(self, ratio: float) -> None:
        """That share of connections, open and new, falls silent; 0 resets those that did and ends it."""
        self._wait(lambda: self._link.set_drop(ratio))

    def reset(self, ratio: float) -> None:
        """Reset that share of the open connections."""
        self._wait(lambda: self._link.reset(ratio))

    def cut(self) -> None:
        """Reset all connections and refuse new ones."""
        self._wait(self._link.cut)

    def mend(self) -> None:
        """Take connections again after a cut."""
        self._wait(self._link.open)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._link.serve(self._stop))

    def _wait(self, change: Callable[[], None]) -> None:
        done = threading.Event()

        def make() -> None:
            try:
                change()
            finally:
                done.set()

        self._loop.call_soon_threadsafe(make)
        done.wait()


def _bound_socket(port: int) -> socket.socket:
    """Bound, not listening; several may have one port."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    sock.bind((_HOST, port))
    return sock


class _Link:
    """The state of the link, and its connections. Used in the relay's thread only."""

    def __init__(self, origin: Origin, port: int) -> None:
        self._origin = origin
        self._port = port
        self._listener: socket.socket | None = None
        self._connections: set[_Connection] = set()
        self._numbered = 0
        self._drop_ratio = 0.0
        self.delay_ns = 0
        self.bytes_per_s: float | None = None
        self._free_ns = [0, 0]
        """When the link will have passed on what it was given, for each way."""

    async def serve(self, stop: asyncio.Event) -> None:
        """Until told to stop."""
        await stop.wait()
        self.cut()
        while self._connections:
            await asyncio.sleep(0)

    def open(self) -> None:
        if self._listener is None:
            self._listener = _bound_socket(self._port)
            self._listener.listen(4096)
            self._listener.setblocking(False)
            asyncio.get_running_loop().add_reader(self._listener, self._accept, self._listener)

    def cut(self) -> None:
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener)
            self._listener.close()
            self._listener = None
        self.reset(1.0)

    def reset(self, ratio: float) -> None:
        for number, connection in enumerate(list(self._connections)):
            if _is_chosen(number, ratio):
                connection.reset()

    def set_delay(self, delay_s: float) -> None:
        self.delay_ns = s_to_ns(delay_s)

    def set_bandwidth(self, bytes_per_s: float | None) -> None:
        self.bytes_per_s = bytes_per_s

    def set_drop(self, ratio: float) -> None:
        self._drop_ratio = ratio
        for number, connection in enumerate(list(self._connections)):
            if not ratio and connection.silent:
                connection.reset()  # bytes are missing in it
            connection.silent = connection.silent or _is_chosen(number, ratio)

    async def pass_through(self, way: int, num_bytes: int) -> None:
        """Wait as long as a narrow link takes for so much more."""
        if self.bytes_per_s is None:
            return
        begin_ns = max(monotonic_ns(), self._free_ns[way])
        self._free_ns[way] = begin_ns + s_to_ns(num_bytes / self.bytes_per_s)
        await _sleep_until(self._free_ns[way])

    def piece_bytes(self, num_bytes: int) -> int:
        """How much of this the link takes at once."""
        return num_bytes if self.bytes_per_s is None else min(num_bytes, max(1, int(self.bytes_per_s * _SLICE_S)))

    def _accept(self, listener: socket.socket) -> None:
        try:
            client, _ = listener.accept()
        except OSError:
            return  # it has left already, or there are no descriptors: the client sees it
        client.setblocking(False)
        silent = _is_chosen(self._numbered, self._drop_ratio)
        self._numbered += 1
        connection = _Connection(self, client, silent=silent)
        self._connections.add(connection)
        connection.task = asyncio.get_running_loop().create_task(connection.run(self._origin))
        connection.task.add_done_callback(lambda _: self._forget(connection))

    def _forget(self, connection: _Connection) -> None:
        connection.close()
        self._connections.discard(connection)


async def _sleep_until(at_ns: int) -> None:
    wait_ns = at_ns - monotonic_ns()
    if wait_ns > 0:
        await asyncio.sleep(wait_ns / NS_PER_S)


def _is_chosen(number: int, ratio: float) -> bool:
    """Evenly spread over the numbers from 0."""
    return int((number + 1) * ratio + 1e-9) > int(number * ratio + 1e-9)


class _Connection:
    """One connection to the relay, and the one that it makes to the target."""

    def __init__(self, link: _Link, client: socket.socket, *, silent: bool) -> None:
        self._link = link
        self._sockets = [client]
        self.task: asyncio.Task[None] | None = None
        self.silent = silent

    def reset(self) -> None:
        """RST both ways."""
        for sock in self._sockets:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RST_ON_CLOSE)
        if self.task is not None:
            self.task.cancel()

    def close(self) -> None:
        """Give the sockets back."""
        for sock in self._sockets:
            sock.close()

    async def run(self, origin: Origin) -> None:
        """Connect to the target and pass on what comes, until both sides have ended, or either broke."""
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(origin.host, origin.port, type=socket.SOCK_STREAM)
            family, kind, protocol, _, address = found[0]
            server = socket.socket(family, kind, protocol)
            server.setblocking(False)
            self._sockets.append(server)
            for sock in self._sockets:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await loop.sock_connect(server, address)
            client = self._sockets[0]
            async with asyncio.TaskGroup() as group:
                for way, (source, sink) in enumerate(((client, server), (server, client))):
                    direction = _Direction(self._link, self, way, source, sink)
                    group.create_task(direction.read())
                    group.create_task(direction.write())
        except* OSError:
            self.reset()  # one side is gone: the other is to see it


class _Direction:
    """What goes from one side to the other."""

    def __init__(
        self, link: _Link, connection: _Connection, way: int, source: socket.socket, sink: socket.socket
    ) -> None:
        self._link = link
        self._way = way
        self._connection = connection
        self._source = source
        self._sink = sink
        self._queue: deque[tuple[int, bytes]] = deque()
        """Bytes, and when they may go on; none of them: the end."""
        self._queued_bytes = 0
        self._changed = asyncio.Event()

    async def read(self) -> None:
        """Queue what comes, up to the end."""
        loop = asyncio.get_running_loop()
        while True:
            data = await loop.sock_recv(self._source, _READ_BYTES)
            if self._connection.silent:
                if not data:
                    return  # the other side is not to hear of this either
                continue
            self._queue.append((monotonic_ns() + self._link.delay_ns, data))
            self._queued_bytes += len(data)
            self._changed.set()
            if not data:
                return
            while self._queued_bytes > _QUEUED_BYTES:
                await self._change()

    async def write(self) -> None:
        """Write what is queued, when it is due."""
        loop = asyncio.get_running_loop()
        while True:
            while not self._queue:
                await self._change()
            due_ns, data = self._queue.popleft()
            await _sleep_until(due_ns)
            if not data:
                if not self._connection.silent:
                    self._sink.shutdown(socket.SHUT_WR)
                return
            sent = 0
            while sent < len(data) and not self._connection.silent:
                piece = data[sent : sent + self._link.piece_bytes(len(data) - sent)]
                await self._link.pass_through(self._way, len(piece))
                await loop.sock_sendall(self._sink, piece)
                sent += len(piece)
            self._queued_bytes -= len(data)
            self._changed.set()

    async def _change(self) -> None:
        """Until the other half of this direction has done something; never do both wait."""
        self._changed.clear()
        await self._changed.wait()
