"""The control channel over real sockets: what a stranger can do to it, and what a peer that stops or dies can't."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

import pytest

from windtunnel.eplb import control
from windtunnel.eplb.control import Channel, ControlServer, StrangerLimits
from windtunnel.eplb.transaction import messages as m
from windtunnel.errors import EplbInputError

TOKEN = "open sesame"
PATIENCE_S = 20
"""Ends a test that would hang; nothing is timed by it."""
LASTING = StrangerLimits(hello_s=3600)
"""With which a stranger is closed for another reason than its time."""


def hello(token: str = TOKEN, num_bytes: int = 0) -> m.Hello:
    peer = m.Peer(0, 1, bytes(num_bytes), b"")
    return m.Hello(
        token=token, rank=0, generation=1, term=0, slots=1, group_bytes=(8,), num_experts=1, staging_buffers=1,
        transport="", peer=peer, contents=b"", since=b"", digests=b"", committed=None, pending=None, has_weights=False,
        pid=1, host="",
    )  # fmt: skip


def frame(body: bytes) -> bytes:
    return struct.pack("<I", len(body)) + body


@dataclass
class Coordinator:
    """Admits who knows the token, and then answers each heartbeat by its number."""

    server: ControlServer | None = None
    admitted: list[Channel] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)

    async def attend(self, channel: Channel) -> None:
        try:
            greeting = await channel.receive()
        except control.ControlGarbage as garbage:
            self.troubles.append(garbage.reason)
            raise
        if not isinstance(greeting, m.Hello):
            return
        if not control.same_token(TOKEN, greeting.token):
            channel.send(m.Refused("wrong token", "Give the coordinator's.", False))
            return
        channel.admit()
        self.admitted.append(channel)
        channel.send(m.Left(1, 0, 0, True))
        while isinstance(message := await channel.receive(), m.Heartbeat):
            channel.send(m.Refused(str(message.sent_ns), "", False))


@asynccontextmanager
async def serving(
    limits: StrangerLimits = LASTING, attend: Callable[[Channel], Awaitable[None]] | None = None
) -> AsyncIterator[Coordinator]:
    coordinator = Coordinator()
    coordinator.server = await control.serve("127.0.0.1", 0, attend or coordinator.attend, token=TOKEN, limits=limits)
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield coordinator
    finally:
        await coordinator.server.close()


@asynccontextmanager
async def channel_to(coordinator: Coordinator) -> AsyncIterator[Channel]:
    assert coordinator.server
    channel = await control.connect(*coordinator.server.address, m.decode_from_coordinator)
    try:
        yield channel
    finally:
        channel.close()
        await channel.wait_closed()


@asynccontextmanager
async def raw_socket_to(coordinator: Coordinator) -> AsyncIterator[socket.socket]:
    assert coordinator.server
    with socket.socket() as raw:
        raw.setblocking(False)
        await asyncio.get_running_loop().sock_connect(raw, coordinator.server.address)
        yield raw


async def read_to_end(raw: socket.socket) -> bytes:
    """All that comes until the other side closes or resets."""
    received = b""
    try:
        while more := await asyncio.get_running_loop().sock_recv(raw, 65536):
            received += more
    except ConnectionError:
        pass
    return received


async def join(channel: Channel, num_bytes: int = 0) -> None:
    channel.send(hello(num_bytes=num_bytes))
    assert isinstance(await channel.receive(), m.Left)


async def check_echo(channel: Channel, number: int) -> None:
    channel.send(m.Heartbeat(number))
    answer = await channel.receive()
    assert isinstance(answer, m.Refused) and answer.reason == str(number)


def test_messages_of_any_size_arrive_whole_and_in_order() -> None:
    sizes = [0, 1, 100, 65_536, 1 << 20, 5 << 20, 3]

    async def attend(channel: Channel) -> None:
        channel.admit()
        for size in sizes:
            channel.send(m.Joined(1, m.Peer(size, 0, b"\xa5" * size, b"")))
        assert await channel.receive() is None

    async def scenario() -> None:
        async with serving(attend=attend) as coordinator, channel_to(coordinator) as channel:
            for size in sizes:
                message = await channel.receive()
                assert message == m.Joined(1, m.Peer(size, 0, b"\xa5" * size, b""))

    asyncio.run(scenario())


def test_a_hello_may_come_byte_by_byte_with_the_next_message_at_its_tail() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        async with serving() as coordinator, raw_socket_to(coordinator) as raw:
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            first, second = frame(m.encode(hello())), frame(m.encode(m.Heartbeat(7)))
            for byte in first[:-1]:
                await loop.sock_sendall(raw, bytes([byte]))
            await loop.sock_sendall(raw, first[-1:] + second)
            raw.shutdown(socket.SHUT_WR)
            expected = frame(m.encode(m.Left(1, 0, 0, True))) + frame(m.encode(m.Refused("7", "", False)))
            assert await read_to_end(raw) == expected

    asyncio.run(scenario())


NESTED = b"\x82\xa4type\xa6failed\xa5fault\x81\xa5facts\x81\xa1x" + b"\x91" * 50_000
GARBAGE = {
    "random bytes": random.Random(1).randbytes(4000),
    "a huge length": struct.pack("<I", 0xFFFFFFFF) + b"x" * 1000,
    "a length over a Hello's bound": struct.pack("<I", LASTING.hello_bytes + 1),
    "an HTTP request": b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "an empty frame": frame(b""),
    "random bytes in a frame": frame(random.Random(2).randbytes(4000)),
    "no map": frame(b"\x93\x01\x02\x03"),
    "nested beyond measure": frame(NESTED),
    "an array of four thousand million": frame(b"\x82\xa4type\xa8verified\xa7retries\xdd\xff\xff\xff\xff"),
    "text that is no UTF-8": frame(b"\x82\xa4type\xa6failed\xa5fault\x81\xa4code\xa2\xff\xfe"),
    "a message of the wrong direction": frame(m.encode(m.Refused("", "", False))),
    "a Hello with a field of the wrong type": frame(m.encode(hello()).replace(b"\xa4rank\x00", b"\xa4rank\xc0")),
    "half a Hello with a tail of another": frame(m.encode(hello())[:50]) + m.encode(hello()),
}


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE)
def test_garbage_is_refused_and_others_go_on(garbage: bytes) -> None:
    async def scenario() -> None:
        async with serving() as coordinator, channel_to(coordinator) as member:
            await join(member)
            async with raw_socket_to(coordinator) as raw:
                await asyncio.get_running_loop().sock_sendall(raw, garbage)
                assert await read_to_end(raw) == b""
            assert len(coordinator.troubles) == 1 and coordinator.troubles[0]
            await check_echo(member, 1)
            async with channel_to(coordinator) as newcomer:
                await join(newcomer)
                await check_echo(newcomer, 2)

    asyncio.run(scenario())


@pytest.mark.parametrize("token", ["", "open", "open sesame!", "OPEN SESAME", "öpen"])
def test_a_hello_with_a_wrong_token_is_refused_with_a_reason(token: str) -> None:
    async def scenario() -> None:
        async with serving() as coordinator, channel_to(coordinator) as channel:
            channel.send(hello(token))
            refused = await channel.receive()
            assert isinstance(refused, m.Refused) and refused.reason == "wrong token"
            assert await channel.receive() is None
            assert not coordinator.admitted

    asyncio.run(scenario())


def test_a_first_message_that_is_no_hello_ends_the_connection() -> None:
    async def scenario() -> None:
        async with serving() as coordinator, channel_to(coordinator) as channel:
            channel.send(m.Heartbeat(1))
            assert await channel.receive() is None

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "sent", [b"", frame(m.encode(hello()))[:30], b"\x10\x00"], ids=["nothing", "half", "two bytes"]
)
def test_a_stranger_that_falls_silent_is_closed_while_a_member_may_be_silent(sent: bytes) -> None:
    async def scenario() -> None:
        limits = StrangerLimits(hello_s=0.2)
        async with serving(limits) as coordinator, channel_to(coordinator) as member:
            await join(member)
            async with raw_socket_to(coordinator) as raw:
                await asyncio.get_running_loop().sock_sendall(raw, sent)
                assert await read_to_end(raw) == b""
            await check_echo(member, 1)

    asyncio.run(scenario())


def test_for_one_stranger_too_many_the_one_who_has_waited_longest_is_turned_away() -> None:
    async def scenario() -> None:
        async with (
            serving(LASTING._replace(connections=2)) as coordinator,
            raw_socket_to(coordinator) as longest,
            raw_socket_to(coordinator),
            channel_to(coordinator) as third,
        ):
            assert await read_to_end(longest) == b""
            await join(third)

    asyncio.run(scenario())


def test_a_forked_child_keeps_no_connection_open_and_no_address_taken() -> None:
    async def scenario() -> None:
        async with serving() as coordinator, channel_to(coordinator) as channel:
            await join(channel)
            assert coordinator.server
            host, port = coordinator.server.address
            with child_that_waits():
                await coordinator.server.close()
                assert await channel.receive() is None
                again = await control.serve(host, port, coordinator.attend, token=TOKEN)
                await again.close()

    asyncio.run(scenario())


@contextmanager
def child_that_waits() -> Iterator[None]:
    """A forked process that lives until the block ends."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(writing)
        os.read(reading, 1)
        os._exit(0)
    os.close(reading)
    try:
        yield
    finally:
        os.close(writing)
        os.waitpid(child, 0)


def test_members_do_not_count_as_strangers() -> None:
    async def scenario() -> None:
        async with serving(LASTING._replace(connections=1)) as coordinator, channel_to(coordinator) as first:
            await join(first)
            async with channel_to(coordinator) as second:
                await join(second)
                await check_echo(first, 1)

    asyncio.run(scenario())


def test_only_a_few_large_hellos_are_taken_in_at_a_time() -> None:
    async def scenario() -> None:
        limits = LASTING._replace(large_at_a_time=1)
        async with serving(limits) as coordinator, channel_to(coordinator) as waiting, channel_to(coordinator) as small:
            async with raw_socket_to(coordinator) as raw:
                half = frame(m.encode(hello(num_bytes=1 << 20)))[: 1 << 19]
                await asyncio.get_running_loop().sock_sendall(raw, half)
                await join(small)
                await check_echo(small, 0)  # by now the server has seen the half
                waiting.send(hello(num_bytes=1 << 20))
                for number in range(1, 50):
                    await check_echo(small, number)
                assert len(coordinator.admitted) == 1
            assert isinstance(await waiting.receive(), m.Left)

    asyncio.run(scenario())


def test_a_member_may_send_what_a_stranger_may_not() -> None:
    async def scenario() -> None:
        received = []

        async def attend(channel: Channel) -> None:
            await channel.receive()
            channel.admit()
            received.append(await channel.receive())
            channel.send(m.Left(1, 0, 0, True))

        async with serving(attend=attend) as coordinator, channel_to(coordinator) as channel:
            channel.send(hello())
            channel.send(hello(num_bytes=LASTING.hello_bytes + 1))
            assert isinstance(await channel.receive(), m.Left)
            assert len(received[0].peer.metadata) == LASTING.hello_bytes + 1

    asyncio.run(scenario())


@pytest.mark.parametrize("admitted", [False, True], ids=["stranger", "member"])
def test_a_peer_that_does_not_read_is_dropped_before_its_messages_fill_the_memory(admitted: bool) -> None:
    async def scenario() -> None:
        async def attend(channel: Channel) -> None:
            if admitted:
                channel.admit()
            most = control.MAX_UNSENT_BYTES if admitted else LASTING.small_bytes
            in_flight = 32 << 20  # what the kernel may take on its way
            message = m.Joined(1, m.Peer(0, 0, bytes(1 << 20), b""))
            for sent in range(1, (most + in_flight) // (1 << 20)):
                channel.send(message)
                await asyncio.sleep(0)
                if channel.closed:
                    counts.append(sent)
                    break
            assert await channel.receive() is None

        counts: list[int] = []
        async with serving(attend=attend) as coordinator, raw_socket_to(coordinator) as raw:
            while not counts:
                await asyncio.sleep(0)
            assert len(await read_to_end(raw)) < counts[0] << 20
            assert (counts[0] > 128) is admitted

    asyncio.run(scenario())


def test_what_nobody_asks_for_stays_with_its_sender() -> None:
    async def scenario() -> None:
        asked, received = asyncio.Event(), []

        async def attend(channel: Channel) -> None:
            channel.admit()
            await asked.wait()
            await channel.deliver(received.append)

        async with serving(attend=attend) as coordinator, raw_socket_to(coordinator) as raw:
            message, sent = frame(m.encode(hello(num_bytes=1 << 16))), bytearray()
            for _ in range(2000):
                try:
                    rest = len(message) - len(sent) % len(message)
                    sent += message[-rest:][: raw.send(message[-rest:])]
                except BlockingIOError:
                    pass
                await asyncio.sleep(0)
            assert len(sent) < 32 << 20  # what the kernel may take on its way
            asked.set()
            while len(received) < len(sent) // len(message):
                await asyncio.sleep(0)

    asyncio.run(scenario())


def test_delivery_keeps_the_order_of_what_came_before_it_began_and_after() -> None:
    async def scenario() -> None:
        received: list[int] = []
        ended = asyncio.get_running_loop().create_future()

        async def attend(channel: Channel) -> None:
            first = await channel.receive()
            channel.admit()
            await channel.deliver(lambda message: received.append(len(message.peer.metadata)))
            ended.set_result(len(first.peer.metadata))

        async with serving(attend=attend) as coordinator:
            sizes = [random.Random(1).choice((0, 10, 70_000, 200_000)) for _ in range(200)]
            async with channel_to(coordinator) as channel:
                for size in sizes:
                    channel.send(hello(num_bytes=size))
            assert [await ended, *received] == sizes

    asyncio.run(scenario())


@pytest.mark.parametrize("why", ["garbage", "a bug", "closed"])
def test_nothing_is_delivered_after_garbage_a_bug_or_the_end(why: str) -> None:
    async def scenario() -> None:
        received: list[int] = []
        ended = asyncio.get_running_loop().create_future()

        async def attend(channel: Channel) -> None:
            def take(message: m.Heartbeat) -> None:
                received.append(message.sent_ns)
                if message.sent_ns == 2 and why == "a bug":
                    raise KeyError("a bug")
                if message.sent_ns == 2 and why == "closed":
                    channel.close()

            channel.admit()
            try:
                await channel.deliver(take)
                ended.set_result("closed")
            except control.ControlGarbage:
                ended.set_result("garbage")
            except KeyError:
                ended.set_result("a bug")

        async with serving(attend=attend) as coordinator, raw_socket_to(coordinator) as raw:
            beats = [frame(m.encode(m.Heartbeat(number))) for number in range(1, 4)]
            if why == "garbage":
                beats.insert(2, frame(b"?"))
            await asyncio.get_running_loop().sock_sendall(raw, b"".join(beats))
            assert await ended == why
            assert await read_to_end(raw) == b"" and received == [1, 2]

    asyncio.run(scenario())


def test_sending_on_a_closed_channel_does_nothing() -> None:
    async def scenario() -> None:
        async with serving() as coordinator, channel_to(coordinator) as channel:
            await join(channel)
            channel.close()
            for _ in range(10):
                channel.send(m.Heartbeat(1))
            assert channel.closed and await channel.receive() is None

    asyncio.run(scenario())


def test_what_was_sent_before_closing_still_arrives() -> None:
    async def scenario() -> None:
        async def attend(channel: Channel) -> None:
            channel.admit()
            channel.send(m.Joined(1, m.Peer(0, 0, bytes(20 << 20), b"")))
            channel.close()

        async with serving(attend=attend) as coordinator, channel_to(coordinator) as channel:
            message = await channel.receive()
            assert isinstance(message, m.Joined) and len(message.peer.metadata) == 20 << 20
            assert await channel.receive() is None

    asyncio.run(scenario())


def test_a_message_that_no_receiver_would_take_is_not_sent() -> None:
    async def scenario() -> None:
        async with serving() as coordinator, channel_to(coordinator) as channel:
            await join(channel)
            with pytest.raises(EplbInputError, match="message: a Hello of 64"):
                channel.send(hello(num_bytes=control.MAX_FRAME_BYTES))
            await check_echo(channel, 1)

    asyncio.run(scenario())


@pytest.mark.parametrize("how", ["close", "reset", "in mid-frame"])
def test_a_peer_that_goes_is_told_as_none(how: str) -> None:
    async def scenario() -> None:
        seen = asyncio.get_running_loop().create_future()

        async def attend(channel: Channel) -> None:
            seen.set_result(await channel.receive())

        async with serving(attend=attend) as coordinator:
            async with raw_socket_to(coordinator) as raw:
                if how == "in mid-frame":
                    await asyncio.get_running_loop().sock_sendall(raw, frame(m.encode(hello()))[:-1])
                if how == "reset":
                    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            assert await seen is None

    asyncio.run(scenario())


KILLED = """
import socket, sys
raw = socket.create_connection((sys.argv[1], int(sys.argv[2])))
raw.sendall(bytes.fromhex(sys.argv[3]))
raw.recv(1000)
print(flush=True)
raw.recv(1000)
"""


def test_a_killed_process_is_noticed_by_its_connection() -> None:
    async def scenario() -> None:
        ended = asyncio.get_running_loop().create_future()

        async def attend(channel: Channel) -> None:
            assert isinstance(await channel.receive(), m.Hello)
            channel.admit()
            channel.send(m.Left(1, 0, 0, True))
            ended.set_result(await channel.receive())

        async with serving(attend=attend) as coordinator:
            assert coordinator.server
            host, port = coordinator.server.address
            arguments = [sys.executable, "-S", "-c", KILLED, host, str(port), frame(m.encode(hello())).hex()]
            with subprocess.Popen(arguments, stdout=subprocess.PIPE) as process:
                assert process.stdout
                await asyncio.to_thread(process.stdout.readline)
                assert not ended.done()
                process.send_signal(signal.SIGKILL)
                assert await ended is None

    asyncio.run(scenario())


def test_closing_the_server_ends_every_channel_and_leaves_no_task() -> None:
    async def scenario() -> None:
        async with serving() as coordinator, channel_to(coordinator) as member, channel_to(coordinator) as stranger:
            await join(member)
            assert coordinator.server
            await coordinator.server.close()
            assert await member.receive() is None
            assert await stranger.receive() is None
            assert asyncio.all_tasks() == {asyncio.current_task()}
            with pytest.raises(OSError):
                await control.connect(*coordinator.server.address, m.decode_from_coordinator)

    asyncio.run(scenario())


def test_a_bug_in_the_callback_is_reported_and_ends_its_own_channel_only() -> None:
    async def scenario() -> None:
        reported: list[str] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(str(context["exception"])))

        async def attend(channel: Channel) -> None:
            if isinstance(await channel.receive(), m.Heartbeat):
                raise KeyError("a bug")
            channel.send(m.Left(1, 0, 0, True))
            assert await channel.receive() is None

        async with (
            serving(attend=attend) as coordinator,
            channel_to(coordinator) as good,
            channel_to(coordinator) as bad,
        ):
            await join(good)
            bad.send(m.Heartbeat(1))
            assert await bad.receive() is None
            assert reported == ["'a bug'"] and not good.closed

    asyncio.run(scenario())


def test_without_a_token_only_this_machine_may_connect() -> None:
    async def scenario() -> None:
        async def attend(channel: Channel) -> None: ...

        for host in ("0.0.0.0", "::", "", "192.0.2.1"):
            with pytest.raises(EplbInputError) as refused:
                await control.serve(host, 0, attend)
            assert refused.value.field == "token" and "127.0.0.1" in refused.value.advice
        for host in ("127.0.0.1", "127.0.0.2", "localhost"):
            server = await control.serve(host, 0, attend)
            assert server.address.port > 0 and server.address.host.startswith(("127.", "::1"))
            await server.close()
        server = await control.serve("0.0.0.0", 0, attend, token="t")
        await server.close()

    asyncio.run(scenario())


def test_an_address_that_cannot_be_had_is_told_with_its_reason() -> None:
    async def scenario() -> None:
        async def attend(channel: Channel) -> None: ...

        async with serving() as coordinator:
            assert coordinator.server
            for host, port in (
                ("127.0.0.1", coordinator.server.address.port), ("127.0.0.1", 70000), ("no such host", 0),
            ):  # fmt: skip
                with pytest.raises(EplbInputError, match="host, port: "):
                    await control.serve(host, port, attend, token="t")

    asyncio.run(scenario())


def test_connecting_to_nobody_raises_what_the_system_says() -> None:
    async def scenario() -> None:
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            with pytest.raises(ConnectionRefusedError):
                await control.connect(*unused.getsockname(), m.decode_from_coordinator)

    asyncio.run(scenario())


def test_connecting_to_one_that_does_not_accept_ends() -> None:
    async def scenario() -> None:
        with socket.socket() as full, socket.socket() as first, socket.socket() as second:
            full.bind(("127.0.0.1", 0))
            full.listen(0)
            for waiting in (first, second):
                waiting.setblocking(False)
                waiting.connect_ex(full.getsockname())
            with pytest.raises(TimeoutError, match=r"no connection to 127.0.0.1:\d+ within 0.05 s"):
                await control.connect(*full.getsockname(), m.decode_from_coordinator, timeout_s=0.05)

    asyncio.run(scenario())


def test_tokens_are_equal_only_when_all_of_them_is() -> None:
    assert control.same_token("", "") and control.same_token("tökén", "tökén")
    assert not control.same_token("token", "token ") and not control.same_token("token", "")
    assert not control.same_token("\ud800", "\ud801")


def test_an_address_is_written_as_people_write_it() -> None:
    assert str(control.Address("127.0.0.1", 80)) == "127.0.0.1:80"
    assert str(control.Address("::1", 80)) == "[::1]:80"
