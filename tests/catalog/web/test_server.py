"""Pages and their JSON twins, over real connections."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlencode, urlsplit

import pytest

from tests.catalog.trees import TRANSFERS, records_of
from tests.catalog.web.conftest import LATER, wheel
from tests.catalog.web.reading import Element, elements, squeezed
from tests.catalog.web.schemas import fault
from tests.catalog.web.serving import ask, serving
from windtunnel.catalog.indexing import index
from windtunnel.catalog.record import Record
from windtunnel.catalog.source import open_source
from windtunnel.catalog.store import Store
from windtunnel.catalog.web.links import Exported
from windtunnel.catalog.web.render import render, when
from windtunnel.catalog.web.sheet import Sheet

FIELDS = {"meaning": "meaning", "trigger": "trigger", "situations": "situations", "solutions": "solutions"}


def facts(value: Any) -> Iterator[str]:
    """Every text and number of a record's JSON, as a page writes it."""
    if isinstance(value, dict):
        for name, each in value.items():
            if name == "indexed_at":
                yield when(each)
            elif name not in ("holds", "stale") and (name, each) != ("message_source", "message"):
                yield from facts(each)
    elif isinstance(value, list):
        for each in value:
            yield from facts(each)
    elif value is not None:
        yield str(value)


def body_of(page: list[Element]) -> Element:
    return next(element for element in page if element.tag == "body")


def claims_of(page: list[Element], section: str) -> list[Element]:
    """The items of the list of claims in the section with that heading."""
    sections = [e.within[-1] for e in page if e.tag == "h2" and e.attributes.get("id") == section]
    return [
        e for e in page if e.tag == "li" and "claims" in e.within[-1].classes and e.within[-2] in sections
    ]  # fmt: skip


def record_like(records: list[Record], text: str) -> Record:
    return next(record for record in records if text in record.text)


def test_a_page_says_every_fact_of_its_json_twin(address: str, records: list[Record]) -> None:
    assert len(records) == 7
    for record in records:
        twin = ask(address, f"/api/errors/{record.id}").json
        text = body_of(elements(ask(address, f"/errors/{record.id}").text)).text
        missing = [
            fact for fact in facts(twin) if squeezed(fact) not in text and squeezed(fact).replace("`", "") not in text
        ]
        # "handled" is told in words
        assert set(missing) <= {twin.get("handled")}, record.text
        said = [twin["handled"], twin["severity"]]
        said += [site[name] for site in twin["sites"] for name in ("callers", "handlers", "tests")]
        assert said.count("not analysed") == text.count("notanalysed"), record.text


def test_each_claim_stands_with_its_origin_and_its_own_citations(address: str, records: list[Record]) -> None:
    num_claims = 0
    for record in records:
        twin = ask(address, f"/api/errors/{record.id}").json
        page = elements(ask(address, f"/errors/{record.id}").text)
        for section, claims in [*twin["prose"].items(), ("severity", twin.get("severity_evidence", []))]:
            shown = claims_of(page, section)
            assert len(shown) == len(claims), (record.text, section)
            for item, claim in zip(shown, claims, strict=True):
                num_claims += 1
                assert item.text.startswith(squeezed(claim["text"].replace("`", "")))
                assert squeezed(claim["origin"]) in item.text
                for cited in claim["citations"]:
                    lines = (
                        f"{cited['start']}" if cited["start"] == cited["end"] else f"{cited['start']}–{cited['end']}"
                    )
                    assert f"{cited['path']}:{lines}" in item.text
    assert num_claims > 30


def test_every_citation_leads_to_a_quoted_line_of_the_page(address: str, records: list[Record]) -> None:
    for record in records:
        page = elements(ask(address, f"/errors/{record.id}").text)
        anchors = [e.attributes["id"] for e in page if "id" in e.attributes]
        assert len(anchors) == len(set(anchors))
        links = [e for e in page if e.tag == "a" and any("cite" in each.classes for each in e.within)]
        assert links
        for link in links:
            assert unquote(link.attributes["href"].removeprefix("#")) in anchors
        for _, claim in record.prose.claims():
            for cited in claim.citations:
                assert bool(record.quoted(cited)) == any(
                    unquote(e.attributes["href"]) == f"#{cited.path}:{cited.start}" for e in links
                )


def test_guards_are_marked_with_their_polarity(address: str, records: list[Record]) -> None:
    record = record_like(records, "transfer from")
    page = elements(ask(address, f"/errors/{record.id}").text)
    marked = [e.text for e in page if e.tag == "li" and "guards" in e.within[-1].classes]
    assert [guard.holds for guard in record.sites[0].guards] == ["✗" not in each for each in marked]
    assert len(marked) == 4 and sum("✗doesnothold" in each for each in marked) == 1


def test_holes_can_be_told_from_words_and_show_their_values(address: str, records: list[Record]) -> None:
    page = elements(ask(address, f"/errors/{record_like(records, 'door is').id}").text)
    (title,) = [e for e in page if e.tag == "h1"]
    assert title.text == "dooris{state}:{error}"
    assert [e.text for e in page if "hole" in e.classes and title in e.within] == ["{state}", "{error}"]
    (values,) = [e for e in page if e.tag == "dl" and "values" in e.classes]
    assert "openshut" in values.text


def test_source_text_is_text_and_nothing_else(address: str, records: list[Record]) -> None:
    record = record_like(records, "alert")
    for path in (f"/errors/{record.id}", "/search?q=%3Cscript%3Ealert", "/projects/link", "/search?q=alert"):
        page = elements(ask(address, path).text)
        assert [e.attributes.get("src", "")[:8] for e in page if e.tag == "script"] == ["/static/"]
        assert not [e for e in page if e.tag == "em" or any(name.startswith("on") for name in e.attributes)]
    assert "<script>alert('odd')</script>&🌀" in body_of(elements(ask(address, f"/errors/{record.id}").text)).text
    form = urlencode({"text": "</textarea><script>alert(1)</script>"}).encode()
    page = ask(address, "/explain", "POST", form, Content_Type="application/x-www-form-urlencoded").text
    assert "<script>alert" not in page


def test_headers_keep_a_page_to_itself(address: str) -> None:
    for path in ("/", "/api/projects", "/nothing", "/static/style.css", "/api/nothing"):
        got = ask(address, path, Origin="http://evil.example")
        policy = got.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy
        assert got.headers["x-content-type-options"] == "nosniff"
        assert got.headers["access-control-allow-origin"] is None and got.headers["set-cookie"] is None
        assert got.headers["server"] is None


@pytest.mark.parametrize(
    ("host", "status"),
    [("evil.example", 421), ("localhost:1", 200), ("[::1]:80", 200), ("127.0.0.1", 200), ("", 421),
     ("localhost.evil.example", 421), ("127.0.0.1.evil.example", 421)],
)  # fmt: skip
def test_a_page_of_another_site_can_not_read_the_catalog_by_a_name_of_its_own(
    address: str, host: str, status: int
) -> None:
    for path in ("/", "/api/projects", "/static/style.css"):
        assert ask(address, path, Host=host).status == status


def test_a_record_has_a_tag_by_which_it_is_not_sent_again(address: str, records: list[Record]) -> None:
    path = f"/api/errors/{records[0].id}"
    first = ask(address, path)
    again = ask(address, path, If_None_Match=f'"other", W/{first.headers["etag"]}')
    assert (again.status, again.body) == (304, b"")
    assert ask(address, path, If_None_Match='"other"').status == 200
    assert ask(address, f"/api/errors/{records[1].id}").headers["etag"] != first.headers["etag"]
    head = ask(address, path, "HEAD")
    assert (head.status, head.body, head.headers["content-length"]) == (200, b"", str(len(first.body)))


def test_an_earlier_id_redirects_for_good_and_the_beginning_of_one_for_now(
    address: str, records: list[Record], catalog: Path
) -> None:
    record = record_like(records, "in state=")
    (earlier,) = record.aliases
    for base in ("/errors", "/api/errors"):
        got = ask(address, f"{base}/{earlier}")
        assert (got.status, got.headers["location"]) == (301, f"{base}/{record.id}")
        got = ask(address, f"{base}/{record.id[:8]}")
        assert (got.status, got.headers["location"]) == (302, f"{base}/{record.id}")
    assert "with state=" in ask(address, f"/errors/{earlier}?version=1.0").text
    assert ask(address, f"/api/errors/{earlier}?version=1.0").json["provenance"]["version"] == "1.0"


def test_projects_are_listed_filtered_and_counted(address: str, records: list[Record]) -> None:
    every = ask(address, "/api/projects?every_version=true").json["projects"]
    assert [(p["version"], p["current"]) for p in every] == [("2.0", True), ("1.0", False)]
    assert [p["version"] for p in ask(address, "/api/projects").json["projects"]] == ["2.0"]
    assert "linkfrom" not in body_of(elements(ask(address, "/").text)).text
    page = elements(ask(address, "/projects/link").text)
    facets = [e.text for e in page if e.tag == "li" and any("facets" in each.classes for each in e.within)]
    for kind in {record.kind for record in records}:
        assert f"{squeezed(kind)}{sum(record.kind == kind for record in records)}" in facets
    filtered = elements(ask(address, "/projects/link?kind=log").text)
    shown = [e.attributes["href"] for e in filtered if e.tag == "a" and "what" in e.classes]
    assert shown == [f"/errors/{record.id}" for record in records if record.kind == "log"]
    earlier = ask(address, "/projects/link?version=1.0").text
    assert "earlier version" in earlier and "with state=" in earlier


def test_a_list_is_given_page_by_page(address: str, records: list[Record]) -> None:
    parts = [ask(address, f"/api/errors?project=link&limit=3&offset={n}").json["hits"] for n in (0, 3, 6, 9)]
    assert [len(part) for part in parts] == [3, 3, 1, 0]
    assert [hit["id"] for part in parts for hit in part] == [record.id for record in records]


def test_a_search_finds_on_the_page_what_it_finds_in_json(address: str) -> None:
    for words in ("transfer state", "KeyError", "engine/link.py"):
        hits = ask(address, f"/api/errors?q={quote(words)}").json["hits"]
        page = elements(ask(address, f"/search?q={quote(words)}").text)
        shown = [e.attributes["href"] for e in page if e.tag == "a" and "what" in e.classes]
        assert shown == [f"/errors/{hit['id']}" for hit in hits] and hits
    assert ask(address, "/api/errors?q=zzzqqq").json["hits"] == []
    assert "No error is like" in ask(address, "/search?q=zzzqqq").text
    assert ask(address, "/search?q=").headers["location"] == "/"


def test_a_text_is_explained_on_the_page_and_in_json(address: str) -> None:
    text = "engine.errors.TransferFailed: transfer from rank 3 failed in state=ERR"
    twin = ask(address, "/api/explain", "POST", text.encode(), Content_Type="text/plain").json
    body = json.dumps({"text": text, "project": "link"}).encode()
    assert ask(address, "/api/explain", "POST", body, Content_Type="application/json; charset=utf-8").json == twin
    assert twin["found"] and twin["records"][0]["values"]
    form = urlencode({"text": text, "project": "link"}).encode()
    got = ask(address, "/explain", "POST", form, Content_Type="application/x-www-form-urlencoded")
    page = elements(got.text)
    said = next(e for e in page if e.attributes.get("id") == "answer").text
    for match in twin["records"]:
        for each in [match["id"], *match["evidence"], *match["meaning"], *match["trigger"], *match["solutions"],
                     *(value["value"] for value in match["values"])]:  # fmt: skip
            assert squeezed(each.replace("`", "")) in said
    assert next(e for e in page if e.tag == "textarea").text == squeezed(text)


def test_a_traceback_shows_its_root_first_and_a_long_log_is_read(address: str) -> None:
    line = "ERROR worker failed: transfer from rank 3 failed in state=ERR\n"
    log = "".join(f"INFO step {n} done\n" for n in range(300)) + line
    twin = ask(address, "/api/explain", "POST", log.encode()).json
    assert twin["found"] and [error["first_line"] for error in twin["errors"]] == [301]
    assert not ask(address, "/api/explain", "POST", b"ZeroDivisionError: division by zero").json["found"]


def test_versions_are_compared_on_the_page_and_in_json(address: str) -> None:
    twin = ask(address, "/api/diff?a=link@1.0&b=link@2.0").json
    assert {key: len(twin[key]) for key in ("added", "removed", "reworded", "guards")} == {
        "added": 5, "removed": 0, "reworded": 1, "guards": 1
    }  # fmt: skip
    assert ask(address, "/api/diff?a=link@1.0&b=link").json == twin
    text = body_of(elements(ask(address, "/diff?a=link@1.0&b=link@2.0").text)).text
    for field in ("added", "removed", "reworded", "moved", "guards", "severities"):
        for fact in facts(twin[field]):
            assert squeezed(fact)[:150] in text
    assert "No difference." in ask(address, "/diff?a=link&b=link@2.0").text


@pytest.mark.parametrize(
    ("path", "method", "body", "status"),
    [
        ("/api/errors/ffffffffffffffff", "GET", None, 404),
        ("/api/errors/zz", "GET", None, 404),
        ("/api/errors/%00%ff", "GET", None, 404),
        ("/api/errors?limit=x&q=a", "GET", None, 400),
        ("/api/errors?limit=99999&q=a", "GET", None, 400),
        ("/api/errors?limit=0&q=a", "GET", None, 400),
        ("/api/errors?limit=1&limit=2&q=a", "GET", None, 400),
        ("/api/errors", "GET", None, 400),
        ("/api/errors?qq=1", "GET", None, 400),
        ("/api/errors?project=lnk", "GET", None, 404),
        ("/api/projects?every_version=7", "GET", None, 400),
        ("/api/diff?a=link", "GET", None, 400),
        ("/api/diff?a=link&b=link@9", "GET", None, 404),
        ("/api/explain", "POST", b"  ", 400),
        ("/api/explain", "POST", b"x" * (3 << 20), 413),
        ("/api/explain", "GET", None, 405),
        ("/api/nothing", "GET", None, 404),
        (f"/api/errors?q={'a' * 9000}", "GET", None, 414),
    ],
)
def test_what_goes_wrong_is_a_problem_document_whose_type_leads_somewhere(
    address: str, path: str, method: str, body: bytes | None, status: int
) -> None:
    got = ask(address, path, method, body)
    assert (got.status, got.headers["content-type"]) == (status, "application/problem+json")
    assert got.json["status"] == status and got.json["detail"] and got.json["title"]
    assert got.json["type"].startswith(f"{address}/problems/")
    assert got.json["title"] in ask(address, got.json["type"].removeprefix(address)).text


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [(b"{", "application/json", 400), (b'{"text": 3}', "application/json", 400), (b"[]", "application/json", 400),
     (b'{"text": "x", "more": 1}', "application/json", 400), (b'{"text": "x", "limit": 0}', "application/json", 400),
     (b'{"text": "x", "project": "none"}', "application/json", 404), (b"\xff\xfe", "application/json", 400),
     (b"x", "image/png", 415), (b"\xff\xfe\x00", "text/plain", 200)],
)  # fmt: skip
def test_a_body_that_can_not_be_read_is_refused(address: str, body: bytes, kind: str, status: int) -> None:
    assert ask(address, "/api/explain", "POST", body, Content_Type=kind).status == status


def test_a_body_without_a_length_is_read_only_as_far_as_it_is_taken(address: str) -> None:
    connection = HTTPConnection(urlsplit(address).netloc, timeout=30)
    try:
        connection.request("POST", "/api/explain", iter([b"x" * (1 << 20)] * 3), encode_chunked=True)
        assert connection.getresponse().status == 413
    except (BrokenPipeError, ConnectionResetError):
        pass  # it was closed while we still wrote, which is allowed
    finally:
        connection.close()
    assert ask(address, "/api/projects").status == 200


@pytest.mark.parametrize("path", ["/errors/ffffffffffffffff", "/projects/none", "/nothing", "/projects/link?page=x"])
def test_pages_that_are_not_there_say_so_as_pages(address: str, path: str) -> None:
    got = ask(address, path)
    assert got.status in (400, 404) and got.headers["content-type"].startswith("text/html")
    assert [e for e in elements(got.text) if e.tag == "h1"]


def test_every_answer_of_the_api_is_what_the_openapi_document_says(address: str, records: list[Record]) -> None:
    document = ask(address, "/openapi.json").json
    assert document["openapi"] == "3.1.0"
    schemas = document["components"]["schemas"]
    asked = {
        "/api/errors/{id}": [f"/api/errors/{r.id}" for r in records] + ["/api/errors/none"],
        "/api/errors": ["/api/errors?q=many", "/api/errors?project=link&limit=2&offset=1", "/api/errors"],
        "/api/projects": ["/api/projects", "/api/projects?every_version=true", "/api/projects?x=1"],
        "/api/diff": ["/api/diff?a=link@1.0&b=link@2.0", "/api/diff?a=none&b=link", "/api/diff"],
        "/api/explain": ["/api/explain"],
        "/error-record.schema.json": ["/error-record.schema.json"],
        "/openapi.json": ["/openapi.json"],
    }
    assert set(asked) == set(document["paths"])
    for path, examples in asked.items():
        ((method, operation),) = document["paths"][path].items()
        for example in examples:
            got = ask(address, example, method.upper(), b"KeyError: many of 3 places" if method == "post" else None)
            ((kind, said),) = operation["responses"][str(got.status)]["content"].items()
            assert got.headers["content-type"] == kind
            assert fault(got.json, said["schema"], schemas) == ""
            given = set(re.findall(r"[?&](\w+)=", example)) if got.status == 200 else set()
            assert given <= {parameter["name"] for parameter in operation["parameters"]}
    broken = ask(address, f"/api/errors/{records[0].id}").json
    del broken["sites"][0]["path"]
    assert "path" in fault(broken, {"$ref": "/Record"}, schemas)


def test_the_schema_of_a_record_is_served_as_it_is_published(address: str, records: list[Record]) -> None:
    published = json.loads((Path(__file__).parents[3] / "docs/reference/error-record.schema.json").read_text("utf-8"))
    served = ask(address, "/error-record.schema.json")
    assert served.json == published
    for record in records:
        assert fault(ask(address, f"/api/errors/{record.id}").json, {"$ref": "/Record"}, published["$defs"]) == ""


def test_a_record_that_is_gone_is_shown_as_the_last_version_has_it(tmp_path: Path) -> None:
    path = tmp_path / "catalog.sqlite"
    fewer = {name: text for name, text in TRANSFERS.items() if "worker" not in name}
    with Store.open(path, write=True) as store:
        for version, files in (("1.0", TRANSFERS), ("2.0", TRANSFERS), ("3.0", fewer)):
            index(open_source(wheel(tmp_path / f"link-{version}.whl", files)), store)
        gone = record_like(list(store.records("link", "1.0")), "worker failed")
    with serving("--store", str(path)) as server:
        got = ask(server.address, f"/errors/{gone.id}")
        assert (got.status, got.headers["location"]) == (302, f"/errors/{gone.id}?version=2.0")
        page = ask(server.address, got.headers["location"]).text
        assert "Version 3.0 does not have it any more." in page
        versions = [e.text for e in elements(page) if e.tag == "a" and "version=" in e.attributes.get("href", "")]
        assert {"1.0", "2.0"} <= set(versions)
        assert ask(server.address, f"/api/errors/{gone.id}").status == 404


def test_a_language_without_flow_says_not_analysed() -> None:
    (record,) = records_of({"a.java": 'class A { void f() { throw new B("x y z"); } }'})
    page = render(
        "record.html", Exported([record.id], depth=1), q="", project="tree", record=record, sheet=Sheet(record),
        versions=["1"], version=None, current="1",
    )  # fmt: skip
    assert body_of(elements(page)).text.count("notanalysed") == 5


def test_a_fault_is_told_on_stderr_and_not_to_who_asked(tmp_path: Path) -> None:
    path = tmp_path / "catalog.sqlite"
    with Store.open(path, write=True) as store:
        index(open_source(wheel(tmp_path / "link-1.0.whl", TRANSFERS)), store)
        record = next(store.records("link"))
        with store.writing() as connection:
            connection.execute("UPDATE records SET body = x'00'")
    with serving("--store", str(path)) as server:
        for where in ("/errors", "/api/errors"):
            got = ask(server.address, f"{where}/{record.id}")
            assert got.status == 500 and "zlib" not in got.text and "Traceback" not in got.text
            assert got.headers["content-security-policy"]
        assert ask(server.address, "/projects/link").status == 200


def test_what_the_catalog_gets_or_loses_is_seen_at_the_next_request(tmp_path: Path) -> None:
    path = tmp_path / "catalog.sqlite"
    with Store.open(path, write=True) as store:
        index(open_source(wheel(tmp_path / "link-1.0.whl", TRANSFERS)), store)
    with serving("--store", str(path)) as server:
        assert "2 errors" in ask(server.address, "/projects/link").text
        with Store.open(path, write=True) as store:
            index(open_source(wheel(tmp_path / "link-2.0.whl", LATER)), store)
        assert "7 errors" in ask(server.address, "/projects/link").text
        path.rename(tmp_path / "elsewhere")
        got = ask(server.address, "/api/projects")
        assert (got.status, got.json["code"]) == (503, "WT-CATALOG-NO-STORE")
        path.write_bytes(b"no database at all" * 100)
        assert ask(server.address, "/").status == 503
