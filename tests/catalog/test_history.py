"""Since when an error is told: what real git repositories say."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.catalog.repositories import commit, git
from tests.catalog.trees import record_like, records_of
from windtunnel.catalog.history import since
from windtunnel.catalog.source import open_source

OLD = "def f(state):\n    raise ValueError('first words of it')\n"
LINK = """
class Lost(RuntimeError):
    def __init__(self, peer):
        super().__init__(f"the peer {peer} was lost on the way")


def wait(state, peer):
    if state == "ERR":
        raise RuntimeError(
            f"transfer to {peer} failed "
            f"with state={state}"
        )
    if state == "GONE":
        raise Lost(peer)
    assert state
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "engine"
    commit(folder, {"pkg/old.py": OLD}, "v0.1")
    commit(folder, {"pkg/link.py": LINK}, "v0.2")
    commit(folder, {"notes.md": "nothing of the code"}, "v0.3")
    return folder


@pytest.fixture
def repository(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made, tmp_path / "engine")


def told(spec: str, words: str, most_s: float = 10.0) -> str | None:
    """Since when the only site of the record with these words has it."""
    source = open_source(spec)
    record = record_like(records_of({file.path: source.read(file.path).decode() for file in source.files()}), words)
    (site,) = record.sites
    return since(source, record, site, most_s)


@pytest.mark.parametrize(("words", "tag"), [("first words", "v0.1"), ("transfer to", "v0.2"), ("was lost", "v0.2")])
def test_a_message_is_there_since_the_first_tag_that_has_it(made: Path, words: str, tag: str) -> None:
    assert told(str(made), words) == tag
    assert told(f"{made}@v0.3", words) == tag


def test_an_assert_without_a_message_is_there_since_its_line_is(made: Path) -> None:
    (bare,) = [record for record in records_of({"pkg/link.py": LINK}) if record.message_source == "condition"]
    assert since(open_source(str(made)), bare, bare.sites[0]) == "v0.2"


def test_a_folder_below_the_top_has_the_same_history(made: Path) -> None:
    assert told(str(made / "pkg"), "transfer to") == "v0.2"
    assert told(f"{made / 'pkg'}@v0.2", "transfer to") == "v0.2"


def test_a_path_is_no_pattern(repository: Path) -> None:
    commit(repository, {"pkg/[ol]ld.py": OLD.replace("words of it", "words of another")}, "v0.4")
    assert told(str(repository), "words of another") == "v0.4"


def test_what_is_indented_moved_and_renamed_later_is_as_old_as_its_words(repository: Path) -> None:
    git(repository, "mv", "pkg/link.py", "pkg/wires.py")
    commit(repository, {}, "v0.4")
    indented = LINK.replace("def wait", "if True:\n  def wait").replace("\n    ", "\n        ")
    commit(repository, {"pkg/wires.py": "import os\n\n" + indented}, "v0.5")
    assert told(str(repository), "transfer to") == "v0.2"


def test_a_message_is_as_young_as_its_latest_wording(repository: Path) -> None:
    commit(repository, {"pkg/old.py": OLD.replace("first words", "other words")}, "v0.4")
    assert told(str(repository), "other words of it") == "v0.4"


def test_without_a_tag_it_is_the_commit_and_its_day(repository: Path) -> None:
    made = commit(repository, {"pkg/new.py": OLD.replace("first", "the newest")})
    day = git(repository, "log", "-1", "--format=%cs")
    assert told(str(repository), "the newest words") == f"{made[:12]} ({day})"


def test_what_is_not_committed_has_no_past(repository: Path) -> None:
    (repository / "pkg/old.py").write_text(OLD + "\ndef g():\n    raise ValueError('not committed yet')\n")
    assert told(str(repository), "not committed") is None
    (repository / "pkg/new.py").write_text(OLD.replace("first", "untracked"))
    assert told(str(repository), "untracked words") is None


def test_a_shallow_clone_does_not_take_its_edge_for_the_beginning(repository: Path, tmp_path: Path) -> None:
    commit(repository, {"pkg/new.py": OLD.replace("first", "the newest")}, "v0.4")
    commit(repository, {"notes.md": "more"})
    shallow = tmp_path / "shallow"
    git(tmp_path, "clone", "-q", "--depth", "3", f"file://{repository}", str(shallow))
    assert told(str(shallow), "transfer to") is None
    assert told(str(shallow), "the newest words") == "v0.4"


def test_a_search_that_takes_too_long_and_a_folder_without_git_say_nothing(made: Path, tmp_path: Path) -> None:
    assert told(str(made), "transfer to", most_s=0.0) is None
    (tmp_path / "a.py").write_text(OLD)
    assert told(str(tmp_path), "first words") is None


def test_no_program_is_run_that_the_repository_names(repository: Path, tmp_path: Path) -> None:
    witness, program = tmp_path / "ran", tmp_path / "program"
    program.write_text(f'#!/bin/sh\ntouch {witness}\ncat "$1" 2>/dev/null\n')
    program.chmod(0o755)
    for key in ("core.fsmonitor", "diff.external", "diff.odd.textconv"):
        git(repository, "config", key, str(program))
    (repository / ".git/info").mkdir(exist_ok=True)
    (repository / ".git/info/attributes").write_text("*.py diff=odd\n")
    (repository / "pkg/old.py").write_text(OLD + "# changed\n")
    assert told(str(repository), "first words") == "v0.1"
    assert not witness.exists()
