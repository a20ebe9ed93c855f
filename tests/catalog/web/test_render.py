"""What becomes of characters on a page."""

from __future__ import annotations

from msgspec.structs import replace

from tests.catalog.trees import records_of
from tests.catalog.web.reading import elements
from windtunnel.catalog.differ import Difference, Named
from windtunnel.catalog.record import Record
from windtunnel.catalog.web.links import Exported, Served
from windtunnel.catalog.web.render import render, static_digests
from windtunnel.catalog.web.sheet import Sheet

TURNED = """
def f(user):
    if user != "admin\u202e\u2066 // is admin\u2069":
        raise E(f"access \u202edeined\u202c \\x00 {user}")
"""


def page_of(record: Record) -> str:
    return render(
        "record.html", Exported([record.id], depth=1), q="", project="tree", record=record, sheet=Sheet(record),
        versions=["1"], version=None, current="1",
    )  # fmt: skip


def test_a_character_that_is_not_seen_or_turns_the_order_of_others_is_told_by_its_number() -> None:
    (record,) = records_of({"a.py": TURNED})
    assert {"\u202e", "\0"} < set(record.text)
    page = page_of(record)
    assert not {"\u202e", "\u2066", "\u2069", "\u202c", "\0"} & set(page)
    (title,) = [element for element in elements(page) if element.tag == "h1"]
    assert title.text == "access‹U+202E›deined‹U+202C›‹U+0000›{user}"
    assert page.count("‹U+2066›") == page.count("‹U+2069›") >= 2


def test_letters_of_every_script_and_joined_emoji_stay_as_they_are() -> None:
    text = "קובץ אבד – ملف – 文件 – 👩\u200d🚒 é"
    (record,) = records_of({"a.py": f"def f(x):\n    raise E('{text}' + x)\n"})
    assert text in page_of(record)


def test_many_citations_of_a_claim_are_folded_and_none_is_lost() -> None:
    (record,) = records_of({"many.py": "".join(f"def f{n}(x):\n    raise E(f'many {{x}}')\n" for n in range(40))})
    most = max((claim.citations for _, claim in record.prose.claims()), key=len)
    assert len(most) > 12
    page = elements(page_of(record))
    (folded,) = [element for element in page if element.tag == "details" and "more" in element.classes]
    (claim,) = [element for element in folded.within if element.tag == "li"]
    cited = [e for e in page if "cite" in e.classes and claim in e.within]
    assert [f"many.py:{citation.start}" for citation in most] == [element.text for element in cited]
    assert sum(folded not in element.within for element in cited) == 8
    assert not [e for e in page if e.tag == "details" and any(outer.tag == "p" for outer in e.within)]


def test_an_address_of_a_source_that_would_run_something_is_no_link() -> None:
    (record,) = records_of({"a.py": "def f(x):\n    raise E(f'odd {x}')\n"})
    for address, is_link in (("javascript:alert(1)//#L2-L2", False), ("https://forge.example/a.py#L2-L2", True)):
        page = elements(page_of(replace(record, sites=(replace(record.sites[0], permalink=address),))))
        assert (address in [element.attributes.get("href") for element in page]) == is_link


def test_of_very_many_changes_a_page_has_the_first_and_a_link_to_all() -> None:
    added = tuple(Named(f"{n:016x}", "E", f"text {n}", "a.py", n) for n in range(5))
    found = Difference("error-diff/1", added, (), (), (), (), ())
    for most, is_cut in ((3, True), (5, False), (None, False)):
        page = render(
            "diff.html", Served(static_digests()), q="", project=None, snapshots=[], difference=found, a="x@1", b="x@2",
            versions=(None, None), most=most,
        )  # fmt: skip
        shown = [element.text for element in elements(page) if element.tag == "li"]
        assert len(shown) == (most or 5) and "text0" in shown[0]
        assert ("a=x%401&amp;b=x%402&amp;every=true#added" in page) == is_cut
        assert ("Show all 5" in page) == is_cut
