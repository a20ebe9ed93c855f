"""What the server gets to see of a run: the requests' fields, and all that is asked beside them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.bench.command import LENGTHS, TARGET, WORDS, assert_ran, run, serve, stats
from tests.engine.serving import CHAT, COMPLETIONS, fronted, paced

SAMPLING = {
    "temperature": 0.5,
    "top_p": 0.9,
    "top_k": 40,
    "min_p": 0.05,
    "frequency_penalty": 0.25,
    "presence_penalty": -0.25,
    "repetition_penalty": 1.125,
}


@pytest.mark.parametrize(
    ("backend", "path", "logprobs"),
    [("openai", COMPLETIONS, {"logprobs": 2}), ("openai-chat", CHAT, {"logprobs": True, "top_logprobs": 2})],
)
def test_flags_arrive_in_each_request(tmp_path: Path, backend: str, path: str, logprobs: dict[str, object]) -> None:
    sampling = [part for key, value in SAMPLING.items() for part in (f"--{key.replace('_', '-')}", value)]
    with fronted(TARGET) as front:
        done = run(
            tmp_path, "bench", "serve", "--base-url", front.url, *WORDS, *LENGTHS, "--backend", backend,
            "--num-prompts", 2, "--served-model-name", "served", *sampling, "--logprobs", 2,
            "--extra-body", '{"stop_token_ids": [7], "temperature": 0.75}', "--extra-body.guided.choice+", "yes,no",
            "--request-id-prefix", "mine-",
        )  # fmt: skip
    assert_ran(done)
    bodies = front.bodies(path)
    expected = {**SAMPLING, **logprobs, "model": "served", "stream": True, "ignore_eos": True}
    # --extra-body is laid over the flags
    expected |= {"stop_token_ids": [7], "temperature": 0.75, "guided": {"choice": ["yes", "no"]}}
    assert len(bodies) == 2
    for body in bodies:
        assert expected.items() <= body.items()
    ids = {request.header("x-request-id") for request in front.requests if request.target == path}
    assert ids == {"mine-0", "mine-1"}


def test_arguments_of_the_chat_template_are_in_the_prompts(tmp_path: Path) -> None:
    folder = make_tokenizer(tmp_path / "tokenizer")
    template = "{{ mood }} {{ messages[0].content }}"
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    with fronted(TARGET) as front:
        done = run(
            tmp_path, "bench", "serve", "--base-url", front.url, "--model", "paced", "--tokenizer", folder,
            "--dataset-name", "custom", "--dataset-path", make_custom(tmp_path), "--num-prompts", 3,
            "--chat-template-kwargs.mood", "calm",
        )  # fmt: skip
    assert_ran(done)
    assert [body["prompt"] for body in front.bodies(COMPLETIONS)] == ["calm abcdefg"] * 3


def make_tokenizer(folder: Path) -> Path:
    """One that counts each character as a token."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    vocabulary = {chr(97 + i): i for i in range(26)} | {"Ġ": 26}
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def make_custom(folder: Path) -> Path:
    path = folder / "prompts.jsonl"
    path.write_text("\n".join(json.dumps({"prompt": "abcdefg", "output_tokens": 4}) for _ in range(3)))
    return path


def test_lora_modules_take_turns(tmp_path: Path) -> None:
    with fronted(TARGET) as front:
        done = run(
            tmp_path, "bench", "serve", "--base-url", front.url, *WORDS, *LENGTHS, "--num-prompts", 4,
            "--max-concurrency", 1, "--lora-modules", "a", "b", "--lora-assignment", "round-robin",
        )  # fmt: skip
    assert_ran(done)
    assert [body["model"] for body in front.bodies(COMPLETIONS)] == ["a", "b", "a", "b"]


def test_warm_ups_are_sent_and_not_counted(tmp_path: Path) -> None:
    with paced(TARGET) as url:
        done, result = serve(tmp_path, "--base-url", url, *WORDS, *LENGTHS, "--num-prompts", 4, "--num-warmups", 3)
        counts = stats(url)
    assert_ran(done)
    assert (counts["started"], counts["completed"]) == (4 + 3, 4 + 3)
    assert (result["completed"], result["num_prompts"]) == (4, 4)


def test_the_profiler_runs_around_the_load(tmp_path: Path) -> None:
    with fronted(TARGET) as front:
        done = run(
            tmp_path, "bench", "serve", "--base-url", front.url, *WORDS, *LENGTHS, "--num-prompts", 4, "--profile"
        )
    assert_ran(done)
    asked = [(request.method, request.target) for request in front.requests]
    asked = [one for one in asked if one[1] != "/tokenize"]
    assert asked == [("POST", "/start_profile"), *[("POST", COMPLETIONS)] * 4, ("POST", "/stop_profile")]


def test_a_dry_run_prints_lengths_and_schedule_and_sends_nothing(tmp_path: Path) -> None:
    with fronted(TARGET) as front:
        done = run(
            tmp_path, "bench", "serve", "--base-url", front.url, *WORDS, *LENGTHS, "--num-prompts", 5,
            "--request-rate", 10, "--burstiness", "inf", "--dry-run",
        )  # fmt: skip
        assert stats(front.url)["started"] == 0
    assert done.returncode == 0, done.stderr
    assert [request.target for request in front.requests] == ["/stats"]
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert "Prompt tokens: 80 in all; 16 to 16, mean 16.0, median 16" in lines
    assert "Tokens asked: 40 in all; 8 to 8, mean 8.0, median 8" in lines
    assert any(line.startswith("Schedule: over 500") and line.endswith(" 8.00 requests/s on average") for line in lines)
    assert lines[-5:] == [f"{i} 0.{i + 1}00 16 8" for i in range(5)]
    assert not list(tmp_path.rglob("journal.jsonl"))


# --- tokens, as the server counts them --------------------------------------------------------------------------


@pytest.mark.parametrize(("num_prompts", "num_verified"), [(40, 10), (4, 4)])
def test_ten_prompts_are_verified_before_the_load(tmp_path: Path, num_prompts: int, num_verified: int) -> None:
    with fronted(TARGET) as front:
        done = run(tmp_path, "bench", "serve", "--base-url", front.url, *WORDS, *LENGTHS, "--num-prompts", num_prompts)
    assert_ran(done)
    verified = [body["prompt"] for body in front.bodies("/tokenize")]
    sent = [body["prompt"] for body in front.bodies(COMPLETIONS)]
    assert (len(set(verified)), len(verified), len(sent)) == (num_verified, num_verified, num_prompts)
    assert set(verified) <= set(sent)
    assert [request.target for request in front.requests[:num_verified]] == ["/tokenize"] * num_verified


def test_the_server_counts_what_was_asked_for_text_and_for_token_ids(tmp_path: Path) -> None:
    for more in ((), ("--prompt-token-ids",)):
        with paced(TARGET) as url:
            done, result = serve(
                tmp_path, "--base-url", url, *WORDS, "--random-input-len", 33, "--random-range-ratio", "0.5",
                "--random-prefix-len", 4, "--random-output-len", 4, "--num-prompts", 12, *more,
            )  # fmt: skip
        assert_ran(done)
        assert "other lengths" not in done.stderr
        assert len(set(result["input_lens"])) > 1
        requests = result["windtunnel"]["requests"]
        assert requests["prompt_tokens"] == requests["prompt_tokens_asked"] == result["input_lens"]


def test_tokenize_that_is_missing_is_a_warning_and_a_broken_one_a_failure(tmp_path: Path) -> None:
    for status, fails in (("404", False), ("400", False), ("500", True)):
        with paced(f"{TARGET},tokenize={status}") as url:
            done, _ = serve(tmp_path, "--base-url", url, *WORDS, *LENGTHS, "--num-prompts", 3)
            assert stats(url)["started"] == (0 if fails else 3)
        assert status in done.stderr
        if fails:
            assert done.returncode == 1, done.stderr
        else:
            assert_ran(done)


def test_a_tokenizer_that_counts_otherwise_is_told_with_numbers(tmp_path: Path) -> None:
    with paced(TARGET) as url:
        done, _ = serve(
            tmp_path, "--base-url", url, "--model", "paced", "--tokenizer", make_tokenizer(tmp_path / "tokenizer"),
            "--dataset-name", "custom", "--dataset-path", make_custom(tmp_path),
            "--skip-chat-template", "--num-prompts", 3,
        )  # fmt: skip
    assert_ran(done)
    told = " ".join(done.stderr.split())
    assert re.search("other lengths than .* for 3 of 3 prompts: 7 were asked, the server counts 1", told), told


def test_without_a_tokenizer_the_servers_own_counts(tmp_path: Path) -> None:
    with paced(TARGET) as url:
        done, result = serve(tmp_path, "--base-url", url, *LENGTHS, "--num-prompts", 3)
    assert_ran(done)
    assert (result["total_input_tokens"], "/tokenize" in done.stderr) == (48, True)
