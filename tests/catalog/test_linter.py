"""Faults in how errors are told, and what is none."""

from __future__ import annotations

from pathlib import Path

import pytest

import windtunnel
from tests.catalog.trees import records_of
from windtunnel.catalog.linter import Finding, findings, github_annotations, text


def found_in(files: dict[str, str], *ignored: str) -> list[tuple[str, int, str]]:
    return [(f.path, f.line, f.rule) for f in findings(records_of(files), ignored)]


def rules_of(statement: str, name: str = "a.py", head: str = "def f(x, e):") -> list[str]:
    return [rule for _, _, rule in found_in({name: f"{head}\n    {statement}\n"})]


@pytest.mark.parametrize(
    ("statement", "rule"),
    [
        ("raise ValueError", "no-message"),
        ("raise ValueError()", "no-message"),
        ("raise LookupFailed()", "no-message"),
        ("assert x > 1", "assert-without-message"),
        ("assert x.is_ready", "assert-without-message"),
        ("raise ValueError('no')", "short-message"),
        ("assert x, 'NYI'", "short-message"),
        ("raise Exception('something went wrong here')", "too-broad-type"),
    ],
)
def test_a_fault_is_found(statement: str, rule: str) -> None:
    assert rules_of(statement) == [rule]


@pytest.mark.parametrize(
    "statement",
    [
        "raise NotImplementedError",
        "raise StopIteration",
        "raise PreventUpdate",
        "raise asyncio.CancelledError",
        "raise TransferError() from e",
        "raise error_of(x)",
        "raise ValueError(*x)",
        "assert x is not None",
        "assert x.a is not None and e is not None",
        "assert isinstance(x, int)",
        "assert x, 'all is well'",
        "raise ValueError('x is 3')  # windtunnel: ignore[short-message]",
        "raise ValueError(f'no {x}')",
    ],
)
def test_what_needs_no_more_words_is_let_be(statement: str) -> None:
    assert rules_of(statement) == []


def test_a_message_that_is_nothing_but_a_value_is_a_fault() -> None:
    code = 'use anyhow::bail;\nfn f(e: String) -> anyhow::Result<()> {\n    bail!("{e}")\n}\n'
    assert found_in({"a.rs": code}) == [("a.rs", 3, "only-values")]


def test_an_assert_that_shows_its_condition_by_itself_is_no_fault() -> None:
    assert found_in({"a.rs": "fn f(x: u8) {\n    assert!(x > 1);\n}\n"}) == []
    assert found_in({"a.cc": "void f(int x) {\n  assert(x > 1);\n}\n"}) == []


LOGGED = """
import logging
logger = logging.getLogger(__name__)

def f(path):
    try:
        open(path)
    except {caught}:
        {statement}
"""


@pytest.mark.parametrize(
    ("caught", "statement", "rules"),
    [
        ("Exception", 'logger.error("the list could not be read")', ["cause-not-told"]),
        ("Exception as e", 'logger.error("the list could not be read: %s", e)', []),
        ("Exception", 'logger.error("the list could not be read", exc_info=True)', []),
        ("Exception", 'logger.exception("the list could not be read")', []),
        ("Exception as e", 'logger.error("the list could not be read: {}", e)', []),
        ("Exception", "logger.error(path)", []),
        ("FileNotFoundError", 'logger.error("there is no such list")', []),
        ("Exception", 'logger.warning("the list could not be read")', []),
    ],
)
def test_what_is_logged_in_place_of_any_error_has_to_tell_it(caught: str, statement: str, rules: list[str]) -> None:
    assert [rule for _, _, rule in found_in({"a.py": LOGGED.format(caught=caught, statement=statement)})] == rules


SAME = "def {}(x):\n    raise {}(f'the queue of {{x}} is full')\n"


def test_one_text_of_two_types_is_a_finding_and_of_one_type_a_hint() -> None:
    one = {"a.py": SAME.format("f", "ValueError"), "b.py": SAME.format("g", "ValueError")}
    (hint,) = findings(records_of(one))
    assert (hint.rule, hint.level, hint.path, hint.line) == ("duplicate-message", "hint", "a.py", 2)
    assert hint.message == "`the queue of {x} is full` is also said in b.py:2"
    (finding,) = findings(records_of({**one, "c.py": SAME.format("h", "TypeError")}))
    assert (finding.rule, finding.level) == ("same-text-other-type", "finding")
    assert finding.message == "ValueError says `the queue of {x} is full`, as TypeError in c.py:2, ValueError in b.py:2"


def test_a_text_that_is_anybody_s_and_a_type_that_ends_a_task_are_let_be() -> None:
    short = "def {}(x):\n    raise {}(f'{{x}} not found')\n"
    assert found_in({"a.py": short.format("f", "ValueError"), "b.py": short.format("g", "TypeError")}) == []
    assert found_in({"a.py": SAME.format("f", "ValueError"), "b.py": SAME.format("g", "asyncio.CancelledError")}) == [
        ("a.py", 2, "duplicate-message")
    ]


def test_branches_of_one_function_may_share_a_text() -> None:
    full = "raise ValueError('the queue is full')\n"
    code = f"def f(x):\n    if x:\n        {full}    {full}"
    assert found_in({"a.py": code}) == []


def test_a_text_that_an_error_class_has_once_is_no_duplicate() -> None:
    code = (
        "class Full(Exception):\n    def __init__(self, x):\n        super().__init__(f'the queue of {x} is full')\n\n"
        "def f():\n    raise Full(1)\n\ndef g():\n    raise Full(2)\n"
    )
    assert len(records_of({"a.py": code})[0].sites) == 2
    assert found_in({"a.py": code}) == []


def test_a_comment_takes_its_statement_out_of_what_is_shared() -> None:
    quiet = SAME.format("g", "TypeError").rstrip() + "  # windtunnel: ignore[same-text-other-type, duplicate-message]\n"
    assert found_in({"a.py": SAME.format("f", "ValueError"), "b.py": quiet}) == []


def test_a_rule_that_is_ignored_finds_nothing_and_leaves_the_others() -> None:
    files = {
        "a.py": SAME.format("f", "ValueError"),
        "b.py": SAME.format("g", "TypeError"),
        "c.py": "def f():\n    raise ValueError\n",
    }
    assert [rule for _, _, rule in found_in(files)] == ["same-text-other-type", "no-message"]
    ignored = [rule for _, _, rule in found_in(files, "same-text-other-type", "no-message")]
    assert ignored == ["duplicate-message"]


def test_what_a_finding_is_known_by_does_not_depend_on_other_files_or_lines() -> None:
    before = {"a.py": SAME.format("f", "ValueError"), "b.py": SAME.format("g", "ValueError") + "\nassert f(1) > 1\n"}
    after = {name: f"import os\n\n{code}" for name, code in before.items()}
    after["c.py"] = SAME.format("h", "ValueError")
    one, other = (sorted(f.known_by for f in findings(records_of(files))) for files in (before, after))
    assert one == other and len(one) == 2


def test_annotations_escape_what_a_workflow_would_read_otherwise() -> None:
    found = Finding("no-message", "finding", "odd,name: a.py", 3, "100 %\nwrong", "")
    assert github_annotations([found]) == (
        "::warning file=odd%2Cname%3A a.py,line=3,title=no-message::100 %25%0Awrong\n"
    )
    assert text([found]).startswith("odd,name: a.py:3: no-message: ")


def test_windtunnel_itself_raises_nothing_without_words() -> None:
    folder = Path(windtunnel.__file__).parent
    files = {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*.py")}
    found = {finding.rule for finding in findings(records_of(files))}
    assert found and not found & {"no-message", "only-values", "cause-not-told", "too-broad-type"}
