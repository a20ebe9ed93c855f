"""The part of a run in which workers send: warm-up, profiler, load, and what is heard of it until its end."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from windtunnel import errors
from windtunnel.clock import monotonic_ns, read_clock_pair
from windtunnel.loadgen import runs
from windtunnel.loadgen.caller import Caller
from windtunnel.loadgen.config import ServeConfig
from windtunnel.loadgen.fleet import Fleet, WorkerProcess
from windtunnel.loadgen.journal import (
    FILE_NAME,
    REQUEST_LINE,
    ClockLine,
    EndLine,
    Journal,
    JournalWriter,
    StartLine,
    encode_line,
    read_journal,
)
from windtunnel.loadgen.target import Target
from windtunnel.loadgen.watcher import Counts, Watcher
from windtunnel.measure.counting import count_tokens
from windtunnel.measure.run import RunEnd
from windtunnel.units import NS_PER_MS, NS_PER_S, s_to_ns
from windtunnel.wire.control import Broken, Finished, Progress, Ready, Setup, Start, Timeouts, Unwritten, Work
from windtunnel.workload.tokenizer.base import Tokenizer

_START_DELAY_NS = 5 * NS_PER_MS
_POLL_S = 0.1
_SYNC_NS = NS_PER_S


class Run:
    """The part of a run in which workers send."""

    def __init__(
        self,
        config: ServeConfig,
        target: Target,
        fleet: Fleet,
        caller: Caller,
        watcher: Watcher,
        journal: JournalWriter,
        result_folder: Path,
    ) -> None:
        self._config = config
        self._target = target
        self._fleet = fleet
        self._caller = caller
        self._watcher = watcher
        self._journal = journal
        self._result_folder = result_folder
        self._interrupted: str | None = None
        self._reason = "done"
        self._unwritten: list[bytes] = []
        self._next_sync_ns = 0

    def execute(self, work: list[Work], tokenizer: Tokenizer | None) -> Journal:
        """Warm up, send, and return what the journal says."""
        for worker in self._fleet.workers:
            worker.send(self._setup(worker.number))
        start_ns = monotonic_ns()
        with self._interruptible() as wakeup:
            self._fleet.watch(wakeup)
            self._warm_up(work[0])
            self._profiler("start")
            if self._interrupted is None:
                start_ns = self._send(work)
            self._profiler("stop")
        num = len(work)
        work.clear()
        return self._finish(start_ns, num, tokenizer)

    # --- phases -----------------------------------------------------------------------------------------------

    def _setup(self, worker: int) -> Setup:
        target = self._config.target
        timeouts = Timeouts(
            s_to_ns(target.connect_timeout_s),
            s_to_ns(target.first_token_timeout_s),
            s_to_ns(target.stall_timeout_s),
            s_to_ns(target.request_timeout_s),
        )
        return Setup(
            worker,
            str(self._target.url),
            self._target.addresses,
            self._target.headers,
            target.dialect,
            self._config.stream,
            timeouts,
            target.insecure,
            target.proxy,
            self._config.load.retries,
            self._fleet.slots(self._config.load.max_concurrency)[worker],
            self._journal.path,
        )

    def _warm_up(self, first: Work) -> None:
        num = self._config.load.num_warmups
        if not num:
            return
        self._watcher.notify(f"warming up with {num} requests")
        warm = [
            Work(i, f"{first.request_id}-warmup{i}", first.body, 0, first.prompt_tokens, first.output_tokens)
            for i in range(num)
        ]
        self._deal(warm)
        self._fleet.start(Start(monotonic_ns(), recorded=False, scheduled=False))
        failures = self._listen(Counts(0))
        for failure in failures[:1]:
            self._watcher.notify(f"warning: of the warm-up, {len(failures)} requests or more failed: {failure}")

    def _profiler(self, what: str) -> None:
        """vLLM's profiler, by its own endpoints."""
        if not self._config.profile or self._interrupted is not None:
            return
        path = f"{self._target.base_path}/{what}_profile"
        try:
            status, _ = self._caller.post_json(path, {})
            problem = None if status == 200 else f"HTTP {status}"
        except errors.RequestFailure as failure:
            problem = failure.message
        self._watcher.notify(f"profiler: {what}" if problem is None else f"warning: {path} failed: {problem}")

    def _send(self, work: list[Work]) -> int:
        scheduled = self._config.load.request_rate is not None or self._config.load.ramp_up is not None
        self._deal(work)
        self._watcher.begin(len(work))  # may take its time: it loads what draws the progress
        start_ns = monotonic_ns() + _START_DELAY_NS
        self._write(encode_line(StartLine(start_ns)))
        counts = Counts(len(work))
        self._fleet.start(Start(start_ns, recorded=True, scheduled=scheduled))
        self._listen(counts, start_ns)
        self._watcher.end()
        return start_ns

    def _deal(self, work: list[Work]) -> None:
        """Deal a phase's requests, and wait until every worker has its share."""
        self._fleet.deal(work, self._config.load.max_concurrency)
        waiting = set(self._fleet.alive)
        while waiting and self._interrupted is None:
            for worker, message in self._fleet.messages(_POLL_S):
                if message is None:
                    self._lose(worker, worker.assigned)
                if message is None or isinstance(message, Ready):
                    waiting.discard(worker)
                elif isinstance(message, Broken):
                    self._tell_broken(worker, message)

    def _tell_broken(self, worker: WorkerProcess, broken: Broken) -> None:
        self._watcher.notify(f"warning: load worker {worker.number} met an error of ours:\n{broken.traceback}")

    def _listen(self, counts: Counts, start_ns: int | None = None) -> list[str]:
        """Hear the workers out until each has finished or is gone; returns the failures of a warm-up."""
        waiting = set(self._fleet.alive)
        failures: list[str] = []
        done_by: dict[WorkerProcess, int] = {}
        stopping = False
        while waiting:
            if self._interrupted is not None and not stopping:
                stopping = True
                self._fleet.stop(self._interrupted)
            for worker, message in self._fleet.messages(_POLL_S):
                if message is None:
                    waiting.discard(worker)
                    self._lose(worker, worker.assigned - done_by.get(worker, 0))
                elif isinstance(message, Progress):
                    done_by[worker] = done_by.get(worker, 0) + message.completed + message.failed
                    _add(counts, message)
                elif isinstance(message, Unwritten):
                    self._keep(message)
                elif isinstance(message, Finished):
                    waiting.discard(worker)
                    failures += message.failures
                elif isinstance(message, Broken):
                    self._tell_broken(worker, message)
            if start_ns is not None:
                counts.elapsed_s = max(0.0, (monotonic_ns() - start_ns) / NS_PER_S)
                self._watcher.progress(counts)
            self._sync()
        return failures

    def _lose(self, worker: WorkerProcess, num_lost: int) -> None:
        self._reason = "worker lost"
        error = errors.WorkerLost(worker.number, worker.end(), num_lost, self._journal.path)
        self._watcher.notify(f"warning: {error.message}. {error.advice}")

    def _keep(self, unwritten: Unwritten) -> None:
        """The journal's disk is full, or gone: keep the lines here, and say so once."""
        if not self._unwritten:
            self._watcher.notify(
                f"warning: the journal {self._journal.path} can't be written ({unwritten.reason}): "
                "results are kept in memory until the run's end"
            )
        self._unwritten += unwritten.lines

    def _sync(self) -> None:
        """Once a second: read both clocks, bring the journal to the disk."""
        now_ns = monotonic_ns()
        if now_ns < self._next_sync_ns:
            return
        self._next_sync_ns = now_ns + _SYNC_NS
        self._write(encode_line(ClockLine(read_clock_pair())))
        self._bring_to_disk()

    def _bring_to_disk(self) -> None:
        try:
            self._journal.sync()
        except OSError:
            pass  # a disk that fails is told by the writes

    def _write(self, line: bytes) -> None:
        try:
            self._journal.write(line)
        except OSError as error:
            self._keep(Unwritten([line], str(error.strerror)))

    # --- the end ----------------------------------------------------------------------------------------------

    def _finish(self, start_ns: int, num: int, tokenizer: Tokenizer | None) -> Journal:
        journal = read_journal(self._journal.path, self._unwritten)
        done_ns = [record.done_ns for record in journal.records if record.done_ns is not None]
        reason = self._interrupted or self._reason
        end = RunEnd(
            start_ns=start_ns,
            end_ns=max(done_ns, default=monotonic_ns()),
            reason=reason,
            num_without_result=num - len(journal.records),
        )
        self._write(encode_line(EndLine(end)))
        self._bring_to_disk()
        if self._unwritten:
            self._rescue(journal)
        self._journal.close()
        journal.start_ns = start_ns
        journal.end = end
        count_tokens(journal.records, tokenizer.count if tokenizer is not None else None)
        return journal

    def _rescue(self, journal: Journal) -> None:
        """The journal did not take all: write the whole of it elsewhere, or say what is on no disk."""
        for folder in (self._result_folder, Path(tempfile.gettempdir())):
            try:
                kept = runs.make_run_folder(folder, f"windtunnel-run-{journal.header.facts.run_id}") / FILE_NAME
                shutil.copyfile(self._journal.path, kept)
                with open(kept, "ab") as file:
                    file.writelines([b"\n", *self._unwritten])
                    file.flush()
                    os.fsync(file.fileno())
            except OSError:
                continue
            journal.path = str(kept)
            self._watcher.notify(f"the whole run is kept in {kept}, where there was room")
            return
        journal.num_unsafe = sum(line.startswith(REQUEST_LINE) for line in self._unwritten)
        num = len(journal.records)
        self._watcher.notify(f"warning: {journal.num_unsafe} of {num} results are on no disk but in what is told now")

    @contextmanager
    def _interruptible(self) -> Iterator[socket.socket]:
        """SIGINT and SIGTERM end the load in order; a second SIGINT at once. Yields what a signal makes readable."""
        ours, theirs = socket.socketpair()
        for end in (ours, theirs):
            end.setblocking(False)

        def interrupt(number: int, frame: FrameType | None) -> None:
            if self._interrupted is not None and number == signal.SIGINT:
                os._exit(errors.EXIT_SIGINT)
            self._interrupted = signal.Signals(number).name

        before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
        wakeup_before = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
        try:
            yield ours
        finally:
            signal.set_wakeup_fd(wakeup_before)
            for number, handler in before.items():
                signal.signal(number, handler)
            ours.close()
            theirs.close()


def _add(counts: Counts, progress: Progress) -> None:
    counts.sent += progress.sent
    counts.completed += progress.completed
    counts.failed += progress.failed
    counts.ttfts_ns += progress.ttfts_ns
    counts.in_flight = counts.sent - counts.completed - counts.failed
