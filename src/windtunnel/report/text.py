"""Lines of text with a style each, and the two ways to put them out: plain, and in colour."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple, TextIO

Style = Literal["", "title", "good", "bad", "warn", "quote", "hint"]

WIDEST = 100
_NARROWEST = 60
_USUAL = 80
"""Of a terminal that doesn't tell its width."""

_RICH_STYLES: dict[Style, str] = {
    "": "",
    "title": "bold",
    "good": "green",
    "bad": "bold red",
    "warn": "yellow",
    "quote": "dim",
    "hint": "cyan",
}


class Line(NamedTuple):
    """One line, without its end."""

    text: str
    style: Style = ""
    rest: str | None = None
    """What the lines begin with that it is continued on where it is too wide; None: it is never broken."""


def plain(lines: Iterable[Line], width: int = WIDEST) -> str:
    """The text without styles, a newline after each line."""
    return "".join(f"{line.text}\n" for line in broken(lines, width))


def write(lines: Iterable[Line], stream: TextIO) -> None:
    """Put the lines out, as wide as the stream is; in colour when it is a terminal and NO_COLOR is not set."""
    width = width_of(stream)
    if not stream.isatty() or os.environ.get("NO_COLOR"):
        stream.write(plain(lines, width))
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(file=stream, highlight=False, soft_wrap=True)
    for line in broken(lines, width):
        console.print(Text(line.text, style=_RICH_STYLES[line.style]))


def width_of(stream: TextIO) -> int:
    """How wide lines may be: as the terminal, from 60 to 100; where the stream is none, 100."""
    if not stream.isatty():
        return WIDEST
    columns = os.get_terminal_size(stream.fileno()).columns or _USUAL
    return max(_NARROWEST, min(columns, WIDEST))


def broken(lines: Iterable[Line], width: int) -> Iterator[Line]:
    """The lines, with those that may be broken broken between words to at most `width` characters."""
    for line in lines:
        if line.rest is None:
            yield line
            continue
        for part in textwrap.wrap(line.text, width, subsequent_indent=line.rest, break_on_hyphens=False):
            yield Line(part, line.style)


def printable(text: str) -> str:
    """The text with control characters escaped: what a server sends must not steer a terminal."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def shortened(text: str, max_chars: int) -> str:
    """The text's beginning, with an ellipsis where the rest is left out."""
    return text if len(text) <= max_chars else text[: max_chars - 1] + "…"
