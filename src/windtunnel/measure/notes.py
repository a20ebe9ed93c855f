"""What the reader of a run should know beside its figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from msgspec import Struct

from windtunnel.measure.columns import Columns, span_ms
from windtunnel.measure.metrics import aggregate, queue_wait_ms
from windtunnel.measure.record import Record
from windtunnel.measure.run import RunEnd, RunFacts
from windtunnel.units import NS_PER_MS, NS_PER_S, format_duration

_WAITED_MS = 1.0
"""A wait for a slot that is worth a note."""
_LOOKED_LATE_NS = NS_PER_MS
"""A look at an arrival so late that tokens may have come in the meantime."""


def counted(count: int, noun: str) -> str:
    """`1 request`, `2 requests`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


class Note(Struct, frozen=True):
    """What a reader should know of a run beside its figures."""

    key: str
    text: str


class PromptMismatch(Struct, kw_only=True, frozen=True):
    """Prompt tokens as asked against the server's usage, over completed requests that have it."""

    compared: int
    mismatched: int
    asked_tokens: int
    counted_tokens: int
    min_difference: int
    """Of counted − asked, over the requests that differ; 0 where none does."""
    max_difference: int


def prompt_mismatch(records: Sequence[Record], columns: Columns) -> PromptMismatch | None:
    """The comparison; None where no server's usage tells."""
    pairs = [
        (r.prompt_tokens_asked, r.prompt_tokens)
        for r, done in zip(records, columns.completed, strict=True)
        if done and r.prompt_tokens is not None
    ]
    if not pairs:
        return None
    differences = [counted - asked for asked, counted in pairs if counted != asked]
    return PromptMismatch(
        compared=len(pairs),
        mismatched=len(differences),
        asked_tokens=sum(asked for asked, _ in pairs),
        counted_tokens=sum(counted for _, counted in pairs),
        min_difference=min(differences, default=0),
        max_difference=max(differences, default=0),
    )


def output_token_sources(records: Sequence[Record], columns: Columns) -> dict[str, int]:
    """How many completed requests have their number of output tokens from where, by `TokenSource`."""
    return dict(
        Counter(
            r.output_tokens_from
            for r, done in zip(records, columns.completed, strict=True)
            if done and r.output_tokens_from is not None
        )
    )


def notes(records: Sequence[Record], columns: Columns, facts: RunFacts, end: RunEnd) -> list[Note]:
    """What else the reader should know, the most important first."""
    found = (
        *_about_the_end(columns, end),
        *_about_waits(columns),
        *_about_prompts(records, columns),
        *_about_output(records, columns, facts),
        *_about_connections(records),
    )
    return list(found)


def _about_the_end(columns: Columns, end: RunEnd) -> Iterator[Note]:
    if end.reason == "done":
        return
    lost = counted(end.num_without_result, "request")
    if end.reason == "unfinished":
        text = f"The run is not complete (the journal has no end): {lost} left no result."
    elif end.reason == "worker lost":
        text = f"The run is not complete (a load worker was lost): {lost} left no result."
    else:
        cancelled = counted(columns.endings.count("cancelled"), "request")
        never = f"{end.num_without_result} never sent"
        text = f"The run is not complete (ended by {end.reason}): {cancelled} cancelled, {never}."
    yield Note("interrupted", text)


def _about_waits(columns: Columns) -> Iterator[Note]:
    if not columns.has_schedule:
        turnaround = aggregate(span_ms(columns.ready, columns.sent), [99])
        if turnaround:
            yield Note(
                "turnaround",
                f"Closed loop: the client took {_ms(turnaround.median)} (p99 {_ms(turnaround.percentiles['p99'])}) "
                "from a free slot to the next request.",
            )
        return
    waits = queue_wait_ms(columns)
    waited = waits[waits > _WAITED_MS]
    if columns.max_concurrency is not None and len(waited):
        yield Note(
            "queue_wait",
            f"{_of(len(waited), len(columns))} waited for a slot under --max-concurrency {columns.max_concurrency} "
            f"(mean {_ms(float(waited.mean()))}, at most {_ms(float(waited.max()))}): the load was lower than the "
            "schedule asked. TTFT and E2EL begin when a request is sent; those from schedule hold the wait.",
        )


def _about_prompts(records: Sequence[Record], columns: Columns) -> Iterator[Note]:
    mismatch = prompt_mismatch(records, columns)
    if mismatch is None or not mismatch.mismatched:
        return
    low, high = mismatch.min_difference, mismatch.max_difference
    by = f"{low:+d} tokens each" if low == high else f"{low:+d} to {high:+d} tokens"
    yield Note(
        "prompt_tokens",
        f"The server counted other prompt lengths than were asked in {mismatch.mismatched} of {mismatch.compared} "
        f"requests: {by}, {mismatch.counted_tokens} tokens in all where {mismatch.asked_tokens} were asked. "
        "A constant surplus is a chat template or a begin-of-sequence token; another is a tokenizer that is not the "
        "server's (--tokenizer).",
    )


def _about_output(records: Sequence[Record], columns: Columns, facts: RunFacts) -> Iterator[Note]:
    sources = output_token_sources(records, columns)
    words = {
        "counted": "counted from the token ids or log probabilities of the chunks",
        "tokenizer": "counted by our tokenizer over the text",
        "chunks": "taken as one token a chunk, since there was neither usage nor tokenizer",
    }
    for source, how in words.items():
        if sources.get(source):
            yield Note(
                f"output_tokens_{source}",
                f"The server sent no usage for {_of(sources[source], int(columns.completed.sum()))}; their output "
                f"tokens were {how}.",
            )
    completed = int(columns.completed.sum())
    if count := columns.endings.count("zero_tokens"):
        yield Note("zero_tokens", f"{_of(count, completed)} brought no token; they have no TTFT, TPOT, ITL and E2EL.")
    yield from _about_lumps(records, columns)
    if not facts.ignore_eos:
        yield from _about_early_ends(records, columns)


def _about_lumps(records: Sequence[Record], columns: Columns) -> Iterator[Note]:
    """A client that looks late finds in one read what a server sent in many pieces."""
    lumps = [r for r, e in zip(records, columns.endings, strict=True) if e == "not_streamed"]
    if not lumps:
        return
    text = (
        f"{_of(len(lumps), int(columns.completed.sum()))} came in one piece though a stream was asked for; they have "
        "no TTFT, TPOT and ITL."
    )
    late = [r.read_lag_ns for r in lumps if r.read_lag_ns > _LOOKED_LATE_NS]
    if late:
        text += (
            f" For {len(late)} of them the client looked up to {format_duration(max(late) / NS_PER_S)} late: it, not "
            "the server, may have made one piece of them. Give the client idle cores, or lower the load."
        )
    yield Note("not_streamed", text)


def _about_early_ends(records: Sequence[Record], columns: Columns) -> Iterator[Note]:
    early = sum(
        done and r.output_tokens_asked is not None and (r.output_tokens or 0) < r.output_tokens_asked
        for r, done in zip(records, columns.completed, strict=True)
    )
    if early:
        yield Note(
            "ended_early",
            f"{_of(early, int(columns.completed.sum()))} ended before the output length that was asked for; "
            "--ignore-eos makes all of them as long as asked, where the server honours it.",
        )


def _about_connections(records: Sequence[Record]) -> Iterator[Note]:
    retried = [r for r in records if r.attempts > 1]
    if retried:
        wait_s = sum(r.retry_wait_ns for r in retried) / NS_PER_S
        yield Note(
            "retries",
            f"{_of(len(retried), len(records))} needed more than one attempt, with {format_duration(wait_s)} of waits "
            "between attempts in all; their latencies begin with the first attempt.",
        )
    reconnected = sum(r.reconnects > 0 for r in records)
    if reconnected:
        yield Note(
            "reconnects",
            f"{_of(reconnected, len(records))} found their kept connection closed and went out on a new one: the "
            "server closes idle connections, or restarts.",
        )
    redirected = sum(r.redirects > 0 for r in records)
    if redirected:
        yield Note("redirects", f"{_of(redirected, len(records))} were redirected; the hops are in their latencies.")
    kept_alive = [r for r in records if r.keep_alives]
    if kept_alive:
        total = sum(r.keep_alives for r in kept_alive)
        yield Note(
            "keep_alives",
            f"{_of(len(kept_alive), len(records))} carried keep-alive comments ({total} in all); none counts as a "
            "token.",
        )


def _of(count: int, total: int) -> str:
    return f"{count} of {counted(total, 'request')}"


def _ms(milliseconds: float) -> str:
    return format_duration(milliseconds / 1e3)
