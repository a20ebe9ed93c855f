"""The `sharegpt` dataset."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.workload.trained import trained
from windtunnel.errors import ConfigurationError, DatasetError, FileError
from windtunnel.workload.config import DatasetConfig
from windtunnel.workload.sample import Sample
from windtunnel.workload.sharegpt import is_usable, sharegpt_samples


def talk(*turns: str) -> dict[str, object]:
    return {"id": "x", "conversations": [{"from": "human", "value": turn} for turn in turns]}


def words(num: int) -> str:
    return " ".join(["lan"] * num)


def write(folder: Path, content: object) -> str:
    path = folder / "talks.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return str(path)


def load(path: str | None, **changes: Any) -> list[Sample]:
    settings = {"num_prompts": 0, "shuffle": False, "oversample": False} | changes
    return sharegpt_samples(trained("gpt2"), DatasetConfig(name="sharegpt", path=path, **settings))


def test_the_first_turn_is_the_prompt_and_the_second_tells_the_length(tmp_path: Path) -> None:
    assert load(write(tmp_path, [talk(words(5), words(9), words(70))])) == [Sample(words(5), 5, 9)]


def test_what_is_not_a_conversation_of_two_turns_is_left_out(tmp_path: Path) -> None:
    entries = [{}, {"conversations": None}, {"conversations": []}, talk(words(5)), talk(words(6), words(7))]
    assert load(write(tmp_path, entries)) == [Sample(words(6), 6, 7)]


@pytest.mark.parametrize(
    ("prompt", "answer", "given", "usable"),
    [
        (4, 4, False, True),
        (3, 4, False, False),
        (4, 3, False, False),
        (4, 3, True, True),
        (1024, 1024, False, True),
        (1025, 4, False, False),
        (1024, 1025, False, False),
        (4, 2044, False, True),
        (4, 2045, True, False),
    ],
)
def test_the_bounds_are_vllms(prompt: int, answer: int, given: bool, usable: bool) -> None:
    assert is_usable(prompt, answer, length_given=given) is usable


def test_too_short_and_too_long_ones_are_left_out(tmp_path: Path) -> None:
    entries = [
        talk(words(3), words(9)),
        talk(words(9), words(3)),
        talk(words(1025), words(9)),
        talk(words(1000), words(1049)),
        talk(words(10), words(10)),
    ]
    path = write(tmp_path, entries)
    assert [sample.prompt_tokens for sample in load(path)] == [10]
    assert [(s.prompt_tokens, s.output_tokens) for s in load(path, output_len=2)] == [(9, 2), (1000, 2), (10, 2)]


def test_special_tokens_count_as_in_vllms_client(tmp_path: Path) -> None:
    config = DatasetConfig(name="sharegpt", path=write(tmp_path, [talk(words(3), words(3))]), num_prompts=1)
    assert sharegpt_samples(trained("llama3"), config) == [Sample(words(3), 4, 4)]
    assert sharegpt_samples(trained("llama3"), config, template_tokens=9) == [Sample(words(3), 12, 4)]


def test_conversations_are_shuffled_by_the_seed_and_repeated(tmp_path: Path) -> None:
    path = write(tmp_path, [talk(words(n), words(10)) for n in range(4, 304)])

    def lengths(**changes: Any) -> list[int]:
        return [sample.prompt_tokens for sample in load(path, **changes)]

    assert lengths() == list(range(4, 304))
    assert lengths(num_prompts=5) == [4, 5, 6, 7, 8]
    shuffled = lengths(shuffle=True)
    assert sorted(shuffled) == list(range(4, 304)) != shuffled
    assert lengths(shuffle=True) == shuffled != lengths(shuffle=True, seed=1)
    more = lengths(num_prompts=1000, oversample=True)
    assert (len(more), more[:300]) == (1000, list(range(4, 304)))
    assert len(lengths(num_prompts=1000)) == 300


def test_without_a_tokenizer_nothing_is_counted_or_left_out(tmp_path: Path) -> None:
    path = write(tmp_path, [talk("a", "b"), talk(words(2000), "b")])
    config = DatasetConfig(name="sharegpt", path=path, num_prompts=2, shuffle=False, output_len=20)
    assert sharegpt_samples(None, config) == [Sample("a", 1, 20), Sample(words(2000), 1, 20)]
    with pytest.raises(ConfigurationError, match="without a tokenizer") as caught:
        sharegpt_samples(None, DatasetConfig(name="sharegpt", path=path))
    assert "--sharegpt-output-len" in caught.value.advice


def test_progress_counts_requests(tmp_path: Path) -> None:
    progress: list[tuple[int, int]] = []
    path = write(tmp_path, [talk(words(5), words(5))] * 300)
    config = DatasetConfig(name="sharegpt", path=path, num_prompts=300)
    sharegpt_samples(trained("gpt2"), config, on_progress=lambda done, total: progress.append((done, total)))
    assert progress == [(128, 300), (256, 300), (300, 300)]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "is empty"),
        ("[]", "of 0 entries none has"),
        ([talk("a")], "of 1 entries none has"),
        ([talk(words(2), words(2))], "of 1 conversations none has"),
        ('{"conversations": []}\n{"conversations": []}\n', "an object, or JSONL"),
        ('{"conversations": []}', "an object, or JSONL"),
        ('[\n{},\n{"a": }\n]', "line 3: JSON is malformed"),
        ("[{}", "ends early"),
        ([talk("a", "b"), [1]], "entry 2: Expected `object`"),
        ([{"conversations": {}}], r"entry 1: .*conversations"),
        ([{"conversations": [{"from": "human"}, {"value": "b"}]}], "entry 1: .*missing required field `value`"),
        ([{"conversations": [{"value": 3}, {"value": "b"}]}], "entry 1: .*got `int`"),
        ([{"conversations": ["a", "b"]}], "entry 1: "),
    ],
)
def test_a_broken_file_is_told_with_the_place(tmp_path: Path, content: object, says: str) -> None:
    with pytest.raises(DatasetError, match=says) as caught:
        load(write(tmp_path, content))
    assert caught.value.remedy


def test_another_encoding_is_recognised(tmp_path: Path) -> None:
    path = tmp_path / "latin.json"
    path.write_bytes(b'[{"conversations": [{"value": "\xe9"}, {"value": "b"}]}]')
    with pytest.raises(DatasetError, match="UTF-8"):
        load(str(path))


def test_no_path_and_no_file_are_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="--dataset-path"):
        load(None)
    with pytest.raises(FileError, match="No such file"):
        load(str(tmp_path / "gone.json"))
