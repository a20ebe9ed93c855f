"""A record, arranged for a page: which line stands where, and where each citation leads."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from urllib.parse import quote

from windtunnel.catalog.record import (
    Caller,
    Citation,
    Doc,
    Guard,
    Handler,
    Line,
    Propagation,
    ProvokingTest,
    Record,
    Site,
)
from windtunnel.catalog.template import Hole
from windtunnel.catalog.web.render import outside

OPEN_SITES = 3
"""So many places are shown unfolded."""
MOST_SITES = 100
"""Of more places the others are only named, unless all are asked for."""
_LINES_OF_A_LINK = re.compile(r"#L\d+-(L?)\d+$")


class Row(NamedTuple):
    """A line of an excerpt."""

    number: int
    text: str
    anchor: str | None
    """Its place on the page; of lines that are shown several times only the first has one."""
    guards: tuple[Guard, ...]
    """Conditions that begin here."""
    raises: bool
    follows_gap: bool


class Place(NamedTuple):
    """A site with its excerpt."""

    site: Site
    rows: list[Row]
    number: int
    is_open: bool


class Cited(NamedTuple):
    """A citation as it is shown."""

    path: str
    lines: str
    href: str | None
    """To its first line on this page."""
    permalink: str | None
    repeats_path: bool
    """The citation before it is of the same file."""


class Sheet:
    """What the template of a record needs beside the record."""

    def __init__(self, record: Record, *, every_site: bool = False) -> None:
        self.record = record
        self._anchors: set[str] = set()
        shown = record.sites if every_site else record.sites[:MOST_SITES]
        self.places = [self._place(number, site) for number, site in enumerate(shown, 1)]
        self.others = [(site, self._new_anchor(site.path, site.start)) for site in record.sites[len(shown) :]]
        claims = [*record.severity_evidence, *(claim for _, claim in record.prose.claims())]
        cited = {path for site in shown for path in _cited_by(site)}
        cited |= {each.path for claim in claims for each in claim.citations}
        self.sources = [
            (each.path, self._rows(each.path, each.lines))
            for each in record.quotes
            if each.path in cited or not self.others
        ]
        self.holes = [part for part in record.template if isinstance(part, Hole) and (part.values or part.format)]
        self._linked = next((site for site in record.sites if site.permalink), None)

    def _place(self, number: int, site: Site) -> Place:
        return Place(site, self._rows(site.path, site.excerpt, site), number, number <= OPEN_SITES)

    def _rows(self, path: str, lines: Sequence[Line], site: Site | None = None) -> list[Row]:
        indent = min((_indent(line.text) for line in lines if line.text.strip()), default=0)
        rows: list[Row] = []
        for line in lines:
            anchor = self._new_anchor(path, line.number)
            guards = tuple(guard for guard in site.guards if guard.start == line.number) if site else ()
            raises = site is not None and site.start <= line.number <= site.end
            gap = bool(rows) and line.number > rows[-1].number + 1
            rows.append(Row(line.number, line.text[indent:], anchor, guards, raises, gap))
        return rows

    def _new_anchor(self, path: str, line: int) -> str | None:
        """None where the line is on the page already."""
        name = _anchor(path, line)
        if name in self._anchors:
            return None
        self._anchors.add(name)
        return name

    def cited(self, citations: Sequence[Citation | Doc | Handler]) -> Iterator[Cited]:
        """Each with the way to its lines."""
        before = None
        for each in citations:
            yield self.at(each.path, each.start, each.end)._replace(repeats_path=each.path == before)
            before = each.path

    def line(self, each: Caller | ProvokingTest | Propagation) -> tuple[Citation, ...]:
        """The one line of what leads to the error."""
        return (Citation(each.path, each.line, each.line),)

    def at(self, path: str, start: int, end: int) -> Cited:
        """Lines of a file, with the way to them."""
        name = _anchor(path, start)
        href = f"#{quote(name, safe='/:@')}" if name in self._anchors else None
        lines = f"{start}" if end == start else f"{start}–{end}"
        return Cited(path, lines, href, self._permalink(path, start, end), repeats_path=False)

    def _permalink(self, path: str, start: int, end: int) -> str | None:
        """As the sites have it: of a site's own lines its own, of others the same address with their path and lines."""
        site = self._linked
        if site is None or site.permalink is None:
            return None
        link = site.permalink
        if (path, start, end) != (site.path, site.start, site.end):
            lines = _LINES_OF_A_LINK.search(link)
            if lines is None or site.path not in link:
                return None
            link = f"{link[: lines.start()].replace(site.path, path)}#L{start}-{lines[1]}{end}"
        return outside(link)


def _cited_by(site: Site) -> Iterator[str]:
    """The files of what leads to a site, and of who handles it."""
    for found in (site.callers, site.handlers, site.tests, site.docs, site.propagations):
        yield from (each.path for each in found if not isinstance(each, str))  # which "not analysed" is made of


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip(" \t"))


def _anchor(path: str, line: int) -> str:
    return re.sub(r"[\s%]", "_", path) + f":{line}"
