"""Checks of what an engine configures, so that a wrong number is named before anything waits for it."""

from __future__ import annotations

import math

from windtunnel.errors import EplbInputError


def require_seconds(**seconds: float) -> None:
    """Raise EplbInputError for the first that is not a number of seconds above 0."""
    for name, value in seconds.items():
        if not (isinstance(value, int | float) and math.isfinite(value) and value > 0):
            raise EplbInputError(name, f"{value!r}", "It is a number of seconds above 0.")


def require_counts(least: int = 1, **counts: int | None) -> None:
    """Raise EplbInputError for the first that is less than `least`; None stands for a default and is left alone."""
    for name, value in counts.items():
        if value is not None and (not isinstance(value, int) or value < least):
            raise EplbInputError(name, f"{value!r}", f"It is a whole number from {least} on.")
