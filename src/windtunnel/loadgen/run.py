"""One run: prepare, start the workers, send, listen, and leave a journal that tells it all."""

from __future__ import annotations

import os
import platform
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from msgspec import Struct

import windtunnel
from windtunnel import errors
from windtunnel.clock import local_time, monotonic_ns, read_clock_pair
from windtunnel.loadgen import prepare, runs
from windtunnel.loadgen.caller import Caller
from windtunnel.loadgen.config import ServeConfig
from windtunnel.loadgen.fleet import Fleet, WorkerProcess
from windtunnel.loadgen.journal import (
    FILE_NAME,
    REQUEST_LINE,
    ClockLine,
    EndLine,
    Header,
    Journal,
    JournalWriter,
    StartLine,
    encode_line,
    read_journal,
)
from windtunnel.loadgen.watcher import Counts, Watcher
from windtunnel.measure.record import Record
from windtunnel.measure.run import RunEnd, RunFacts
from windtunnel.units import NS_PER_MS, NS_PER_S, s_to_ns
from windtunnel.wire.control import Broken, Finished, Progress, Ready, Setup, Start, Timeouts, Unwritten, Work
from windtunnel.workload.load import load_samples
from windtunnel.workload.sample import Sample
from windtunnel.workload.seeds import derive_seeds
from windtunnel.workload.tokenizer.base import Tokenizer
from windtunnel.workload.tokenizer.load import load_tokenizer

_START_DELAY_NS = 5 * NS_PER_MS
_POLL_S = 0.1
_SYNC_NS = NS_PER_S


class Plan(Struct):
    """What a run will send, for `--dry-run`."""

    target: str
    samples: list[Sample]
    due_ns: list[int]
    tokenizer: str | None


def serve(config: ServeConfig, base_url: str, fleet: Fleet, watcher: Watcher, *, result_folder: Path) -> Journal:
    """Do a run with the workers of `fleet` and return its journal.

    `result_folder` is where the journal goes when the runs folder can't be written to. Raises errors of
    `windtunnel.errors` for all that stops a run before its first request; afterwards whatever happens is in the
    journal.
    """
    target, caller = prepare.find_target(config, base_url, watcher.notify)
    try:
        tokenizer, samples, due_ns = _workload(config, target, caller, watcher)
        work = prepare.make_work(config, target, samples, due_ns)
        prepare.check_ready(config, target, caller, work[0], watcher.notify)
        if tokenizer is not None and config.target.embedded is None:
            prepare.verify_prompts(samples, config, target, tokenizer, caller, watcher.notify)
        facts = run_facts(config, target, tokenizer, len(work), len(fleet.workers))
        journal = open_journal(config, facts, result_folder, watcher)
        return Run(config, target, fleet, caller, watcher, journal, result_folder).execute(work, tokenizer)
    finally:
        caller.close()


def plan(config: ServeConfig, base_url: str, watcher: Watcher) -> Plan:
    """Prepare as `serve` does and send nothing of the load."""
    target, caller = prepare.find_target(config, base_url, watcher.notify)
    try:
        tokenizer, samples, due_ns = _workload(config, target, caller, watcher)
    finally:
        caller.close()
    return Plan(str(target.url), samples, due_ns, tokenizer.name if tokenizer is not None else None)


def recover(run: runs.RunInfo) -> Journal:
    """A run's journal as `serve` would have returned it, as far as it got."""
    journal = read_journal(run.journal)
    tokenizer: Callable[[str], int] | None = None
    name = journal.header.facts.tokenizer_id
    if name is not None and any(record.output_tokens is None for record in journal.records):
        try:
            tokenizer = load_tokenizer(name).count
        except errors.WindtunnelError:
            tokenizer = None  # chunks are counted instead, and the report says so
    count_tokens(journal.records, tokenizer)
    return journal


def _workload(
    config: ServeConfig, target: prepare.Target, caller: Caller, watcher: Watcher
) -> tuple[Tokenizer | None, list[Sample], list[int]]:
    tokenizer = prepare.find_tokenizer(config, target, caller, watcher.notify)
    template = prepare.template_tokens(config, target, tokenizer, caller, watcher.notify)
    samples = load_samples(config.dataset, tokenizer, template_tokens=template, on_progress=watcher.loading)
    due_ns = prepare.schedule(config, len(samples))
    return tokenizer, samples, due_ns


def run_facts(
    config: ServeConfig,
    target: prepare.Target,
    tokenizer: Tokenizer | None,
    num: int,
    workers: int,
) -> RunFacts:
    """What reports need to know."""
    clock = read_clock_pair()
    return RunFacts(
        run_id=runs.new_run_id(),
        date=time.strftime("%Y%m%d-%H%M%S", local_time()),
        version=windtunnel.__version__,
        target=str(target.url),
        backend=config.target.backend,
        label=config.output.label,
        model_id=target.model_id,
        model_name=target.model_name,
        tokenizer_id=tokenizer.name if tokenizer is not None else None,
        num_prompts=num,
        metadata=config.output.metadata,
        request_rate=config.load.request_rate,
        burstiness=config.load.burstiness,
        max_concurrency=config.load.max_concurrency,
        ramp_up=config.load.ramp_up,
        num_warmups=config.load.num_warmups,
        workers=workers,
        seeds=derive_seeds(config.dataset.seed),
        ignore_eos=config.ignore_eos,
        streamed=config.stream,
        goodput_ms=config.output.goodput_ms,
        percentile_metrics=config.output.percentile_metrics,
        metric_percentiles=config.output.metric_percentiles,
        max_failed_ratio=config.output.max_failed_ratio,
        max_model_len=target.max_model_len,
        clock_monotonic_ns=clock.monotonic_ns,
        clock_realtime_ns=clock.realtime_ns,
    )


def open_journal(config: ServeConfig, facts: RunFacts, result_folder: Path, watcher: Watcher) -> JournalWriter:
    """Make the run's folder with its journal's header: in the runs folder, or beside the result."""
    wanted = Path(config.output.runs_dir) if config.output.runs_dir is not None else runs.default_folder()
    header = Header(
        facts=facts,
        output=config.output,
        arguments=prepare.redact(config),
        clock=read_clock_pair(),
        machine={"python": platform.python_version(), "kernel": platform.release(), "cpus": os.cpu_count()},
    )
    fallback = result_folder / f"windtunnel-run-{facts.run_id}"
    try:
        folder = runs.make_run_folder(wanted, facts.run_id)
    except OSError as error:
        watcher.notify(
            f"warning: the runs folder {wanted} can't be used ({error.strerror}): this run is kept in {fallback}"
        )
        try:
            folder = runs.make_run_folder(fallback.parent, fallback.name)
        except OSError as second:
            remedy = "No request was sent. Make room, or name a folder that can be written to with --runs-dir."
            raise errors.FileError("write the journal in", str(fallback), str(second.strerror), remedy) from second
    journal = JournalWriter(folder / FILE_NAME)
    journal.lock()
    journal.write(encode_line(header))
    return journal


class Run:
    """The part of a run in which workers send."""

    def __init__(
        self,
        config: ServeConfig,
        target: prepare.Target,
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


def count_tokens(records: list[Record], count: Callable[[str], int] | None) -> None:
    """Count the output tokens that the server did not: by tokenizer, or by chunks where there is none."""
    for record in records:
        if record.output_tokens is not None or record.failure is not None:
            continue
        chunks = 0 if record.first_token_ns is None else 1 + len(record.gaps_ns)
        if count is not None and record.text:
            record.output_tokens = count(record.text)
            record.output_tokens_from = "tokenizer"
        else:
            record.output_tokens = chunks
            record.output_tokens_from = "chunks"
