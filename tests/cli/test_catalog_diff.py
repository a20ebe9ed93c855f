"""`windtunnel catalog diff`, as a user calls it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.catalog.repositories import commit
from tests.catalog.trees import TRANSFERS, write_tree

from windtunnel.cli.main import main

LATER = {
    **TRANSFERS,
    "engine/link.py": TRANSFERS["engine/link.py"].replace('!= "PROC"', '== "ERR"')
    + "\n\ndef more():\n    raise KeyError('fresh')\n",
    "engine/worker.py": TRANSFERS["engine/worker.py"].replace("worker failed:", "the worker failed:"),
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return write_tree(tmp_path / "link", TRANSFERS)


@pytest.fixture
def store(tmp_path: Path, tree: Path) -> str:
    path = str(tmp_path / "catalog.sqlite")
    assert main(["catalog", "index", str(tree), "--store", path]) == 0
    return path


def test_a_project_of_the_catalog_is_compared_with_a_folder_as_it_is_now(
    tree: Path, store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write_tree(tree, LATER)
    capsys.readouterr()
    assert main(["catalog", "diff", "link", str(tree), "--store", store]) == 1
    said = capsys.readouterr().out
    assert said.splitlines()[0] == "# Errors from link (working tree) to link (working tree)"
    assert said.splitlines()[2] == "1 new, 1 reworded, 1 under other conditions."
    for words in ("`KeyError: fresh`", "## Reworded", "the worker failed", '  - now: `state == "ERR"`'):
        assert words in said, words
    assert main(["catalog", "diff", "link", str(tree), "--store", store, "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert [len(found[key]) for key in ("added", "removed", "reworded", "guards")] == [1, 0, 1, 1]
    main(["catalog", "index", str(tree), "--store", str(tree / "other")])
    capsys.readouterr()
    main(["catalog", "search", "fresh", "--store", str(tree / "other"), "--json"])
    assert json.loads(capsys.readouterr().out)["hits"][0]["id"] == found["added"][0]["id"]


def test_what_is_the_same_exits_with_0_and_what_is_not_with_1(
    tree: Path, store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main(["catalog", "diff", "link", "link@working tree", "--store", store]) == 0
    assert "No difference." in capsys.readouterr().out


def test_two_commits_are_compared_without_a_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "engine"
    commit(folder, TRANSFERS, "v1.0")
    head = commit(folder, LATER)
    none = ["--store", str(tmp_path / "none")]
    assert main(["catalog", "diff", f"{folder}@v1.0", str(folder), *none]) == 1
    assert capsys.readouterr().out.startswith(
        f"# Errors from engine v1.0 to engine (working tree at {head[:12]})\n\n1 new, "
    )
    assert main(["catalog", "diff", f"{folder}@main", str(folder), *none]) == 0
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("sides", "message"),
    [
        ("one", "Name two"),
        ("link lnk", "did you mean link"),
        ("link link@2.0", "has no version"),
        ("link /no/such/place", "no such folder"),
        ("link {tmp}/empty", "no source files"),
        ("link https://example.com/engine", "nothing is fetched"),
    ],
)
def test_what_makes_no_sense_is_one_error_that_names_it(
    tmp_path: Path, store: str, sides: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    capsys.readouterr()
    assert main(["catalog", "diff", *sides.format(tmp=tmp_path).split(), "--store", store]) == 2
    assert message in capsys.readouterr().err
