"""Any text is tokens and back; what the model may answer with is readable."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.engine.moe.tokenizer import (
    END,
    SPECIAL,
    forbidden_tokens,
    make_tokenizer,
    read_tokenizer,
    texts_of,
    write_tokenizer,
)
from windtunnel.errors import EngineConfigError

TOKENIZER = make_tokenizer(1024)


@given(st.text())
def test_any_text_comes_back(text: str) -> None:
    assert TOKENIZER.decode(TOKENIZER.encode(text).ids, skip_special_tokens=False) == text


def test_words_of_the_trade_are_tokens() -> None:
    assert TOKENIZER.encode("tokens of the experts").tokens == ["tokens", "Ġof", "Ġthe", "Ġexperts"]


def test_what_may_be_answered_is_printable_and_its_texts_add_up() -> None:
    never, texts = set(forbidden_tokens(TOKENIZER).tolist()), texts_of(TOKENIZER)
    may = [token for token in range(1024) if token not in never]
    assert len(may) > 800
    assert END in may and texts[END] == ""
    assert all(texts[token].isascii() for token in may)
    assert TOKENIZER.decode(may) == "".join(texts[token] for token in may)


def test_a_file_gives_the_same_tokens(tmp_path: Path) -> None:
    write_tokenizer(1024, tmp_path)
    assert read_tokenizer(tmp_path).encode("load the experts").ids == TOKENIZER.encode("load the experts").ids


def test_a_vocabulary_may_be_as_small_as_the_bytes_or_larger_than_its_words() -> None:
    smallest = len(SPECIAL) + 256
    assert make_tokenizer(smallest).encode("ab").tokens == ["a", "b"]
    large = make_tokenizer(4096)
    assert large.get_vocab_size() == 4096
    assert 4095 in forbidden_tokens(large)
    with pytest.raises(EngineConfigError, match="vocabulary_size"):
        make_tokenizer(smallest - 1)
