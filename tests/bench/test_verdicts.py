"""What the command says of a run: its figures against the truth, its verdict, its exit code, its secrets."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.bench.command import (
    LENGTHS,
    TARGET,
    WORDS,
    Running,
    assert_ran,
    children_of,
    command_line_of,
    journal_records,
    run,
    serve,
    stats,
    wait_until,
)
from tests.engine.serving import paced

COMPARED = Path(__file__).with_name("vllm_rs_compares.txt").read_text().split()
"""The keys of a result file that `vllm-rs bench serve --compare` (vLLM 0.33) prints a row for; one that both files lack
is left out."""


@pytest.mark.parametrize("backend", ["vllm", "openai", "openai-chat"])
def test_a_run_gives_vllms_result_with_the_targets_true_pace(tmp_path: Path, backend: str) -> None:
    done, result = serve(
        tmp_path, "--embedded", "paced:ttft=40ms,itl=5ms", *LENGTHS, "--backend", backend, "--num-prompts", 10,
        "--max-concurrency", 2,
    )  # fmt: skip
    assert_ran(done)
    assert (result["completed"], result["failed"], result["backend"]) == (10, 0, backend)
    assert (result["total_input_tokens"], result["total_output_tokens"]) == (160, 80)
    assert result["output_lens"] == [8] * 10
    assert min(result["ttfts"]) * 1e3 >= 40
    assert result["max_concurrent_requests"] <= 2
    assert all(len(itls) == 7 for itls in result["itls"])


def test_every_row_that_vllms_rust_client_compares_has_its_key(tmp_path: Path) -> None:
    done, result = serve(tmp_path, "--embedded", f"paced:{TARGET}", *LENGTHS, "--num-prompts", 3)
    assert_ran(done)
    assert len(COMPARED) == 16
    assert set(COMPARED) <= result.keys()
    assert all(isinstance(result[key], int | float) for key in COMPARED)


def test_all_failed_is_exit_1_with_the_cause_its_example_and_the_way_out(tmp_path: Path) -> None:
    done, result = serve(tmp_path, "--embedded", "paced:fault=429", *LENGTHS, "--num-prompts", 5)
    assert done.returncode == 1
    assert (result["completed"], result["failed"]) == (0, 5)
    assert re.search(r"\b5\b.*429", done.stdout)
    assert "--max-concurrency" in done.stdout
    # a mean of nothing is not 0, but absent
    of_answers = re.compile(r"(mean|median|std|p[0-9.]+)_(ttft|ttfo|tpot|itl|e2el)")
    assert [key for key in result if of_answers.match(key)] == []
    assert "TTFT" not in done.stdout


def test_failures_above_the_bound_make_the_run_invalid(tmp_path: Path) -> None:
    arguments = ("--embedded", f"paced:{TARGET},fault=500,fault_ratio=0.2", *LENGTHS, "--num-prompts", 10)
    done, result = serve(tmp_path, *arguments)
    assert (done.returncode, result["completed"], result["failed"]) == (3, 8, 2)
    assert "--max-failed-ratio" in done.stdout
    done, _ = serve(tmp_path, *arguments, "--max-failed-ratio", "0.5")
    assert_ran(done)


def test_short_answers_under_ignore_eos_make_the_run_invalid(tmp_path: Path) -> None:
    done, result = serve(
        tmp_path, "--embedded", f"paced:{TARGET},fault=short,fault_ratio=0.1", *LENGTHS, "--num-prompts", 10
    )
    assert (done.returncode, result["completed"]) == (3, 10)
    assert "1 of 10 answers are shorter than asked under --ignore-eos" in " ".join(done.stdout.split())


KEY = "sk-very-secret-key"
HEADER = "tok-header-secret"
PASSWORD = "pass-word-secret"


def test_secrets_are_nowhere_in_what_is_written(tmp_path: Path) -> None:
    """The server refuses with the key in its words; all output and every file is searched."""
    with paced("fault=401") as url:
        with_password = url.replace("http://", f"http://me:{PASSWORD}@")
        done, _ = serve(
            tmp_path, "--base-url", with_password, *WORDS, *LENGTHS, "--num-prompts", 3,
            "--header", f"x-team={HEADER}", OPENAI_API_KEY=KEY,
        )  # fmt: skip
    with paced(f"{TARGET},key=other") as url:
        refused, _ = serve(tmp_path, "--base-url", url, *WORDS, *LENGTHS, "--num-prompts", 3, OPENAI_API_KEY=KEY)
    assert (done.returncode, refused.returncode) == (1, 1)
    texts = [done.stdout, done.stderr, refused.stdout, refused.stderr]
    texts += [path.read_text() for path in tmp_path.rglob("*") if path.is_file()]
    assert len(texts) > 5
    for secret in (KEY, HEADER, PASSWORD):
        assert not any(secret in text for text in texts)


def test_the_process_title_hides_what_the_command_line_held(tmp_path: Path) -> None:
    with paced("ttft=60s") as url:
        address = url.replace("http://", f"http://me:{PASSWORD}@")
        arguments = ("--base-url", address, *WORDS, *LENGTHS, "--num-prompts", 2, "--header", f"x-team={HEADER}")
        with Running(tmp_path, "bench", "serve", *arguments, OPENAI_API_KEY=KEY) as client:
            wait_until(lambda: stats(url)["started"] >= 2, "the load runs")
            titles = [command_line_of(pid) for pid in (client.process.pid, *children_of(client.process.pid))]
    assert len(titles) == 2
    assert "windtunnel" in titles[0]
    for secret in (KEY, HEADER, PASSWORD):
        assert not any(secret in title for title in titles)


def test_append_adds_a_document_to_the_file(tmp_path: Path) -> None:
    arguments = (
        "bench", "serve", "--embedded", f"paced:{TARGET}", *LENGTHS, "--num-prompts", 2, "--append-result",
        "--result-dir", tmp_path, "--result-filename", "all.json",
    )  # fmt: skip
    for _ in range(2):
        assert_ran(run(tmp_path, *arguments))
    documents = [json.loads(line) for line in (tmp_path / "all.json").read_text().splitlines()]
    assert [document["completed"] for document in documents] == [2, 2]


def test_attempts_are_told_request_by_request(tmp_path: Path) -> None:
    """In a closed loop of one slot every second request that reaches the target fails: all but the first need two."""
    with paced(f"{TARGET},fault=503,fault_ratio=0.5,retry_after=0") as url:
        done, result = serve(
            tmp_path, "--base-url", url, *WORDS, *LENGTHS, "--num-prompts", 4, "--max-concurrency", 1, "--retries", 3
        )
        assert stats(url)["started"] == 7
    assert_ran(done)
    records = sorted(journal_records(tmp_path), key=lambda record: record["index"])
    assert [record.get("attempts", 1) for record in records] == [1, 2, 2, 2]
    assert result["windtunnel"]["requests"]["attempts"] == [1, 2, 2, 2]
