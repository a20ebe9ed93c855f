"""A project's records as files that need no server."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec
import pytest

from tests.catalog.trees import TRANSFERS, store_of
from tests.catalog.web.conftest import ODD
from tests.catalog.web.reading import elements
from tests.catalog.web.schemas import fault
from windtunnel.catalog.export import record_schema
from windtunnel.catalog.record import Record
from windtunnel.catalog.store import Store
from windtunnel.cli.catalog_export import run
from windtunnel.errors import ConfigurationError, NotInCatalog


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(store_of(tmp_path_factory.mktemp("exported"), {**TRANSFERS, **ODD}, "link"))


@pytest.fixture(scope="module")
def records(store: str) -> list[Record]:
    with Store.open(Path(store)) as opened:
        return list(opened.records("link"))


def exported(store: str, kind: str, out: Path) -> Any:
    assert run(["link", "--format", kind, str(out), "--store", store]) == 0
    return out.read_text()


def test_json_has_every_record_and_the_project(store: str, records: list[Record], tmp_path: Path) -> None:
    document = json.loads(exported(store, "json", tmp_path / "out.json"))
    assert (document["schema"], document["project"]["name"]) == ("records/1", "link")
    assert [record["id"] for record in document["records"]] == [record.id for record in records]
    lines = exported(store, "jsonl", tmp_path / "out.jsonl").splitlines()
    assert [json.loads(line) for line in lines] == document["records"]
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_every_record_keeps_to_the_published_schema(records: list[Record]) -> None:
    schema = record_schema()
    assert schema["$schema"].startswith("https://json-schema.org/") and "error-record/1" in schema["title"]
    for record in records:
        document = json.loads(msgspec.json.encode(record))
        assert fault(document, {"$ref": schema["$ref"]}, schema["$defs"]) == ""
        assert "sites" in fault({**document, "sites": "none"}, {"$ref": schema["$ref"]}, schema["$defs"])


def test_lines_go_to_stdout_where_out_is_a_dash(store: str, records: list[Record]) -> None:
    command = [sys.executable, "-m", "windtunnel", "catalog", "export", "link", "--format", "jsonl", "-"]
    command += ["--store", store]
    lines = subprocess.run(command, capture_output=True, check=True).stdout.splitlines()
    assert [json.loads(line)["id"] for line in lines] == [record.id for record in records]


def test_sarif_has_a_rule_for_each_record_and_a_result_for_each_place(
    store: str, records: list[Record], tmp_path: Path
) -> None:
    document = json.loads(exported(store, "sarif", tmp_path / "out.sarif"))
    assert document["version"] == "2.1.0"
    (ran,) = document["runs"]
    rules = ran["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == [record.id for record in records]
    assert len(ran["results"]) == sum(len(record.sites) for record in records)
    by_id = {record.id: record for record in records}
    for result in ran["results"]:
        rule, record = rules[result["ruleIndex"]], by_id[result["ruleId"]]
        assert rule["id"] == result["ruleId"] and result["kind"] == "informational" and result["level"] == "none"
        said = re.sub(
            r"\{(\d+)\}", lambda hole: result["message"]["arguments"][int(hole[1])],  # noqa: B023
            rule["messageStrings"]["default"]["text"],
        )  # fmt: skip
        assert said == record.text
        place = result["locations"][0]["physicalLocation"]
        assert (unquote(place["artifactLocation"]["uri"]), place["region"]["startLine"]) in {
            (site.path, site.start) for site in record.sites
        }
    levels = {rule["id"]: rule.get("defaultConfiguration", {}).get("level") for rule in rules}
    assert {levels[r.id] for r in records if r.severity == "error"} == {"error"}
    assert {levels[r.id] for r in records if r.severity == "not analysed"} == {None}


def test_pages_lead_to_each_other_by_relative_links_only(store: str, records: list[Record], tmp_path: Path) -> None:
    folder = tmp_path / "pages"
    assert run(["link", str(folder), "--format", "html", "--store", store]) == 0
    pages = sorted(folder.rglob("*.html"))
    assert len(pages) == len(records) + 1
    for page in pages:
        found = elements(page.read_text())
        ids = {e.attributes["id"] for e in found if "id" in e.attributes}
        for element in found:
            link = element.attributes.get("href") or element.attributes.get("src")
            if link is None:
                continue
            path, _, anchor = link.partition("#")
            assert not re.match(r"/|\w+:", path), link
            assert (page.parent / path).is_file() if path else unquote(anchor) in ids, link
        assert not [e for e in found if e.tag == "form"]
    for record in records:
        assert json.loads((folder / "errors" / f"{record.id}.json").read_text())["id"] == record.id
        assert f"errors/{record.id}.html" in (folder / "index.html").read_text()


def test_a_folder_is_replaced_only_where_it_was_exported_before(store: str, tmp_path: Path) -> None:
    folder = tmp_path / "pages"
    folder.mkdir()
    (folder / "index.html").write_text("mine")
    with pytest.raises(ConfigurationError, match="not empty"):
        run(["link", str(folder), "--format", "html", "--store", store])
    assert (folder / "index.html").read_text() == "mine"
    (folder / "index.html").unlink()
    for _ in range(2):
        assert run(["link", str(folder), "--format", "html", "--store", store]) == 0
        (folder / "errors" / "gone.html").write_text("of an earlier export")
    assert run(["link", str(folder), "--format", "html", "--store", store]) == 0
    assert not (folder / "errors" / "gone.html").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["pages"]


@pytest.mark.parametrize("kind", ["json", "html"])
def test_what_can_not_be_written_or_found_is_an_error(store: str, tmp_path: Path, kind: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match=r"can't be written|is a file"):
        run(["link", str(tmp_path / "file" / "below"), "--format", kind, "--store", store])
    with pytest.raises(NotInCatalog):
        run(["lnk", str(tmp_path / "out"), "--format", kind, "--store", store])
    with pytest.raises(ConfigurationError):
        run(["link", "--format", kind, "--store", store])
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
