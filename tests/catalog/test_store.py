"""The store: many projects and versions in one file, which is refused where it is none, and never half written."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.catalog.trees import TRANSFERS, write_tree
from windtunnel.catalog.indexing import Indexed, index
from windtunnel.catalog.record import Citation, Claim, Prose
from windtunnel.catalog.source import open_source
from windtunnel.catalog.store import Store
from windtunnel.catalog.store_schema import APPLICATION_ID, MIGRATIONS, VERSION
from windtunnel.errors import CatalogSourceError, NotInCatalog, StoreMissing, StoreUnusable


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return write_tree(tmp_path / "tree", TRANSFERS)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "made" / "catalog.sqlite"


def indexed(tree: Path, path: Path, project: str = "tree") -> Indexed:
    with Store.open(path, write=True) as store:
        return index(open_source(str(tree)), store, project=project)


def failed(store: Store) -> str:
    (hit,) = [hit for hit in store.search("transfer failed with state", project="tree") if "state=" in hit.text]
    return hit.id


def test_what_is_indexed_is_there(tree: Path, path: Path) -> None:
    done = indexed(tree, path)
    assert (done.num_added, done.num_read, done.num_changed) == (2, 4, 0)
    with Store.open(path) as store:
        (project,) = store.projects()
        assert (project.name, project.num_records, project.num_files, project.languages) == (
            "tree",
            2,
            4,
            {"python": 2},
        )
        record = store.record(failed(store))
        assert store.record(record.id[:8]) == record
        assert {each.id for each in store.records("tree")} == {each.id for each in store.matchables()}
        assert [each.id for each in store.by_place("link.py", "Link.wait")] == [record.id]
        assert [each.id for each in store.by_words({"transfer", "zzz"})] == [record.id]
        assert store.search("TransferFailed")[0].id == record.id == store.search(record.id)[0].id
        assert store.search("engine/link.py")[0].id == record.id


def test_a_second_run_reads_and_writes_only_what_has_changed(tree: Path, path: Path) -> None:
    indexed(tree, path)
    again = indexed(tree, path)
    assert (again.num_read, again.num_added, again.num_changed, again.num_removed) == (0, 0, 0, 0)
    os.utime(tree / "engine/link.py")  # touched, the content is the same
    assert indexed(tree, path).num_read == 0
    (tree / "engine/other.py").write_text("raise KeyError('fresh one')\n")
    fresh = indexed(tree, path)
    assert (fresh.num_read, fresh.num_added, fresh.num_changed) == (1, 1, 0)
    (tree / "engine/worker.py").unlink()
    gone = indexed(tree, path)
    assert (gone.num_removed, gone.num_changed) == (1, 1)  # the log is gone, and what it caught has changed


def test_a_reworded_message_keeps_its_old_id_as_an_alias(tree: Path, path: Path) -> None:
    indexed(tree, path)
    with Store.open(path) as store:
        first = failed(store)
    for text in ("transfer from {peer} failed in state={state}", "transfer of {peer} failed in state={state}!"):
        code = TRANSFERS["engine/errors.py"].replace("transfer from {peer} failed with state={state}", text)
        (tree / "engine/errors.py").write_text(code)
        assert indexed(tree, path).num_aliases == 1
    with Store.open(path) as store:
        record = store.record(first)
        assert record.text.startswith("transfer of") and record.id != first
        assert store.record(first[:8]) == record


def test_versions_stand_side_by_side_and_the_latest_is_the_current_one(tmp_path: Path, path: Path) -> None:
    import zipfile

    for version, text in (("1.0", "first words here"), ("2.0", "quite other things")):
        wheel = tmp_path / f"thing-{version}.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr("a.py", f"raise ValueError('{text}')\n")
        with Store.open(path, write=True) as store:
            index(open_source(str(wheel)), store)
    with Store.open(path, write=True) as store:
        assert [(p.version, p.current) for p in store.projects(every_version=True)] == [("2.0", True), ("1.0", False)]
        assert [hit.text for hit in store.search("words")] == []
        (old,) = store.records("thing", "1.0")
        assert store.record(old.id, version="1.0").text == "first words here"
        with pytest.raises(NotInCatalog, match=r"thing@3\.0"):
            store.project("thing", "3.0")
        assert store.remove("thing", "2.0") == 1
        assert [(p.version, p.current) for p in store.projects()] == [("1.0", True)]
        assert [hit.text for hit in store.search("words")] == ["first words here"]
        assert store.remove("thing") == 1
        assert store.projects() == []


def test_an_explanation_is_shown_until_its_project_is_removed(tree: Path, path: Path) -> None:
    indexed(tree, path)
    with Store.open(path, write=True) as store:
        record = store.record(failed(store))
        prose = Prose(meaning=(Claim("It is so.", (Citation("engine/link.py", 15, 15),), "model"),))
        store.put_explanation(record.id, prose, record.provenance, project="tree")
        assert store.record(record.id).prose == prose
        assert store.explained_ids("tree") == [record.id]
    indexed(tree, path)
    with Store.open(path, write=True) as store:
        assert store.record(record.id).prose == prose
        store.remove("tree")
    indexed(tree, path)
    with Store.open(path) as store:
        assert store.record(record.id).prose == record.prose


def test_unknown_names_get_the_one_that_was_meant(tree: Path, path: Path) -> None:
    indexed(tree, path)
    with Store.open(path) as store:
        with pytest.raises(NotInCatalog, match="did you mean tree"):
            store.project("trea")
        with pytest.raises(NotInCatalog, match="no record ffffffffffffffff"):
            store.record("f" * 16)


@pytest.mark.parametrize(
    "words", ["", "   ", '"', "AND OR NOT", "*", "a:b NEAR(", "\x00", "ü" * 5000, "-- ; DROP TABLE"]
)
def test_any_words_can_be_searched_for(tree: Path, path: Path, words: str) -> None:
    indexed(tree, path)
    with Store.open(path) as store:
        store.search(words)


def test_an_older_file_is_brought_up_to_date_when_it_is_written_and_refused_before(path: Path) -> None:
    path.parent.mkdir()
    connection = sqlite3.connect(path)
    connection.executescript(f"{MIGRATIONS[0]} PRAGMA user_version = 1; PRAGMA application_id = {APPLICATION_ID};")
    connection.close()
    with pytest.raises(StoreUnusable, match="older format 1"):
        Store.open(path)
    Store.open(path, write=True).close()
    with Store.open(path) as store:
        assert store.explained_ids("any") == []


@pytest.mark.parametrize("write", [False, True])
@pytest.mark.parametrize(
    ("content", "problem"), [(b"no database at all" * 100, "broken"), (b"SQLite format 3\0" + b"x" * 5000, "broken")]
)
def test_what_is_no_catalog_is_refused_and_left_as_it_is(path: Path, content: bytes, problem: str, write: bool) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(StoreUnusable, match=problem):
        Store.open(path, write=write)
    assert path.read_bytes() == content


def test_another_programs_database_and_a_newer_catalog_are_refused(path: Path) -> None:
    path.parent.mkdir()
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE t (x)")
    with pytest.raises(StoreUnusable, match="no catalog of windtunnel"):
        Store.open(path, write=True)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {VERSION + 1}")
    connection.close()
    with pytest.raises(StoreUnusable, match="newer windtunnel"):
        Store.open(path)


def test_a_missing_file_and_a_place_that_can_not_be_made_are_told(tmp_path: Path) -> None:
    with pytest.raises(StoreMissing):
        Store.open(tmp_path / "none.sqlite")
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreUnusable, match="folder"):
        Store.open(tmp_path / "file" / "catalog.sqlite", write=True)


def test_a_source_without_code_changes_nothing(tmp_path: Path, path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(CatalogSourceError, match="no source files"):
        indexed(tmp_path / "empty", path)


_KILLED = """
    import os, signal, sys
    from pathlib import Path
    from windtunnel.catalog import indexing
    from windtunnel.catalog.source import open_source
    from windtunnel.catalog.store import Store

    written = indexing.insert_record
    def write_and_die(*arguments):
        written(*arguments)
        os.kill(os.getpid(), signal.SIGKILL)
    indexing.insert_record = write_and_die
    with Store.open(Path(sys.argv[2]), write=True) as store:
        indexing.index(open_source(sys.argv[1]), store, project="tree")
"""


def test_a_run_that_is_killed_has_changed_nothing(tree: Path, path: Path) -> None:
    indexed(tree, path)
    with Store.open(path) as store:
        before = list(store.records("tree"))
    (tree / "engine/errors.py").write_text(TRANSFERS["engine/errors.py"].replace("failed with", "broke in"))
    ended = subprocess.run([sys.executable, "-c", textwrap.dedent(_KILLED), str(tree), str(path)], check=False)
    assert ended.returncode == -signal.SIGKILL
    with Store.open(path) as store:
        assert list(store.records("tree")) == before
    assert indexed(tree, path).num_added == 1


def test_readers_see_what_was_there_while_another_writes_and_a_second_writer_is_told(tree: Path, path: Path) -> None:
    indexed(tree, path)
    with Store.open(path, write=True) as writer, Store.open(path) as reader, writer.writing() as connection:
        connection.execute("DELETE FROM records")
        assert len(list(reader.records("tree"))) == 2
        with Store.open(path, write=True) as second:
            second.connection.execute("PRAGMA busy_timeout = 10")
            with pytest.raises(StoreUnusable, match="another process is writing"), second.writing():
                pass


def test_texts_that_are_no_utf_8_are_stored_and_found(tmp_path: Path, path: Path) -> None:
    write_tree(tmp_path / "odd", {})
    (tmp_path / "odd").mkdir(exist_ok=True)
    (tmp_path / "odd" / "a.py").write_bytes(b"raise ValueError('lone \\ud800 surrogate and \xff byte')\n")
    indexed(tmp_path / "odd", path, "odd")
    with Store.open(path) as store:
        assert [hit.project for hit in store.search("lone surrogate")] == ["odd"]
        assert len(list(store.records("odd"))) == 1
