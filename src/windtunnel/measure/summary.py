"""A run's records in one value: figures, how requests ended and why, validity. Every report is made of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from msgspec import Struct

from windtunnel.errors import EXIT_FAILED, EXIT_INVALID, EXIT_OK
from windtunnel.measure.causes import Cause, failure_causes, warning_causes
from windtunnel.measure.columns import Columns
from windtunnel.measure.metrics import Aggregate, aggregates
from windtunnel.measure.notes import Note, PromptMismatch, notes, output_token_sources, prompt_mismatch
from windtunnel.measure.rates import rates
from windtunnel.measure.record import COMPLETED_ENDINGS, FAILED_ENDINGS, Record
from windtunnel.measure.run import RunEnd, RunFacts
from windtunnel.measure.validity import Instrument, Invalid, instrument, reasons_invalid


class Summary(Struct, kw_only=True, frozen=True):
    """What a run's records say."""

    completed: int
    failed: int
    """Cancelled ones included."""
    endings: dict[str, int]
    """Requests by how they ended; what did not occur is left out."""
    total_input_tokens: int
    """Of completed requests; by the server's usage, else as asked."""
    total_output_tokens: int
    metrics: dict[str, Aggregate]
    """By key of `METRICS`; a metric without data is left out."""
    rates: dict[str, float]
    """By key of `RATES`."""
    failures: list[Cause]
    warnings: list[Cause]
    invalid: list[Invalid]
    notes: list[Note]
    prompt_mismatch: PromptMismatch | None
    output_tokens_from: dict[str, int]
    instrument: Instrument

    @property
    def cancelled(self) -> int:
        """Requests that an interrupt ended."""
        return self.endings.get("cancelled", 0)


def summarize(records: Sequence[Record], facts: RunFacts, end: RunEnd) -> Summary:
    """The summary of a run, from its records alone and what was asked for."""
    columns = Columns.of(records, facts, end)
    counts = Counter(columns.endings)
    client = instrument(records, columns)
    completed = int(columns.completed.sum())
    return Summary(
        completed=completed,
        failed=len(records) - completed,
        endings={word: counts[word] for word in (*COMPLETED_ENDINGS, *FAILED_ENDINGS) if counts[word]},
        total_input_tokens=int(columns.prompt_tokens[columns.completed].sum()),
        total_output_tokens=int(columns.output_tokens[columns.completed].sum()),
        metrics=aggregates(columns, facts.metric_percentiles),
        rates=rates(columns, facts.goodput_ms),
        failures=failure_causes(records, columns.endings),
        warnings=warning_causes(records),
        invalid=reasons_invalid(records, columns, facts, client),
        notes=notes(records, columns, facts, end),
        prompt_mismatch=prompt_mismatch(records, columns),
        output_tokens_from=output_token_sources(records, columns),
        instrument=client,
    )


def exit_code(summary: Summary) -> int:
    """0 when the run is good, 1 when no request completed, 3 when its figures are invalid."""
    if not summary.completed:
        return EXIT_FAILED
    return EXIT_INVALID if summary.invalid else EXIT_OK
