"""The load workers as processes: start them, deal requests to them, hear what they say, notice when one dies."""

from __future__ import annotations

import os
import selectors
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from math import ceil

from windtunnel.loadgen.config import ServeConfig
from windtunnel.wire.control import Load, Message, MessageReader, Start, Stop, Work, write_message

_LOAD_BYTES = 1 << 20
_STREAMS_A_WORKER = 500
_RECEIVE_BYTES = 1 << 20


def num_workers(config: ServeConfig) -> int:
    """As many as were asked for; else one for each five hundred streams, and no more than there are processors."""
    cap = config.load.max_concurrency
    streams = max(config.dataset.num_prompts, 1)
    if cap is not None:
        streams = min(streams, cap)
    if config.load.request_rate is not None and cap is None:
        streams = min(streams, _STREAMS_A_WORKER)
    wanted = config.load.workers
    if wanted is None:
        wanted = min(ceil(streams / _STREAMS_A_WORKER), os.cpu_count() or 1)
    return max(1, min(wanted, streams))


class WorkerProcess:
    """The run's end of one worker."""

    def __init__(self, number: int) -> None:
        self.number = number
        ours, theirs = socket.socketpair()
        # the key has no business in a worker's environment, and no worker talks to a tokenizer
        environment = {name: value for name, value in os.environ.items() if name != "OPENAI_API_KEY"}
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "windtunnel.loadgen.worker", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            process_group=0,  # a terminal's Ctrl-C is the run's affair
            env=environment,
        )
        theirs.close()
        self.socket = ours
        self._reader = MessageReader()
        self.assigned = 0
        self.alive = True

    def send(self, message: Message) -> None:
        """Send a message; a dead worker is noticed when it is listened to."""
        try:
            self.socket.sendall(write_message(message))
        except OSError:
            pass

    def receive(self) -> list[Message] | None:
        """What it says; None when it is gone."""
        try:
            data = self.socket.recv(_RECEIVE_BYTES)
        except OSError:
            data = b""
        if not data:
            self.alive = False
            return None
        return self._reader.feed(data)

    def end(self) -> str:
        """Close the channel, which ends it, and say how it ended."""
        self.socket.close()
        try:
            code = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        if code < 0:
            try:
                return signal.Signals(-code).name
            except ValueError:
                return f"signal {-code}"
        return f"exit status {code}"


class Fleet:
    """All workers of a run."""

    def __init__(self, num_workers: int) -> None:
        self.workers = [WorkerProcess(number) for number in range(num_workers)]
        self._selector = selectors.DefaultSelector()
        for worker in self.workers:
            self._selector.register(worker.socket, selectors.EVENT_READ, worker)

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End all workers."""
        for worker in self.workers:
            worker.end()
        self._selector.close()

    def watch(self, wakeup: socket.socket) -> None:
        """Let `messages` return early, too, when bytes come out of this socket; they are thrown away."""
        self._selector.register(wakeup, selectors.EVENT_READ, None)

    @property
    def alive(self) -> list[WorkerProcess]:
        """The workers that have not died."""
        return [worker for worker in self.workers if worker.alive]

    def slots(self, cap: int | None) -> list[int | None]:
        """How many requests each worker may have in flight."""
        num = len(self.workers)
        return [None if cap is None else cap // num + (number < cap % num) for number in range(num)]

    def deal(self, items: list[Work], cap: int | None) -> None:
        """Deal requests to the workers in turn, to each in proportion to its slots."""
        slots = self.slots(cap)
        turns = [n for turn in range(max(s or 1 for s in slots)) for n, s in enumerate(slots) if turn < (s or 1)]
        for worker in self.workers:
            share = [item for place, item in enumerate(items) if turns[place % len(turns)] == worker.number]
            worker.assigned = len(share)
            batch: list[Work] = []
            size = 0
            for item in share:
                batch.append(item)
                size += len(item.body)
                if size >= _LOAD_BYTES:
                    worker.send(Load(batch, last=False))
                    batch, size = [], 0
            worker.send(Load(batch, last=True))

    def start(self, start: Start) -> None:
        """Begin a phase everywhere."""
        for worker in self.alive:
            worker.send(start)

    def stop(self, why: str) -> None:
        """Cancel everywhere."""
        for worker in self.alive:
            worker.send(Stop(why))

    def messages(self, timeout_s: float) -> Iterator[tuple[WorkerProcess, Message | None]]:
        """What the workers say within a time; None from one that is gone."""
        for key, _ in self._selector.select(timeout_s):
            worker: WorkerProcess | None = key.data
            assert isinstance(key.fileobj, socket.socket)
            if worker is None:
                key.fileobj.recv(4096)
                continue
            said = worker.receive()
            if said is None:
                self._selector.unregister(worker.socket)
                yield worker, None
                continue
            for message in said:
                yield worker, message
