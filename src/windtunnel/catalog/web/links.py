"""Where pages link to: paths of the server, or files beside each other in an export."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol
from urllib.parse import quote, urlencode


class Links(Protocol):
    """Addresses of what pages link to; None: it is not there, and is named without a link."""

    @property
    def is_served(self) -> bool:
        """Whether there is a server that searches, explains and compares."""

    def home(self) -> str:
        """The first page."""

    def static(self, name: str) -> str:
        """A style sheet, script or image."""

    def project(self, name: str, version: str | None = None, **filters: object) -> str:
        """A project's page."""

    def record(self, record_id: str, version: str | None = None, **view: object) -> str | None:
        """A record's page."""

    def json(self, record_id: str, version: str | None = None) -> str:
        """Its JSON twin."""


class Served:
    """Of the server. `version` is named where it is not the project's current one."""

    is_served = True

    def __init__(self, digests: Mapping[str, str]) -> None:
        self._digests = digests

    def home(self) -> str:
        """The search page."""
        return "/"

    def static(self, name: str) -> str:
        """With its content's digest, so that it may be kept for ever."""
        return f"/static/{name}?v={self._digests[name]}"

    def project(self, name: str, version: str | None = None, **filters: object) -> str:
        """Filters that are None or empty are left out."""
        return f"/projects/{quote(name, safe='')}{_query(version=version, **filters)}"

    def record(self, record_id: str, version: str | None = None, **view: object) -> str | None:
        """By its id."""
        return f"/errors/{record_id}{_query(version=version, **view)}"

    def json(self, record_id: str, version: str | None = None) -> str:
        """In the API."""
        return f"/api/errors/{record_id}{_query(version=version)}"


class Exported:
    """Of files: `index.html`, `page-2.html` …, `errors/ID.html`, `errors/ID.json`, `static/`."""

    is_served = False

    def __init__(self, ids: Collection[str], *, depth: int) -> None:
        self._ids = ids
        self._up = "../" * depth

    def home(self) -> str:
        """The list's first page."""
        return f"{self._up}index.html"

    def static(self, name: str) -> str:
        """Beside the pages."""
        return f"{self._up}static/{name}"

    def project(self, name: str, version: str | None = None, **filters: object) -> str:
        """A page of the list; there are no filters."""
        page = filters.get("page")
        return f"{self._up}page-{page}.html" if page not in (None, 1) else self.home()

    def record(self, record_id: str, version: str | None = None, **view: object) -> str | None:
        """None where the export does not have it."""
        return f"{self._up}errors/{record_id}.html" if record_id in self._ids else None

    def json(self, record_id: str, version: str | None = None) -> str:
        """Beside its page."""
        return f"{self._up}errors/{record_id}.json"


def _query(**fields: object) -> str:
    given = {name: value for name, value in fields.items() if value not in (None, "")}
    return f"?{urlencode(given)}" if given else ""
