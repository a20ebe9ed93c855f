"""Units: parse what people write ("250ms", "10s", "64MiB"), format what they read."""

from __future__ import annotations

import math
import re

NS_PER_S = 1_000_000_000
NS_PER_MS = 1_000_000

_DURATIONS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_DURATION = re.compile(r"\s*([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)\s*([a-zµ]*)\s*")


def parse_duration_s(text: str) -> float:
    """Seconds from "250ms", "10s", "2min" or a bare number of seconds.

    Raises ValueError with the units that are known.
    """
    match = _DURATION.fullmatch(text)
    if not match or match[2] not in _DURATIONS:
        raise ValueError(f"{text!r} is not a duration: write a number of seconds, or 250ms, 10s, 2min, 1h")
    value = float(match[1]) * _DURATIONS[match[2]]
    if not math.isfinite(value):
        raise ValueError(f"{text!r} is not a finite duration")
    return value


def s_to_ns(seconds: float) -> int:
    """Whole nanoseconds."""
    return round(seconds * NS_PER_S)


def format_duration(seconds: float) -> str:
    """A duration for people: "250 ms", "1.53 s", "2 min 5 s"."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 1:
        return f"{seconds * 1e3:.3g} ms"
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def format_bytes(count: float) -> str:
    """A size for people, in powers of 1024."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
