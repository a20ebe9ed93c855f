"""How the value of a flag is read: from text to a value, or to an error that says what the flag takes."""

from __future__ import annotations

import math
from argparse import ArgumentTypeError
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

from windtunnel.units import parse_duration_s

_LARGEST_INT = 2**63 - 1


class Kind(NamedTuple):
    """A kind of value."""

    metavar: str
    takes: str
    """What it takes, for the way out of an error."""
    read: Callable[[str], Any]
    """Raises ArgumentTypeError."""
    dotted: bool = False
    """Takes JSON, so that `--flag.key value` sets one key of it."""


def _read_int(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is not a whole number") from None
    if abs(value) > _LARGEST_INT:
        raise ArgumentTypeError(f"{text} has more than 63 bits")
    return value


def _read_rate(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is not a number") from None
    if math.isnan(value):
        raise ArgumentTypeError(f"{text!r} is not a number")
    return value


def _read_float(text: str) -> float:
    value = _read_rate(text)
    if math.isinf(value):
        raise ArgumentTypeError(f"{text!r} is not finite")
    return value


def _read_duration(text: str) -> float:
    try:
        return parse_duration_s(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is not a duration") from None


def read_json(text: str) -> Any:
    """Any JSON, without the NaN and Infinity that JSON doesn't have; raises ValueError."""
    import json  # as late as it is needed: `--help` is fast

    def refuse(constant: str) -> NoReturn:
        raise ValueError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


def _read_json_object(text: str) -> dict[str, Any]:
    try:
        value = read_json(text)
    except ValueError as error:
        raise ArgumentTypeError(f"{text!r} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ArgumentTypeError(f"{text!r} is not a JSON object")
    return value


def _read_ratio_or_json(text: str) -> float | dict[str, Any]:
    return _read_json_object(text) if text.lstrip().startswith("{") else _read_float(text)


def read_scaled_int(text: str) -> int:
    """A whole number with a suffix: k, m, g, t by powers of 1000, K, M, G, T by powers of 1024; raises ValueError.

    The values of dotted flags may be written so in vLLM.
    """
    power = "kmgt".find(text[-1:].lower()) + 1 if text else 0
    if not power:
        return int(text)
    number = text[:-1]
    if text[-1].isupper():
        return int(number) << 10 * power
    if not number.replace(".", "", 1).isdecimal():
        raise ValueError(f"{text!r} is not a number")
    return int(float(number) * 10 ** (3 * power))


def _within(
    read: Callable[[str], Any], *, low: float | None = None, above: float | None = None, high: float | None = None
) -> Callable[[str], Any]:
    def read_within(text: str) -> Any:
        value = read(text)
        if low is not None and value < low:
            raise ArgumentTypeError(f"{text} is below {low}")
        if above is not None and value <= above:
            raise ArgumentTypeError(f"{text} is not above {above}")
        if high is not None and value > high:
            raise ArgumentTypeError(f"{text} is above {high}")
        return value

    return read_within


def _read_answer_len(text: str) -> int:
    value = _read_int(text)
    if value < 1 and value != -1:
        raise ArgumentTypeError(f"{text} is below 1")
    return value


SWITCH = Kind("", "no value", str)
TEXT = Kind("TEXT", "a text", str)
PATH = Kind("PATH", "a path", str)
NAME = Kind("NAME", "a name", str)
URL = Kind("URL", "an address", str)
LIST = Kind("A,B,…", "values with commas between them", str)
KEY_VALUE = Kind("KEY=VALUE", "pairs of a name and a value: NAME=VALUE", str)

INT = Kind("N", "a whole number", _read_int)
COUNT = Kind("N", "a whole number from 0", _within(_read_int, low=0))
POSITIVE = Kind("N", "a whole number from 1", _within(_read_int, low=1))
SEED = Kind("N", "a whole number from 0 to 4294967295", _within(_read_int, low=0, high=2**32 - 1))
PORT = Kind("N", "a port: 1 to 65535", _within(_read_int, low=1, high=65535))
LISTENING_PORT = Kind("N", "a port: 0 to 65535", _within(_read_int, low=0, high=65535))

TOKENS = Kind("TOKENS", "a number of tokens from 1", _within(_read_int, low=1))
TOKENS_OR_NONE = Kind("TOKENS", "a number of tokens from 0", _within(_read_int, low=0))
ANSWER_TOKENS = Kind("TOKENS", "a number of tokens from 1, or -1 for the dataset's own", _read_answer_len)

FLOAT = Kind("X", "a number", _read_float)
SHARE = Kind("X", "a share from 0 to 1", _within(_read_float, low=0, high=1))
RATE = Kind("PER_S", "a rate per second above 0, or inf", _within(_read_rate, above=0))
BURSTINESS = Kind("X", "a number above 0, or inf", _within(_read_rate, above=0))
RAMP_RATE = Kind("PER_S", "a rate per second from 0", _within(_read_float, low=0))
FLOAT_OR_INF = Kind("X", "a number, or inf", _read_rate)
RATIO = Kind("R", 'a number, or \'{"input": 0.3, "output": 0.5}\'', _read_ratio_or_json, dotted=True)

_UNITS = "a number of seconds, or 250ms, 10s, 2min, 1h"
WAIT = Kind("S", f"a duration: {_UNITS}", _read_duration)
TIMEOUT = Kind("S", f"a duration above 0: {_UNITS}", _within(_read_duration, above=0))

JSON = Kind("JSON", "a JSON object, e.g. '{\"key\": 1}'", _read_json_object, dotted=True)
