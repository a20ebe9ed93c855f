"""A result file is written whole or not at all, where vLLM would have put it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import golden_run
import pytest
from msgspec import structs

from windtunnel.errors import FileError
from windtunnel.measure.run import RampUp
from windtunnel.report.result_file import check_writable, result_path, write_result

FACTS = golden_run.facts()
NOBODY = 65534


def test_the_file_is_named_as_vllm_names_it() -> None:
    # as vLLM named the file of the golden run without --result-filename, but for model and date
    assert result_path(FACTS, None, None) == Path(f"openai-15.0qps-concurrency2-paper-plane-1b-{FACTS.date}.json")


def test_a_closed_loop_a_label_and_no_cap_are_in_the_name() -> None:
    facts = structs.replace(FACTS, request_rate=None, label="night", max_concurrency=None, date="D")
    assert result_path(facts, "out", None) == Path("out/night-infqps-paper-plane-1b-D.json")


def test_a_ramp_up_is_in_the_name() -> None:
    facts = structs.replace(FACTS, ramp_up=RampUp("linear", 5.0, 12.0), max_concurrency=3, date="D")
    assert result_path(facts, None, None) == Path("openai-ramp-up-linear-5qps-12qps-concurrency3-paper-plane-1b-D.json")


def test_a_name_of_the_users_is_put_into_the_folder_of_the_users() -> None:
    assert result_path(FACTS, "out", "mine.json") == Path("out/mine.json")
    assert result_path(FACTS, None, "mine.json") == Path("mine.json")


def test_writing_makes_a_file_for_everyone_that_holds_the_document(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    write_result(path, {"a": 1.5, "word": "\ud800é"}, append=False, journal="j")
    assert json.loads(path.read_text()) == {"a": 1.5, "word": "\ud800é"}
    umask = os.umask(0)
    os.umask(umask)
    assert path.stat().st_mode & 0o777 == 0o666 & ~umask
    assert os.listdir(tmp_path) == ["r.json"]


def test_writing_replaces_what_was_there_and_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text("a much longer text than the new one")
    path.chmod(0o640)
    write_result(path, {}, append=False, journal="j")
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("{}", 0o640)


def test_appending_puts_documents_on_lines_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    for number in range(3):
        write_result(path, {"n": number}, append=True, journal="j")
    assert [json.loads(line) for line in path.read_text().split("\n")] == [{"n": 0}, {"n": 1}, {"n": 2}]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real.json").write_text("old")
    (tmp_path / "link.json").symlink_to("real.json")
    write_result(tmp_path / "link.json", {"n": 1}, append=True, journal="j")
    assert (tmp_path / "link.json").is_symlink()
    assert (tmp_path / "real.json").read_text() == 'old\n{"n": 1}'


WRITE_IN_LITTLE_SPACE = """
import resource, signal, sys
from pathlib import Path
from windtunnel.errors import FileError
from windtunnel.report.result_file import write_result
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
try:
    append = sys.argv[2] == "append"
    write_result(Path(sys.argv[1]), {"big": "x" * 20_000}, append=append, journal="/safe/journal.jsonl")
except FileError as error:
    print(error.path, error.operation, error.reason, error.remedy, sep="|")
"""


@pytest.mark.parametrize("mode", ["append", "replace"])
def test_a_disk_that_is_full_leaves_the_file_as_it_was_and_says_where_the_data_is(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "r.json"
    path.write_text("before")
    run = subprocess.run(
        [sys.executable, "-c", WRITE_IN_LITTLE_SPACE, str(path), mode], capture_output=True, text=True, check=True
    )
    where, operation, reason, remedy = run.stdout.strip().split("|")
    assert (where, operation, reason) == (str(path), "write the result to", "File too large")
    assert "/safe/journal.jsonl" in remedy and "windtunnel runs recover" in remedy
    assert path.read_text() == "before" and os.listdir(tmp_path) == ["r.json"]


def test_a_device_is_written_to_and_never_replaced() -> None:
    with pytest.raises(FileError, match="No space left on device"):
        write_result(Path("/dev/full"), {}, append=False, journal="j")
    write_result(Path("/dev/null"), {}, append=True, journal="j")
    check_writable(Path("/dev/null"))
    assert not Path("/dev/null").is_file()


def test_the_check_makes_the_folder_and_leaves_nothing_in_it(tmp_path: Path) -> None:
    check_writable(tmp_path / "new" / "folder" / "r.json")
    assert os.listdir(tmp_path / "new" / "folder") == []


def test_the_check_leaves_an_earlier_result_untouched(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text("before")
    check_writable(path)
    assert path.read_text() == "before" and os.listdir(tmp_path) == ["r.json"]


def test_the_check_names_what_is_wrong_with_a_place(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match=r"Not a directory|File exists") as caught:
        check_writable(tmp_path / "file" / "r.json")
    assert "--result-dir" in caught.value.advice
    with pytest.raises(FileError, match="it is a folder"):
        check_writable(tmp_path)


CHECK_AS_NOBODY = """
import os, sys
from pathlib import Path
from windtunnel.errors import FileError
from windtunnel.report.result_file import check_writable
if os.getuid() == 0:
    os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[2]))
try:
    check_writable(Path(sys.argv[1]))
except FileError as error:
    print(error.reason)
"""


@pytest.mark.parametrize(
    ("folder_mode", "file_mode", "reason"),
    [(0o555, 0o666, "Permission denied"), (0o777, 0o444, "the file is write-protected")],
)
def test_the_check_finds_a_read_only_folder_and_a_protected_file(folder_mode: int, file_mode: int, reason: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)  # the folder of tmp_path is closed to others
        path = Path(name, "shelf", "r.json")
        path.parent.mkdir()
        path.write_text("before")
        path.chmod(file_mode)
        path.parent.chmod(folder_mode)
        run = subprocess.run(
            [sys.executable, "-c", CHECK_AS_NOBODY, str(path), str(NOBODY)], capture_output=True, text=True, check=True
        )
        path.parent.chmod(0o755)
        assert run.stdout.strip() == reason
        assert path.read_text() == "before"
