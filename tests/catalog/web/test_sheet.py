"""A record arranged for a page: anchors, citations, links to its source."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.catalog.trees import TRANSFERS, record_like, records_of
from tests.catalog.web.reading import elements
from windtunnel.catalog.record import Citation, Record
from windtunnel.catalog.web.links import Served
from windtunnel.catalog.web.render import render, static_digests
from windtunnel.catalog.web.sheet import MOST_SITES, Sheet


def linked(record: Record, address: str) -> Record:
    sites = [
        replace(site, permalink=address.format(path=site.path, start=site.start, end=site.end)) for site in record.sites
    ]
    return replace(record, sites=tuple(sites))


@pytest.mark.parametrize(
    ("address", "other"),
    [
        ("https://forge.example/r/blob/abc/{path}#L{start}-L{end}", "https://forge.example/r/blob/abc/a/b.py#L3-L4"),
        ("https://forge.example/r/-/blob/abc/{path}#L{start}-{end}", "https://forge.example/r/-/blob/abc/a/b.py#L3-4"),
        ("https://forge.example/r/{path}?line={start}", None),
        ("javascript:alert('{path}')#L{start}-L{end}", None),
    ],
)
def test_lines_are_linked_to_the_source_as_the_site_is(address: str, other: str | None) -> None:
    record = linked(record_like(records_of(TRANSFERS), "transfer from"), address)
    sheet, site = Sheet(record), record.sites[0]
    assert sheet.at("a/b.py", 3, 4).permalink == other
    own = sheet.at(site.path, site.start, site.end).permalink
    assert own == (site.permalink if address.startswith("https") else None)


def test_a_citation_of_what_is_not_quoted_leads_nowhere() -> None:
    sheet = Sheet(record_like(records_of(TRANSFERS), "transfer from"))
    assert sheet.at("engine/link.py", 18, 18).href == "#engine/link.py:18"
    assert sheet.at("engine/link.py", 1, 1).href is None
    shown = list(sheet.cited([Citation("a.py", 1, 1), Citation("a.py", 2, 4), Citation("b.py", 2, 2)]))
    assert [(each.lines, each.repeats_path) for each in shown] == [("1", False), ("2–4", True), ("2", False)]


def test_a_path_with_spaces_and_signs_is_an_anchor_that_can_be_reached() -> None:
    (record,) = records_of({"a dir/ü %41 #.py": "def f(x):\n    raise ValueError('odd path')\n"})
    sheet = Sheet(record)
    (place,) = sheet.places
    anchor = place.rows[-1].anchor
    assert anchor == "a_dir/ü__41_#.py:2"
    assert sheet.at(record.sites[0].path, 2, 2).href == "#a_dir/%C3%BC__41_%23.py:2"


def test_of_very_many_places_the_last_are_only_named_unless_all_are_asked_for() -> None:
    num_sites = MOST_SITES + 20
    text = "".join(f"def f{n}(x):\n    raise KeyError(f'many of {{x}} places')\n\n" for n in range(num_sites))
    (record,) = records_of({"many.py": text})
    for every_site, num_others in ((False, 20), (True, 0)):
        sheet = Sheet(record, every_site=every_site)
        page = elements(
            render(
                "record.html", Served(static_digests()), q="", project="tree", record=record, sheet=sheet,
                versions=["1"], version=None, current="1",
            )
        )  # fmt: skip
        assert len(sheet.others) == num_others
        anchors = {e.attributes["id"] for e in page if "id" in e.attributes}
        assert {f"many.py:{site.start}" for site in record.sites} <= anchors
        more = [e for e in page if "every_site=true" in e.attributes.get("href", "")]
        assert len(more) == (0 if every_site else 1)
