"""Writes a worker's journal lines from a thread of its own: a disk that is being synced holds a write up for tens of
milliseconds, and a load loop that waits with it sends late.
"""

from __future__ import annotations

import queue
import threading
from collections import deque

from windtunnel.loadgen.journal import JournalWriter


class BackgroundWriter:
    """Takes lines without waiting. One thread puts lines in; this one's own writes them."""

    def __init__(self, path: str) -> None:
        self._journal = JournalWriter(path)
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._put = 0
        self._done = 0
        self._refused: deque[bytes] = deque()  # its append and popleft are whole, whichever thread is switched to
        self._reason = ""
        threading.Thread(target=self._work, daemon=True, name="journal").start()

    def write(self, line: bytes) -> None:
        """Have a line written."""
        self._put += 1
        self._lines.put(line)

    @property
    def pending(self) -> int:
        """Lines that are not written yet."""
        return self._put - self._done

    def take_refused(self) -> tuple[list[bytes], str]:
        """The lines that could not be written since the last call, and why."""
        return [self._refused.popleft() for _ in range(len(self._refused))], self._reason

    def _work(self) -> None:
        while True:
            line = self._lines.get()
            try:
                self._journal.write(line)
            except OSError as error:
                self._reason = str(error.strerror)
                self._refused.append(line)
            self._done += 1
