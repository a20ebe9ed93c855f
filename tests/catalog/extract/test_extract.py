"""Whatever a file holds, it gives facts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.catalog.extract import SUFFIXES, extract, language_of


@pytest.mark.parametrize("suffix", sorted(SUFFIXES))
def test_every_language_that_is_named_can_be_read(suffix: str) -> None:
    facts = extract(f"src/a{suffix}", b"")
    assert (facts.language, facts.raises) == (language_of(f"a{suffix}"), ())


@pytest.mark.parametrize("suffix", sorted(set({language: suffix for suffix, language in SUFFIXES.items()}.values())))
@given(st.binary(max_size=300))
def test_bytes_of_any_kind_are_no_reason_to_fail(suffix: str, data: bytes) -> None:
    facts = extract(f"src/a{suffix}", data)
    assert facts.problem is None or "fault in windtunnel" not in facts.problem


def test_what_a_machine_made_is_named_and_not_read() -> None:
    facts = extract("a.js", b"throw new Error('x');" * 5000)
    assert facts.raises == () and facts.problem is not None and "bytes a line" in facts.problem
