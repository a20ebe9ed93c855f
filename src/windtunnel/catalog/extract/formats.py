"""Format strings → parts: `printf`'s, and those with braces."""

from __future__ import annotations

import re
from collections.abc import Sequence

from windtunnel.catalog.template import Hole, Part, merged

_PERCENT = re.compile(r"%(?:%|(?:(\d+)\$)?([-+ #0,(']*(?:\*|\d+)?(?:\.(?:\*|\d+)?)?(?:hh|h|ll|l|q|j|z|t|L)?[a-zA-Z@]))")
_BRACES = re.compile(r"\{\{|\}\}|\{([^{}]*)\}")


def percent_parts(literal: str, arguments: Sequence[str]) -> tuple[Part, ...]:
    """Of `printf` and what is like it: the holes take the arguments in order, or by their number (`%1$s`)."""
    parts: list[Part] = []
    end, following = 0, 0
    for match in _PERCENT.finditer(literal):
        parts.append(literal[end : match.start()])
        end = match.end()
        if match[0] == "%%":
            parts.append("%")
        elif match[2] == "n":  # Java's end of line
            parts.append("\n")
        else:
            index = int(match[1]) - 1 if match[1] else following
            following += not match[1]
            parts.append(Hole(_nth(arguments, index), match[0]))
    return merged([*parts, literal[end:]])


def brace_parts(literal: str, arguments: Sequence[str], *, doubled: bool = True) -> tuple[Part, ...]:
    """With `{}`, `{0}` or `{:>8}` for holes; `doubled`: `{{` stands for a brace (loggers of Java don't have that)."""
    parts: list[Part] = []
    end, following = 0, 0
    for match in _BRACES.finditer(literal):
        parts.append(literal[end : match.start()])
        end = match.end()
        if match[1] is None:
            parts.append(match[0][0] if doubled else match[0])
            continue
        name, _, form = match[1].partition(":")
        if name.isdigit():
            parts.append(Hole(_nth(arguments, int(name)) or name, form and f":{form}"))
        elif name:
            parts.append(Hole(name, form and f":{form}"))
        else:
            parts.append(Hole(_nth(arguments, following), form and f":{form}"))
            following += 1
    return merged([*parts, literal[end:]])


def _nth(arguments: Sequence[str], index: int) -> str:
    return arguments[index] if 0 <= index < len(arguments) else ""


_ESCAPE = re.compile(
    r"\\(u\{[0-9a-fA-F]+\}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|x[0-9a-fA-F]{1,2}|[0-7]{1,3}|\r?\n|.)", re.DOTALL
)
_SIMPLE = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "a": "\a", "0": "\0"}


def unescaped(literal: str) -> str:
    """A string literal's text, its escapes (of the C family) resolved."""
    return _ESCAPE.sub(_escape, literal) if "\\" in literal else literal


def _escape(match: re.Match[str]) -> str:
    code = match[1]
    if code in _SIMPLE:
        return _SIMPLE[code]
    if code[0] in "uUx" and len(code) > 1:
        return chr(min(int(code[1:].strip("{}"), 16), 0x10FFFF))
    if code.isdigit():
        return chr(int(code, 8))
    return "" if code in ("\n", "\r\n") else code
