"""What the console says of a run: vLLM's block for vLLM's own run, then what went wrong and the way out."""

from __future__ import annotations

import io
import os
import pty
import termios

import golden_run
import pytest
from msgspec import structs

from windtunnel.errors import HttpStatus, RequestFailure, Truncated
from windtunnel.measure.record import Fault, Record
from windtunnel.measure.run import RunEnd, RunFacts
from windtunnel.measure.summary import summarize
from windtunnel.report.console import result_block, result_lines
from windtunnel.report.text import Line, plain, width_of, write

FACTS = golden_run.facts()
END = golden_run.end()
RECORDS = golden_run.records()
DEFAULT_METRICS = ["ttft", "tpot", "itl"]


def block(records: list[Record], facts: RunFacts = FACTS, end: RunEnd = END) -> str:
    return result_block(summarize(records, facts, end), facts, end)


def broken(record: Record, error: RequestFailure, transcript: str | None = None) -> Record:
    return structs.replace(record, failure=Fault.of(error), transcript=transcript)


def test_the_block_of_vllms_own_run_is_vllms_line_for_line_but_for_the_true_peaks() -> None:
    theirs = golden_run.vllm_block()
    ours = block(RECORDS).splitlines()[: len(theirs) - 1]
    differing = {a.split(":")[0]: (a, b) for a, b in zip(theirs[:-1], ours, strict=True) if a != b}
    assert set(differing) == {"Peak output token throughput (tok/s)", "Peak concurrent requests"}
    assert differing["Peak concurrent requests"] == (
        "Peak concurrent requests:                13.00     ",
        "Peak concurrent requests:                2.00      ",
    )


def test_without_goodput_cap_and_rate_their_lines_are_left_out() -> None:
    facts = structs.replace(FACTS, goodput_ms={}, max_concurrency=None, request_rate=None)
    text = block(RECORDS, facts)
    for label in ("goodput", "Maximum request concurrency", "Request rate configured", "Client Queue"):
        assert label not in text


def test_the_default_metrics_are_vllms() -> None:
    facts = structs.replace(FACTS, percentile_metrics=DEFAULT_METRICS, request_rate=None)
    headers = [line.strip("-") for line in block(RECORDS, facts).splitlines() if line.startswith("---")]
    assert headers == ["Time to First Token", "Time per Output Token (excl. 1st token)", "Inter-token Latency"]


def test_a_metric_of_ours_is_shown_when_it_differs_from_the_one_that_was_asked_for() -> None:
    assert "Time to First Output Token" not in block(RECORDS)
    thinking = [structs.replace(r, first_output_ns=r.last_token_ns) for r in RECORDS]
    assert "Mean TTFO (ms):" in block(thinking)
    two_a_chunk = [structs.replace(r, chunk_tokens=[2] * 12, output_tokens=24) for r in RECORDS]
    assert "Mean ICL (ms):" in block(two_a_chunk)


def test_a_metric_of_ours_is_shown_when_it_is_asked_for() -> None:
    facts = structs.replace(FACTS, percentile_metrics=["send_lateness"])
    assert "P99.9 Send Lateness (ms):" in block(RECORDS, facts)
    assert "TTFT" not in block(RECORDS, facts).split("=\n")[0]


def test_a_metric_without_data_has_no_section() -> None:
    lumps = [structs.replace(r, gaps_ns=[0] * 11, last_token_ns=r.first_token_ns) for r in RECORDS]
    text = block(lumps)
    assert "Time to First Token" not in text and "End-to-end Latency" in text
    assert "Completed in one piece, not streamed:    16        " in text


def test_failures_are_told_by_cause_with_count_example_and_way_out() -> None:
    error = HttpStatus(503, "Service Unavailable", "busy")
    records = [*(broken(r, error, "data: last words") for r in RECORDS[:3]), *RECORDS[3:]]
    text = block(records)
    assert "Failures: 3 requests, by cause" in text
    assert "3 × http_status (18.8%): HTTP 503 Service Unavailable: busy" in text
    assert "e.g. request bench-0, WT-HTTP-STATUS" in text
    assert "│ data: last words" in text
    assert "lower --max-concurrency or" in text
    assert "Fix: The server is overloaded or still loading: lower" in text
    assert "Invalid: do not use the figures above (exit code 3)." in text
    assert "✗ 3 of 16 requests failed (18.8%); --max-failed-ratio allows 1.0%" in text


def test_an_invalid_run_says_so_before_its_figures() -> None:
    before, banner, _ = block([broken(RECORDS[0], Truncated(0, "[DONE]")), *RECORDS[1:]]).partition("=====")
    found = "1 of 16 requests failed (6.2%); --max-failed-ratio allows 1.0%"
    assert banner and " ".join(before.split()) == f"INVALID (exit code 3): {found}; details below the figures"
    assert block(RECORDS).startswith("=====")


def test_a_run_in_which_nothing_completed_says_so_and_shows_no_latency() -> None:
    text = block([broken(r, Truncated(0, "connection closed")) for r in RECORDS])
    assert "No request completed (exit code 1)." in text
    assert "Mean" not in text and "nan" not in text


def test_a_run_without_records_has_a_report() -> None:
    text = block([], end=structs.replace(END, end_ns=END.start_ns, reason="SIGINT", num_without_result=16))
    assert "0 requests cancelled, 16 never sent" in text and "nothing arrived" in text


def test_many_causes_are_cut_off_and_counted() -> None:
    records = [broken(r, HttpStatus(400 + i, "Odd", "")) for i, r in enumerate(RECORDS)]
    text = block(records)
    assert text.count("× http_status") == 10
    assert "… and 6 causes more, 6 requests" in text


def test_what_a_server_sends_cannot_steer_the_terminal() -> None:
    evil = HttpStatus(500, "Oops", "\x1b[2J\x07gone")
    text = block([broken(RECORDS[0], evil, "data: \x1b]0;title\x07\n\r\x9b31m"), *RECORDS[1:]])
    assert all(c.isprintable() or c == "\n" for c in text)
    assert "\\x1b[2J" in text


def test_no_line_is_wider_than_asked_for() -> None:
    long = HttpStatus(400, "Bad Request", "word " * 300)
    summary = summarize([broken(RECORDS[0], long, "x" * 500), *RECORDS[1:]], FACTS, END)
    text = plain(result_lines(summary, FACTS, END), 72)
    assert max(map(len, text.splitlines())) <= 72
    assert " word word" in text and text.count("│ xxxx") > 1


def instrument_of(records: list[Record]) -> list[str]:
    """The lines of the instrument's block, without its title."""
    return block(records).split("\nInstrument\n")[1].splitlines()


def test_the_instrument_is_described_by_what_stamped_the_arrivals() -> None:
    by_kernel = [structs.replace(r, stamped_by="kernel", read_lag_ns=3_000_000) for r in RECORDS]
    assert instrument_of(by_kernel)[:2] == [
        "  arrival times      by the kernel (16 of 16 requests)",
        "  client read late   p99 3 ms, not in the figures",
    ]
    assert "by the client when it read (16 of 16 requests): its own delays" in instrument_of(RECORDS)[0]
    some = " ".join(" ".join(instrument_of([*by_kernel[:6], *RECORDS[6:]])).split())
    assert "by the kernel (6 of 16 requests), by the client when it read (10): its own delays are in" in some


def test_figures_that_a_late_look_blurred_are_not_called_exact() -> None:
    merged = [structs.replace(r, stamped_by="kernel", read_lag_ns=72_000_000, reads=6) for r in RECORDS]
    assert instrument_of(merged)[1:4] == [
        "  client read late   p99 72 ms, not in the figures, except where chunks were read together",
        "  read together      50.0% of chunks share the arrival time of others, 50.0% where the client read",
        "                     at least 5 ms late",
    ]


def test_how_late_requests_were_sent_is_told_where_they_had_a_schedule() -> None:
    late = [structs.replace(r, ready_ns=r.sent_ns - 2_000_000) for r in RECORDS]
    assert instrument_of(late)[-1] == "  sent late          p99 2 ms, max 2 ms"
    closed = block(late, structs.replace(FACTS, request_rate=None))
    assert "sent late" not in closed and "Closed loop: the client took 2 ms" in closed


def on_a_terminal(lines: list[Line]) -> str:
    """What a terminal is sent when the lines are written to it."""
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as stream:
        write(lines, stream)
    shown = b""
    try:
        while part := os.read(ours, 4096):
            shown += part
    except OSError:
        pass  # how Linux says that a terminal's other end is closed
    finally:
        os.close(ours)
    return shown.decode().replace("\r\n", "\n")


LINES = [Line("Failures: 1 request", "bad"), Line("[not] markup")]


def test_a_stream_that_is_no_terminal_gets_plain_text() -> None:
    stream = io.StringIO()
    write(LINES, stream)
    assert stream.getvalue() == plain(LINES) == "Failures: 1 request\n[not] markup\n"


def test_a_terminal_gets_colour_and_the_same_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    assert on_a_terminal(LINES) == "\x1b[1;31mFailures: 1 request\x1b[0m\n[not] markup\n"


def test_a_terminal_gets_plain_text_under_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert on_a_terminal(LINES) == plain(LINES)


@pytest.mark.parametrize(("columns", "width"), [(40, 60), (72, 72), (250, 100), (0, 80)])
def test_lines_are_broken_to_the_width_of_the_terminal(columns: int, width: int) -> None:
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, columns))
    with os.fdopen(theirs, "w") as stream:
        assert width_of(stream) == width
    os.close(ours)


def test_what_is_no_terminal_is_as_wide_as_the_widest() -> None:
    stream = io.StringIO()
    write([Line("word " * 30, rest="")], stream)
    assert max(map(len, stream.getvalue().splitlines())) == 99
