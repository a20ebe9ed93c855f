"""The `custom` dataset: JSONL, whole, broken and large."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from tests.workload.trained import trained, write_folder
from windtunnel.errors import ConfigurationError, DatasetError, FileError, TokenizerError
from windtunnel.workload import custom_lines
from windtunnel.workload.config import DatasetConfig
from windtunnel.workload.custom import custom_samples
from windtunnel.workload.sample import Sample
from windtunnel.workload.tokenizer.base import Tokenizer
from windtunnel.workload.tokenizer.load import load_tokenizer

MESSAGES = [{"role": "system", "content": "lan"}, {"role": "user", "content": [{"type": "text", "text": "ton ton"}]}]


def write(folder: Path, *lines: object) -> str:
    path = folder / "prompts.jsonl"
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return str(path)


def load(path: str | None, tokenizer: Tokenizer | None = None, **changes: Any) -> list[Sample]:
    settings = {"num_prompts": 0, "output_len": -1, "shuffle": False, "skip_chat_template": True} | changes
    return custom_samples(tokenizer or trained("llama3"), DatasetConfig(name="custom", path=path, **settings))


def test_each_line_is_a_request_and_other_keys_are_passed_over(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        {"prompt": "lan ton", "output_tokens": 7, "category": {"x": [1]}},
        "",
        {"output_tokens": 9.0, "prompt": "lan"},
        {"prompt": [5, 6, 7], "output_tokens": "11"},
        {"messages": MESSAGES, "output_tokens": 1},
        {"prompt": MESSAGES[:1], "output_tokens": 2},
    )
    assert (
        load(path)
        == [
            Sample("lan ton", 3, 7),  # the begin token is counted
            Sample("lan", 2, 9),
            Sample([5, 6, 7], 3, 11),
            Sample(MESSAGES, trained("llama3").count("lan\nton ton", special=True), 1),
            Sample(MESSAGES[:1], 2, 2),
        ]
    )


def test_a_given_length_goes_before_the_lines(tmp_path: Path) -> None:
    path = write(tmp_path, {"prompt": "lan", "output_tokens": 7}, {"prompt": "ton", "output_tokens": "many"})
    assert [sample.output_tokens for sample in load(path, output_len=40)] == [40, 40]


@pytest.mark.parametrize("output_len", [None, -1])
def test_without_a_given_length_each_line_must_have_one(tmp_path: Path, output_len: int | None) -> None:
    path = write(tmp_path, {"prompt": "lan", "output_tokens": 7}, {"prompt": "ton"})
    with pytest.raises(DatasetError, match=r"prompts\.jsonl, line 2: there is no `output_tokens`") as caught:
        load(path, output_len=output_len)
    assert "--custom-output-len" in caught.value.advice


@pytest.mark.parametrize("value", [0, -3, 1.5, "many", "", "inf"])
def test_a_length_must_be_a_whole_number_above_0(tmp_path: Path, value: object) -> None:
    with pytest.raises(DatasetError, match=r"line 1: (`output_tokens` is|there is no)"):
        load(write(tmp_path, {"prompt": "lan", "output_tokens": value}))


@pytest.mark.parametrize("value", [0, -2])
def test_a_given_length_must_make_sense(tmp_path: Path, value: int) -> None:
    with pytest.raises(ConfigurationError, match="--custom-output-len"):
        load(write(tmp_path, {"prompt": "lan"}), output_len=value)


def test_without_a_tokenizer_nothing_is_counted(tmp_path: Path) -> None:
    path = write(tmp_path, {"prompt": "lan ton", "output_tokens": 7})
    config = DatasetConfig(name="custom", path=path, num_prompts=1)
    assert custom_samples(None, config) == [Sample("lan ton", 1, 7)]


def test_the_chat_template_is_applied_here_unless_told_otherwise(tmp_path: Path) -> None:
    template = "{% for m in messages %}[{{ m.role }}]{% endfor %} ton{% if short %}{% else %} ton{% endif %}"
    tokenizer = load_tokenizer(str(write_folder(tmp_path, "gpt2", template=template)))
    path = write(tmp_path, {"prompt": "lan", "output_tokens": 1}, {"messages": MESSAGES, "output_tokens": 1})
    samples = load(path, tokenizer, skip_chat_template=False)
    assert [sample.prompt for sample in samples] == ["[user] ton ton", "[system][user] ton ton"]
    assert [sample.prompt_tokens for sample in samples] == [tokenizer.count(str(s.prompt)) for s in samples]
    short = load(path, tokenizer, skip_chat_template=False, chat_template_kwargs={"short": True})
    assert short[0].prompt == "[user] ton"


def test_a_tokenizer_without_a_template_is_told(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match="no chat template"):
        load(write(tmp_path, {"prompt": "lan", "output_tokens": 1}), skip_chat_template=False)


def test_what_the_servers_template_adds_is_counted(tmp_path: Path) -> None:
    path = write(tmp_path, {"prompt": "lan ton", "output_tokens": 7})
    config = DatasetConfig(name="custom", path=path, skip_chat_template=True, num_prompts=1)
    assert custom_samples(trained("llama3"), config, template_tokens=10)[0].prompt_tokens == 12


def test_lines_are_shuffled_by_the_seed_and_repeated_to_the_number_asked(tmp_path: Path) -> None:
    path = write(tmp_path, *({"prompt": f"p{i}", "output_tokens": i + 1} for i in range(50)))

    def prompts(**changes: Any) -> list[object]:
        return [sample.prompt for sample in load(path, **changes)]

    in_order = [f"p{i}" for i in range(50)]
    assert prompts() == in_order
    assert prompts(num_prompts=3) == in_order[:3]
    assert prompts(num_prompts=-1) == in_order
    shuffled = prompts(shuffle=True)
    assert sorted(map(str, shuffled)) == sorted(in_order)
    assert shuffled != in_order
    assert prompts(shuffle=True) == shuffled != prompts(shuffle=True, seed=1)
    assert prompts(shuffle=True, num_prompts=7) == shuffled[:7]
    more = prompts(num_prompts=200)
    assert (len(more), more[:50], set(more)) == (200, in_order, set(in_order))
    assert prompts(num_prompts=200) == more
    assert prompts(num_prompts=200, oversample=False) == in_order


def test_a_mark_of_utf_8_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "marked.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"prompt": "lan", "output_tokens": 1}\r\n\r\n{"prompt": "ton", "output_tokens": 2}')
    assert [sample.prompt for sample in load(str(path))] == ["lan", "ton"]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('{"prompt": "lan"', "ends early"),
        ('{"prompt": "lan"} {"prompt": "ton"}', "trailing characters"),
        ('"lan"', "Expected `object`, got `str`"),
        ('["lan"]', "Expected `object`, got `array`"),
        ("lan", "invalid"),
        ('{"text": "lan"}', "neither `prompt` nor `messages`"),
        ('{"prompt": null}', "neither `prompt` nor `messages`"),
        ('{"prompt": 3}', "prompt"),
        ('{"prompt": ""}', "`prompt` is empty"),
        ('{"prompt": []}', "`prompt` is empty"),
        ('{"prompt": ["lan", "ton"]}', "neither of token ids nor of messages"),
        ('{"prompt": [1, -1]}', "neither of token ids nor of messages"),
        ('{"prompt": [{"content": "lan"}]}', "a message of `prompt` has no `role`"),
        ('{"messages": [{"role": 1}]}', "a message of `messages` has no `role`"),
        ('{"messages": "lan"}', "messages"),
        ('{"prompt": "lan", "messages": [{"role": "user"}]}', "both"),
        ('{"prompt": "lan", "output_tokens": true}', "output_tokens"),
        (b'{"prompt": "\xe9t\xe9"}', r"not UTF-8 \(byte 12\)"),
        ('{"prompt": "lan", "x": ' + "[" * 5000 + "]" * 5000 + "}", "nested too deeply"),
    ],
)
def test_a_broken_line_is_named_with_its_number(tmp_path: Path, line: str | bytes, says: str) -> None:
    path = tmp_path / "prompts.jsonl"
    raw = line if isinstance(line, bytes) else line.encode()
    path.write_bytes(b'{"prompt": "fine", "output_tokens": 1}\n\n' + raw + b"\n")
    with pytest.raises(DatasetError, match=says) as caught:
        load(str(path), num_prompts=1, shuffle=True, output_len=5)
    assert (caught.value.path, caught.value.line) == (str(path), 3)
    assert '{"prompt":' in caught.value.advice


def test_without_a_shuffle_lines_beyond_those_asked_for_are_not_looked_at(tmp_path: Path) -> None:
    path = write(tmp_path, {"prompt": "lan", "output_tokens": 1}, "broken")
    assert len(load(path, num_prompts=1)) == 1


@pytest.mark.parametrize("content", ['[{"prompt": "lan"}]', '[\n  {"prompt": "lan"}\n]\n'])
def test_a_json_array_is_recognised(tmp_path: Path, content: str) -> None:
    with pytest.raises(DatasetError, match="holds a JSON array") as caught:
        load(write(tmp_path, content))
    assert "jq -c" in caught.value.advice


@pytest.mark.parametrize("content", ["", "\n  \n\n"])
def test_an_empty_file_is_told(tmp_path: Path, content: str) -> None:
    with pytest.raises(DatasetError, match="is empty"):
        load(write(tmp_path, content))


def test_utf_16_is_recognised(tmp_path: Path) -> None:
    path = tmp_path / "wide.jsonl"
    path.write_text('{"prompt": "lan"}', encoding="utf-16")
    with pytest.raises(DatasetError, match="UTF-16"):
        load(str(path))


def test_a_line_without_an_end_is_not_read_into_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(custom_lines, "_LONGEST_LINE", 2**20)
    path = tmp_path / "huge.jsonl"
    with path.open("wb") as file:
        file.write(b'{"prompt": "fine", "output_tokens": 1}\n')
        file.truncate(2**33)  # a hole: takes no space
    with pytest.raises(DatasetError, match="line 2: the line is longer than 1 MiB"):
        load(str(path))


def test_no_path_is_told() -> None:
    with pytest.raises(ConfigurationError, match="--dataset-path"):
        load(None)


@pytest.mark.parametrize(("name", "reason"), [("gone.jsonl", "No such file"), ("", "Is a directory")])
def test_a_file_that_can_not_be_read_is_named(tmp_path: Path, name: str, reason: str) -> None:
    with pytest.raises(FileError, match=reason) as caught:
        load(str(tmp_path / name))
    assert caught.value.path == str(tmp_path / name)


def test_a_large_file_is_read_as_a_stream_with_progress(tmp_path: Path) -> None:
    path = tmp_path / "large.jsonl"
    line = json.dumps({"prompt": "lan " * 1000, "output_tokens": 1}).encode() + b"\n"
    path.write_bytes(line * 10_000)
    progress: list[tuple[int, int]] = []
    config = DatasetConfig(name="custom", path=str(path), num_prompts=5, skip_chat_template=True)
    tracemalloc.start()
    try:
        samples = custom_samples(
            trained("gpt2"), config, on_progress=lambda done, total: progress.append((done, total))
        )
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(samples) == 5
    assert peak_bytes < path.stat().st_size / 10
    size = path.stat().st_size
    assert progress[-2:] == [(size, size), (5, 5)]
    assert [done for done, _ in progress[:-1]] == sorted(done for done, _ in progress[:-1])
    assert len(progress) > 3
