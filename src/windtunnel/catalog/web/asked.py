"""What a request asks for: its parameters and body, read strictly; and the answers that pages and the API share."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from threading import Event, Lock
from typing import NamedTuple
from urllib.parse import parse_qs

import msgspec
from starlette.requests import Request

from windtunnel.catalog.differ import Difference, diff
from windtunnel.catalog.match.answer import Explanation
from windtunnel.catalog.record import Record
from windtunnel.catalog.store import Store
from windtunnel.catalog.web.browse import Lists, stamp
from windtunnel.catalog.web.problems import Refused

MOST_BODY_BYTES = 2 << 20
MOST_LIMIT, MOST_OFFSET = 200, 1_000_000
_LONG_CHARACTERS, _LONG_LINES = 200_000, 200
"""What is longer is a log, and is scanned."""
_MOST_QUERY_CHARACTERS = 1000
_MOST_DIFFERENCES = 4


class Differences:
    """The comparisons that were made last: one of two large versions takes seconds."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[object, ...], Difference] = OrderedDict()
        self._lock = Lock()

    def of(self, store: Store, a: tuple[str, str | None], b: tuple[str, str | None], ended: Event) -> Difference:
        """From version `a` to version `b`. Raises NotInCatalog, and Refused once it has `ended`."""
        key = (stamp(store.path), a, b)
        with self._lock:
            if key in self._kept:
                return self._kept[key]
            found = diff(_until(ended, store.records(*a)), _until(ended, store.records(*b)))
            self._kept[key] = found
            while len(self._kept) > _MOST_DIFFERENCES:
                self._kept.popitem(last=False)
        return found


def _until(ended: Event, records: Iterator[Record]) -> Iterator[Record]:
    for record in records:
        if ended.is_set():
            raise Refused("busy", "nobody waits for the answer any more")
        yield record


class Memory(NamedTuple):
    """What is kept from one request to the next."""

    lists: Lists
    differences: Differences


class Asked(NamedTuple):
    """A request, and the open catalog."""

    request: Request
    store: Store
    body: bytes
    memory: Memory
    ended: Event
    """Set when nobody waits for the answer any more."""

    def text(self, name: str) -> str | None:
        """A parameter; None where it is left out or empty."""
        values = self.request.query_params.getlist(name)
        if len(values) > 1:
            raise Refused("bad-request", f"{name} is given {len(values)} times", "Give it once.")
        return values[0][:_MOST_QUERY_CHARACTERS].strip() or None if values else None

    def number(self, name: str, default: int, *, least: int, most: int) -> int:
        """A parameter that is a whole number."""
        text = self.text(name)
        if text is None:
            return default
        if not text.isascii() or not text.isdigit() or not least <= int(text[:12]) <= most:
            raise Refused("bad-request", f"{name}={text[:40]} is out of range", f"It is {least} to {most}.")
        return int(text)

    def snapshot(self, name: str) -> tuple[str, str | None]:
        """A parameter `NAME@VERSION`, or a project's name."""
        text = self.text(name)
        if text is None:
            raise Refused("bad-request", f"{name} is missing", f"Give {name}=PROJECT@VERSION.")
        return self.versioned(text)

    def versioned(self, text: str) -> tuple[str, str | None]:
        """`NAME@VERSION` → both; a project may have an at sign in its name."""
        if any(project.name == text for project in self.store.projects()):
            return text, None
        name, at, version = text.rpartition("@")
        return (name, version) if at and name else (text, None)

    def only(self, *names: str) -> None:
        """Raise Refused where there is a parameter of another name."""
        for name in self.request.query_params:
            if name not in names:
                known = ", ".join(names) or "none"
                raise Refused("bad-request", f"there is no parameter {name[:40]}", f"There is: {known}.")


class ExplainAsked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of POST /api/explain, as JSON."""

    text: str
    project: str | None = None
    limit: int = 5


def explain_asked(body: bytes, media_type: str) -> ExplainAsked:
    """What is to be explained, as JSON, plain text, or a form. Raises Refused."""
    kind = media_type.partition(";")[0].strip().lower()
    if kind == "application/json":
        try:
            asked = msgspec.json.decode(body, type=ExplainAsked)
        except msgspec.ValidationError as error:
            raise Refused("bad-request", str(error), "The body is {text, project?, limit?}.") from error
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Refused("bad-request", f"the body is no JSON: {error}", "It is {text, project?, limit?}.") from error
    elif kind in ("text/plain", ""):
        asked = ExplainAsked(body.decode("utf-8", "replace"))
    elif kind == "application/x-www-form-urlencoded":
        try:
            form = parse_qs(body.decode("utf-8", "replace"), max_num_fields=10)
        except ValueError as error:
            raise Refused("bad-request", f"the form can't be read: {error}") from error
        asked = ExplainAsked(form.get("text", [""])[0], form.get("project", [""])[0] or None)
    else:
        raise Refused("unsupported-media-type", f"{kind[:80]} is not taken", "Send text/plain, or application/json.")
    if not 1 <= asked.limit <= 20:
        raise Refused("bad-request", f"limit {asked.limit} is out of range", "It is 1 to 20.")
    return asked


def explained(asked: ExplainAsked, store: Store) -> Explanation:
    """What the catalog says of a text. Raises Refused where there is none, NotInCatalog for an unknown project."""
    if not asked.text.strip():
        raise Refused("bad-request", "there is no text", "Send a line, a log, a traceback or an HTTP body.")
    if asked.project is not None:
        store.project(asked.project)
    if len(asked.text) >= _LONG_CHARACTERS or asked.text.count("\n") >= _LONG_LINES:
        from windtunnel.catalog.match.scan import explain_log

        data = asked.text.encode("utf-8", "replace")
        return explain_log([data], store, project=asked.project, limit=asked.limit)
    from windtunnel.catalog.match.look_up import explain

    return explain(asked.text, store, project=asked.project, limit=asked.limit)
