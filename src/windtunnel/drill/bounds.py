"""Bounds of figures as they are written: `0`, `< 5`, `completed >= 100`."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from typing import NamedTuple

from windtunnel.units import parse_duration_s

_HOLDS: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
}
_BOUND = re.compile(rf"({'|'.join(_HOLDS)})?\s*(\S.*)")
_CONDITION = re.compile(rf"(?P<name>[a-zA-Z_:][\w:]*(?:\{{.*\}})?)\s*(?P<bound>(?:{'|'.join(_HOLDS)}).*)")
_FORMS = "write a number, or one after " + ", ".join(_HOLDS)


class Bound(NamedTuple):
    """What a figure has to keep to."""

    comparison: str
    """`<`, `<=`, `==`, `!=`, `>=` or `>`."""
    value: float

    def holds(self, figure: float | None) -> bool:
        """Whether a figure keeps to it; one that is absent keeps to nothing."""
        return figure is not None and _HOLDS[self.comparison](figure, self.value)

    def __str__(self) -> str:
        """`< 5`; a bare number where nothing but that number will do."""
        return f"{self.value:g}" if self.comparison == "==" else f"{self.comparison} {self.value:g}"


class Condition(NamedTuple):
    """A metric, and the bound that it has to come into."""

    metric: str
    """A name of Prometheus's, maybe with labels in braces, or one of the drill's own."""
    bound: Bound


def parse_bound(written: float | str, *, is_duration: bool = False) -> Bound:
    """From a number or text: `< 5`, of a duration also `< 500ms`. Raises ValueError, saying what may be written."""
    if not isinstance(written, str):
        return Bound("==", float(written))
    match = _BOUND.fullmatch(written.strip())
    if not match:
        raise ValueError(f"{written!r} is no bound: {_FORMS}")
    return Bound(match[1] or "==", _number(match[2], written, is_duration))


def parse_condition(written: str) -> Condition:
    """From `completed >= 100`; raises ValueError, saying what may be written."""
    match = _CONDITION.fullmatch(written.strip())
    if not match:
        raise ValueError(f"{written!r} is no condition: write a metric, a comparison and a number: completed >= 100")
    return Condition(match["name"], parse_bound(match["bound"]))


def _number(text: str, written: str, is_duration: bool) -> float:
    try:
        value = parse_duration_s(text) if is_duration and not text.startswith("-") else float(text)
    except ValueError:
        raise ValueError(f"{written!r} is no bound: {_FORMS}") from None
    if not math.isfinite(value):
        raise ValueError(f"{written!r} is no bound: the number is not finite")
    return value
