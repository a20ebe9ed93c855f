"""Random prompts have exactly the tokens that were asked for, whatever the tokenizer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from tests.workload.test_server_tokenizer import serve
from tests.workload.trained import KINDS, trained
from windtunnel.errors import ConfigurationError, TokenizerError
from windtunnel.workload import random_prompts, seeds
from windtunnel.workload.config import DatasetConfig
from windtunnel.workload.random_prompts import _mend, draw_lengths, random_samples
from windtunnel.workload.sample import Sample
from windtunnel.workload.tokenizer.base import Tokenizer as AnyTokenizer
from windtunnel.workload.tokenizer.huggingface import HuggingFaceTokenizer, _Config
from windtunnel.workload.tokenizer.load import load_tokenizer
from windtunnel.workload.tokenizer.server import ServerTokenizer
from windtunnel.workload.word_pool import Pool, choose_dead

exhaustive = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def counted(tokenizer: AnyTokenizer, samples: list[Sample]) -> list[int]:
    """What a server counts."""
    return [tokenizer.count(str(sample.prompt), special=True) for sample in samples]


def asked(samples: list[Sample]) -> list[int]:
    return [sample.prompt_tokens for sample in samples]


@pytest.mark.parametrize("kind", KINDS)
@exhaustive
@given(seed=st.integers(0, 2**32), length=st.integers(3, 80), ratio=st.floats(0, 0.9), prefix=st.integers(0, 20))
def test_the_server_counts_what_was_asked(kind: str, seed: int, length: int, ratio: float, prefix: int) -> None:
    tokenizer = trained(kind)
    length += tokenizer.num_special
    config = DatasetConfig(
        num_prompts=12, seed=seed, input_len=length, input_range_ratio=ratio, prefix_len=max(prefix, int(ratio > 0.5))
    )
    samples = random_samples(tokenizer, config)
    assert counted(tokenizer, samples) == asked(samples)
    if not ratio:
        assert set(asked(samples)) == {length + config.prefix_len}


@pytest.mark.parametrize("kind", KINDS)
def test_a_prompt_of_one_token_is_one_token(kind: str) -> None:
    tokenizer = trained(kind)
    samples = random_samples(tokenizer, DatasetConfig(num_prompts=30, input_len=1 + tokenizer.num_special))
    assert {tokenizer.count(str(sample.prompt)) for sample in samples} == {1}


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_that_counts_is_enough_and_asked_seldom(kind: str) -> None:
    calls: list[tuple[str, dict[str, Any]]] = []
    server = ServerTokenizer("m", serve(kind, calls))
    samples = random_samples(server, DatasetConfig(num_prompts=300, input_len=50, input_range_ratio=0.5))
    assert counted(trained(kind), samples) == asked(samples)
    assert len(calls) < 50


def test_the_built_in_tokenizer_is_met_exactly() -> None:
    tokenizer = load_tokenizer("windtunnel-words")
    samples = random_samples(tokenizer, DatasetConfig(num_prompts=50, input_len=40, prefix_len=3))
    assert counted(tokenizer, samples) == [43] * 50


@pytest.mark.parametrize("kind", ["gpt2", "llama3", "metaspace", "wordpiece"])
def test_prompts_neither_begin_nor_end_with_a_space_and_differ(kind: str) -> None:
    samples = random_samples(trained(kind), DatasetConfig(num_prompts=200, input_len=30))
    assert all(sample.prompt == str(sample.prompt).strip() for sample in samples)
    assert len({str(sample.prompt) for sample in samples}) == 200


def test_the_prefix_is_shared_in_text_and_in_tokens() -> None:
    tokenizer = trained("llama3")
    samples = random_samples(tokenizer, DatasetConfig(num_prompts=20, input_len=31, prefix_len=10))
    ids = [tokenizer.encode(str(sample.prompt)) for sample in samples]
    assert len({tuple(row[:10]) for row in ids}) == 1
    assert len({tuple(row[10:]) for row in ids}) == 20
    assert {len(row) for row in ids} == {40}


def test_a_prompt_may_be_nothing_but_the_prefix() -> None:
    config = DatasetConfig(num_prompts=5, input_len=0, prefix_len=7)
    samples = random_samples(trained("gpt2"), config)
    assert counted(trained("gpt2"), samples) == [7] * 5


def test_room_is_made_for_a_chat_template() -> None:
    tokenizer = trained("llama3")
    samples = random_samples(tokenizer, DatasetConfig(num_prompts=5, input_len=40), template_tokens=12)
    assert {tokenizer.count(str(sample.prompt)) for sample in samples} == {28}
    assert set(asked(samples)) == {40}


@pytest.mark.parametrize("kind", ["llama3", "wordpiece", "few_merges"])
def test_token_ids_are_as_many_as_were_asked_and_none_is_special(kind: str) -> None:
    tokenizer = trained(kind)
    config = DatasetConfig(num_prompts=40, input_len=50, input_range_ratio=0.4, prefix_len=4, prompt_token_ids=True)
    samples = random_samples(tokenizer, config)
    used = {i for sample in samples for i in sample.prompt if isinstance(i, int)}
    assert [len(sample.prompt) for sample in samples] == asked(samples)
    assert used.isdisjoint(tokenizer.special_ids)
    assert max(used) < tokenizer.vocab_size
    assert len({tuple(sample.prompt[:4]) for sample in samples}) == 1


def test_token_ids_for_a_server_are_ids_that_it_gave() -> None:
    server = ServerTokenizer("m", serve("gpt2", []))
    samples = random_samples(server, DatasetConfig(num_prompts=5, input_len=20, prompt_token_ids=True))
    texts = [server.decode([i for i in sample.prompt if isinstance(i, int)]) for sample in samples]
    assert [trained("gpt2").count(text) for text in texts] == [20] * 5


def test_one_seed_makes_the_same_prompts_and_another_makes_others() -> None:
    def prompts(seed: int) -> list[Sample]:
        return random_samples(trained("gpt2"), DatasetConfig(num_prompts=5, input_len=20, seed=seed, prefix_len=2))

    assert prompts(3) == prompts(3)
    assert prompts(3)[0].prompt != prompts(4)[0].prompt


def test_the_prefix_does_not_move_the_contents() -> None:
    def ids(prefix: int) -> list[list[int]]:
        config = DatasetConfig(num_prompts=4, input_len=20, prefix_len=prefix)
        return [trained("gpt2").encode(str(s.prompt)) for s in random_samples(trained("gpt2"), config)]

    with_prefix = ids(5)
    assert [row[1:] for row in ids(0)] == [row[6:] for row in with_prefix]
    assert with_prefix[0][1:5] != with_prefix[0][6:10]


@given(seed=st.integers(0, 2**63), length=st.integers(1, 500), ratio=st.floats(0, 0.99), overhead=st.integers(0, 3))
@settings(max_examples=40, deadline=None)
def test_lengths_are_those_of_vllms_client(seed: int, length: int, ratio: float, overhead: int) -> None:
    config = DatasetConfig(
        num_prompts=30,
        seed=seed,
        input_len=length + overhead,
        output_len=length,
        prefix_len=1,
        input_range_ratio=ratio,
        output_range_ratio=ratio / 2,
    )
    inputs, outputs = draw_lengths(config, overhead)
    # as vllm.benchmarks.datasets has it: both from one generator of the seed, inputs first
    rng = np.random.default_rng(seed)
    low, high = int(np.floor(length * (1 - ratio))), int(np.ceil(length * (1 + ratio)))
    assert inputs.tolist() == rng.integers(low, high + 1, size=30).tolist()
    low, high = int(np.floor(length * (1 - ratio / 2))), int(np.ceil(length * (1 + ratio / 2)))
    assert outputs.tolist() == rng.integers(max(low, 1), max(high, 1) + 1, size=30).tolist()


def test_the_output_length_is_vllms_when_none_is_given() -> None:
    samples = random_samples(trained("gpt2"), DatasetConfig(num_prompts=3, input_len=5))
    assert [sample.output_tokens for sample in samples] == [128] * 3


def test_words_that_merge_only_in_some_prompts_are_mended(monkeypatch: pytest.MonkeyPatch) -> None:
    # without the trial that comes before, the prompts themselves must show which words merge
    monkeypatch.setattr("windtunnel.workload.word_pool._keep_apart", lambda *_: None)
    progress: list[tuple[int, int]] = []
    tokenizer = trained("across_words")
    config = DatasetConfig(num_prompts=60, input_len=60, prefix_len=20)
    samples = random_samples(tokenizer, config, on_progress=lambda done, total: progress.append((done, total)))
    assert counted(tokenizer, samples) == [80] * 60
    assert len({str(sample.prompt)[:40] for sample in samples}) == 1
    assert progress[-1] == (60, 60)
    assert any(done < total for done, total in progress)


@pytest.mark.parametrize("seed", range(12))
def test_a_word_that_comes_for_another_is_checked_in_prompts_that_were_right(seed: int) -> None:
    merges = [(" ", "a"), (" ", "b"), (" ", "d"), (" ", "e"), (" a", " b"), (" b", " b"), (" e", " d")]
    vocab = [*"x abde", *("".join(pair) for pair in merges)]
    core = Tokenizer(models.BPE(vocab={text: i for i, text in enumerate(vocab)}, merges=merges))
    tokenizer = HuggingFaceTokenizer("pairs", core, _Config(), None)
    pool = Pool({0: "x"}, {vocab.index(f" {letter}"): f" {letter}" for letter in "abde"})
    # ` b` goes; where ` d` comes for it, the last prompt goes wrong that was right before
    rows = [np.array(row) for row in ([0, 0, 1], [0, 1, 1], [0, 3, 1])]
    _mend(tokenizer, pool, rows, np.random.default_rng(seed), lambda *_: None)
    assert [tokenizer.count(pool.text(row)) for row in rows] == [3, 3, 3]


def test_of_pairs_that_merge_the_word_in_most_of_them_goes() -> None:
    assert choose_dead([(1, 2), (~3, 1), (1, 4)]) == {1}
    assert choose_dead([(5, 5)]) == {5}
    assert choose_dead([]) == set()


def test_a_word_that_is_read_as_unknown_is_not_used() -> None:
    core = Tokenizer(models.WordLevel({"?": 0, "RED": 1, "blue": 2, "green": 3}, "?"))
    core.normalizer = normalizers.Lowercase()
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    core.add_special_tokens(["?"])
    tokenizer = HuggingFaceTokenizer("cases", core, _Config(), None)
    samples = random_samples(tokenizer, DatasetConfig(num_prompts=20, input_len=10))
    assert {word for sample in samples for word in str(sample.prompt).split()} == {"blue", "green"}


def test_beyond_a_bound_a_part_stands_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random_prompts, "_VERIFIED_TOKENS", 1000)
    progress: list[tuple[int, int]] = []
    config = DatasetConfig(num_prompts=500, input_len=50)
    samples = random_samples(trained("gpt2"), config, on_progress=lambda *done: progress.append(done))
    assert progress == [(20, 20)]
    assert counted(trained("gpt2"), samples) == [50] * 500


def test_one_wrong_prompt_of_a_part_lets_all_be_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windtunnel.workload.word_pool._keep_apart", lambda *_: None)
    monkeypatch.setattr(random_prompts, "_VERIFIED_TOKENS", 3000)
    samples = random_samples(trained("across_words"), DatasetConfig(num_prompts=300, input_len=50))
    assert counted(trained("across_words"), samples) == [50] * 300


def whole_texts_only() -> HuggingFaceTokenizer:
    """A tokenizer for which anything longer than one token is one unknown token."""
    core = Tokenizer(models.WordLevel({"?": 0, "a": 1, "b": 2}, "?"))
    core.add_special_tokens(["?"])
    return HuggingFaceTokenizer("whole", core, _Config(), None)


def test_a_length_that_no_text_has_is_told() -> None:
    one = random_samples(whole_texts_only(), DatasetConfig(num_prompts=9, input_len=1))
    assert {str(sample.prompt) for sample in one} == {"a", "b"}
    with pytest.raises(TokenizerError, match="no text of exactly 2 tokens") as caught:
        random_samples(whole_texts_only(), DatasetConfig(num_prompts=9, input_len=2))
    assert "--prompt-token-ids" in caught.value.advice


def test_a_vocabulary_without_any_text_is_told() -> None:
    core = Tokenizer(models.WordLevel({"?": 0}, "?"))
    core.add_special_tokens(["?"])
    with pytest.raises(TokenizerError, match="no text that is one token"):
        random_samples(HuggingFaceTokenizer("void", core, _Config(), None), DatasetConfig(num_prompts=1))


@pytest.mark.parametrize(
    ("changes", "flag"),
    [
        ({"num_prompts": 0}, "--num-prompts"),
        ({"input_len": 0}, "--random-input-len"),
        ({"input_len": -1}, "--random-input-len"),
        ({"input_len": 1}, "--random-input-len"),
        ({"input_len": 2, "input_range_ratio": 0.5}, "--random-input-len"),
        ({"output_len": -1}, "--random-output-len"),
        ({"prefix_len": -1}, "--random-prefix-len"),
        ({"input_range_ratio": 1.0}, "--random-range-ratio"),
        ({"output_range_ratio": -0.1}, "--random-range-ratio"),
        ({"output_range_ratio": float("nan")}, "--random-range-ratio"),
        ({"seed": -1}, "--seed"),
    ],
)
def test_what_makes_no_sense_is_named_by_its_flag(changes: dict[str, Any], flag: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        random_samples(trained("llama3"), DatasetConfig(**changes))
    assert caught.value.where == flag
    assert caught.value.remedy


def test_without_a_tokenizer_there_are_no_random_prompts() -> None:
    with pytest.raises(ConfigurationError, match="need a tokenizer"):
        random_samples(None, DatasetConfig())


def test_each_source_of_chance_has_a_seed_of_its_own() -> None:
    derived = seeds.derive_seeds(5)
    assert derived == seeds.derive_seeds(5)
    assert derived[seeds.LENGTHS] == 5
    assert len(set(derived.values())) == len(seeds.SOURCES)
    assert set(derived.values()).isdisjoint(set(seeds.derive_seeds(6).values()))
