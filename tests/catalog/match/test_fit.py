"""A text fits the template that it was made from, wherever it was cut, wrapped, or put into other words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.catalog.match.envelopes import variants_of
from windtunnel.catalog.match.fit import fit, single_spaced
from windtunnel.catalog.template import Hole, Part

TEMPLATE: tuple[Part, ...] = ("cannot open ", Hole("path", "!r"), " after ", Hole("n", ":d"), " tries")


def values(template: tuple[Part, ...], text: str, *, may_be_cut: bool = False) -> tuple[str, ...] | None:
    found = fit(template, single_spaced(text), may_be_cut=may_be_cut)
    return None if found is None else found.values


def test_holes_hold_what_stands_between_the_literals() -> None:
    assert values(TEMPLATE, "cannot open '/a b/c' after 12 tries") == ("'/a b/c'", "12")


def test_another_text_does_not_fit() -> None:
    assert values(TEMPLATE, "cannot close '/a' after 12 tries") is None


def test_a_hole_of_a_number_holds_a_number() -> None:
    assert values(TEMPLATE, "cannot open 'x' after some tries") is None


def test_a_hole_of_a_repr_holds_no_half_quoted_text() -> None:
    assert (
        values((Hole("cls", "!r"), " has no attribute ", Hole("name", "!r")), "'str' object has no attribute 'x'")
        is None
    )


def test_a_value_that_the_code_never_has_is_marked() -> None:
    template = ("state is ", Hole("state", "", ("up", "down")))
    good, bad = fit(template, "state is up"), fit(template, "state is sideways")
    assert good is not None and bad is not None
    assert (good.is_off, bad.is_off) == (False, True)


def test_a_message_that_was_wrapped_fits() -> None:
    assert values(TEMPLATE, "cannot open\n    '/a'  after\t3 tries") == ("'/a'", "3")


@pytest.mark.parametrize("length", range(14, len("cannot open '/a b/c' after 12 tries")))
def test_a_message_that_was_cut_fits_as_far_as_it_goes(length: int) -> None:
    text = "cannot open '/a b/c' after 12 tries"[:length]
    found = fit(TEMPLATE, single_spaced(text), may_be_cut=True)
    assert found is not None
    assert found.num_literal <= found.num_all
    assert fit(TEMPLATE, single_spaced(text)) is None


def test_the_end_of_another_word_is_no_beginning_of_a_message() -> None:
    assert values(("n must be a positive integer",), "max_model_len must be a positive integer") is None
    assert values(("n must be a positive integer",), "failed: n must be a positive integer") == ()


def test_many_equal_literals_take_no_longer_than_the_text() -> None:
    template: tuple[Part, ...] = tuple(part for i in range(200) for part in (Hole(f"h{i}"), "a"))
    assert fit((*template, "b"), "a" * 20_000) is None


words = st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1, max_size=12)


@given(st.lists(st.tuples(words, st.booleans()), min_size=1, max_size=6), st.lists(words, min_size=6, max_size=6))
def test_what_is_made_from_a_template_fits_it_whole(parts: list[tuple[str, bool]], fillings: list[str]) -> None:
    template: list[Part] = []
    rendered = ""
    for (word, is_hole), filling in zip(parts, fillings, strict=False):
        template.append(Hole(word) if is_hole else word)
        rendered += filling if is_hole else word
    found = fit(tuple(template), single_spaced(rendered))
    assert found is not None
    assert found.is_whole


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("'no such key: \\'x\\'\\n'", "no such key: 'x'\n"),
        ("Expecting value: line 1 column 4 (char 3)", "Expecting value"),
        ("bad escape \\d at position 3", "bad escape \\d"),
        ("[Errno 2] no such thing: '/a/b'", "no such thing"),
        ("argument --count: invalid number", "invalid number"),
        ("<urlopen error timed out>", "timed out"),
        ("Value error, must be even [type=value_error, input_value=3, input_type=int]", "must be even"),
        ("Error: cannot start", "cannot start"),
        ("('year must be in 1..9999', 0)", "year must be in 1..9999"),
        ("Permission denied (os error 13)", "Permission denied"),
        ("prog: error: argument x: no such file", "no such file"),
        ("invalid syntax (a.py, line 3)", "invalid syntax"),
        ('no config: Os { code: 2, kind: NotFound, message: "x" }', "no config"),
    ],
)
def test_envelopes_are_taken_off(text: str, plain: str) -> None:
    assert plain in [variant.text for variant in variants_of(text, "KeyError")]


def test_the_text_itself_comes_first_and_envelopes_are_named() -> None:
    first, second, *_ = variants_of("'x'", "KeyError")
    assert (first.text, first.without) == ("'x'", "")
    assert (second.text, second.without) == ("x", "KeyError's quotes")
