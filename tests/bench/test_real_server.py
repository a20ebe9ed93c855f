"""On a real server, named by WINDTUNNEL_REAL_URL: `make test-real`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.bench.command import serve

pytestmark = pytest.mark.real
LENGTHS = ("--random-input-len", 48, "--random-output-len", 12, "--num-prompts", 16)


def real_url() -> str:
    url = os.environ.get("WINDTUNNEL_REAL_URL")
    if not url:
        pytest.skip("WINDTUNNEL_REAL_URL names no server")
    return url


@pytest.mark.parametrize("backend", ["openai", "openai-chat"])
@pytest.mark.parametrize("load", [("--max-concurrency", 4), ("--request-rate", 8)])
@pytest.mark.parametrize("stream", [(), ("--no-stream",)])
def test_a_real_server_counts_what_was_asked(
    tmp_path: Path, backend: str, load: tuple[object, ...], stream: tuple[str, ...]
) -> None:
    done, result = serve(tmp_path, "--base-url", real_url(), "--backend", backend, *load, *stream, *LENGTHS)
    assert done.returncode in (0, 3), done.stderr  # 3: this machine was too busy to send in time
    assert (result["completed"], result["failed"]) == (16, 0), done.stdout
    assert (result["total_input_tokens"], result["total_output_tokens"]) == (16 * 48, 16 * 12)


def test_a_real_server_takes_token_ids(tmp_path: Path) -> None:
    done, result = serve(
        tmp_path, "--base-url", real_url(), "--prompt-token-ids", "--max-concurrency", 4, "--logprobs", 1, *LENGTHS
    )
    assert done.returncode == 0, done.stderr
    assert (result["completed"], result["total_input_tokens"]) == (16, 16 * 48)


def test_a_real_server_s_refusal_is_told_in_its_own_words(tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt": "hello"}\n')
    done, result = serve(
        tmp_path, "--base-url", real_url(), "--model", "no-such-model", "--skip-tokenizer-init", "--num-prompts", 3,
        "--dataset-name", "custom", "--dataset-path", prompts,
    )  # fmt: skip
    assert (done.returncode, result["failed"]) == (1, 3), done.stderr
    assert "HTTP 404" in done.stdout
    assert "no-such-model" in done.stdout
