"""The catalog's commands, as a user calls them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.catalog.repositories import commit
from tests.catalog.trees import TRANSFERS, write_tree
from windtunnel.catalog.store import Store
from windtunnel.cli.main import main


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return write_tree(tmp_path / "tree", TRANSFERS)


@pytest.fixture
def store(tmp_path: Path, tree: Path) -> str:
    path = str(tmp_path / "catalog.sqlite")
    assert main(["catalog", "index", str(tree), "--project", "link", "--store", path]) == 0
    return path


def output(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().out


def test_a_tree_is_indexed_listed_searched_shown_and_removed(
    tree: Path, store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["catalog", "index", str(tree), "--project", "link", "--store", store]) == 0
    assert "link working tree: 2 errors in 4 files" in output(capsys)
    assert main(["catalog", "list", "--store", store]) == 0
    assert [line.split()[0] for line in output(capsys).splitlines()] == ["project", "link"]
    assert main(["catalog", "search", "transfer", "failed", "--store", store, "--json"]) == 0
    hit = json.loads(output(capsys))["hits"][0]
    assert hit["type"] == "TransferFailed"
    assert main(["catalog", "show", hit["id"][:8], "--store", store]) == 0
    shown = output(capsys)
    for words in (
        "what it means",
        "A peer's memory could not be read.",
        "engine/link.py:18",
        "neither",
        "worker.py:12",
    ):
        assert words in shown, words
    assert main(["catalog", "show", hit["id"], "--store", store, "--json"]) == 0
    record = json.loads(output(capsys))
    assert (record["schema"], record["id"], record["handled"]) == ("error-record/1", hit["id"], "some")
    assert main(["catalog", "remove", "link", "--store", store]) == 0
    assert "2 records" in output(capsys)


def test_a_message_is_explained_and_one_that_is_unknown_exits_with_1(
    store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    output(capsys)
    assert main(["explain", "transfer from rank 3 failed with state=ERR", "--store", store]) == 0
    said = output(capsys)
    assert "TransferFailed" in said and "rank 3" in said and "ERR" in said
    assert main(["explain", "division by zero", "--store", store]) == 1
    assert "link" in output(capsys)


def test_a_store_that_is_not_there_exits_with_2(tmp_path: Path) -> None:
    assert main(["explain", "x", "--store", str(tmp_path / "none")]) == 2


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("catalog show zzzzzzzz --store {store}", "has no record"),
        ("catalog show abc --store {store}", "the first 6 of its 16 digits"),
        ("catalog index {store} --store {store}", "could not be opened successfully\n"),
        ("catalog list --store /tmp", "it is a folder"),
        ("catalog index . --store /tmp", "it is a folder"),
        ("catalog search x --project lnk --store {store}", "did you mean link"),
        ("catalog index /no/such/place --store {store}", "no such folder"),
    ],
)
def test_what_makes_no_sense_is_one_error_that_names_it(
    store: str, line: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main(line.format(store=store).split()) == 2
    assert message in capsys.readouterr().err


def test_windtunnel_s_own_errors_are_explained_without_being_asked_for(tmp_path: Path) -> None:
    environ = {**os.environ, "XDG_DATA_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "windtunnel", "explain", "WT-HTTP-CONNECT"]
    first = subprocess.run(command, capture_output=True, text=True, env=environ, check=False)
    assert first.returncode == 0, first.stderr
    assert "No connection to the server" in first.stdout


def dated(tmp_path: Path, tree: Path) -> tuple[str, str]:
    """A store of a tree that git has the history of, and the id of one of its records."""
    commit(tree, {"notes.md": "before all else"}, "v1")
    path = str(tmp_path / "dated.sqlite")
    assert main(["catalog", "index", str(tree), "--store", path]) == 0
    with Store.open(Path(path)) as opened:
        return path, opened.search("transfer failed")[0].id


def test_since_when_is_told_of_each_place_where_it_is_asked_for(
    tmp_path: Path, tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, key = dated(tmp_path, tree)
    output(capsys)
    assert main(["catalog", "show", key, "--store", path]) == 0
    assert "since" not in output(capsys)
    assert main(["catalog", "show", key, "--since", "--store", path]) == 0
    shown = capsys.readouterr()
    assert "    since v1\n" in shown.out and shown.err == ""
    assert main(["catalog", "show", key, "--since", "--json", "--store", path]) == 0
    assert [site["since"] for site in json.loads(output(capsys))["sites"]] == ["v1"]


def test_a_source_that_went_on_dates_what_it_has_now(
    tmp_path: Path, tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, key = dated(tmp_path, tree)
    now = commit(tree, {"notes.md": "after all else"}, "v2")
    output(capsys)
    assert main(["catalog", "show", key, "--since", "--store", path]) == 0
    shown = capsys.readouterr()
    assert "since v1" in shown.out and f"is told of {now[:12]}" in shown.err


@pytest.mark.parametrize(
    ("change", "note"),
    [
        (lambda tree: tree.rename(tree.with_name("elsewhere")), "there is no such folder"),
        (lambda tree: (tree / ".git").rename(tree / "git"), "git has no history of"),
        (lambda tree: (tree / "engine/link.py").rename(tree / "engine/wires.py") and commit(tree, {}), "of 1 place"),
    ],
    ids=["source gone", "no repository", "file gone"],
)
def test_what_git_can_not_date_is_shown_with_a_note(
    tmp_path: Path, tree: Path, change: Callable[[Path], object], note: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path, key = dated(tmp_path, tree)
    change(tree)
    output(capsys)
    assert main(["catalog", "show", key, "--since", "--store", path]) == 0
    shown = capsys.readouterr()
    assert "where it is raised" in shown.out and "    since" not in shown.out
    assert note in shown.err


@pytest.mark.parametrize("command", ["explain", "catalog index", "catalog show"])
def test_help_imports_nothing_heavy(command: str) -> None:
    code = (
        f"import sys; from windtunnel.cli.main import main; main({[*command.split(), '--help']!r}); "
        "print(*sorted({'numpy', 'tree_sitter', 'starlette', 'jinja2', 'ahocorasick_rs'} & sys.modules.keys()), "
        "file=sys.stderr)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.stderr.strip() == ""
