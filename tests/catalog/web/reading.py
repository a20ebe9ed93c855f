"""A page as its reader has it: elements, with all that is written in them."""

from __future__ import annotations

import re
from html.parser import HTMLParser

_VOID = frozenset(("meta", "link", "input", "br", "hr", "img", "wbr"))


class Element:
    """`text`: everything in it, without white space, so that breaks of lines do not count."""

    def __init__(self, tag: str, attributes: dict[str, str], within: tuple[Element, ...]) -> None:
        self.tag, self.attributes, self.within = tag, attributes, within
        self.pieces: list[str] = []

    @property
    def text(self) -> str:
        return squeezed("".join(self.pieces))

    @property
    def classes(self) -> list[str]:
        return self.attributes.get("class", "").split()


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[Element] = []
        self.open: list[Element] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attrs}, tuple(self.open))
        self.found.append(element)
        if tag not in _VOID:
            self.open.append(element)

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1].tag == tag, f"</{tag}> at {self.getpos()}, open: {self.open[-1].tag}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        for element in self.open:
            element.pieces.append(data)


def elements(page: str) -> list[Element]:
    """Every element; asserts that each is closed where it should be."""
    reader = _Reader()
    reader.feed(page)
    reader.close()
    assert not reader.open
    return reader.found


def squeezed(text: str) -> str:
    return re.sub(r"\s+", "", text)
