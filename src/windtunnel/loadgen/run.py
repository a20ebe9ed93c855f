"""One run from its configuration to its journal: prepare, send, and what a journal still tells afterwards."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

import windtunnel
from windtunnel import errors
from windtunnel.clock import local_time, read_clock_pair
from windtunnel.loadgen import prepare, runs
from windtunnel.loadgen.caller import Caller
from windtunnel.loadgen.config import ServeConfig
from windtunnel.loadgen.fleet import Fleet
from windtunnel.loadgen.journal import (
    FILE_NAME,
    Header,
    Journal,
    JournalWriter,
    encode_line,
    read_journal,
)
from windtunnel.loadgen.redact import redact_config
from windtunnel.loadgen.sending import Run
from windtunnel.loadgen.target import Target, check_ready, find_target
from windtunnel.loadgen.watcher import Watcher
from windtunnel.measure.counting import count_tokens
from windtunnel.measure.run import RunFacts
from windtunnel.workload.load import load_samples
from windtunnel.workload.sample import Sample
from windtunnel.workload.seeds import derive_seeds
from windtunnel.workload.tokenizer.base import Tokenizer
from windtunnel.workload.tokenizer.load import load_tokenizer


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
    target, caller = find_target(config, base_url, watcher.notify)
    try:
        tokenizer, samples, due_ns = _workload(config, target, caller, watcher)
        work = prepare.make_work(config, target, samples, due_ns)
        check_ready(config, target, caller, work[0], watcher.notify)
        if tokenizer is not None and not config.target.is_paced:
            prepare.verify_prompts(samples, config, target, tokenizer, caller, watcher.notify)
        facts = run_facts(config, target, tokenizer, len(work), len(fleet.workers))
        journal = open_journal(config, facts, result_folder, watcher)
        return Run(config, target, fleet, caller, watcher, journal, result_folder).execute(work, tokenizer)
    finally:
        caller.close()


def plan(config: ServeConfig, base_url: str, watcher: Watcher) -> Plan:
    """Prepare as `serve` does and send nothing of the load."""
    target, caller = find_target(config, base_url, watcher.notify)
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
    config: ServeConfig, target: Target, caller: Caller, watcher: Watcher
) -> tuple[Tokenizer | None, list[Sample], list[int]]:
    tokenizer = prepare.find_tokenizer(config, target, caller, watcher.notify)
    template = prepare.template_tokens(config, target, tokenizer, caller, watcher.notify)
    samples = load_samples(config.dataset, tokenizer, template_tokens=template, on_progress=watcher.loading)
    due_ns = prepare.schedule(config, len(samples))
    return tokenizer, samples, due_ns


def run_facts(
    config: ServeConfig,
    target: Target,
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
        arguments=redact_config(config),
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
