"""What becomes of characters on a page."""

from __future__ import annotations

from tests.catalog.trees import records_of
from tests.catalog.web.reading import elements
from windtunnel.catalog.record import Record
from windtunnel.catalog.web.links import Exported
from windtunnel.catalog.web.render import render
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
