"""The word tokenizer counts exactly and decodes to what it encodes."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.workload.words import WordTokenizer

TOKENIZER = WordTokenizer()
ids = st.lists(st.integers(0, TOKENIZER.vocab_size - 1))


def test_the_vocabulary_is_thousands_of_distinct_lower_case_words() -> None:
    words = [TOKENIZER.decode([token]) for token in range(TOKENIZER.vocab_size)]
    assert len(set(words)) == TOKENIZER.vocab_size == 4096
    assert all(word.isascii() and word.isalpha() and word.islower() for word in words)
    assert (words[0], words[-1]) == ("baba", "zozo")


@given(ids)
def test_ids_come_back_from_their_text(tokens: list[int]) -> None:
    assert TOKENIZER.encode(TOKENIZER.decode(tokens)) == tokens


@given(ids, ids)
def test_texts_joined_with_a_space_have_the_sum_of_their_counts(first: list[int], second: list[int]) -> None:
    text = TOKENIZER.decode(first) + " " + TOKENIZER.decode(second)
    assert TOKENIZER.encode(text) == first + second


@given(st.text())
def test_any_word_is_one_token_of_the_vocabulary(text: str) -> None:
    tokens = TOKENIZER.encode(text)
    assert len(tokens) == len(text.split()) == TOKENIZER.count(text)
    assert all(0 <= token < TOKENIZER.vocab_size for token in tokens)


def test_a_word_that_is_not_in_the_vocabulary_has_the_same_id_in_each_process() -> None:
    script = "from windtunnel.workload.words import WordTokenizer; print(WordTokenizer().encode('Grüße 你好 \\ud800'))"
    printed = {
        subprocess.run(
            [sys.executable, "-c", script], capture_output=True, check=True, env={"PYTHONHASHSEED": seed}
        ).stdout
        for seed in ("1", "2")
    }
    assert printed == {f"{TOKENIZER.encode('Grüße 你好 ' + chr(0xD800))}\n".encode()}


@pytest.mark.parametrize("token", [-1, TOKENIZER.vocab_size])
def test_an_id_outside_the_vocabulary_is_an_error(token: int) -> None:
    with pytest.raises(IndexError):
        TOKENIZER.decode([token])
