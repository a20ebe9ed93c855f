"""Folders, commits, archives and installed packages are read alike."""

from __future__ import annotations

import io
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.catalog.repositories import commit, git
from tests.catalog.trees import write_tree
from windtunnel.catalog.source import Source, open_source
from windtunnel.errors import CatalogSourceError

CODE = "def f():\n    raise ValueError('no')\n"
FILES = {"pkg/a.py": CODE, "pkg/b.rs": "fn f() {}\n", "notes.md": "no code", "pkg/min.min.js": "x", "pkg/t.d.ts": "x"}


def contents(source: Source) -> dict[str, bytes]:
    return {file.path: source.read(file.path) for file in source.files()}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "engine"
    commit(folder, {**FILES, ".gitignore": "build/\n", "build/made.py": CODE}, "v1.0")
    git(folder, "remote", "add", "origin", "https://github.com/someone/engine.git")
    return folder


def test_a_folder_gives_its_code_and_skips_what_is_none(tmp_path: Path) -> None:
    write_tree(tmp_path, {**FILES, "node_modules/x/a.js": "x", ".venv/lib/a.py": "x", "__pycache__/a.py": "x"})
    (tmp_path / "env").mkdir()
    write_tree(tmp_path / "env", {"pyvenv.cfg": "", "lib/a.py": "x"})
    source = open_source(str(tmp_path))
    assert contents(source) == {"pkg/a.py": CODE.encode(), "pkg/b.rs": b"fn f() {}\n"}
    assert (source.name, source.version, source.commit) == (tmp_path.name, "working tree", None)
    assert source.permalink("pkg/a.py", 1, 2) is None


def test_links_and_large_files_are_left_out(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a.py": CODE, "big.py": "#" * (5 << 20)})
    (tmp_path / "link.py").symlink_to(tmp_path / "a.py")
    (tmp_path / "loop").symlink_to(tmp_path)
    assert list(contents(open_source(str(tmp_path)))) == ["a.py"]


def test_a_work_tree_leaves_out_what_git_ignores_and_links_what_is_unchanged(repository: Path) -> None:
    (repository / "pkg/new.py").write_text(CODE)
    (repository / "pkg/b.rs").write_text("fn changed() {}\n")
    source = open_source(str(repository))
    assert list(contents(source)) == ["pkg/a.py", "pkg/b.rs", "pkg/new.py"]
    commit = git(repository, "rev-parse", "HEAD")
    assert (source.name, source.version, source.commit) == ("engine", "working tree", commit)
    link = f"https://github.com/someone/engine/blob/{commit}/pkg/a.py#L1-L2"
    assert source.permalink("pkg/a.py", 1, 2) == link
    assert source.permalink("pkg/b.rs", 1, 1) is None
    assert source.permalink("pkg/new.py", 1, 1) is None
    assert open_source(str(repository / "pkg")).permalink("a.py", 1, 2) == link


def test_a_folder_that_git_ignores_is_read_as_it_is(repository: Path) -> None:
    source = open_source(str(repository / "build"))
    assert list(contents(source)) == ["made.py"]
    assert (source.name, source.commit, source.repository) == ("build", None, None)


def test_a_work_tree_without_a_commit_leaves_out_what_git_ignores(tmp_path: Path) -> None:
    folder = write_tree(tmp_path / "fresh", {"a.py": CODE, ".gitignore": "b.py\n", "b.py": CODE})
    git(folder, "init", "-q")
    source = open_source(str(folder))
    assert list(contents(source)) == ["a.py"]
    assert (source.name, source.commit) == ("fresh", None)


def test_what_opens_a_source_again_does_not_depend_on_where_one_is(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel(tmp_path / "some.whl")
    monkeypatch.chdir(tmp_path)
    specs = [open_source(spec).spec for spec in ("engine", "engine@v1.0", "engine@main", "some.whl")]
    monkeypatch.chdir("/")
    at = git(repository, "rev-parse", "--short=12", "HEAD")
    assert [open_source(spec).version for spec in specs] == ["working tree", "v1.0", at, "1.2"]


@pytest.mark.parametrize(
    "origin", ["https://someone:secret@github.com/someone/engine.git", "git@github.com:someone/engine.git"]
)
def test_an_address_of_lines_is_public_and_quoted(repository: Path, origin: str) -> None:
    git(repository, "remote", "set-url", "origin", origin)
    at = commit(repository, {"pkg/a file#1.py": CODE})
    link = open_source(str(repository)).permalink("pkg/a file#1.py", 1, 2)
    assert link == f"https://github.com/someone/engine/blob/{at}/pkg/a%20file%231.py#L1-L2"


def test_a_repository_of_an_unknown_forge_has_no_addresses(repository: Path) -> None:
    git(repository, "remote", "set-url", "origin", "https://git.example.com/someone/engine.git")
    source = open_source(str(repository))
    assert source.name == "engine" and source.permalink("pkg/a.py", 1, 2) is None


def test_a_blob_that_the_repository_has_lost_is_told(repository: Path) -> None:
    source = open_source(f"{repository}@v1.0")
    (lost,) = [file.stamp for file in source.files() if file.path == "pkg/a.py"]
    (repository / ".git/objects" / lost[:2] / lost[2:]).unlink()
    assert source.read("pkg/b.rs") == b"fn f() {}\n"
    with pytest.raises(CatalogSourceError, match=r"does not have pkg/a\.py"):
        source.read("pkg/a.py")


def test_a_name_that_is_no_utf_8_is_left_out(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a.py": CODE})
    (tmp_path / "b\udcff.py").write_text(CODE)
    assert list(contents(open_source(str(tmp_path)))) == ["a.py"]


@pytest.mark.parametrize("bare", [False, True])
def test_a_commit_is_read_without_a_checkout(repository: Path, tmp_path: Path, bare: bool) -> None:
    (repository / "pkg/a.py").write_text("changed")
    git(repository, "commit", "-qam", "second")
    place = repository
    if bare:
        place = tmp_path / "bare.git"
        git(tmp_path, "clone", "-q", "--bare", str(repository), str(place))
    source = open_source(f"{place}@v1.0")
    assert contents(source)["pkg/a.py"] == CODE.encode()
    assert source.version == "v1.0" and source.commit == git(repository, "rev-parse", "v1.0")
    head = open_source(f"{place}@main")
    assert contents(head)["pkg/a.py"] == b"changed"
    assert head.commit is not None and head.version == head.commit[:12]


def wheel(path: Path) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("pkg/a.py", CODE)
        archive.writestr("../evil.py", CODE)
        archive.writestr("pkg/bomb.py", "#" * (3 << 20))
        archive.writestr("some_pkg-1.2.dist-info/METADATA", "Name: some-pkg\nVersion: 1.2\n\nName: no\n")
    return path


def tarred(path: Path, files: dict[str, str]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, text in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(text.encode())
            archive.addfile(info, io.BytesIO(text.encode()))
    return path


def test_a_wheel_is_read_as_it_is_and_can_not_reach_out(tmp_path: Path) -> None:
    source = open_source(str(wheel(tmp_path / "whatever.whl")))
    assert list(contents(source)) == ["pkg/a.py"]
    assert (source.name, source.version) == ("some-pkg", "1.2")


@pytest.mark.parametrize(
    ("files", "identity"),
    [
        ({"some-1.0/pkg/a.py": CODE, "some-1.0/PKG-INFO": "Name: some\nVersion: 1.0\n"}, ("some", "1.0")),
        ({"package/pkg/a.py": CODE, "package/package.json": '{"name": "@s/n", "version": "3.1"}'}, ("@s/n", "3.1")),
        ({"other/pkg/a.py": CODE}, ("thing", "2.0")),
        ({"./some-1.0/pkg/a.py": CODE, "./some-1.0/PKG-INFO": "Name: some\r\nVersion: 1.0\r\n"}, ("some", "1.0")),
        ({"pkg/a.py": CODE, "README": "no common folder"}, ("thing", "2.0")),
        ({"t/pkg/a.py": CODE, "t/third/x.egg-info/PKG-INFO": "Name: x\nVersion: 9\n"}, ("thing", "2.0")),
        ({"t/pkg/a.py": CODE, "t/package.json": "{broken"}, ("thing", "2.0")),
    ],
)
def test_a_tar_file_loses_its_common_folder_and_knows_its_name(
    tmp_path: Path, files: dict[str, str], identity: tuple[str, str]
) -> None:
    source = open_source(str(tarred(tmp_path / "thing-2.0.tar.gz", files)))
    assert list(contents(source)) == ["pkg/a.py"]
    assert (source.name, source.version) == identity


def test_a_tar_file_that_ends_with_a_zip_file_is_still_a_tar_file(tmp_path: Path) -> None:
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as archive:
        archive.writestr("inner.py", CODE)
    with tarfile.open(tmp_path / "outer.tar", "w") as outer:
        for name, data in (("top/a.py", CODE.encode()), ("top/x.zip", inner.getvalue())):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            outer.addfile(info, io.BytesIO(data))
    assert list(contents(open_source(str(tmp_path / "outer.tar")))) == ["a.py"]


def test_what_lies_in_the_current_folder_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tree(
        tmp_path,
        {
            "json.py": "raise SystemExit('the wrong json')\n",
            "msgspec-9.dist-info/METADATA": "Name: msgspec\nVersion: 9\n",
        },
    )
    monkeypatch.chdir(tmp_path)
    import msgspec

    assert open_source("pip:msgspec").version == msgspec.__version__


def test_an_installed_package_is_found_by_its_interpreter() -> None:
    source = open_source("pip:msgspec", python=sys.executable)
    import msgspec

    assert (source.name, source.version) == ("msgspec", msgspec.__version__)
    assert "msgspec/__init__.py" in contents(source)


def test_stamps_change_with_the_content(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a.py": CODE, "b.py": CODE})
    before = {file.path: file.stamp for file in open_source(str(tmp_path)).files()}
    (tmp_path / "a.py").write_text(CODE + "# more\n")
    after = {file.path: file.stamp for file in open_source(str(tmp_path)).files()}
    assert before["a.py"] != after["a.py"] and before["b.py"] == after["b.py"]


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ("/no/such/place", "no such folder"),
        ("", "empty"),
        ("pip:no-such-package-anywhere", "has no package"),
        ("pip:msgpsec", "did you mean msgspec"),
        ("pip:../x", "no package's name"),
        ("{tmp}/broken.whl", "no archive"),
        ("{repository}@v1.1", "did you mean v1.0"),
        ("{repository}@--all", "no commit or tag"),
        ("{tmp}@v1", "git says"),
        ("{tmp}/bare.git", "without a work tree"),
        ("https://github.com/someone/engine", "nothing is fetched"),
        ("git@github.com:someone/engine", "nothing is fetched"),
    ],
)
def test_what_can_not_be_read_is_told_with_the_way_out(
    tmp_path: Path, repository: Path, spec: str, problem: str
) -> None:
    (tmp_path / "broken.whl").write_bytes(b"PK\x03\x04 not really")
    git(tmp_path, "init", "-q", "--bare", "bare.git")
    with pytest.raises(CatalogSourceError, match=problem) as caught:
        open_source(spec.format(tmp=tmp_path, repository=repository))
    assert caught.value.remedy


def test_an_interpreter_that_is_none_is_told() -> None:
    with pytest.raises(CatalogSourceError, match="can't run"):
        open_source("pip:msgspec", python="/no/such/python")
