"""Counts the output tokens that a server did not count."""

from __future__ import annotations

from collections.abc import Callable

from windtunnel.measure.record import Record


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
