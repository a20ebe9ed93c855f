"""Python: the conditions on the way to an error, what it is made from, and what stands beside it."""

from __future__ import annotations

import pytest

from tests.catalog.extract.reading import guards, only, sites

TRANSFERS = """
def wait(self, pending):
    while pending:
        still = []
        for handle in pending:
            state = self.state_of(handle)
            if state == "DONE":
                self.release(handle)
                continue
            if state != "PROC":
                raise RuntimeError(f"transfer failed with state={state}")
            still.append(handle)
        pending = still
"""


def test_guards_come_from_the_outside_in_and_early_exits_are_negated() -> None:
    site = only("a.py", TRANSFERS)
    assert guards(site) == [
        ("while", True, "while pending"),
        ("for", True, "for handle in pending"),
        ("early exit", False, 'state == "DONE"'),
        ("if", True, 'state != "PROC"'),
    ]
    assert [(line.number, line.text.strip()) for line in site.excerpt] == [
        (3, "while pending:"),
        (5, "for handle in pending:"),
        (7, 'if state == "DONE":'),
        (10, 'if state != "PROC":'),
        (11, 'raise RuntimeError(f"transfer failed with state={state}")'),
    ]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("if a:\n  g()\n elif (b or\n   c): g()\n else:\n  raise E", [("if", False, "a"), ("if", False, "b or c")]),
        ("if a:\n  g()\n elif b:\n  raise E", [("if", False, "a"), ("if", True, "b")]),
        ("if a: return\n raise E", [("early exit", False, "a")]),
        ("if a:\n  g()\n else:\n  return\n raise E", [("early exit", True, "a")]),
        ("if a:\n  return\n elif b:\n  sys.exit()\n raise E", [("early exit", False, "a"), ("early exit", False, "b")]),
        ("if a:\n  g()\n elif b:\n  return\n raise E", []),
        ("if a:\n  g()\n raise E", []),
        ("if a:\n  return\n a = g()\n raise E", []),
        ("if self.a.b:\n  return\n self.a = g()\n raise E", []),
        ("if a:\n  return\n g(a=1, b=[a for b in c])\n raise E", [("early exit", False, "a")]),
        ("with lock:\n  if a:\n   raise E", [("if", True, "a")]),
        ("while a:\n  g()\n raise E", [("while", False, "while a")]),
        ("while a:\n  if b: break\n raise E", []),
        ("while a:\n  g()\n else:\n  raise E", [("while", False, "while a")]),
        ("for a in b:\n  if c: continue\n  raise E", [("for", True, "for a in b"), ("early exit", False, "c")]),
        ("try:\n  g()\n except (A, m.B) as e:\n  raise E from None", [("except", True, "A, m.B")]),
        ("try:\n  g()\n except:\n  raise E from None", [("except", True, "BaseException")]),
        ("try:\n  g()\n except A:\n  pass\n else:\n  raise E", [("try else", False, "A")]),
        ("try:\n  raise E\n finally:\n  g()", []),
        ("match a:\n  case 1:\n   g()\n  case _:\n   raise E", [("case", False, "match a: case 1")]),
        ("match a:\n  case [x] if x:\n   raise E", [("case", True, "match a: case [x] if x")]),
        ("if a:\n  def h():\n   if b:\n    raise E", [("if", True, "b")]),
    ],
)  # fmt: skip
def test_each_way_to_an_error_has_its_conditions_with_their_polarity(
    body: str, expected: list[tuple[str, bool, str]]
) -> None:
    assert guards(only("a.py", f"def f(self, a, b, c):\n {body}\n", template=False)) == expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ('x if a else sys.exit("no")', [("if", False, "a")]),
        ('a and (b or sys.exit("no"))', [("if", True, "a"), ("if", False, "b")]),
    ],
)
def test_conditions_within_an_expression_count_too(expression: str, expected: list[tuple[str, bool, str]]) -> None:
    assert guards(only("a.py", f"y = {expression}\n")) == expected


def test_an_excerpt_shows_nothing_of_what_stands_beside_a_guard() -> None:
    code = 'if a == 1: raise ValueError("other")\nelif a == 2: g("other")\nelse:\n  raise ValueError("mine")\n'
    first, second = sites("a.py", code)
    assert [line.text.strip() for line in first.excerpt] == ['if a == 1: raise ValueError("other")']
    assert [line.text.strip() for line in second.excerpt] == [
        "if a == 1:", "elif a == 2:", "else:", 'raise ValueError("mine")',
    ]  # fmt: skip


def test_what_an_error_is_made_from_is_told_with_how() -> None:
    within = "def f():\n try:\n  g()\n except (A, B) as e:\n  if a:\n   raise E('x'){}\n"
    explicit = only("a.py", within.format(" from e")).cause
    assert explicit is not None
    assert (explicit.types, explicit.how, explicit.expression, explicit.line) == (("A", "B"), "from e", "e", 6)
    implicit = only("a.py", within.format("")).cause
    assert implicit is not None
    assert (implicit.types, implicit.how, implicit.line) == (("A", "B"), "during handling", 4)
    assert only("a.py", within.format(" from None")).cause is None
    assert only("a.py", "raise E('x')").cause is None


@pytest.mark.parametrize(
    ("code", "comment"),
    [
        ("# Two lines\n# of it.\nraise E('x')", "Two lines of it."),
        ("raise E('x')  # behind", "behind"),
        ("raise E('x')  # noqa: EM101", None),
        ("# TODO: better\nraise E('x')", None),
        ("# far above\n\nraise E('x')", None),
    ],
)
def test_the_comment_of_a_statement_is_kept(code: str, comment: str | None) -> None:
    found = only("a.py", code).comment
    assert (None if found is None else found.text) == comment
