"""Python: which names are those of error classes."""

from __future__ import annotations

import builtins
import re

_ERROR_NAME = re.compile(r"_*[A-Z]\w*(?:Error|Exception|Exit|Interrupt|Failure)")
_BUILTIN_ERRORS = frozenset(
    name
    for name, value in vars(builtins).items()
    if isinstance(value, type) and issubclass(value, BaseException) and not issubclass(value, Warning)
)


def is_error_name(name: str) -> bool:
    """Whether a class of this name is an error, whatever else is known of it."""
    return name in _BUILTIN_ERRORS or _ERROR_NAME.fullmatch(name) is not None
