"""Is the type that was seen a record's?"""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING

from windtunnel.catalog.match.seen import Seen

if TYPE_CHECKING:
    from windtunnel.catalog.store import Matchable


def same_type(seen: Seen, matchable: Matchable) -> bool | None:
    """Whether the types are one; None: one of them is not told, or is no type that a traceback would show."""
    if not seen.type or matchable.kind in ("log", "fatal log", "exit", "usage"):
        return None
    mine, theirs = _last(seen.type), _last(matchable.type)
    if mine == theirs or (matchable.kind == "assert" and mine == "AssertionError"):
        return True
    if not seen.is_type_certain and not mine.endswith(("Error", "Exception")):
        return None
    if not theirs[:1].isupper() and theirs != "error":
        return None  # a variable, whose class the code does not tell
    return _is_builtin_subclass(mine, theirs)


def _last(type_: str) -> str:
    return type_.replace("::", ".").rsplit(".", 1)[-1]


def _is_builtin_subclass(mine: str, theirs: str) -> bool:
    """OSError(2, …) makes a FileNotFoundError; IOError is OSError."""
    one, other = getattr(builtins, mine, None), getattr(builtins, theirs, None)
    if not isinstance(one, type) or not isinstance(other, type):
        return False
    return issubclass(other, OSError) and issubclass(one, other)
