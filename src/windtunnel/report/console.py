"""A run's result on the console: vLLM's block line for line, our additions, then what went wrong and how to fix it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from windtunnel.errors import EXIT_FAILED, EXIT_INVALID
from windtunnel.measure.causes import CatalogRecord, Cause
from windtunnel.measure.metrics import METRICS, Aggregate, Metric
from windtunnel.measure.notes import counted
from windtunnel.measure.rates import RATES
from windtunnel.measure.run import RunEnd, RunFacts
from windtunnel.measure.summary import Summary
from windtunnel.report.instrument import instrument_lines
from windtunnel.report.text import Line, Style, plain, printable, shortened

_BANNER = 50
_MAX_CAUSES = 10
_MAX_MESSAGE_CHARS = 400
_MAX_TRANSCRIPT_CHARS = 240
_MATERIAL_MS = 1.0
_MATERIAL_RATIO = 0.05

_ENDING_LABELS = {
    "ok": "Completed as asked:",
    "short": "Completed, shorter than asked:",
    "zero_tokens": "Completed without a token:",
    "not_streamed": "Completed in one piece, not streamed:",
    "truncated": "Failed, truncated:",
    "in_band_error": "Failed, error in the stream:",
    "http_status": "Failed, HTTP status:",
    "connect": "Failed, no connection:",
    "disconnect": "Failed, disconnected:",
    "timeout": "Failed, timeout:",
    "malformed": "Failed, malformed answer:",
    "cancelled": "Cancelled by us:",
}


def result_block(summary: Summary, facts: RunFacts, end: RunEnd) -> str:
    """All that `result_lines` says, as plain text."""
    return plain(result_lines(summary, facts, end))


def result_lines(summary: Summary, facts: RunFacts, end: RunEnd) -> list[Line]:
    """The result block, then what is invalid, failures, warnings and notes, each only where there are any."""
    return [
        *_alarm(summary, end),
        *_block(summary, facts, end),
        *_verdict(summary, end),
        *_causes("Failures", summary.failures, summary.failed, "bad"),
        *_more(summary.failures),
        *_causes("Warnings", summary.warnings, None, "warn"),
        *_notes(summary),
    ]


def _alarm(summary: Summary, end: RunEnd) -> Iterator[Line]:
    """Before the figures of an invalid run, so that nobody takes them for good ones."""
    if summary.completed and summary.invalid:
        found = summary.invalid[0].found
        text = f"INVALID{_exit_code(EXIT_INVALID, end)}: {printable(found)}; details below the figures"
        yield Line(text, "bad", rest="  ")
        yield Line("")


# --- vLLM's block -----------------------------------------------------------------------------------------------


def _banner(title: str, fill: str) -> Line:
    return Line(f"{title:{fill}^{_BANNER}}", "title")


def _count(label: str, value: int) -> Line:
    return Line(f"{label:<40} {value:<10}")


def _number(label: str, value: float) -> Line:
    return Line(f"{label:<40} {value:<10.2f}")


def _block(summary: Summary, facts: RunFacts, end: RunEnd) -> Iterator[Line]:
    yield _banner(" Serving Benchmark Result ", "=")
    yield _count("Successful requests:", summary.completed)
    yield _count("Failed requests:", summary.failed)
    if facts.max_concurrency is not None:
        yield _count("Maximum request concurrency:", facts.max_concurrency)
    if facts.request_rate is not None:
        yield _number("Request rate configured (RPS):", facts.request_rate)
    yield _number("Benchmark duration (s):", end.duration_s)
    yield _count("Total input tokens:", summary.total_input_tokens)
    yield _count("Total generated tokens:", summary.total_output_tokens)
    yield from _rate_lines(summary)
    for metric in _shown(summary, facts):
        yield from _metric_lines(metric, summary.metrics[metric.key])
    yield from _ending_lines(summary)
    yield Line("=" * _BANNER, "title")


def _rate_lines(summary: Summary) -> Iterator[Line]:
    for key in (
        "request_throughput",
        "request_goodput",
        "output_throughput",
        "max_output_tokens_per_s",
        "max_concurrent_requests",
        "total_token_throughput",
    ):
        if key in summary.rates:
            rate = RATES[key]
            unit = "" if rate.unit == "requests" else f" ({rate.unit})"
            yield _number(f"{rate.label}{unit}:", summary.rates[key])


def _shown(summary: Summary, facts: RunFacts) -> Iterator[Metric]:
    """The metrics that were asked for, and those that tell something which the ones asked for would hide."""
    for key, found in summary.metrics.items():
        metric = METRICS[key]
        if key in facts.percentile_metrics:
            yield metric
        elif metric.beside in facts.percentile_metrics and metric.beside in summary.metrics:
            plain_one = summary.metrics[metric.beside]
            if _differ(found.mean, plain_one.mean) or _differ(found.median, plain_one.median):
                yield metric


def _differ(one: float, other: float) -> bool:
    return abs(one - other) > max(_MATERIAL_MS, _MATERIAL_RATIO * other)


def _metric_lines(metric: Metric, found: Aggregate) -> Iterator[Line]:
    yield _banner(metric.header, "-")
    yield _number(f"Mean {metric.label} ({metric.unit}):", found.mean)
    yield _number(f"Median {metric.label} ({metric.unit}):", found.median)
    for word, value in found.percentiles.items():
        yield _number(f"P{word[1:]} {metric.label} ({metric.unit}):", value)


def _ending_lines(summary: Summary) -> Iterator[Line]:
    if set(summary.endings) <= {"ok"}:
        return
    yield _banner("How Requests Ended", "-")
    for word, count in summary.endings.items():
        yield _count(_ENDING_LABELS[word], count)


# --- below the block --------------------------------------------------------------------------------------------


def _verdict(summary: Summary, end: RunEnd) -> Iterator[Line]:
    if summary.completed and not summary.invalid:
        return
    yield Line("")
    if not summary.completed:
        yield Line(f"No request completed{_exit_code(EXIT_FAILED, end)}.", "bad")
        return
    yield Line(f"Invalid: do not use the figures above{_exit_code(EXIT_INVALID, end)}.", "bad")
    for reason in summary.invalid:
        yield Line(f"  ✗ {printable(reason.found)}", rest="    ")
        yield _fix(reason.way_out, 4)


def _exit_code(code: int, end: RunEnd) -> str:
    """An interrupted run has the exit code of its signal."""
    return f" (exit code {code})" if end.reason == "done" else ""


def _causes(title: str, causes: Sequence[Cause], num_requests: int | None, style: Style) -> Iterator[Line]:
    if not causes:
        return
    yield Line("")
    yield Line(title if num_requests is None else f"{title}: {counted(num_requests, 'request')}, by cause", style)
    for cause in causes[:_MAX_CAUSES]:
        yield from _cause(cause)
    if len(causes) > _MAX_CAUSES:
        rest = causes[_MAX_CAUSES:]
        yield Line(f"  … and {counted(len(rest), 'cause')} more, {counted(sum(c.count for c in rest), 'request')}")


def _more(causes: Sequence[Cause]) -> Iterator[Line]:
    if causes:
        what = "ID` says more of a record" if any(cause.records for cause in causes) else "CODE` says more of a code"
        yield Line(f"  `windtunnel explain {what}.", "quote")


def _cause(cause: Cause) -> Iterator[Line]:
    share = f"{cause.count} × " if cause.state == "warning" else f"{cause.count} × {cause.state} ({cause.ratio:.1%}): "
    message = shortened(cause.example, _MAX_MESSAGE_CHARS)
    indent = " " * 6
    yield Line(f"  {share}{printable(message)}", rest=indent)
    yield Line(f"{indent}e.g. request {printable(cause.example_request_id)}, {cause.code}", "quote", rest=indent)
    yield from _quoted(cause.transcript, f"{indent}│ ")
    yield _fix(cause.way_out, 6)
    for record in cause.records:
        yield Line(f"{indent}{_told(record)}", "quote", rest=indent)


def _told(record: CatalogRecord) -> str:
    """What the catalog has: of our own error what it is; of the server's also what to do, which we do not know."""
    meaning = printable(shortened(record.meaning, _MAX_MESSAGE_CHARS))
    if record.of == "client":
        return f"Record {record.id}: {meaning}"
    where = f"{printable(record.type)} of {printable(record.project)} {printable(record.version)}"
    solution = f" {printable(shortened(record.solution, _MAX_MESSAGE_CHARS))}" if record.solution else ""
    return f"The server's error may be {record.id} ({record.confidence:.0%}), {where}: {meaning}{solution}"


def _quoted(transcript: str | None, before: str) -> Iterator[Line]:
    """The last lines of an answer."""
    if not transcript:
        return
    tail = transcript.strip()
    if len(tail) > _MAX_TRANSCRIPT_CHARS:
        tail = "…" + tail[1 - _MAX_TRANSCRIPT_CHARS :]
    for line in tail.splitlines():
        if line.strip():
            yield Line(before + printable(line), "quote", rest=before)


def _fix(text: str, indent: int) -> Line:
    word = f"{' ' * indent}Fix: "
    return Line(word + printable(text), "hint", rest=" " * len(word))


def _notes(summary: Summary) -> Iterator[Line]:
    yield Line("")
    for note in summary.notes:
        yield Line(f"· {printable(note.text)}", rest="  ")
    yield from instrument_lines(summary.instrument)
