"""Lines of text with a style each, and the two ways to put them out: plain, and in colour."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple, TextIO

Style = Literal["", "title", "good", "bad", "warn", "quote", "hint"]

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


def plain(lines: Iterable[Line]) -> str:
    """The text without styles, a newline after each line."""
    return "".join(f"{line.text}\n" for line in lines)


def write(lines: Iterable[Line], stream: TextIO) -> None:
    """Put the lines out: in colour when the stream is a terminal and NO_COLOR is not set."""
    if not stream.isatty() or os.environ.get("NO_COLOR"):
        stream.write(plain(lines))
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(file=stream, highlight=False, soft_wrap=True)
    for line in lines:
        console.print(Text(line.text, style=_RICH_STYLES[line.style]))


def wrapped(text: str, *, first: str, rest: str, width: int, style: Style = "") -> Iterator[Line]:
    """The text as lines of at most `width` characters: the first begins with `first`, the others with `rest`."""
    parts = textwrap.wrap(printable(text), width, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False)
    for part in parts or [first]:
        yield Line(part, style)


def printable(text: str) -> str:
    """The text with control characters escaped: what a server sends must not steer a terminal."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def shortened(text: str, max_chars: int) -> str:
    """The text's beginning, with an ellipsis where the rest is left out."""
    return text if len(text) <= max_chars else text[: max_chars - 1] + "…"
