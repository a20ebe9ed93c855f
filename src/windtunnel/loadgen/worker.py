"""A load worker: a process that sends its share of the requests and journals what becomes of them.

Started as `python -m windtunnel.loadgen.worker FD`, with FD its end of a socket pair; everything else comes as control
messages. It ends when that socket closes, so it never outlives the run's process.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
import traceback

from windtunnel.clock import monotonic_ns
from windtunnel.loadgen.background_writer import BackgroundWriter
from windtunnel.loadgen.driver import Driver
from windtunnel.loadgen.exchange import Exchange
from windtunnel.loadgen.journal import RequestLine, encode_line
from windtunnel.loadgen.redact import Redactor
from windtunnel.readiness import READABLE, WRITABLE, Poller, raise_descriptor_limit
from windtunnel.units import NS_PER_MS, NS_PER_S
from windtunnel.wire.control import (
    Broken,
    Finished,
    Load,
    Message,
    MessageReader,
    Progress,
    Ready,
    Setup,
    Start,
    Stop,
    Unwritten,
    Work,
    write_message,
)

_PROGRESS_NS = 100 * NS_PER_MS
_MAX_WARMUP_FAILURES = 5


class Channel:
    """The worker's end of the socket to the run's process."""

    def __init__(self, sock: socket.socket, poller: Poller) -> None:
        self._sock = sock
        sock.setblocking(False)
        self._poller = poller
        self._reader = MessageReader()
        self._out = bytearray()
        self.inbox: list[Message] = []
        poller.register(sock.fileno(), READABLE, self._on_ready)

    def send(self, message: Message) -> None:
        """Queue a message and send what goes."""
        self._out += write_message(message)
        self._flush()

    def drain(self) -> None:
        """Send all that is queued, however long it takes."""
        self._sock.setblocking(True)
        self._sock.sendall(self._out)
        self._out.clear()
        self._sock.setblocking(False)

    def _on_ready(self, events: int) -> None:
        if events & WRITABLE:
            self._flush()
        try:
            data = self._sock.recv(1 << 20)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            os._exit(1)  # the run's process is gone: nothing is left to work for
        self.inbox += self._reader.feed(data)

    def _flush(self) -> None:
        try:
            sent = self._sock.send(self._out)
            del self._out[:sent]
        except BlockingIOError:
            pass
        except OSError:
            os._exit(1)
        self._poller.modify(self._sock.fileno(), READABLE | WRITABLE if self._out else READABLE)


class Worker:
    """What a load worker does with its messages."""

    def __init__(self, channel: Channel, poller: Poller) -> None:
        self._channel = channel
        self._poller = poller
        self._driver: Driver | None = None
        self._journal: BackgroundWriter | None = None
        self._setup: Setup | None = None
        self._redactor = Redactor([], None)
        self._items: list[Work] = []
        self._recorded = False
        self._running = False
        self._warmup_failures: list[str] = []
        self._next_progress_ns = 0
        self._sent_told = 0
        self._forget_progress()

    def run(self) -> None:
        """Work until the run's process closes the channel."""
        while True:
            if self._driver is not None and self._running:
                self._driver.step(self._next_progress_ns)
                self._tell_progress()
            else:
                for fileno, events in self._poller.wait_ready(monotonic_ns() + NS_PER_S):
                    handler = self._poller.handlers.get(fileno)
                    if handler is not None:
                        handler(events)
            while self._channel.inbox:
                self._obey(self._channel.inbox.pop(0))

    def _obey(self, message: Message) -> None:
        if isinstance(message, Setup):
            self._setup = message
            self._journal = BackgroundWriter(message.journal)
            self._redactor = Redactor(message.headers, message.proxy)
            self._driver = Driver(message, self._poller, self._judge)
        elif isinstance(message, Load):
            self._items += message.items
            if message.last:
                self._channel.send(Ready())
        elif isinstance(message, Start):
            self._begin(message)
        elif isinstance(message, Stop) and self._driver is not None:
            self._driver.stop(message.why)

    def _begin(self, start: Start) -> None:
        assert self._driver is not None
        self._recorded = start.recorded
        self._warmup_failures = []
        self._driver.begin(self._items, start.start_ns, scheduled=start.scheduled)
        self._items = []
        self._running = True
        self._sent_told = self._driver.sent
        self._next_progress_ns = start.start_ns + _PROGRESS_NS

    def _judge(self, exchange: Exchange) -> None:
        """A request is over: journal it, or, of a warm-up, note that it failed."""
        assert self._journal is not None and self._setup is not None
        failure = exchange.failure
        if not self._recorded:
            if failure is not None and len(self._warmup_failures) < _MAX_WARMUP_FAILURES:
                self._warmup_failures.append(self._redactor.scrub(failure.message))
            return
        record = exchange.record(self._setup.worker)
        self._redactor.scrub_record(record)
        self._journal.write(encode_line(RequestLine(record)))
        if failure is None:
            self._completed += 1
            if record.first_token_ns is not None and record.sent_ns is not None:
                self._ttfts_ns.append(record.first_token_ns - record.sent_ns)
        else:
            self._failed += 1

    def _forget_progress(self) -> None:
        self._completed = 0
        self._failed = 0
        self._ttfts_ns: list[int] = []

    def _tell_progress(self) -> None:
        driver, journal = self._driver, self._journal
        assert driver is not None and journal is not None
        over = driver.finished and not journal.pending
        now_ns = monotonic_ns()
        if now_ns < self._next_progress_ns and not over:
            return
        self._next_progress_ns = now_ns + _PROGRESS_NS
        if self._recorded:
            sent = driver.sent - self._sent_told
            self._sent_told = driver.sent
            self._channel.send(Progress(sent, self._completed, self._failed, self._ttfts_ns))
        self._forget_progress()
        refused, reason = journal.take_refused()
        if refused:
            self._channel.send(Unwritten(refused, reason))
        if over:
            self._running = False
            self._channel.send(Finished(self._warmup_failures))


def main() -> None:
    """Run a worker on the descriptor that the command line names."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is the run's process's affair
    raise_descriptor_limit()
    poller = Poller()
    channel = Channel(socket.socket(fileno=int(sys.argv[1])), poller)
    gc.disable()  # nothing here makes cycles in numbers, and a collection would delay what is due
    gc.freeze()
    try:
        Worker(channel, poller).run()
    except BaseException:  # whatever it is, the run's process is to tell it
        channel.send(Broken(traceback.format_exc()))
        channel.drain()
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
