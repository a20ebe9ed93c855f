"""A journal keeps what was written into it, and its reader is not put off by how a run ended."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from windtunnel import errors
from windtunnel.clock import ClockPair
from windtunnel.loadgen.config import OutputConfig
from windtunnel.loadgen.journal import (
    ClockLine,
    EndLine,
    Header,
    JournalWriter,
    RequestLine,
    StartLine,
    encode_line,
    read_header,
    read_journal,
)
from windtunnel.measure.record import Fault, Record
from windtunnel.measure.run import RunEnd, RunFacts

FACTS = RunFacts(run_id="r", date="d", version="1", target="http://h/", backend="openai", model_id="m", num_prompts=3)
HEADER = Header(facts=FACTS, output=OutputConfig(), arguments={}, clock=ClockPair(1, 1001), machine={})
END = RunEnd(start_ns=100, end_ns=900)


def request(index: int, **more: object) -> bytes:
    record = Record(
        index=index, request_id=f"r{index}", scheduled_ns=100, prompt_tokens_asked=5, done_ns=200 + index, **more
    )  # type: ignore[arg-type]
    return encode_line(RequestLine(record))


def write(path: Path, *lines: bytes) -> Path:
    journal = JournalWriter(path)
    for line in lines:
        journal.write(line)
    journal.close()
    return path


def test_a_finished_run_is_read_back_in_the_order_of_the_run(tmp_path: Path) -> None:
    fault = Fault.of(errors.HttpStatus(429, "Slow", "busy", 2.0))
    path = write(
        tmp_path / "journal.jsonl",
        encode_line(HEADER),
        encode_line(StartLine(100)),
        request(1, failure=fault, gaps_ns=[1, 2]),
        encode_line(ClockLine(ClockPair(2, 1002))),
        request(0, text="ä\n"),
        encode_line(EndLine(END)),
    )
    journal = read_journal(path)
    assert [record.index for record in journal.records] == [0, 1]
    assert journal.records[0].text == "ä\n"
    assert journal.records[1].failure is not None
    assert journal.records[1].failure.error.facts == {
        "status": 429,
        "reason": "Slow",
        "body": "busy",
        "retry_after_s": 2.0,
    }
    assert (journal.header, journal.run_end) == (HEADER, END)


def test_an_unfinished_run_ends_with_its_last_request(tmp_path: Path) -> None:
    path = write(tmp_path / "j", encode_line(HEADER), encode_line(StartLine(100)), request(0), request(1))
    end = read_journal(path).run_end
    assert (end.start_ns, end.end_ns, end.reason, end.num_without_result) == (100, 201, "unfinished", 1)


@pytest.mark.parametrize("cut", [1, 5, 40])
def test_a_torn_last_line_is_passed_over(tmp_path: Path, cut: int) -> None:
    path = write(tmp_path / "j", encode_line(HEADER), encode_line(StartLine(100)), request(0), request(1))
    with open(path, "r+b") as file:
        file.truncate(path.stat().st_size - cut)
    journal = read_journal(path)
    assert [record.index for record in journal.records] == ([0, 1] if cut == 1 else [0])
    assert journal.num_torn == (0 if cut == 1 else 1)


def test_a_torn_line_in_the_middle_costs_only_itself(tmp_path: Path) -> None:
    path = write(tmp_path / "j", encode_line(HEADER), request(0)[:50] + b"\n", request(1))
    journal = read_journal(path)
    assert ([record.index for record in journal.records], journal.num_torn) == ([1], 1)


def test_lines_that_the_journal_did_not_take_count_too(tmp_path: Path) -> None:
    path = write(tmp_path / "j", encode_line(HEADER), request(0))
    assert [record.index for record in read_journal(path, [request(2)]).records] == [0, 2]


def test_the_lines_of_several_processes_do_not_mix(tmp_path: Path) -> None:
    path = write(tmp_path / "j", encode_line(HEADER))
    children = []
    for child in range(4):
        pid = os.fork()
        if pid == 0:
            journal = JournalWriter(path)
            for index in range(200):
                journal.write(request(child * 200 + index, text="x" * 3000))
            os._exit(0)
        children.append(pid)
    for pid in children:
        os.waitpid(pid, 0)
    journal = read_journal(path)
    assert (len(journal.records), journal.num_torn) == (800, 0)


def test_a_newer_schema_is_refused_with_the_way_out(tmp_path: Path) -> None:
    newer = encode_line(HEADER).replace(b'"schema":1', b'"schema":99')
    path = write(tmp_path / "j", newer)
    with pytest.raises(errors.JournalError, match="schema 99") as error:
        read_header(path)
    assert "newer" in error.value.advice


@pytest.mark.parametrize("content", [b"", b"hello\n", b'{"type":"start","start_ns":1}\n', b"\x00\xff\n"])
def test_what_is_no_journal_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "j"
    path.write_bytes(content)
    with pytest.raises(errors.JournalError):
        read_journal(path)


def test_a_journal_that_is_not_there_is_an_io_error_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(errors.FileError, match="no-such-file"):
        read_journal(tmp_path / "no-such-file")
