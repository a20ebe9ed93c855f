"""Records are explained by a real endpoint, whatever it answers, and only what is borne out is kept."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.catalog.trees import TRANSFERS, write_tree
from windtunnel.catalog.store import Store
from windtunnel.cli.main import main

Answer = Callable[[dict[str, str]], tuple[int, str]]


def true_claims(asked: dict[str, str]) -> list[dict[str, Any]]:
    if "transfer" in asked["error"]:
        return [
            {"field": "trigger", "text": 'Raised when `state` is neither "DONE" nor "PROC".',
             "citations": [{"path": "engine/link.py", "start": 15, "end": 18}]},
            {"field": "solutions", "text": "Set `UCX_TLS`.",
             "citations": [{"path": "engine/link.py", "start": 18, "end": 18}]},
        ]  # fmt: skip
    return [{"field": "meaning", "text": "`run` logs what `link.wait` raised.",
             "citations": [{"path": "engine/worker.py", "start": 11, "end": 13}]}]  # fmt: skip


def said(asked: dict[str, str], claims: list[dict[str, Any]], **changes: str) -> str:
    return json.dumps({"id": asked["id"], "nonce": asked["nonce"], "claims": claims, **changes})


class Endpoint(ThreadingHTTPServer):
    """Answers chat completions by `answer`; what it was asked stands in `asked`."""

    daemon_threads = True
    answer: Answer
    asked: list[dict[str, str]]


class _Handler(BaseHTTPRequestHandler):
    server: Endpoint

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        prompt = body["messages"][0]["content"]
        match = re.search(r'"id": "(\w+)", "nonce": "(\w+)"', prompt)
        assert match is not None
        error = prompt.rpartition("Error: ")[2].partition("\n")[0]
        asked = {"id": match[1], "nonce": match[2], "error": error, "prompt": prompt,
                 "key": self.headers.get("Authorization", "")}  # fmt: skip
        self.server.asked.append(asked)
        status, text = self.server.answer(asked)
        data = json.dumps({"choices": [{"message": {"content": text}}]}).encode() if status == 200 else text.encode()
        self.send_response(status)
        self.send_header("Retry-After", "0")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    server = Endpoint(("127.0.0.1", 0), _Handler)
    server.asked = []
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return write_tree(tmp_path / "tree", TRANSFERS)


def explain(endpoint: Endpoint, tree: Path, answer: Answer, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    endpoint.answer = answer
    url = f"http://127.0.0.1:{endpoint.server_address[1]}/v1"
    capsys.readouterr()
    command = ["catalog", "index", str(tree), "--project", "link", "--store", str(tree.parent / "c.sqlite"), "--json"]
    code = main([*command, "--explain-with", url, "--model", "m"])
    told = capsys.readouterr()
    return json.loads(told.out)["explained"] if code == 0 else {"code": code, "error": told.err}


def test_what_is_borne_out_is_kept_before_what_the_code_says(
    endpoint: Endpoint, tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = explain(
        endpoint, tree, lambda asked: (200, f"Sure!\n```json\n{said(asked, true_claims(asked))}\n```"), capsys
    )
    assert (done["num_records"], done["num_explained"], done["counts"]) == (2, 2, {"kept": 2, "symbols": 1})
    with Store.open(tree.parent / "c.sqlite") as store:
        (hit,) = store.search("TransferFailed", limit=1)
        record = store.record(hit.id)
    assert [each.origin for each in record.prose.trigger] == ["model", "code"]
    assert (record.provenance.model, record.provenance.checked) == ("m", {"kept": 1, "symbols": 1})
    assert all("LIMIT" not in asked["prompt"] for asked in endpoint.asked)
    assert explain(endpoint, tree, lambda asked: (500, ""), capsys)["num_records"] == 0  # all are explained


@pytest.mark.parametrize(
    ("answer", "rule"),
    [
        (lambda asked: said(asked, true_claims(asked), id="0" * 16), "identity"),
        (lambda asked: said(asked, true_claims(asked), nonce="x"), "identity"),
        (
            lambda asked: said(asked, [{"field": "meaning", "text": "NIXL ran out of GPU memory.", "citations": []}]),
            "citation",
        ),
    ],
)
def test_what_belongs_to_another_request_or_cites_nothing_is_not_kept(
    endpoint: Endpoint,
    tree: Path,
    capsys: pytest.CaptureFixture[str],
    answer: Callable[[dict[str, str]], str],
    rule: str,
) -> None:
    done = explain(endpoint, tree, lambda asked: (200, answer(asked)), capsys)
    assert done["num_explained"] == 0 and set(done["counts"]) == {"kept", rule} and done["counts"]["kept"] == 0
    with Store.open(tree.parent / "c.sqlite") as store:
        assert store.explained_ids("link") == []


@pytest.mark.parametrize("text", ["no JSON at all", "{", '{"claims": 3}', "[]", "{}" * 3, ""])
def test_answers_that_can_not_be_read_leave_the_record_as_it_was(
    endpoint: Endpoint, tree: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    done = explain(endpoint, tree, lambda asked: (200, text), capsys)
    assert done["num_explained"] == 0
    assert len(done["failures"]) == 2 or done["counts"] == {"kept": 0}


def test_a_busy_endpoint_is_asked_again(endpoint: Endpoint, tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def answer(asked: dict[str, str]) -> tuple[int, str]:
        return (503, "busy") if len(endpoint.asked) % 2 else (200, said(asked, true_claims(asked)))

    assert explain(endpoint, tree, answer, capsys)["num_explained"] == 2


def test_an_endpoint_that_is_not_there_is_an_error_with_the_way_out(
    tree: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    command = ["catalog", "index", str(tree), "--store", str(tmp_path / "c.sqlite"), "--model", "m"]
    assert main([*command, "--explain-with", "http://127.0.0.1:9/v1"]) == 1
    assert "WT-CATALOG-EXPLAINER" in capsys.readouterr().err


def test_verify_names_claims_whose_lines_have_changed(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = str(tree.parent / "v.sqlite")
    assert main(["catalog", "index", str(tree), "--project", "link", "--store", store]) == 0
    assert main(["catalog", "verify", "link", "--store", store]) == 0
    (tree / "engine/link.py").write_text(TRANSFERS["engine/link.py"].replace('!= "PROC"', '== "ERR"'))
    capsys.readouterr()
    assert main(["catalog", "verify", "link", "--store", store]) == 1
    told = capsys.readouterr().out
    assert 'was: if state != "PROC":' in told and 'is now: if state == "ERR":' in told
    assert main(["catalog", "verify", "link", "--store", store, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["verified"]["stale"]
