"""Datasets by their names, and the bound on the context."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.workload.trained import trained
from windtunnel.errors import ConfigurationError
from windtunnel.workload.config import DatasetConfig
from windtunnel.workload.load import load_samples


def test_each_dataset_is_loaded_by_its_name(tmp_path: Path) -> None:
    jsonl, talks = tmp_path / "a.jsonl", tmp_path / "a.json"
    jsonl.write_text('{"prompt": "lan", "output_tokens": 3}')
    talks.write_text(json.dumps([{"conversations": [{"value": "lan " * 9}, {"value": "lan " * 9}]}]))
    tokenizer = trained("gpt2")
    random = load_samples(DatasetConfig(num_prompts=2, input_len=9, output_len=4), tokenizer)
    custom = load_samples(
        DatasetConfig(name="custom", path=str(jsonl), num_prompts=2, skip_chat_template=True), tokenizer
    )
    sharegpt = load_samples(DatasetConfig(name="sharegpt", path=str(talks), num_prompts=2), tokenizer)
    assert [(s.prompt_tokens, s.output_tokens) for s in random] == [(9, 4)] * 2
    assert [(s.prompt_tokens, s.output_tokens) for s in custom] == [(1, 3)] * 2
    assert len(sharegpt) == 2


def test_an_unknown_name_is_answered_with_a_near_one() -> None:
    with pytest.raises(ConfigurationError, match="did you mean sharegpt") as caught:
        load_samples(DatasetConfig(name="sharegtp"), trained("gpt2"))
    assert "random, custom, sharegpt" in caught.value.advice


def test_requests_above_the_models_context_are_left_out() -> None:
    config = DatasetConfig(num_prompts=200, input_len=20, output_len=10, input_range_ratio=0.5)
    samples = load_samples(config, trained("gpt2"))
    limited = DatasetConfig(num_prompts=200, input_len=20, output_len=10, input_range_ratio=0.5, max_model_len=30)
    fitting = load_samples(limited, trained("gpt2"))
    assert fitting == [sample for sample in samples if sample.prompt_tokens <= 20]
    assert 0 < len(fitting) < 200


def test_a_context_that_no_request_fits_is_told() -> None:
    with pytest.raises(ConfigurationError, match="--max-model-len: each of the 3 requests"):
        load_samples(DatasetConfig(num_prompts=3, max_model_len=100), trained("gpt2"))
