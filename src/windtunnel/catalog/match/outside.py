"""Errors that are not in the catalog: who raised them, and how they get into it."""

from __future__ import annotations

import re
from collections.abc import Iterable

from windtunnel.catalog.match.seen import Frame, Seen

_PACKAGE = re.compile(r"(?:^|[\\/])(?:site|dist)-packages[\\/](?P<name>[A-Za-z0-9_]+)(?:[\\/]|\.py$|\.[\w-]+\.so$)")
_STANDARD = re.compile(r"[\\/](?:lib|Lib|lib64)[\\/](?:python3(?:\.\d+)?[\\/])?(?!.*(?:site|dist)-packages)|^<frozen ")
_SYSTEM = re.compile(r"\(os error \d+\)$|^\[Errno -?\d+\]")
_MOST_COMMANDS = 5


def package_of(path: str) -> str | None:
    """The installed package that a traceback's path lies in."""
    match = _PACKAGE.search(path)
    return match["name"] if match else None


def to_index(frames: Iterable[Frame], projects: set[str]) -> tuple[str, ...]:
    """Commands that index the packages of a traceback, the innermost first; those that are indexed are left out."""
    known = {_normal(project) for project in projects}
    names = dict.fromkeys(name for frame in frames if (name := package_of(frame.path)) and _normal(name) not in known)
    return tuple(f"windtunnel catalog index pip:{name}" for name in list(names)[:_MOST_COMMANDS])


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def why_not(seen: Seen, is_interpreters: bool) -> str:
    """Who raised it, as far as a traceback tells; else that no record has such words."""
    if not seen.frames:
        if seen.has_trace:
            return "its traceback has no frames, and no record has such words"
        if _SYSTEM.search(seen.message):
            return "the operating system's own words; what was made from them says where they come from"
        return "no record has such words"
    frame = seen.frames[-1]
    where = f"{frame.path}:{frame.line}" if frame.line else frame.path
    if is_interpreters:
        at = f"`{frame.source}` in {frame.function}" if frame.source else f"{frame.function}"
        return f"the interpreter, or what it called, raised it: {at} ({where}) raises no such error itself"
    if package := package_of(frame.path):
        return f"raised in the package {package}, at {where}, where no indexed project raises it"
    if seen.language == "python" and _STANDARD.search(frame.path):
        return f"raised in Python's standard library, at {where}"
    return f"raised at {where}, where no indexed project raises it"
