"""The failures of a run beside what the catalog has of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec import structs
from tests.catalog.trees import write_tree
from tests.report import golden_run

from windtunnel.catalog.indexing import index
from windtunnel.catalog.own import ensure_own
from windtunnel.catalog.source import open_source
from windtunnel.catalog.store import Store
from windtunnel.cli.failure_records import MOST_CAUSES, with_records
from windtunnel.errors import BackendError, ConnectFailed, HttpStatus, RequestFailure, TimedOut
from windtunnel.measure.record import Fault
from windtunnel.measure.summary import Summary, summarize
from windtunnel.report.console import result_block

SERVER = {
    "serving.py": '''
class NoSuchModel(ValueError):
    """The name is none that is served."""


def check(request):
    if not is_served(request.model):
        raise NoSuchModel(f"the engine serves no model of the name {request.model}")
'''
}
BODY = '{"error": {"message": "the engine serves no model of the name lama", "type": "NotFoundError", "code": 404}}'


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A catalog of windtunnel's own errors and of a server's."""
    folder = tmp_path_factory.mktemp("catalog")
    path = folder / "catalog.sqlite"
    ensure_own(path)
    with Store.open(path, write=True) as opened:
        index(open_source(str(write_tree(folder / "server", SERVER))), opened, project="engine")
    return path


def failed(*errors: RequestFailure) -> Summary:
    records = golden_run.records()
    broken = [structs.replace(r, failure=Fault.of(error)) for r, error in zip(records, errors, strict=False)]
    return summarize([*broken, *records[len(broken) :]], golden_run.facts(), golden_run.end())


@pytest.mark.parametrize(
    "error",
    [
        ConnectFailed("127.0.0.1:9", "refused", "nothing listens there"),
        TimedOut("first_token", 2.0, "a token", 0, "--timeout-first-token"),
        HttpStatus(503, "Service Unavailable", "busy"),
        HttpStatus(404, "Not Found", BODY),
    ],
    ids=lambda error: error.code,
)
def test_a_failure_has_our_record_of_its_type_with_what_it_means(error: RequestFailure, store: Path) -> None:
    (cause,) = with_records(failed(error), store).failures
    record = cause.records[0]
    assert (record.of, record.project, record.type) == ("client", "windtunnel", type(error).__name__)
    with Store.open(store) as opened:
        assert opened.record(record.id).prose.meaning[0].text == record.meaning


def test_the_record_is_that_of_the_phase_which_failed(store: Path) -> None:
    refused = ConnectFailed("127.0.0.1:9", "refused", "nothing listens there")
    (cause,) = with_records(failed(refused), store).failures
    with Store.open(store) as opened:
        assert "(refused)" in opened.record(cause.records[0].id).text


@pytest.mark.parametrize("error", [HttpStatus(404, "Not Found", BODY), BackendError(BODY, 3)], ids=["body", "stream"])
def test_what_the_server_said_has_the_record_of_the_server(error: RequestFailure, store: Path) -> None:
    summary = with_records(failed(error), store)
    record = summary.failures[0].records[-1]
    assert (record.of, record.project, record.type) == ("server", "engine", "NoSuchModel")
    assert record.meaning == "The name is none that is served."
    assert "is_served(request.model)" in record.solution
    told = " ".join(result_block(summary, golden_run.facts(), golden_run.end()).split())
    assert f"The server's error may be {record.id}" in told and record.solution in told
    assert "`windtunnel explain ID` says more of a record." in told


def test_words_of_a_server_that_nobody_indexed_have_no_record(store: Path) -> None:
    (cause,) = with_records(failed(HttpStatus(502, "Bad Gateway", "upstream connect error")), store).failures
    assert [record.of for record in cause.records] == ["client"]


def test_only_the_most_frequent_causes_are_looked_up(store: Path) -> None:
    words = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
    summary = with_records(failed(*(HttpStatus(400, "Bad Request", word) for word in words)), store)
    assert [bool(cause.records) for cause in summary.failures] == [True] * MOST_CAUSES + [False] * 2


@pytest.mark.parametrize("content", [None, b"", b"no catalog at all"], ids=["missing", "empty", "broken"])
def test_without_a_catalog_the_code_is_pointed_at(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "catalog.sqlite"
    if content is not None:
        path.write_bytes(content)
    summary = failed(HttpStatus(503, "Service Unavailable", "busy"))
    assert with_records(summary, path) == summary
    told = result_block(summary, golden_run.facts(), golden_run.end())
    assert "`windtunnel explain CODE` says more of a code." in told
    assert content == (path.read_bytes() if path.exists() else None)


def test_a_run_whose_requests_fail_has_their_records_in_its_result(store: Path, tmp_path: Path) -> None:
    home = tmp_path / "data/windtunnel"
    home.mkdir(parents=True)
    (home / "catalog.sqlite").write_bytes(store.read_bytes())
    command = [
        sys.executable, "-m", "windtunnel", "bench", "serve", "--embedded", "paced:fault=500,tokens=2", "--num-prompts",
        "3", "--runs-dir", str(tmp_path / "runs"), "--save-result", "--result-dir", str(tmp_path), "--result-filename",
        "result.json",
    ]  # fmt: skip
    environ = {**os.environ, "XDG_DATA_HOME": str(tmp_path / "data")}
    done = subprocess.run(command, capture_output=True, text=True, env=environ, check=False, timeout=60)
    (failure,) = json.loads((tmp_path / "result.json").read_text())["windtunnel"]["failures"]
    assert [record["type"] for record in failure["records"]] == ["HttpStatus"], done.stderr
    assert f"Record {failure['records'][0]['id']}: The server answered with a status" in done.stdout
