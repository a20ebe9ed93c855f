"""The runs folder: found, listed, removed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.loadgen.test_journal import END, HEADER
from windtunnel import errors
from windtunnel.loadgen import runs
from windtunnel.loadgen.journal import FILE_NAME, EndLine, JournalWriter, encode_line


def make(folder: Path, name: str, *, finished: bool) -> Path:
    path = runs.make_run_folder(folder, name)
    journal = JournalWriter(path / FILE_NAME)
    journal.write(encode_line(HEADER))
    if finished:
        journal.write(encode_line(EndLine(END)))
    journal.close()
    return path


def test_runs_are_listed_oldest_first_with_whether_they_finished(tmp_path: Path) -> None:
    make(tmp_path, "20260102-000000-aaaa", finished=False)
    make(tmp_path, "20260101-000000-bbbb", finished=True)
    assert [(run.run_id[:8], run.state) for run in runs.list_runs(tmp_path)] == [
        ("20260101", "finished"),
        ("20260102", "unfinished"),
    ]


def test_a_folder_that_is_not_there_has_no_runs(tmp_path: Path) -> None:
    assert runs.list_runs(tmp_path / "none") == []


def test_a_broken_journal_is_listed_with_its_problem(tmp_path: Path) -> None:
    (runs.make_run_folder(tmp_path, "x") / FILE_NAME).write_text("hello\n")
    (run,) = runs.list_runs(tmp_path)
    assert run.header is None
    assert run.problem is not None


def test_without_a_name_the_newest_is_meant_and_for_recovery_the_newest_unfinished(tmp_path: Path) -> None:
    make(tmp_path, "1", finished=False)
    make(tmp_path, "2", finished=True)
    assert runs.find_run(tmp_path, None).run_id == "2"
    assert runs.find_run(tmp_path, None, unfinished=True).run_id == "1"


def test_a_run_is_found_by_the_beginning_of_its_name_or_by_its_path(tmp_path: Path) -> None:
    path = make(tmp_path, "20260101-000000-bbbb", finished=True)
    for name in ("20260101", str(path), str(path / FILE_NAME)):
        assert runs.find_run(tmp_path, name).path == path


def test_an_ambiguous_or_unknown_name_is_refused_with_what_is_near(tmp_path: Path) -> None:
    make(tmp_path, "20260101-a", finished=True)
    make(tmp_path, "20260101-b", finished=True)
    with pytest.raises(errors.RunNotFound, match="2 begin so"):
        runs.find_run(tmp_path, "20260101")
    with pytest.raises(errors.RunNotFound, match="did you mean 20260101-"):
        runs.find_run(tmp_path, "20260101_a")
    with pytest.raises(errors.RunNotFound):
        runs.find_run(tmp_path / "none", None)


def test_a_removed_run_is_gone(tmp_path: Path) -> None:
    make(tmp_path, "a", finished=True)
    runs.remove_run(runs.find_run(tmp_path, "a"))
    assert runs.list_runs(tmp_path) == []


def test_the_default_folder_follows_the_rule_for_state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert runs.default_folder() == tmp_path / "windtunnel" / "runs"
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert runs.default_folder() == tmp_path / ".local" / "state" / "windtunnel" / "runs"


def test_a_run_that_goes_on_is_told_as_such_and_cannot_be_removed(tmp_path: Path) -> None:
    path = make(tmp_path, "a", finished=False)
    journal = JournalWriter(path / FILE_NAME)
    journal.lock()
    with pytest.raises(errors.RunGoesOn):
        runs.refuse_running(runs.find_run(tmp_path, "a"))
    with pytest.raises(errors.RunNotFound):
        runs.find_run(tmp_path, None, unfinished=True)
    journal.close()
    assert runs.find_run(tmp_path, "a").state == "unfinished"
