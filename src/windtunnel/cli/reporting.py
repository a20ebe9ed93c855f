"""From a run's journal to what the user gets: the result on the console, the result file, the exit code."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from windtunnel.cli.console import tell_note
from windtunnel.cli.failure_records import with_records
from windtunnel.errors import EXIT_FAILED, EXIT_SIGINT, EXIT_SIGTERM, FileError
from windtunnel.loadgen.journal import Journal
from windtunnel.measure.summary import Summary, exit_code, summarize
from windtunnel.report.console import result_lines
from windtunnel.report.result import result_document
from windtunnel.report.result_file import result_path, write_result
from windtunnel.report.text import write

_EXIT_OF_END = {"SIGINT": EXIT_SIGINT, "SIGTERM": EXIT_SIGTERM, "worker lost": EXIT_FAILED}


def report(journal: Journal) -> int:
    """Save a run's result if that was asked for, show it, and return the exit code; raises FileError."""
    facts, end, output = journal.header.facts, journal.run_end, journal.header.output
    summary = summary_of(journal)
    problem: FileError | None = None
    if output.saved:  # before it is shown: the console may be closed
        path = result_path(facts, output.result_dir, output.result_filename)
        document = result_document(summary, facts, end, journal.records, detailed=output.save_detailed)
        unsafe = f" (but {journal.num_unsafe} of {len(journal.records)} results)" if journal.num_unsafe else ""
        try:
            write_result(path, document, append=output.append_result, journal=f"{journal.path}{unsafe}")
            tell_note(f"the result is in {path}")
        except FileError as error:
            problem = error
    tell_note(f"run {facts.run_id} is kept in {Path(journal.path).parent}")
    if journal.num_torn:
        tell_note(f"{journal.num_torn} lines of the journal are torn and were passed over")
    show(summary, journal)
    if problem is not None:
        raise problem
    return _EXIT_OF_END.get(end.reason, exit_code(summary))


def summary_of(journal: Journal) -> Summary:
    """What a run's records say, and the catalog of its failures."""
    return with_records(summarize(journal.records, journal.header.facts, journal.run_end))


def show(summary: Summary, journal: Journal) -> None:
    """Show a run's result."""
    facts, end = journal.header.facts, journal.run_end
    write(result_lines(summary, facts, end), sys.stdout)
    sys.stdout.flush()


def document_of(journal: Journal) -> dict[str, Any]:
    """The result document of a run, without the arrays of single requests."""
    facts, end = journal.header.facts, journal.run_end
    return result_document(summary_of(journal), facts, end, journal.records, detailed=False)
