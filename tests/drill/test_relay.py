"""The relay on real sockets: what it does to a link while the link is used."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import pytest

from tests.engine.serving import call, completion, paced
from windtunnel.clock import monotonic_ns
from windtunnel.drill.relay import Relay
from windtunnel.units import NS_PER_S
from windtunnel.wire.http1 import Origin

PATIENCE_S = 20


class Echo(threading.Thread):
    """A server that sends back what it gets, and keeps that and what each of its connections ended with."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self.ends: list[str] = []
        self.received = b""
        self.begun = threading.Semaphore(0)
        self.ended = threading.Semaphore(0)

    def run(self) -> None:
        while True:
            try:
                client, _ = self._socket.accept()
            except OSError:
                return
            self.begun.release()
            threading.Thread(target=self._echo, args=(client,), daemon=True).start()

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self.join()

    def _echo(self, client: socket.socket) -> None:
        end = "fin"
        with client:
            try:
                while data := client.recv(65536):
                    self.received += data
                    client.sendall(data)
            except OSError:
                end = "rst"
        self.ends.append(end)
        self.ended.release()


@contextmanager
def relayed() -> Iterator[tuple[Relay, Echo]]:
    echo = Echo()
    echo.start()
    with Relay(Origin("http", "127.0.0.1", echo.port)) as relay:
        yield relay, echo
    echo.close()


def dial(relay: Relay) -> socket.socket:
    return socket.create_connection(("127.0.0.1", relay.port), timeout=PATIENCE_S)


def read(sock: socket.socket, num: int) -> bytes:
    data = b""
    while len(data) < num:
        piece = sock.recv(65536)
        assert piece, f"the connection ended after {len(data)} bytes of {num}"
        data += piece
    return data


def round_trip_s(sock: socket.socket, data: bytes = b"x") -> float:
    begin_ns = monotonic_ns()
    sock.sendall(data)
    assert read(sock, len(data)) == data
    return (monotonic_ns() - begin_ns) / NS_PER_S


def test_bytes_and_ends_go_both_ways_unchanged() -> None:
    data = bytes(range(256)) * 40_000
    with relayed() as (relay, echo), dial(relay) as sock:
        sender = threading.Thread(target=lambda: (sock.sendall(data), sock.shutdown(socket.SHUT_WR)))
        sender.start()
        assert read(sock, len(data)) == data
        assert sock.recv(1) == b""
        sender.join()
        assert echo.ended.acquire(timeout=PATIENCE_S) and echo.ends == ["fin"]


def test_a_delay_holds_both_ways_from_the_moment_it_is_set_until_it_is_ended() -> None:
    with relayed() as (relay, _), dial(relay) as sock:
        round_trip_s(sock)
        relay.delay(0.15)
        delayed_s = round_trip_s(sock)
        assert delayed_s >= 0.3
        relay.delay(0)
        assert min(round_trip_s(sock) for _ in range(5)) < delayed_s


def test_delayed_bytes_keep_their_order_when_the_delay_is_ended() -> None:
    with relayed() as (relay, _), dial(relay) as sock:
        relay.delay(0.1)
        sock.sendall(b"first ")
        relay.delay(0)
        sock.sendall(b"second")
        assert read(sock, 12) == b"first second"


def test_a_narrow_link_is_shared_by_all_connections() -> None:
    with relayed() as (relay, _), dial(relay) as one, dial(relay) as other:
        relay.narrow(100_000)
        begin_ns = monotonic_ns()
        for sock in (one, other):
            sock.sendall(b"y" * 15_000)
        for sock in (one, other):
            assert read(sock, 15_000) == b"y" * 15_000
        narrow_s = (monotonic_ns() - begin_ns) / NS_PER_S
        assert narrow_s >= 0.3
        relay.narrow(None)
        assert min(round_trip_s(one, b"z" * 30_000) for _ in range(5)) < narrow_s


def test_dropped_connections_fall_silent_stay_open_and_are_reset_at_the_end() -> None:
    with relayed() as (relay, echo), dial(relay) as sock:
        round_trip_s(sock)
        relay.drop(1.0)
        sock.sendall(b"lost")
        assert echo.begun.acquire(timeout=PATIENCE_S)
        with dial(relay) as later:
            later.sendall(b"lost too")
            assert echo.begun.acquire(timeout=PATIENCE_S)
            relay.drop(0)
            for each in (sock, later):
                with pytest.raises(ConnectionResetError):
                    each.recv(1)
        assert echo.received == b"x"
        with dial(relay) as new:
            round_trip_s(new)


def test_a_share_of_connections_is_dropped_evenly_and_the_others_live_on() -> None:
    with relayed() as (relay, _):
        socks = [dial(relay) for _ in range(6)]
        for sock in socks:
            round_trip_s(sock)
        relay.drop(0.5)
        relay.drop(0)
        assert sum(_is_reset(sock) for sock in socks) == 3


def _is_reset(sock: socket.socket) -> bool:
    with sock:
        try:
            round_trip_s(sock)
        except (ConnectionResetError, BrokenPipeError):
            return True
        return False


def test_a_reset_reaches_both_sides_and_new_connections_are_taken() -> None:
    with relayed() as (relay, echo), dial(relay) as sock:
        round_trip_s(sock)
        relay.reset(1.0)
        with pytest.raises(ConnectionResetError):
            sock.recv(1)
        assert echo.ended.acquire(timeout=PATIENCE_S) and echo.ends == ["rst"]
        with dial(relay) as new:
            round_trip_s(new)


def test_a_cut_link_refuses_connections_until_it_is_mended() -> None:
    with relayed() as (relay, _), dial(relay) as sock:
        round_trip_s(sock)
        relay.cut()
        with pytest.raises(ConnectionResetError):
            sock.recv(1)
        with pytest.raises(ConnectionRefusedError):
            dial(relay)
        relay.mend()
        with dial(relay) as new:
            round_trip_s(new)


def test_a_target_that_is_not_there_shows_as_a_reset() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    relay = Relay(Origin("http", "127.0.0.1", port))
    with relay, dial(relay) as sock, pytest.raises(ConnectionResetError):
        sock.recv(1)


def test_when_one_side_breaks_the_other_is_told() -> None:
    with relayed() as (relay, echo):
        sock = dial(relay)
        round_trip_s(sock)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        sock.close()
        assert echo.ended.acquire(timeout=PATIENCE_S) and echo.ends == ["rst"]


def test_a_stream_of_tokens_comes_through_whole() -> None:
    with paced() as url:
        port = int(url.rpartition(":")[2])
        with Relay(Origin("http", "127.0.0.1", port)) as relay:
            relay.delay(0.02)
            reply = call(str(relay.origin), "/v1/completions", completion(12))
    assert cast(int, reply.status) == 200 and reply.complete and len(reply.texts) == 12
