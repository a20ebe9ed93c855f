"""Conditions in words keep their polarity."""

from __future__ import annotations

import pytest

from windtunnel.catalog.conditions import all_hold, literal_items, read


@pytest.mark.parametrize(
    ("condition", "holds", "words"),
    [
        ('state == "DONE"', True, '`state` is "DONE"'),
        ('state == "DONE"', False, '`state` is not "DONE"'),
        ('state != "PROC"', False, '`state` is "PROC"'),
        ("x is None", False, "`x` is not None"),
        ("x is not None", False, "`x` is None"),
        ("not self.entries", True, "`self.entries` is empty or not set"),
        ("not self.entries", False, "`self.entries` is set"),
        ("0 == n", True, "`n` is 0"),
        ("2 < parts.length", False, "`parts.length` is at most 2"),
        ("n > 3", False, "`n` is at most 3"),
        ("n >= limit", False, "`n` is less than `limit`"),
        ("n < 0 or n > 9", True, "either `n` is less than 0 or `n` is greater than 9"),
        ("n < 0 or n > 9", False, "`n` is at least 0 and `n` is at most 9"),
        ("a and not (b or c is None)", False, "either `a` is empty or not set or `b` is set or `c` is None"),
        ('mode not in ("a", "b")', True, '`mode` is neither "a" nor "b"'),
        ('mode in ("a", "b", "c")', False, '`mode` is none of "a", "b", "c"'),
        ('mode in ("a", "b", "c")', True, '`mode` is "a", "b" or "c"'),
        ("key in table", False, "`key` is not in `table`"),
        ("isinstance(x, (int, str))", False, "`x` is none of `int`, `str`"),
        ("isinstance(x, Foo)", True, "`x` is of type `Foo`"),
        ('hasattr(x, "y")', False, "`x` has no attribute `y`"),
        ("has_nixl()", False, "`has_nixl()` is false"),
        ("comm.disabled", True, "`comm.disabled` is true"),
        ('call("a and b") and c', True, '`call("a and b")` is true and `c` is set'),
        ("!ready && n >= 3", True, "`ready` is false and `n` is at least 3"),
        ("p == nullptr || p->size() == 0", False, "`p` is not nullptr and `p->size()` is not 0"),
        ("err != nil", True, "`err` is not nil"),
        ("a < b <= c", False, "`a < b <= c` does not hold"),
        ("x if y else z", True, "`x if y else z` holds"),
        ("lambda x: x > 3", False, "`lambda x: x > 3` does not hold"),
        ("(a, b) == c", True, "`(a, b)` is `c`"),
    ],
)
def test_a_condition_is_told_with_its_polarity(condition: str, holds: bool, words: str) -> None:
    assert read(condition, holds).words == words


@pytest.mark.parametrize(
    "condition",
    ["a and b", "a or not b", "x in (1, 2)", "x is None", "n <= 3", "not (a and (b or c))", "isinstance(a, B)", "f(x)"],
)
def test_what_does_not_hold_is_never_told_like_what_holds(condition: str) -> None:
    assert read(condition, True).words != read(condition, False).words
    assert read(f"not ({condition})", True).words == read(condition, False).words


def test_values_that_one_thing_is_not_are_told_together() -> None:
    conditions = [read('state == "DONE"', False), read("n > 1", True), read('state != "PROC"', True)]
    assert all_hold(conditions) == ['`state` is neither "DONE" nor "PROC"', "`n` is greater than 1"]


def test_only_literals_make_a_closed_set() -> None:
    assert literal_items('("a", "b, c", 3)') == ['"a"', '"b, c"', "3"]
    assert literal_items("(a, b)") == []
    assert literal_items("table") == []


@pytest.mark.parametrize("condition", ["", "(", "a ===", '"', "not", "and", "((((", "a if", "x in", "!"])
def test_code_that_makes_no_sense_is_quoted(condition: str) -> None:
    assert condition.strip("( !") in read(condition, True).words
