"""The evidence pack: all lines that an explanation of one error may be built on, and none of another's."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from windtunnel.catalog.extract import extract
from windtunnel.catalog.record import NOT_ANALYSED, Citation, Guard, Line, Record, Site
from windtunnel.errors import CatalogSourceError

Read = Callable[[str], bytes]
"""The content of a file of the source; raises CatalogSourceError."""

_MOST_SITES = 3
_MOST_FUNCTION_LINES = 160
_MOST_OTHERS = 8
_AROUND_CALL = 2
_MOST_DECIDING = 2


class Slice(NamedTuple):
    """Lines of one file, and why they are shown."""

    role: str
    """`function`, `class`, `handler`, `caller`, `test`, `conversion`, `doc`."""
    path: str
    lines: tuple[Line, ...]


class Pack(NamedTuple):
    """What a model is shown of a record."""

    nonce: str
    id: str
    type: str
    text: str
    """The message's template."""
    slices: tuple[Slice, ...]
    guards: tuple[tuple[str, Guard], ...]
    """Path and guard, of all sites that are shown."""
    names: tuple[str, ...] = ()
    """Functions and types that are known to lie on the error's way: they may be named wherever they are cited."""

    def line(self, path: str, number: int) -> str | None:
        """A line's text; None: it is not in the pack."""
        for each in self.slices:
            if each.path == path and each.lines and each.lines[0].number <= number <= each.lines[-1].number:
                for line in each.lines:
                    if line.number == number:
                        return line.text
        return None

    def cited(self, citation: Citation) -> list[str] | None:
        """The lines of a citation; None: not all of them are in the pack."""
        if not 1 <= citation.start <= citation.end <= citation.start + _MOST_FUNCTION_LINES:
            return None
        lines = [self.line(citation.path, number) for number in range(citation.start, citation.end + 1)]
        return None if any(line is None for line in lines) else [line or "" for line in lines]

    @property
    def deciding(self) -> list[Guard]:
        """The conditions that decide, of each site: those around the statement that are nearest to it.

        A condition that a statement stands in tells more than one that was passed before it.
        """
        found: list[Guard] = []
        for path in dict.fromkeys(path for path, _ in self.guards):
            here = [guard for other, guard in self.guards if other == path and guard.kind not in ("for", "cfg")]
            around = [guard for guard in here if guard.kind != "early exit"]
            found += (around or here)[-_MOST_DECIDING:]
        return found

    def assigned(self, name: str) -> str:
        """The expression of the only assignment to a variable; empty: there is none, or several."""
        found = re.findall(rf"^\s*{re.escape(name)}\s*(?::[^=]+)?=\s*([^=\s].*)$", self.source, re.MULTILINE)
        return found[0].strip() if len(found) == 1 else ""

    @property
    def source(self) -> str:
        """All its lines."""
        return "\n".join(line.text for each in self.slices for line in each.lines)


def make_pack(record: Record, read: Read, nonce: str) -> Pack:
    """Gather a record's evidence from its source. Files that can't be read any more are left out."""
    sites = record.sites[:_MOST_SITES]
    slices = [each for site in sites for each in _of_site(site, read)]
    guards = tuple((site.path, guard) for site in sites for guard in site.guards)
    merged = {(each.role, each.path, each.lines[0].number): each for each in slices if each.lines}
    names = tuple(dict.fromkeys(name for name in _names(record) if name))
    return Pack(nonce, record.id, record.type, record.text, tuple(merged.values()), guards, names)


def _names(record: Record) -> Iterator[str]:
    for site in record.sites:
        yield from (site.function, site.path)
        yield from site.cause.types if site.cause is not None else ()
        for handler in site.handlers if site.handlers != NOT_ANALYSED else ():
            yield from (handler.function, *handler.catches, *handler.via)
        for caller in site.callers if site.callers != NOT_ANALYSED else ():
            yield from (caller.function, *caller.via)
        for test in site.tests if site.tests != NOT_ANALYSED else ():
            yield test.function
        yield from (each.function for each in site.propagations)
    for link in (*record.wraps, *record.wrapped_by):
        yield from (link.type, link.text)


def _of_site(site: Site, read: Read) -> Iterator[Slice]:
    start, end = _function_around(site, read)
    yield Slice("function", site.path, _lines(read, site.path, start, end))
    for doc in site.docs:
        role = "class" if doc.of in ("type", "variant") else "doc"
        yield Slice(role, doc.path, _lines(read, doc.path, doc.start, doc.end))
    for handler in site.handlers[:_MOST_OTHERS] if site.handlers != NOT_ANALYSED else ():
        yield Slice("handler", handler.path, _lines(read, handler.path, handler.start, handler.end))
    for caller in site.callers[:_MOST_OTHERS] if site.callers != NOT_ANALYSED else ():
        lines = _lines(read, caller.path, max(1, caller.line - _AROUND_CALL), caller.line + _AROUND_CALL)
        yield Slice("caller", caller.path, lines)
    for test in site.tests[:2] if site.tests != NOT_ANALYSED else ():
        yield Slice("test", test.path, _lines(read, test.path, max(1, test.line - 4), test.line + 4))
    for each in site.propagations[:_MOST_OTHERS]:
        yield Slice("conversion", each.path, _lines(read, each.path, each.line, each.line))


def _function_around(site: Site, read: Read) -> tuple[int, int]:
    """The raising function's lines; of a long one those from its guards to the statement, and some around."""
    first = min([guard.start for guard in site.guards] + [site.start])
    start, end = max(1, first - 10), site.end + 5
    try:
        facts = extract(site.path, read(site.path))
    except CatalogSourceError:
        return start, end
    for function in facts.functions:
        if function.start <= site.start <= function.end and function.qualified == site.function:
            if function.end - function.start < _MOST_FUNCTION_LINES:
                return function.start, function.end
            return max(function.start, start), min(function.end, end)
    return start, end


def _lines(read: Read, path: str, start: int, end: int) -> tuple[Line, ...]:
    try:
        texts = read(path).decode("utf-8", "replace").split("\n")
    except CatalogSourceError:
        return ()
    return tuple(Line(number, texts[number - 1].rstrip()) for number in range(start, min(end, len(texts)) + 1))
