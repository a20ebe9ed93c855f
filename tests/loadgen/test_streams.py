"""Streams as they really are: whatever a server does to the bytes, tokens and instants are right."""

from __future__ import annotations

import re
from itertools import accumulate

import pytest

from tests.loadgen.driving import drive_paced
from windtunnel.clock import read_clock_pair
from windtunnel.measure.record import Record, ending
from windtunnel.wire.openai import Dialect

TOKENS = 8
ODDITIES = [
    "",
    "crlf=1",
    "cr=1",
    "pings=1",
    "nospace=1",
    "fields=1",
    "multiline=1",
    "split=1",
    "split=7,utf8=1",
    "burst=2",
    "bom=1",
    "done=0",
    "chunked=0",
    "utf8=1",
    "finish=separate",
    "finish=none",
    "usage=each",
    "usage=late:100ms",
    "empty_chunk=1",
    "null_error=1",
    "pings=1,crlf=1,fields=1,multiline=1,split=3,utf8=1",
]


CLOCK_ERROR_NS = 200_000
"""By so much two readings of a pair of clocks may disagree on a machine that is busy with other things."""


def check_against_truth(record: Record) -> None:
    """No token arrived before the true instant at which it was sent, which its text holds."""
    stamps = [int(digits) for digits in re.findall(r"[0-9]{19}", record.text)][1:]  # the first is the request's arrival
    offset_ns = read_clock_pair().offset_ns
    arrivals = accumulate(record.gaps_ns, initial=(record.first_token_ns or 0) + offset_ns)
    for arrived_ns, sent_ns in zip(arrivals, stamps, strict=True):
        assert arrived_ns >= sent_ns - CLOCK_ERROR_NS


@pytest.mark.parametrize("dialect", ["completions", "chat"])
@pytest.mark.parametrize("oddity", ODDITIES)
def test_an_oddity_changes_neither_tokens_nor_verdict(oddity: str, dialect: Dialect) -> None:
    (record,) = drive_paced(oddity, dialect=dialect, tokens=TOKENS)
    assert record.failure is None, record.failure
    assert record.warnings == []
    assert (record.output_tokens, record.output_tokens_from) == (TOKENS, "usage")
    assert 1 + len(record.gaps_ns) == TOKENS
    assert ending(record, ignore_eos=True) in ("ok", "not_streamed")  # on a busy machine all may come in one read
    check_against_truth(record)


def test_several_tokens_in_a_chunk_are_counted_by_the_server() -> None:
    (record,) = drive_paced("tokens=4", tokens=TOKENS)
    assert (record.output_tokens, 1 + len(record.gaps_ns)) == (TOKENS, 2)


def test_several_tokens_in_a_chunk_are_known_by_log_probabilities() -> None:
    (record,) = drive_paced("tokens=4,usage=none", tokens=TOKENS, extra={"logprobs": 1})
    assert (record.chunk_tokens, record.output_tokens, record.output_tokens_from) == ([4, 4], TOKENS, "counted")


def test_without_usage_the_tokens_are_left_to_be_counted() -> None:
    (record,) = drive_paced("usage=none", tokens=TOKENS)
    assert (record.failure, record.output_tokens, len(record.text.split())) == (None, None, TOKENS)


@pytest.mark.parametrize("key", ["reasoning", "reasoning_content"])
def test_reasoning_is_told_from_output(key: str) -> None:
    (record,) = drive_paced(f"reasoning=3,reasoning_key={key}", dialect="chat", tokens=TOKENS)
    assert record.reasoning_chunks == 3
    assert record.first_token_ns is not None
    assert record.first_output_ns is not None
    assert record.first_output_ns >= record.first_token_ns


def test_tool_calls_are_tokens() -> None:
    (record,) = drive_paced("tools=1", dialect="chat", tokens=TOKENS)
    assert (record.failure, record.output_tokens, 1 + len(record.gaps_ns)) == (None, TOKENS, TOKENS)


def test_the_role_chunk_that_comes_at_once_is_not_the_first_token() -> None:
    (record,) = drive_paced("ttft=50ms", dialect="chat", tokens=TOKENS)
    assert record.first_token_ns is not None
    assert record.sent_ns is not None
    assert record.first_token_ns - record.sent_ns >= 50_000_000


def test_keep_alives_are_counted() -> None:
    (record,) = drive_paced("pings=1", tokens=TOKENS)
    assert record.keep_alives >= TOKENS


def test_a_late_usage_does_not_stretch_the_answer() -> None:
    (record,) = drive_paced("usage=late:150ms", tokens=TOKENS)
    assert record.done_ns is not None
    assert record.last_token_ns is not None
    assert record.done_ns - record.last_token_ns >= 150_000_000


@pytest.mark.parametrize("dialect", ["completions", "chat"])
def test_an_answer_that_is_not_streamed_is_read_whole(dialect: Dialect) -> None:
    (record,) = drive_paced("", dialect=dialect, tokens=TOKENS, stream=False)
    assert (record.failure, record.output_tokens, record.finish_reason, record.streamed) == (
        None,
        TOKENS,
        "length",
        False,
    )
    assert len(record.text.split()) == TOKENS


def test_arrivals_are_stamped_by_the_kernel_and_never_before_the_truth() -> None:
    (record,) = drive_paced("", tokens=TOKENS)
    assert record.stamped_by == "kernel"
    arrival, sent = record.text.split()[0].split(":")
    assert record.first_token_ns is not None
    assert record.sent_ns is not None
    # the client's TTFT contains the server's own time from the request's arrival to its send
    assert record.first_token_ns - record.sent_ns >= int(sent) - int(arrival)
