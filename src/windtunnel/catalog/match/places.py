"""Is the place that a traceback names one that a record has? Paths are compared from their ends."""

from __future__ import annotations

import re

_ROOTS = frozenset({"src", "lib", "Lib", "python", "."})
_CLOSURE = re.compile(r"::\{\{?closure\}?\}(?:#\d+)?|\.func\d+(?:\.\d+)*|::\{shim[^}]*\}|::<[^>]*>")
_LAMBDA = re.compile(r"lambda\$(\w+)\$\d+")
_GENERIC = re.compile(r"\[[^\]]*\]|<[^<>]*>")
_INNER = frozenset({"<listcomp>", "<genexpr>", "<dictcomp>", "<setcomp>", "<lambda>"})


def file_name(path: str) -> str:
    """The last part of a path, of Windows too."""
    return path.replace("\\", "/").rsplit("/", 1)[-1]


def same_path(seen: str, place: str) -> float:
    """How sure it is that a path of a traceback is a record's: 1: all that both know is equal; 0: it is another file.

    Installed packages and checkouts keep the same files in different folders; `utils.py` alone says little.
    """
    mine, theirs = _parts(seen), _parts(place)
    num_equal = 0
    for one, other in zip(reversed(mine), reversed(theirs), strict=False):
        if one != other:
            break
        num_equal += 1
    if num_equal == 0:
        return 0.0
    if num_equal == min(len(mine), len(theirs)):
        return 1.0 if num_equal > 1 or len(theirs) == 1 else 0.8
    return {1: 0.2, 2: 0.6}.get(num_equal, 0.9)


def _parts(path: str) -> list[str]:
    parts = [part for part in path.replace("\\", "/").split("/") if part not in ("", ".")]
    while len(parts) > 1 and parts[0] in _ROOTS:
        parts.pop(0)
    return parts


def last_name(function: str) -> str:
    """A function's own name: of `pkg.(*Type).Do`, `module::Type::run`, `Type.run`; empty: a module's top."""
    if function in ("", "<module>"):
        return ""
    if function.endswith(".<init>"):  # Java's constructor has its class's name
        function = function.removesuffix(".<init>").replace("$", ".")
    function = _CLOSURE.sub("", _LAMBDA.sub(r"\1", function))
    previous = None
    while previous != function and "<" in function[1:]:
        previous, function = function, _GENERIC.sub("", function)
    name = re.split(r"::|\.|/", function)[-1]
    return name.strip("()*& ") or function


def is_inner(function: str) -> bool:
    """Whether it is a comprehension or lambda: its function is not told."""
    return function in _INNER


def same_function(seen: str, place: str) -> bool:
    """Whether a traceback's function is a record's. Python's tracebacks name a method without its class."""
    return last_name(seen) == last_name(place)
