"""What classes, loggers and protocols put around a message: taken off, one at a time."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

_MOST_LITERAL_CHARACTERS = 20_000


class Variant(NamedTuple):
    """A message as it may have been before something was put around it."""

    text: str
    without: str
    """What was taken off, in words; empty: nothing."""
    is_sure: bool = True
    """The envelope has a form that nothing else has."""


class _Envelope(NamedTuple):
    pattern: re.Pattern[str]
    """With a group `message`."""
    name: str
    is_sure: bool = True


def _envelope(pattern: str, name: str, is_sure: bool = True) -> _Envelope:
    return _Envelope(re.compile(pattern, re.DOTALL), name, is_sure)


_ENVELOPES = (
    _envelope(r"(?P<message>.+): line \d+ column \d+ \(char \d+\)", "JSONDecodeError's place"),
    _envelope(r"(?P<message>.+) at position \d+(?: \(line \d+, column \d+\))?", "re.error's place"),
    _envelope(r"(?P<message>.+) \([^()\n]{1,200}, line \d+\)", "SyntaxError's place"),
    _envelope(r"\[Errno -?\d+\] (?P<message>.+?)(?:: '[^'\n]*'(?: -> '[^'\n]*')?)?", "OSError's number and file"),
    _envelope(r"argument [^\n]{1,200}?: (?P<message>.+)", "ArgumentError's argument"),
    _envelope(r"<urlopen error (?P<message>.+)>", "URLError's words"),
    _envelope(r"Value error, (?P<message>.+?)(?: \[type=\w+, .*)?", "pydantic's words"),
    _envelope(r"Assertion failed, (?P<message>.+?)(?: \[type=\w+, .*)?", "pydantic's words"),
    _envelope(r"(?P<message>.+?) \[type=\w+, input_value=.*\]", "pydantic's words"),
    _envelope(r"Error: (?P<message>.+)", "`Error: `"),
    _envelope(r"Caused by: ?(?P<message>.+)", "`Caused by: `"),
    _envelope(r"(?P<message>.+?): Os \{ code: .*\}", "the error that expect() shows"),
    _envelope(r"(?P<message>.+?) \(os error \d+\)", "the system's number"),
    _envelope(r"\('(?P<message>[^'\n]+)', .*\)", "the other arguments"),
    _envelope(r"(?P<message>[^\n]+)\n.+", "further lines"),
    _envelope(r"[\w.-]+\[\d+\]: (?P<message>.+)", "a process's name"),
    _envelope(r"(?:[\w.]+|\w+(?:::\w+)+):(?: |(?=\S))(?P<message>.+)", "a name before a colon", False),
    _envelope(r"[^\n:]{1,80}: (?P<message>.+)", "words before a colon", False),
)
_MOST_VARIANTS = 24


def variants_of(message: str, type_: str = "") -> Iterator[Variant]:
    """The message itself, then what is left when known envelopes are taken off; each text once."""
    seen: set[str] = set()
    todo = [Variant(message, "")]
    while todo and len(seen) < _MOST_VARIANTS:
        variant = todo.pop(0)
        if not variant.text.strip() or variant.text in seen:
            continue
        seen.add(variant.text)
        yield variant
        plain = _unrepr(variant.text)
        if plain is not None:
            is_tuple = variant.text.lstrip().startswith("(")
            name = "the other arguments" if is_tuple else "KeyError's quotes" if type_ == "KeyError" else "quotes"
            todo.append(Variant(plain, _joined(variant.without, name), variant.is_sure))
        for pattern, name, is_sure in _ENVELOPES:
            if match := pattern.fullmatch(variant.text):
                todo.append(Variant(match["message"], _joined(variant.without, name), variant.is_sure and is_sure))


def _joined(before: str, name: str) -> str:
    return f"{before}, {name}" if before else name


def _unrepr(text: str) -> str | None:
    """What a repr shows, of a tuple its first text; None: it is none."""
    text = text.strip()
    is_text = len(text) >= 2 and text[0] in "'\"" and text[-1] == text[0]
    is_tuple = text.startswith(("('", '("')) and text.endswith(")")
    if not (is_text or is_tuple) or len(text) > _MOST_LITERAL_CHARACTERS:
        return None
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    value = value[0] if isinstance(value, tuple) and value else value
    return value if isinstance(value, str) else None
