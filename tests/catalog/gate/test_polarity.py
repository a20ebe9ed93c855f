"""What a sentence says of a condition: the same, the opposite, or nothing that can be told."""

from __future__ import annotations

import pytest

from windtunnel.catalog.gate.polarity import judge
from windtunnel.catalog.record import Guard


def said(text: str, condition: str, holds: bool = True, kind: str = "if", **assigned: str) -> str:
    return judge(text, Guard(condition, holds, kind, 1, 1), lambda name: assigned.get(name, ""))


@pytest.mark.parametrize(
    ("text", "opposite", "condition", "holds"),
    [
        ("`x` is None.", "`x` is not None.", "x is None", True),
        ("No `x` was given: it is None.", "`x` is given.", "x is None", True),
        ("`a.shape[1]` differs from `b.shape[1]`.", "`a.shape[1]` equals `b.shape[1]`.",
         "a.shape[1] != b.shape[1]", True),
        ("`n` exceeds `LIMIT`.", "`n` is at most `LIMIT`.", "n > LIMIT", True),
        ("`n` is below `LIMIT`.", "`n` is at least `LIMIT`.", "n >= LIMIT", False),
        ("The length of `names` is not 1.", "The length of `names` is 1.", "len(names) != 1", True),
        ("The set of `names` does not have exactly one element.", "The set of `names` has exactly one element.",
         "len(names) == 1", False),
        ("`x % 2` is not 0.", "`x % 2` is 0.", "x % 2", True),
        ("`size` is not divisible by `BLOCK`.", "`size` is divisible by `BLOCK`.", "size % BLOCK != 0", True),
        ("`kind` is neither `A.ONE` nor `A.TWO`.", "`kind` is either `A.ONE` or `A.TWO`.",
         "kind not in (A.ONE, A.TWO)", True),
        ('`kind` is none of "a", "b" and "c".', '`kind` is one of "a", "b" and "c".', "kind in ('a', 'b', 'c')", False),
        ("Neither `width` nor `height` is 0.", "Either `width` or `height` is 0.", "width == 0 or height == 0", False),
        ("`role` is not None and not in `ROLES`.", "`role` is None and not in `ROLES`.",
         "role is not None and role not in ROLES", True),
        ("`ratio` is greater than 1 and neither 4 nor 128.", "`ratio` is at most 1 and neither 4 nor 128.",
         "ratio <= 1", False),
        ("`self.a` or `self.b` is None.", "`self.a` or `self.b` is not None.",
         "self.a is not None and self.b is not None", False),
        ("`a` and `b` are both None.", "`a` and `b` are both given.", "a is None and b is None", True),
        ("`handler` has no attribute `close`.", "`handler` has the attribute `close`.",
         "hasattr(handler, 'close')", False),
        ("`cache` is a text, that is an instance of `str`.", "`cache` is no text, that is not an instance of `str`.",
         "isinstance(cache, str)", True),
        ("`blocks` is less than 0 or greater than 8.", "`blocks` is at least 0 or at most 8.",
         "0 <= blocks <= 8", False),
        ("`args[0].shape[0]` is greater than 8.", "`args[0].shape[0]` is at most 8.",
         "cutlass.const_expr(args[0].shape[0] > 8)", True),
        ('`"name"` is in `body`.', '`"name"` is not in `body`.', '"name" in body', True),
    ],
)  # fmt: skip
def test_the_same_agrees_and_the_opposite_disagrees(text: str, opposite: str, condition: str, holds: bool) -> None:
    assert said(text, condition, holds) == "agrees"
    assert said(opposite, condition, holds) == "disagrees"


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("The other one, `y`, is None.", "x is None"),
        ("`x` is 3.", "x != 4"),
        ('`choice` is "required".', 'choice not in ("auto", "none")'),
        ("`dim` is greater than `head_size`.", "dim <= 0"),
        ("`names` has more than one entry.", "len(names) == 1"),
        ("Something is wrong with `x`.", "x is None"),
    ],
)
def test_what_is_of_another_part_is_silent(text: str, condition: str) -> None:
    assert said(text, condition) == "silent"


def test_a_variable_goes_by_what_it_was_assigned_from() -> None:
    assert said("`find(request)` gives None.", "handler is None", handler="find(request)") == "agrees"
    assert said("`find(request)` gives a handler.", "handler is None", handler="find(request)") == "disagrees"
    assert said("Any of `a` or `b` is set.", "any(given)", given="[a, b]") == "agrees"


def test_a_caught_error_is_named_and_raised() -> None:
    assert said("`import mcp` raises `ImportError`.", "ImportError", kind="except") == "agrees"
    assert said("`import mcp` does not raise `ImportError`.", "ImportError", kind="except") == "disagrees"
    assert said("The package is missing.", "ImportError", kind="except") == "silent"


def test_a_condition_that_is_quoted_whole_is_read_whole() -> None:
    assert said("`0 <= rank < size` does not hold.", "0 <= rank < size", holds=False) == "agrees"
    assert said("`0 <= rank < size` holds.", "0 <= rank < size", holds=False) == "disagrees"
