"""Records as a load generator would write them, made from a few durations in ms."""

from __future__ import annotations

from typing import Any

from windtunnel.errors import RequestFailure
from windtunnel.measure.record import Fault, Record
from windtunnel.measure.run import RunEnd, RunFacts

START_NS = 7_000_000_000_123
MS = 1_000_000


def at(ms: float) -> int:
    """An instant so many ms after the run's start."""
    return START_NS + round(ms * MS)


def answered(
    index: int = 0, *, sent: float = 0.0, ttft: float = 50.0, gaps: tuple[float, ...] = (10.0, 10.0), **more: Any
) -> Record:
    """A request sent `sent` ms after the start, and answered by a token after `ttft` and by others after `gaps`."""
    last = sent + ttft + sum(gaps)
    values: dict[str, Any] = {
        "index": index,
        "request_id": f"bench-{index}",
        "scheduled_ns": at(sent),
        "ready_ns": at(sent),
        "sent_ns": at(sent),
        "first_byte_ns": at(sent + ttft),
        "first_token_ns": at(sent + ttft),
        "first_output_ns": at(sent + ttft),
        "last_token_ns": at(last),
        "done_ns": at(last),
        "gaps_ns": [round(g * MS) for g in gaps],
        "prompt_tokens_asked": 10,
        "prompt_tokens": 10,
        "output_tokens_asked": len(gaps) + 1,
        "output_tokens": len(gaps) + 1,
        "output_tokens_from": "usage",
        "finish_reason": "length",
        "text": "one two three",
        "reads": 3,
        "stamped_by": "kernel",
    }
    return Record(**(values | more))


def failed(index: int, error: RequestFailure, *, sent: float | None = 0.0, after: float = 5.0, **more: Any) -> Record:
    """A request that failed `after` ms after it was sent; `sent` None: it never was."""
    return Record(
        index=index,
        request_id=f"bench-{index}",
        scheduled_ns=at(sent or 0.0),
        ready_ns=None if sent is None else at(sent),
        sent_ns=None if sent is None else at(sent),
        done_ns=at((sent or 0.0) + after),
        prompt_tokens_asked=10,
        output_tokens_asked=3,
        failure=Fault.of(error),
        **more,
    )


def facts(**more: Any) -> RunFacts:
    values: dict[str, Any] = {
        "run_id": "20260102-030405-abcd",
        "date": "20260102-030405",
        "version": "0",
        "target": "http://127.0.0.1:8000/v1/completions",
        "backend": "openai",
        "model_id": "acme/paper-plane-1b",
        "num_prompts": 10,
    }
    return RunFacts(**(values | more))


def end(ms: float = 1000.0, **more: Any) -> RunEnd:
    return RunEnd(start_ns=START_NS, end_ns=at(ms), **more)
