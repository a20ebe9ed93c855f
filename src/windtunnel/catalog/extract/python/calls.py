"""All calls of a file, by name, with what stands before the dot."""

from __future__ import annotations

import builtins
import re
from bisect import bisect_right
from functools import lru_cache
from typing import NamedTuple

from tree_sitter import Node

from windtunnel.catalog.extract.python.constructed import may_make_error
from windtunnel.catalog.extract.python.outline import Outline
from windtunnel.catalog.facts import CallFacts

_SPECIAL = frozenset((
    "error", "exception", "critical", "fatal", "exit", "_exit", "quit", "raises", "assertRaises", "assertRaisesRegex",
    "suppress", "__init__", "warning", "warn", "print", "print_exc", "set_exception", "print_exception",
))  # fmt: skip
_BUILTINS = frozenset(dir(builtins)) - {"exit", "quit"}
_PLAIN = re.compile(r"[\w.]*")
_NEW: list[int] = []
"""Stands for a call that was not seen yet."""
_IN_PARENTHESES, _IN_BRACKETS = re.compile(r"\([^()]+\)"), re.compile(r"\[[^\[\]]+\]")
_MOST_RECEIVER_CHARACTERS = 60


class Call(NamedTuple):
    """A call that may tell or expect an error, or do something with one."""

    name: str
    receiver: str
    node: Node
    """The function that is called; its parent is the call."""


def calls_of(outline: Outline, from_error_modules: set[str]) -> tuple[tuple[CallFacts, ...], list[Call]]:
    """Calls by name, without those of builtins; and, in order, those whose name has to do with errors.

    `from_error_modules`: names that the file imports from modules of errors.
    """
    data, line_starts = outline.data, outline.line_starts
    defined = {frame.name for frame in (*outline.functions, *outline.classes)}
    lines_of: dict[bytes, list[int] | None] = {}
    names: dict[bytes, tuple[str, str]] = {}
    by_name: dict[str, list[tuple[str, list[int]]]] = {}
    special = []
    for node in outline.found.get("call", ()):
        end = node.end_byte
        source = data[node.start_byte : end]
        lines = lines_of.get(source, _NEW)
        if lines is _NEW:
            name, receiver = _split(source)
            lines = None if not receiver and name in _BUILTINS and name not in defined else []
            lines_of[source] = lines
            if name in _SPECIAL or may_make_error(name, receiver, from_error_modules):
                names[source] = name, receiver
            if lines is not None:
                by_name.setdefault(name, []).append((receiver, lines))
        if lines is not None:
            lines.append(bisect_right(line_starts, end - 1))
        if source in names:
            special.append(Call(*names[source], node))
    special.sort(key=lambda call: call.node.start_byte)
    return tuple(_facts(name, by_name[name]) for name in sorted(by_name)), special


def _facts(name: str, places: list[tuple[str, list[int]]]) -> CallFacts:
    if len(places) == 1:
        receiver, lines = places[0]
        lines = sorted(set(lines)) if len(lines) > 1 else lines
        return CallFacts(name, tuple(lines), (receiver,) * len(lines))
    pairs = sorted({(line, receiver) for receiver, lines in places for line in lines})
    return CallFacts(name, tuple(line for line, _ in pairs), tuple(receiver for _, receiver in pairs))


@lru_cache(maxsize=1 << 16)
def _split(source: bytes) -> tuple[str, str]:
    """Name and receiver; the same calls come again and again, also in other files."""
    text = source.decode("utf-8", "replace")
    receiver, _, name = text.rpartition(".")
    if _PLAIN.fullmatch(text):
        return name, receiver
    receiver, name = receiver.strip(), name.strip()
    return name, receiver if _PLAIN.fullmatch(receiver) else _short(receiver)


def _short(receiver: str) -> str:
    """A receiver without what stands in its brackets, and only its end where it is long."""
    if receiver[0] in "\"'" or len(receiver) > 400:
        return "…"
    shorter = ""
    while shorter != receiver:
        shorter, receiver = receiver, _IN_PARENTHESES.sub("()", receiver)
    receiver = _IN_BRACKETS.sub("[]", "".join(receiver.split()))
    return receiver if len(receiver) <= _MOST_RECEIVER_CHARACTERS else "…" + receiver[-_MOST_RECEIVER_CHARACTERS:]
