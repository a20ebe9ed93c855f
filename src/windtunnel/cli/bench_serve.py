"""`windtunnel bench serve`: benchmark an endpoint under load."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from windtunnel.cli.console import tell_note
from windtunnel.cli.flags import GROUPS, SERVE_FLAGS
from windtunnel.cli.parser import CommandParser
from windtunnel.errors import EXIT_OK, EXIT_SIGINT

if TYPE_CHECKING:
    from windtunnel.loadgen.config import ServeConfig

_SUMMARY = """\
Benchmark an endpoint under load. Takes the flags of `vllm bench serve`, also with underscores or as --flag=value.

  windtunnel bench serve --embedded --num-prompts 200 --request-rate 50
  windtunnel bench serve --base-url http://HOST:8000 --max-concurrency 64 --save-result

Defaults stand in [brackets]."""


def parser() -> CommandParser:
    """Of this command's flags."""
    return CommandParser("bench serve", _SUMMARY, SERVE_FLAGS, GROUPS)


def run(arguments: Sequence[str]) -> int:
    """Parse, check, benchmark; the exit code. Raises errors of `windtunnel.errors`."""
    parsed = parser().parse(arguments)
    if parsed.values.embedded == "help":
        from windtunnel.engine.paced.config import embedded_help

        sys.stdout.write(embedded_help())
        return EXIT_OK
    from windtunnel.cli.serve_config import configure

    config, notes = configure(parsed.values, parsed.given, os.environ)
    for note in [*parsed.notes, *notes]:
        tell_note(note)
    return _benchmark(config)


def _benchmark(config: ServeConfig) -> int:
    # nothing here multiplies matrices, and the threads that numpy's library keeps for it spin beside the load
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if config.output.saved:
        from windtunnel.report.result_file import check_writable

        # a name that is made from the model's is not known yet: then it is the folder that is proven
        name = config.output.result_filename or "windtunnel-result.json"
        check_writable(Path(config.output.result_dir or "", name))
    if config.target.base_url is not None:
        return _benchmark_at(config, config.target.base_url)
    from windtunnel.engine.process import EmbeddedTarget

    assert config.target.embedded is not None
    with EmbeddedTarget.start(config.target.embedded) as target:
        code = _benchmark_at(config, target.url)
        target.check()
    return code


def _benchmark_at(config: ServeConfig, base_url: str) -> int:
    from windtunnel.cli.watcher import ConsoleWatcher
    from windtunnel.loadgen.fleet import Fleet, num_workers

    watcher = ConsoleWatcher(shows_progress=config.output.progress)
    if config.dry_run:
        from windtunnel.cli.dry_run import plan_text
        from windtunnel.loadgen.run import plan

        sys.stdout.write(plan_text(plan(config, base_url, watcher)))
        return 0
    with Fleet(num_workers(config)) as fleet:  # the workers start while numpy and the tokenizer load here
        from windtunnel.loadgen.run import serve

        journal = serve(config, base_url, fleet, watcher, result_folder=Path(config.output.result_dir or "."))
    from windtunnel.cli.reporting import report

    try:
        return report(journal)
    except KeyboardInterrupt:
        run_id = journal.header.facts.run_id
        tell_note(f"interrupted while reporting: `windtunnel runs recover {run_id}` makes report and file again")
        return EXIT_SIGINT
