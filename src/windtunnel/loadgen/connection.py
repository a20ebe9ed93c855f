"""One connection to one origin: socket, TLS and proxy around exchanges. The loop that calls it is passed in.

Stamps. The kernel notes when a segment reached this machine (SO_TIMESTAMPNS); `recvmsg` hands that out with the bytes.
So an arrival is right even when this process looked late. The stamp is of the last segment of what is read at once; a
stamp that makes no sense (the clock was set meanwhile, or the platform gives none) is replaced by the client's own.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from typing import TYPE_CHECKING, Protocol

from windtunnel import errors
from windtunnel.clock import monotonic_ns, read_clock_pair
from windtunnel.loadgen.endpoint import Endpoint, connect_failure, describe, write_connect
from windtunnel.loadgen.exchange import Exchange
from windtunnel.readiness import GONE, READABLE, WRITABLE, Poller
from windtunnel.units import NS_PER_MS, NS_PER_S
from windtunnel.wire.control import Address
from windtunnel.wire.http1 import ProtocolError, Response

if TYPE_CHECKING:
    from windtunnel.loadgen.tls import TlsSession

_SO_TIMESTAMPNS = 35
_READ_BYTES = 1 << 18
_ANCILLARY_BYTES = 64
_STALE_NS = 100 * NS_PER_MS
"""A kept connection that ends so soon after a request was written to it had been closed before, not by the request."""
_buffer = bytearray(_READ_BYTES)
_buffers = [_buffer]
_view = memoryview(_buffer)
_unpack_timespec = struct.Struct("@qq").unpack_from


class KernelClock:
    """How the kernel's CLOCK_REALTIME stamps are led onto CLOCK_MONOTONIC."""

    def __init__(self) -> None:
        self.offset_ns = read_clock_pair().offset_ns

    def refresh(self) -> None:
        """Follow the wall clock, which is disciplined while we run. Cheap enough for each tenth of a second."""
        self.offset_ns = read_clock_pair(3).offset_ns


class Listener(Protocol):
    """Who is told what becomes of an exchange."""

    def exchange_over(self, connection: Connection, exchange: Exchange) -> None:
        """The exchange is over, well or not (then `exchange.failure` is set); the connection is free or closed."""

    def exchange_stale(self, connection: Connection, exchange: Exchange) -> None:
        """A kept connection turned out to be closed before a byte of the answer came."""


class Connection:
    """One connection. It is connecting, busy with one exchange, idle, or closed."""

    __slots__ = (
        "_address",
        "_addresses",
        "_out",
        "_phase",
        "_poller",
        "_proxy_answer",
        "_receive",
        "_registered",
        "_sent_ns",
        "_sock",
        "_tls",
        "_unsent_encrypted",
        "_used",
        "clock",
        "endpoint",
        "exchange",
        "fileno",
        "listener",
    )

    def __init__(self, endpoint: Endpoint, poller: Poller, clock: KernelClock, listener: Listener) -> None:
        self.endpoint = endpoint
        self.listener = listener
        self.clock = clock
        self.exchange: Exchange | None = None
        self.fileno = -1
        self._poller = poller
        self._sock: socket.socket | None = None
        self._tls: TlsSession | None = None
        self._phase = "new"
        self._proxy_answer: Response | None = None
        self._out = b""
        self._unsent_encrypted = b""
        self._registered = 0
        self._addresses = iter(endpoint.addresses)
        self._address: Address | None = None
        self._used = False
        self._sent_ns = 0

    @property
    def connecting(self) -> bool:
        """It does not stand yet."""
        return self._phase != "open"

    # --- doing ------------------------------------------------------------------------------------------------

    def send(self, exchange: Exchange, request: bytes) -> None:
        """Send a request; on a new connection, as soon as it stands."""
        self.exchange = exchange
        self._out = request
        self._sent_ns = monotonic_ns()
        if self._phase == "open":
            if self._tls is not None:
                self._tls.encrypt(request)
                self._out = b""
            self._flush()
        else:
            self._open_next()

    def close(self) -> None:
        """Close it, whatever it is doing."""
        if self._sock is not None:
            if self._registered:
                self._poller.unregister(self.fileno)
                self._registered = 0
            self._sock.close()
            self._sock = None
        self._phase = "closed"

    def _open_next(self, error: OSError | None = None) -> None:
        """Try the next address; when none is left, `error` is why the last one failed."""
        address = self._address = next(self._addresses, None)
        if address is None:
            self._give_up(connect_failure(self._target, error or OSError(errno.EADDRNOTAVAIL, "no address")))
            return
        try:
            sock = socket.socket(address.family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        except OSError as error:
            self._connect_failed(error)
            return
        self._sock = sock
        self._receive = sock.recvmsg_into
        self.fileno = sock.fileno()
        self._phase = "connecting"
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
            code = sock.connect_ex(address.sockaddr)
        except OSError as error:
            code = error.errno or errno.EINVAL
        if code == 0 or (code == errno.EINPROGRESS and stands(sock)):
            self._connected()
        elif code == errno.EINPROGRESS:
            self._watch(WRITABLE)
        else:
            self._connect_failed(OSError(code, os.strerror(code)))

    def _connect_failed(self, error: OSError) -> None:
        self.close()
        self._open_next(error)

    @property
    def _target(self) -> str:
        proxy = self.endpoint.proxy
        return f"proxy {proxy.url.origin}" if proxy is not None else str(self.endpoint.origin)

    def _connected(self) -> None:
        assert self._address is not None
        self.endpoint.prefer(self._address)
        if self.endpoint.proxy is not None and self.endpoint.tls is not None:
            self._phase = "proxy"
            authority = f"{self.endpoint.origin.host}:{self.endpoint.origin.port}"
            self._proxy_answer = Response()
            request, self._out = self._out, write_connect(authority, self.endpoint.proxy)
            self._flush()
            self._out = request
        elif self.endpoint.tls is not None:
            self._begin_tls()
        else:
            self._opened()

    def _begin_tls(self) -> None:
        from windtunnel.loadgen.tls import TlsSession

        assert self.endpoint.tls is not None
        self._phase = "tls"
        self._tls = TlsSession(self.endpoint.tls, self.endpoint.origin.host)
        self._continue_handshake(self._tls)

    def _continue_handshake(self, tls: TlsSession) -> None:
        from windtunnel.loadgen.tls import TlsError

        try:
            established = tls.continue_handshake()
        except TlsError as error:
            self._flush_encrypted(tls)  # the alert that tells the server why
            self._give_up(errors.ConnectFailed(self._target, "tls", str(error)))
            return
        if established:
            self._opened()
        else:
            self._flush_encrypted(tls)

    def _opened(self) -> None:
        self._phase = "open"
        exchange = self.exchange
        if exchange is not None:
            exchange.connected_ns = monotonic_ns()
        if self._tls is not None:
            self._tls.encrypt(self._out)
            self._out = b""
        self._flush()

    def _flush(self) -> None:
        """Send what is to be sent; watch for room when not all of it went."""
        if self._tls is not None:
            self._flush_encrypted(self._tls)
            return
        sock = self._sock
        assert sock is not None
        try:
            sent = sock.send(self._out)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self._out = b""
            self._read()  # a server that refuses a request before it has all of it says why, and closes
            if self.exchange is not None:
                self._broken(error)
            return
        self._out = self._out[sent:] if sent < len(self._out) else b""
        self._watch(READABLE | WRITABLE if self._out else READABLE)

    def _flush_encrypted(self, tls: TlsSession) -> None:
        sock = self._sock
        if sock is None:
            return
        encrypted = self._unsent_encrypted + tls.outgoing()
        sent = 0
        if encrypted:
            try:
                sent = sock.send(encrypted)
            except BlockingIOError:
                pass
            except OSError as error:
                self._broken(error)
                return
        self._unsent_encrypted = encrypted[sent:]
        self._watch(READABLE | WRITABLE if self._unsent_encrypted else READABLE)

    def _watch(self, events: int) -> None:
        if events == self._registered:
            return
        if self._registered:
            self._poller.modify(self.fileno, events)
        else:
            self._poller.register(self.fileno, events, self.on_ready)
        self._registered = events

    # --- being told -------------------------------------------------------------------------------------------

    def on_ready(self, events: int) -> None:
        """The poller says that the socket is ready."""
        if events == READABLE and self._phase == "open":
            self._read()
            return
        if self._phase == "connecting":
            assert self._sock is not None
            code = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                self._connect_failed(OSError(code, os.strerror(code)))
            elif events & WRITABLE:
                self._connected()
            return
        if events & WRITABLE and (self._out or self._unsent_encrypted):
            self._flush()
        if events & (READABLE | GONE) and self._sock is not None:
            self._read()

    def _read(self) -> None:
        try:
            count, ancillary, _, _ = self._receive(_buffers, _ANCILLARY_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            self._broken(error)
            return
        now_ns = monotonic_ns()
        exchange = self.exchange
        if count == 0 or exchange is None:  # an idle connection has nothing to say but its end
            self._ended(now_ns)
            return
        stamp_ns = now_ns
        lag_ns: int | None = None
        if ancillary:
            seconds, nanoseconds = _unpack_timespec(ancillary[0][2])
            kernel_ns = seconds * NS_PER_S + nanoseconds - self.clock.offset_ns
            if exchange.attempt_ns <= kernel_ns <= now_ns:
                stamp_ns = kernel_ns
                lag_ns = now_ns - kernel_ns
        data = bytes(_view[:count])
        if self._phase != "open" or self._tls is not None:
            self._take_wrapped(data, exchange, stamp_ns, lag_ns)
        elif exchange.receive(data, stamp_ns, lag_ns):
            self._exchange_over(exchange)

    def _take_wrapped(self, data: bytes, exchange: Exchange, stamp_ns: int, lag_ns: int | None) -> None:
        """Bytes that are not yet the answer's: the proxy's answer, TLS."""
        if self._phase == "proxy":
            self._take_proxy_answer(data)
            return
        tls = self._tls
        assert tls is not None
        tls.receive(data)
        if not tls.established:
            self._continue_handshake(tls)
        if not self.connecting:
            self._take_decrypted(tls, exchange, stamp_ns, lag_ns)

    def _take_decrypted(self, tls: TlsSession, exchange: Exchange, stamp_ns: int, lag_ns: int | None) -> None:
        from windtunnel.loadgen.tls import TlsError

        try:
            for plain in tls.decrypted():
                if exchange.receive(plain, stamp_ns, lag_ns):
                    self._exchange_over(exchange)
                    return
        except TlsError as error:
            self._broken(OSError(errno.EPROTO, str(error)))
            return
        if tls.ended:
            self._ended(stamp_ns)
        else:
            self._flush_encrypted(tls)

    def _take_proxy_answer(self, data: bytes) -> None:
        answer = self._proxy_answer
        assert answer is not None
        try:
            answer.feed(data)
        except ProtocolError as error:
            # after a 200 to CONNECT what follows is no HTTP: llhttp says "upgrade" or finds the next message odd
            if answer.status != 200:
                self._give_up(errors.ConnectFailed(self._target, "proxy", error.problem))
                return
        if not answer.head_complete:
            return
        if answer.status != 200:
            self._give_up(errors.ConnectFailed(self._target, "proxy", f"HTTP {answer.status} {answer.reason}"))
            return
        self._proxy_answer = None
        self._begin_tls()

    def _exchange_over(self, exchange: Exchange) -> None:
        """The answer is complete, or no HTTP: free the connection, or close it."""
        self.exchange = None
        response = exchange.response
        self._used = True
        if response.complete and response.keep_alive and not response.trailing and not self._out:
            self.endpoint.idle.append(self)
        else:
            self.close()
        self.listener.exchange_over(self, exchange)

    def drop(self, exchange: Exchange) -> None:
        """The exchange was ended by us: the connection is of no further use."""
        self.exchange = None
        self.close()
        self.listener.exchange_over(self, exchange)

    def _ended(self, now_ns: int) -> None:
        self._over_with(None, now_ns)

    def _broken(self, error: OSError) -> None:
        self._over_with(describe(error), monotonic_ns())

    def _over_with(self, reason: str | None, now_ns: int) -> None:
        exchange = self.exchange
        if exchange is None:
            self._close_idle()
            return
        if self._phase != "open":
            phase = "proxy" if self._phase == "proxy" else "tls" if self._phase == "tls" else "reset"
            self._give_up(errors.ConnectFailed(self._target, phase, reason or "closed by the server"))
            return
        self.exchange = None
        self.close()
        if self._used and exchange.first_byte_ns is None and now_ns - self._sent_ns < _STALE_NS:
            self.listener.exchange_stale(self, exchange)
            return
        exchange.connection_ended(reason, now_ns)
        self.listener.exchange_over(self, exchange)

    def _close_idle(self) -> None:
        if self in self.endpoint.idle:
            self.endpoint.idle.remove(self)
        self.close()

    def _give_up(self, failure: errors.ConnectFailed) -> None:
        exchange = self.exchange
        self.exchange = None
        self.close()
        if exchange is not None:
            exchange.fail(failure, monotonic_ns())
            self.listener.exchange_over(self, exchange)


def stands(sock: socket.socket) -> bool:
    """The handshake is done. On one machine it often is when connect() says "in progress": no need to wait for that."""
    try:
        sock.getpeername()
    except OSError:
        return False
    return True
