"""Bodies of HTTP answers and structured log lines: OpenAI's error object, FastAPI's detail, problem+json, nested."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from windtunnel.catalog.match.seen import Event

_MOST_CHARACTERS = 1_000_000
_MOST_DEPTH = 8
_MESSAGES = ("message", "detail", "msg", "error", "error_description", "title", "reason", "err", "exception", "event")
_NESTED = ("error", "errors", "detail", "cause", "inner", "data", "response", "body", "fields", "exception")
_TRACES = ("traceback", "stacktrace", "stack_trace", "stack", "exc_info", "exception")
_TYPES = ("type", "name", "exc_type", "error_type", "exception_type")


def read_body(text: str) -> list[Event]:
    """The errors of a JSON object in the text, with or without words or `data:` before it; none where there is none."""
    start = text.find("{")
    if start < 0 or len(text) > _MOST_CHARACTERS:
        return []
    try:
        document, _ = json.JSONDecoder().raw_decode(text, start)
    except (ValueError, RecursionError):
        return []
    return list(_events(document, 0)) if isinstance(document, dict) else []


def _events(value: Any, depth: int) -> Iterator[Event]:
    if depth > _MOST_DEPTH:
        return
    if isinstance(value, list):
        for item in value[:50]:
            yield from _events(item, depth + 1)
    elif isinstance(value, dict):
        if (trace := _trace(value)) is not None:
            yield from trace
            return
        nested = [
            event
            for key in _NESTED
            if isinstance(value.get(key), dict | list)
            for event in _events(value[key], depth + 1)
        ]
        if nested:
            yield from nested
            return
        for key in _MESSAGES:
            if isinstance(text := value.get(key), str) and text.strip():
                yield from _message(text, value, depth)


def _message(text: str, value: dict[str, Any], depth: int) -> Iterator[Event]:
    if text.lstrip().startswith("{") and (inner := read_body(text.strip())):
        yield from inner
        return
    from windtunnel.catalog.match.reading import seen_of

    seen = seen_of(text)
    if not seen.type:
        type_ = next((value[key] for key in _TYPES if isinstance(value.get(key), str)), "")
        seen = seen._replace(type=type_ if type_[:1].isupper() or "." in type_ else "")
    level = str(value.get("level") or value.get("severity") or "").lower()
    yield (seen._replace(is_grave=level in ("error", "fatal", "critical"), is_benign=level in ("info", "debug")),)


def _trace(value: dict[str, Any]) -> list[Event] | None:
    """A traceback as one of the fields."""
    from windtunnel.catalog.match.reading import read

    for key in _TRACES:
        text = value.get(key)
        if isinstance(text, str) and "\n" in text and (found := [e for e in read(text) if e[-1].has_trace]):
            return found
    return None
