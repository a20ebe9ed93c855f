"""How a request can end: each way is a state of its own, with its facts and the bytes as an example."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from tests.engine.serving import paced
from tests.loadgen.driving import drive, drive_paced
from windtunnel.measure.record import ending

QUICK = (2.0, 0.4, 0.4, 20.0)


@pytest.mark.parametrize(
    ("text", "state", "facts"),
    [
        ("fault=truncated,fault_after=3", "truncated", {"tokens": 3, "end": "end of message"}),
        ("fault=truncated_done,fault_after=3", "truncated", {"tokens": 3, "end": "[DONE]"}),
        ("fault=cut,fault_after=3", "disconnect", {"where": "after 3 tokens", "reason": "closed by the server"}),
        ("fault=reset,fault_after=3", "disconnect", {"reason": "Connection reset by peer"}),
        ("fault=reset_before", "disconnect", {"where": "before the first byte", "reason": "Connection reset by peer"}),
        ("fault=close_before", "disconnect", {"where": "before the first byte", "reason": "closed by the server"}),
        ("fault=inband_error,fault_after=3", "in_band_error", {"tokens": 3}),
        ("fault=error_only", "in_band_error", {"tokens": 0}),
        ("fault=429,retry_after=2", "http_status", {"status": 429, "retry_after_s": 2.0}),
        ("fault=404", "http_status", {"status": 404}),
        ("fault=500", "http_status", {"status": 500}),
        ("fault=stall,fault_after=3", "timeout", {"phase": "stall", "tokens": 3}),
        ("fault=stall_pings,fault_after=3", "timeout", {"phase": "stall", "tokens": 3}),
        ("fault=no_first", "timeout", {"phase": "first_token", "tokens": 0}),
        ("fault=no_answer", "timeout", {"phase": "first_token", "tokens": 0}),
        ("fault=malformed_all", "malformed", {"layer": "json"}),
        ("fault=not_http", "malformed", {"layer": "http"}),
        ("fault=html", "malformed", {"layer": "schema"}),
        ("fault=redirect_loop", "http_status", {"status": 307}),
    ],
)
def test_a_failure_has_its_state_its_facts_and_an_example(text: str, state: str, facts: dict[str, Any]) -> None:
    (record,) = drive_paced(text, timeouts_s=QUICK)
    assert ending(record, ignore_eos=True) == state
    assert record.failure is not None
    assert facts.items() <= record.failure.facts.items(), record.failure.facts
    assert record.done_ns is not None
    if facts.get("tokens"):
        assert record.transcript is not None
        assert "choices" in record.transcript


def test_the_words_of_the_server_are_kept() -> None:
    (record,) = drive_paced("fault=inband_error")
    assert record.failure is not None
    assert len(record.failure.facts["error"]) > 10
    (record,) = drive_paced("fault=503")
    assert record.failure is not None
    assert "error" in record.failure.facts["body"]


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("fault=short", "short"),
        ("fault=zero", "zero_tokens"),
        ("fault=one_piece", "not_streamed"),
        ("fault=json", "not_streamed"),
    ],
)
def test_a_completed_request_that_lacks_something_is_told_apart(text: str, state: str) -> None:
    (record,) = drive_paced(text)
    assert record.failure is None, record.failure
    record.output_tokens = record.output_tokens or 0
    assert ending(record, ignore_eos=True) == state


@pytest.mark.parametrize(("text", "layer"), [("fault=malformed_event", "json"), ("fault=stray", "sse")])
def test_one_bad_event_is_a_warning_and_never_silent(text: str, layer: str) -> None:
    (record,) = drive_paced(text)
    assert record.failure is None
    assert [warning.facts["layer"] for warning in record.warnings] == [layer]
    assert record.transcript is not None


def test_a_head_that_comes_in_pieces_is_fine() -> None:
    (record,) = drive_paced("fault=slow_head")
    assert record.failure is None


def test_a_share_of_faults_leaves_the_others_alone() -> None:
    records = drive_paced("fault=reset,fault_ratio=0.25", 8, slots=2)
    states = [ending(record, ignore_eos=True) for record in records]
    assert (states.count("disconnect"), [record.failure for record in records].count(None)) == (2, 6)


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def test_a_refused_connection_is_told_as_such() -> None:
    (record,) = drive(f"http://127.0.0.1:{free_port()}")
    assert record.failure is not None
    assert (record.failure.code, record.failure.facts["phase"]) == ("WT-HTTP-CONNECT", "refused")


def test_a_server_that_takes_no_connection_is_a_connect_time_out() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        port = listener.getsockname()[1]
        # a full backlog leaves further connections unanswered
        fillers = [socket.socket() for _ in range(3)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.1", port))
        (record,) = drive(f"http://127.0.0.1:{port}", timeouts_s=(0.3, 10, 10, 20))
        for filler in fillers:
            filler.close()
    assert record.failure is not None
    assert record.failure.facts["phase"] == "connect"


def test_a_stalled_server_holds_up_nobody_else() -> None:
    records = drive_paced("fault=stall,fault_ratio=0.5,fault_after=2", 8, slots=4, timeouts_s=QUICK)
    states = [ending(record, ignore_eos=True) for record in records]
    assert (states.count("timeout"), [record.failure for record in records].count(None)) == (4, 4)


def test_a_thousand_refused_requests_are_no_recursion() -> None:
    records = drive(f"http://127.0.0.1:{free_port()}", 1500, slots=10)
    assert len(records) == 1500


def test_retries_are_columns_and_the_time_counts() -> None:
    with paced("fault=503,fault_ratio=0.5,retry_after=0") as url:
        records = drive(url, 4, slots=1, retries=3)
    assert all(record.failure is None for record in records)
    assert sum(record.attempts for record in records) > 4


def test_no_retry_is_made_unless_asked_for() -> None:
    (record,) = drive_paced("fault=503")
    assert record.attempts == 1


def test_what_waited_between_attempts_is_in_the_latency() -> None:
    with paced("fault=503") as url:
        (record,) = drive(url, 1, retries=1)
    assert (record.attempts, record.failure is not None) == (2, True)
    assert record.retry_wait_ns == 500_000_000
    assert record.done_ns is not None
    assert record.sent_ns is not None
    assert record.done_ns - record.sent_ns >= record.retry_wait_ns
