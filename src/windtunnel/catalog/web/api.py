"""The JSON answers, each the twin of a page."""

from __future__ import annotations

import hashlib
from typing import Any, Literal

import msgspec
from starlette.responses import RedirectResponse, Response

from windtunnel.catalog.store import Hit, Project
from windtunnel.catalog.web.asked import MOST_LIMIT, MOST_OFFSET, Asked, explain_asked, explained
from windtunnel.catalog.web.problems import Refused


class Hits(msgspec.Struct, frozen=True):
    """Records that were searched for or listed."""

    schema: Literal["hits/1"]
    hits: tuple[Hit, ...]


class Projects(msgspec.Struct, frozen=True):
    """Snapshots of projects."""

    schema: Literal["projects/1"]
    projects: tuple[Project, ...]


def answer(asked: Asked, document: Any) -> Response:
    """As JSON with an ETag; 304 where the client has it already."""
    body = msgspec.json.encode(document)
    etag = f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'
    headers = {"ETag": etag, "Cache-Control": "no-cache"}
    known = asked.request.headers.get("if-none-match", "")
    if asked.request.method in ("GET", "HEAD") and (
        known.strip() == "*" or etag in [each.strip().removeprefix("W/") for each in known.split(",")]
    ):
        return Response(status_code=304, headers=headers)
    return Response(body, media_type="application/json", headers=headers)


def record(asked: Asked) -> Response:
    """GET /api/errors/ID: the record; an earlier id redirects for good, the beginning of one for now."""
    asked.only("version")
    key = asked.request.path_params["id"]
    found = asked.store.record(key, version=asked.text("version"))
    if found.id != key:
        return redirect(asked, f"/api/errors/{found.id}", is_earlier=not found.id.startswith(key))
    return answer(asked, found)


def redirect(asked: Asked, path: str, *, is_earlier: bool) -> Response:
    """To a record's own id, with the same parameters."""
    query = asked.request.url.query
    return RedirectResponse(f"{path}?{query}" if query else path, 301 if is_earlier else 302)


def errors(asked: Asked) -> Response:
    """GET /api/errors: a search, or, without words, a project's records by path and line."""
    asked.only("q", "project", "limit", "offset")
    words, project = asked.text("q"), asked.text("project")
    limit = asked.number("limit", 20, least=1, most=MOST_LIMIT)
    offset = asked.number("offset", 0, least=0, most=MOST_OFFSET)
    if project is not None:
        snapshot = asked.store.project(project)
    elif words is None:
        raise Refused("bad-request", "neither q nor project is given", "Give words to search for, or a project.")
    if words is None:
        hits = asked.memory.lists.of(asked.store, snapshot)[offset : offset + limit]
    else:
        hits = asked.store.search(words, project=project, limit=limit, offset=offset)
    return answer(asked, Hits("hits/1", tuple(hits)))


def explain(asked: Asked) -> Response:
    """POST /api/explain: what a text's errors are."""
    asked.only()
    return answer(
        asked, explained(explain_asked(asked.body, asked.request.headers.get("content-type", "")), asked.store)
    )


def projects(asked: Asked) -> Response:
    """GET /api/projects: the current snapshots, or all."""
    asked.only("every_version")
    every = asked.text("every_version")
    if every not in (None, "true", "false"):
        raise Refused("bad-request", f"every_version={every[:40]} is no truth value", "It is true or false.")
    return answer(asked, Projects("projects/1", tuple(asked.store.projects(every_version=every == "true"))))


def difference(asked: Asked) -> Response:
    """GET /api/diff: what two versions differ in."""
    asked.only("a", "b")
    before, after = asked.snapshot("a"), asked.snapshot("b")
    return answer(asked, asked.memory.differences.of(asked.store, before, after, asked.ended))
