"""`windtunnel runs`: what is kept, shown, recovered and removed."""

import json
from pathlib import Path

import pytest
from command_lines import windtunnel

from windtunnel.clock import read_clock_pair
from windtunnel.loadgen.config import OutputConfig
from windtunnel.loadgen.journal import EndLine, Header, RequestLine, StartLine, encode_line
from windtunnel.measure.record import Record
from windtunnel.measure.run import RunEnd, RunFacts


def add_run(folder: Path, run_id: str, *, finished: bool = True, output: OutputConfig | None = None) -> Path:
    """A run of two requests, with one token each a millisecond."""
    facts = RunFacts(
        run_id=run_id,
        date="20250101-120000",
        version="0",
        target="http://h:1/v1/completions",
        backend="openai",
        model_id="tiny",
        num_prompts=2,
        request_rate=50.0,
        max_concurrency=8,
    )
    header = Header(facts=facts, output=output or OutputConfig(), arguments={}, clock=read_clock_pair(), machine={})
    lines = [encode_line(header), encode_line(StartLine(0))]
    for index in range(2):
        record = Record(
            index=index,
            request_id=f"r{index}",
            scheduled_ns=0,
            ready_ns=0,
            sent_ns=0,
            first_byte_ns=5_000_000,
            first_token_ns=5_000_000,
            first_output_ns=5_000_000,
            last_token_ns=8_000_000,
            done_ns=8_000_000,
            gaps_ns=[1_000_000] * 3,
            prompt_tokens_asked=4,
            prompt_tokens=4,
            output_tokens_asked=4,
            output_tokens=4,
            output_tokens_from="usage",
            finish_reason="length",
        )
        lines.append(encode_line(RequestLine(record)))
    if finished:
        lines.append(encode_line(EndLine(RunEnd(start_ns=0, end_ns=8_000_000))))
    path = folder / run_id
    path.mkdir(parents=True)
    (path / "journal.jsonl").write_bytes(b"".join(lines))
    return path


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    add_run(tmp_path / "runs", "20250101-120000-aaaa")
    add_run(tmp_path / "runs", "20250102-120000-bbbb", finished=False)
    return tmp_path / "runs"


def test_runs_are_listed_with_their_state_as_a_table_and_as_json(runs: Path) -> None:
    (runs / "20250103-broken").mkdir()
    (runs / "20250103-broken" / "journal.jsonl").write_text("nonsense\n")
    head, first, second, third = windtunnel("runs", "list", "--runs-dir", str(runs)).stdout.splitlines()
    assert head.split() == ["RUN", "STATE", "MODEL", "TARGET", "LOAD", "REQUESTS", "SIZE"]
    assert first.split()[:3] == ["20250101-120000-aaaa", "finished", "tiny"]
    assert "50/s, at most 8" in first
    assert second.split()[1] == "unfinished"
    assert third.split()[:2] == ["20250103-broken", "unreadable"]
    assert first.index("finished") == second.index("unfinished") == third.index("unreadable")
    listed = json.loads(windtunnel("runs", "list", "--json", "--runs-dir", str(runs)).stdout)
    assert [run["state"] for run in listed] == ["finished", "unfinished", "unreadable"]
    assert listed[0]["facts"]["model_id"] == "tiny"


def test_the_runs_folder_is_found_by_the_rule_for_state(tmp_path: Path) -> None:
    add_run(tmp_path / "windtunnel" / "runs", "20250101-120000-aaaa")
    done = windtunnel("runs", "list", environ={"XDG_STATE_HOME": str(tmp_path)})
    assert "20250101-120000-aaaa" in done.stdout


def test_a_folder_without_runs_says_so(tmp_path: Path) -> None:
    done = windtunnel("runs", "list", "--runs-dir", str(tmp_path))
    assert (done.returncode, done.stdout) == (0, f"no runs in {tmp_path}\n")
    assert windtunnel("runs", "list", "--runs-dir", str(tmp_path), "--json").stdout == "[]\n"


def test_a_run_is_shown_by_the_beginning_of_its_name_and_the_newest_without(runs: Path) -> None:
    by_name = windtunnel("runs", "show", "20250101", "--runs-dir", str(runs))
    assert by_name.returncode == 0
    assert by_name.stdout.startswith("20250101-120000-aaaa  finished  ")
    assert "Serving Benchmark Result" in by_name.stdout
    assert windtunnel("runs", "show", "--runs-dir", str(runs)).stdout.startswith("20250102-120000-bbbb  unfinished")
    document = json.loads(windtunnel("runs", "show", "20250101", "--json", "--runs-dir", str(runs)).stdout)
    assert (document["completed"], document["model_id"], document["mean_ttft_ms"]) == (2, "tiny", 5.0)


def test_an_unfinished_run_is_recovered_with_the_result_file_that_it_would_have_made(tmp_path: Path) -> None:
    output = OutputConfig(save_result=True, save_detailed=True, result_dir=str(tmp_path), result_filename="r.json")
    add_run(tmp_path / "runs", "20250101-120000-aaaa", finished=False, output=output)
    add_run(tmp_path / "runs", "20250102-120000-bbbb")
    done = windtunnel("runs", "recover", "--runs-dir", str(tmp_path / "runs"))
    assert done.returncode == 0, done.stderr
    assert "recovering" in done.stderr and "20250101-120000-aaaa" in done.stderr
    document = json.loads((tmp_path / "r.json").read_text())
    assert document["completed"] == 2
    assert document["ttfts"] == [0.005, 0.005]


def test_runs_are_removed_all_or_none(runs: Path) -> None:
    done = windtunnel("runs", "rm", "20250101", "20250109", "--runs-dir", str(runs))
    assert done.returncode == 2
    assert "no run 20250109" in done.stderr and "[WT-IO-NO-RUN]" in done.stderr
    assert len(list(runs.iterdir())) == 2
    done = windtunnel("runs", "rm", "20250101", "20250102", "20250101-", "--runs-dir", str(runs))
    assert done.returncode == 0
    assert done.stdout.count("removed /") == 2
    assert list(runs.iterdir()) == []


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    assert "following arguments are required: RUN" in windtunnel("runs", "rm").stderr
    assert windtunnel("runs", "rm", "x", "--runs-dir", str(tmp_path)).returncode == 2
    assert "unknown flag --jsn; did you mean --json?" in windtunnel("runs", "list", "--jsn").stderr
    assert "'extra' belongs to no flag" in windtunnel("runs", "list", "extra").stderr
