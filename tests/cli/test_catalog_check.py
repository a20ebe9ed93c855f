"""`windtunnel catalog check`, as a project's continuous integration calls it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.catalog.trees import write_tree

from windtunnel.cli.main import main

FAULTY = """
def f(x):
    if x:
        raise ValueError
    assert x, "all is well here"
    assert x > 1

def g():
    raise RuntimeError("the very same words")

def h():
    raise TypeError("the very same words")

def i():
    raise ValueError("no")
"""
HINTED = "def f():\n    raise ValueError('the queue is full')\n\ndef g():\n    raise ValueError('the queue is full')\n"


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    write_tree(tmp_path / "faulty", {"a.py": FAULTY})
    monkeypatch.chdir(tmp_path)
    return ["catalog", "check", "faulty", "--store", "none"]


def test_each_fault_is_a_line_with_its_place_and_rule(check: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(check) == 1
    said = capsys.readouterr()
    assert [line.split(": ")[:2] for line in said.out.splitlines()] == [
        ["faulty/a.py:4", "no-message"],
        ["faulty/a.py:6", "assert-without-message"],
        ["faulty/a.py:9", "same-text-other-type"],
        ["faulty/a.py:15", "short-message"],
    ]
    assert "1 no-message" in said.err


def test_faults_are_told_as_json_and_as_annotations(check: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*check, "--ignore", "no-message,short-message", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert (document["schema"], document["known"], len(document["findings"])) == ("findings/1", 0, 2)
    assert document["findings"][0] == {
        "rule": "assert-without-message", "level": "finding", "path": "faulty/a.py", "line": 6,
        "message": "says only `x > 1`", "known_by": "assert-without-message a.py says only `x > 1`",
    }  # fmt: skip
    assert main([*check, "--github"]) == 1
    assert capsys.readouterr().out.startswith("::warning file=faulty/a.py,line=4,title=no-message::")


def test_a_hint_is_shown_and_fails_only_where_it_is_asked_to(
    check: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "faulty/a.py").write_text(HINTED)
    assert main(check) == 0
    expected = "faulty/a.py:2: duplicate-message (hint): `the queue is full` is also said in line 5\n"
    assert capsys.readouterr().out == expected
    assert main([*check, "--github"]) == 0
    assert capsys.readouterr().out.startswith("::notice ")
    assert main([*check, "--strict"]) == 1


def test_files_that_are_excluded_are_not_asked_about(
    check: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_tree(tmp_path / "faulty", {"a.py": HINTED, "vendor/deep/b.py": FAULTY})
    assert main([*check, "--strict"]) == 1
    assert main([*check, "--exclude", "vendor/*"]) == 0
    assert main([*check, "--strict", "--exclude", "vendor/*", "a.py"]) == 0


def test_with_a_baseline_only_what_is_new_fails(
    check: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    baseline = [*check, "--baseline", "known.json"]
    assert main([*baseline, "--update"]) == 0
    assert main(baseline) == 0
    assert "4 known before" in capsys.readouterr().err
    moved = "import os\n\n" + FAULTY + "\ndef j():\n    raise TypeError('the very same words')\n"
    (tmp_path / "faulty/a.py").write_text(moved)
    assert main(baseline) == 0
    (tmp_path / "faulty/b.py").write_text("def f():\n    raise ValueError\n")
    capsys.readouterr()
    assert main(baseline) == 1
    assert capsys.readouterr().out == "faulty/b.py:2: no-message: ValueError has no message\n"


def test_a_second_fault_like_a_known_one_is_new(
    check: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    baseline = [*check, "--baseline", "known.json"]
    assert main([*baseline, "--update"]) == 0
    (tmp_path / "faulty/a.py").write_text(FAULTY + "\ndef j(x):\n    assert x > 1\n")
    capsys.readouterr()
    assert main(baseline) == 1
    assert capsys.readouterr().out == "faulty/a.py:18: assert-without-message: says only `x > 1`\n"


def test_a_project_of_the_catalog_can_be_checked_too(check: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["catalog", "index", "faulty", "--store", "catalog.sqlite"]) == 0
    capsys.readouterr()
    assert main(["catalog", "check", "faulty", "--store", "catalog.sqlite"]) == 1
    assert len(capsys.readouterr().out.splitlines()) == 4


def test_a_file_that_can_not_be_parsed_is_named(
    check: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "faulty/broken.py").write_text("def f(:\n")
    main(check)
    assert "broken.py: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "code", "message"),
    [
        ("--ignore no-mesage", 2, "did you mean no-message"),
        ("--update", 2, "no baseline"),
        ("--baseline none.json", None, "--update makes it"),
        ("--baseline faulty/a.py", None, "it is no baseline"),
        ("--baseline other.json", None, "its schema is x"),
        ("--baseline faulty --update", None, "can't write"),
    ],
)
def test_what_makes_no_sense_is_one_error_that_names_it(
    check: list[str], tmp_path: Path, flags: str, code: int | None, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "other.json").write_text('{"schema": "x", "known": {}}')
    given = main([*check, *flags.split()])
    assert given == code if code else given != 0
    assert message in capsys.readouterr().err
