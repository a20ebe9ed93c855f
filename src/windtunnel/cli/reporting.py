"""From a run's journal to what the user gets: the result on the console, the result file, the exit code."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from windtunnel.cli.console import tell_note
from windtunnel.errors import EXIT_FAILED, EXIT_SIGINT, EXIT_SIGTERM
from windtunnel.loadgen.journal import Journal
from windtunnel.measure.summary import Summary, exit_code, summarize
from windtunnel.report.console import result_lines
from windtunnel.report.result import result_document
from windtunnel.report.result_file import result_path, write_result
from windtunnel.report.text import write

_EXIT_OF_END = {"SIGINT": EXIT_SIGINT, "SIGTERM": EXIT_SIGTERM, "worker lost": EXIT_FAILED}


def report(journal: Journal) -> int:
    """Show a run's result, save it if that was asked for, and return the exit code; raises FileError."""
    facts, end, output = journal.header.facts, journal.run_end, journal.header.output
    summary = show(journal)
    if output.saved:
        path = result_path(facts, output.result_dir, output.result_filename)
        document = result_document(summary, facts, end, journal.records, detailed=output.save_detailed)
        write_result(path, document, append=output.append_result, journal=journal.path)
        tell_note(f"the result is in {path}")
    tell_note(f"run {facts.run_id} is kept in {Path(journal.path).parent}")
    return _EXIT_OF_END.get(end.reason, exit_code(summary))


def show(journal: Journal) -> Summary:
    """Show a run's result."""
    facts, end = journal.header.facts, journal.run_end
    summary = summarize(journal.records, facts, end)
    write(result_lines(summary, facts, end), sys.stdout)
    sys.stdout.flush()
    return summary


def document_of(journal: Journal) -> dict[str, Any]:
    """The result document of a run, without the arrays of single requests."""
    facts, end = journal.header.facts, journal.run_end
    return result_document(summarize(journal.records, facts, end), facts, end, journal.records, detailed=False)
