"""`windtunnel explain`: text, files, logs and pipes; what is printed, and the exit code."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tests.catalog.trees import store_of
from tests.cli.command_lines import windtunnel

from windtunnel.catalog.match.look_up import explain
from windtunnel.catalog.own import ensure_own
from windtunnel.catalog.store import Store, default_store
from windtunnel.errors import classes

CODE = '''
def sync(replica, state):
    """Bring a replica up to date."""
    if state != "ready":
        raise RuntimeError(f"replica {replica} is not ready: state={state}")
'''
MESSAGE = "replica eu-1 is not ready: state=gone"
TRACEBACK = f"""Traceback (most recent call last):
  File "/app/shop.py", line 5, in sync
    raise RuntimeError(f"replica {{replica}} is not ready: state={{state}}")
RuntimeError: {MESSAGE}
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(store_of(tmp_path_factory.mktemp("explained"), {"shop.py": CODE}, "shop"))


def test_a_line_is_explained(store: str) -> None:
    done = windtunnel("explain", "--store", store, MESSAGE)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{MESSAGE}\n  possible, confidence ")
    for part in ("what sets it off", "here replica is eu-1", "here state is gone", "shop.py:5 in sync"):
        assert part in done.stdout


@pytest.mark.parametrize("how", ["a name", "--file", "a pipe", "a dash"])
def test_a_traceback_comes_from_a_file_or_a_pipe(store: str, tmp_path: Path, how: str) -> None:
    path = tmp_path / "trace.txt"
    path.write_text(TRACEBACK)
    arguments = {"a name": [str(path)], "--file": ["--file", str(path)], "a pipe": [], "a dash": ["-"]}[how]
    done = windtunnel("explain", "--store", store, *arguments, input=TRACEBACK if how in ("a pipe", "a dash") else "")
    assert done.returncode == 0, done.stderr
    assert "found, confidence 99%" in done.stdout


def test_a_long_log_is_explained_from_a_file_and_a_pipe(store: str, tmp_path: Path) -> None:
    lines = [f"INFO 11-30 12:00:00 [core.py:5] all is well {i}" for i in range(5_000)]
    lines[700] = lines[4_000] = f"ERROR 11-30 12:00:00 [core.py:9] {MESSAGE}"
    text = "\n".join(lines) + "\n" + TRACEBACK
    path = tmp_path / "server.log"
    path.write_text(text)
    named = windtunnel("explain", "--store", store, "--json", str(path))
    piped = windtunnel("explain", "--store", store, "--json", input=text)
    assert named.stdout == piped.stdout
    document = json.loads(named.stdout)
    (error,) = document["errors"]
    assert (error["count"], error["first_line"], error["last_line"]) == (3, 701, 5_004)


def test_json_is_the_document_that_is_published(store: str) -> None:
    done = windtunnel("explain", "--store", store, "--json", MESSAGE)
    document = json.loads(done.stdout)
    assert (document["schema"], document["found"], document["answer"]) == ("explanation/1", True, "possible")
    (record,) = document["records"]
    assert record["template"] == "replica {replica} is not ready: state={state}"
    assert record["sites"][0]["path"] == "shop.py"


def test_what_no_record_explains_exits_with_1_and_says_what_the_catalog_has(store: str) -> None:
    done = windtunnel("explain", "--store", store, "division by zero")
    assert done.returncode == 1
    assert "not in this catalog" in done.stdout
    assert "shop working tree" in done.stdout


def test_no_store_exits_with_2(tmp_path: Path) -> None:
    done = windtunnel("explain", "--store", str(tmp_path / "none.sqlite"), "x")
    assert done.returncode == 2
    assert "[WT-CATALOG-NO-STORE]" in done.stderr


def test_a_project_that_is_not_there_is_named(store: str) -> None:
    done = windtunnel("explain", "--store", store, "--project", "shopp", "x")
    assert done.returncode == 2
    assert "did you mean shop?" in done.stderr


def test_a_text_and_a_file_are_one_too_many(store: str, tmp_path: Path) -> None:
    done = windtunnel("explain", "--store", store, "--file", str(tmp_path), "x")
    assert done.returncode == 2
    missing = windtunnel("explain", "--store", store, "--file", str(tmp_path / "no.log"))
    assert missing.returncode == 2
    assert "no.log can't be read" in missing.stderr


def test_a_name_of_a_file_that_is_not_there_is_taken_as_text_and_said_so(store: str) -> None:
    done = windtunnel("explain", "--store", store, "server.log")
    assert done.returncode == 1
    assert "there is no file server.log" in done.stderr


def test_bytes_that_are_no_text_are_explained(store: str, tmp_path: Path) -> None:
    path = tmp_path / "bytes.log"
    path.write_bytes(b"\xff\xfe\x00ERROR:shop:" + MESSAGE.encode() + b"\xed\xa0\x80\r\n")
    done = windtunnel("explain", "--store", store, str(path))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "data", ["", " \n\n", "\0" * 1000, "all is well\n" * 300], ids=["none", "blank", "zeros", "log"]
)
def test_nothing_is_no_error_and_said_to_be_none(store: str, data: str) -> None:
    done = windtunnel("explain", "--store", store, input=data)
    assert done.returncode == 1
    assert done.stdout.startswith("nothing in it reads like an error\n") and "shop" in done.stdout


def test_a_folder_s_name_is_a_text_and_a_pipe_s_is_what_it_holds(store: str, tmp_path: Path) -> None:
    done = windtunnel("explain", "--store", store, str(tmp_path))
    assert done.returncode == 1 and "is a folder; it is taken as the text" in done.stderr
    command = f"{shlex.quote(sys.executable)} -m windtunnel explain --store {store} <(echo {shlex.quote(MESSAGE)})"
    piped = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, timeout=60)
    assert piped.returncode == 0, piped.stderr


@pytest.mark.parametrize("content", [b"no catalog", None], ids=["a file", "a folder"])
def test_a_store_that_is_none_exits_with_2_as_a_missing_one_does(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "store"
    path.mkdir() if content is None else path.write_bytes(content)
    done = windtunnel("explain", "--store", str(path), MESSAGE, "--json")
    assert (done.returncode, done.stdout) == (2, "")
    assert ("it is a folder" if content is None else "no catalog") in done.stderr


def test_what_a_terminal_can_not_show_is_escaped(store: str) -> None:
    done = windtunnel("explain", "--store", store, "ValueError: né à 🌀", environ={"PYTHONIOENCODING": "ascii"})
    assert done.returncode == 1
    assert done.stdout.startswith("ValueError: n\\xe9 \\xe0 \\U0001f300\n")


def test_a_text_in_utf8_is_read_so_in_a_locale_that_knows_ascii_only(store: str) -> None:
    plain = {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "utf-8"}
    done = windtunnel("explain", "--store", store, "ValueError: né", environ=plain)
    assert done.stdout.startswith("ValueError: né\n"), done.stderr


def test_its_help_shows_how_it_is_used() -> None:
    done = windtunnel("explain", "--help")
    assert done.returncode == 0
    assert "windtunnel explain server.log" in done.stdout


def test_every_code_of_our_own_errors_has_its_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    store = default_store()
    ensure_own(store)
    with Store.open(store) as opened:
        for cls in classes():
            explanation = explain(cls.code, opened)
            assert explanation.answer == "found", cls.code
            assert explanation.records[0].type == cls.__name__
