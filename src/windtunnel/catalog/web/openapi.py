"""The API's description, OpenAPI 3.1, made from the types that it answers with."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec

import windtunnel
from windtunnel.catalog.differ import Difference
from windtunnel.catalog.match.answer import Explanation
from windtunnel.catalog.record import SCHEMA, Record
from windtunnel.catalog.web.api import Hits, Projects
from windtunnel.catalog.web.asked import MOST_BODY_BYTES, MOST_LIMIT, MOST_OFFSET, ExplainAsked
from windtunnel.catalog.web.problems import KINDS, MEDIA_TYPE, Problem

_REF = "#/components/schemas/{name}"
_TYPES = (Record, Hits, Projects, Explanation, Difference, ExplainAsked, Problem)
_EVERY = ("address-too-long", "wrong-host", "fault", "unusable-catalog", "busy")
"""Kinds of problems that any address may answer with."""


@cache
def document() -> dict[str, Any]:
    """The whole description."""
    _, schemas = msgspec.json.schema_components(_TYPES, ref_template=_REF)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "windtunnel catalog",
            "version": windtunnel.__version__,
            "description": "Every error of the indexed source trees: what raises it, what sets it off, what to do.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": _paths(),
        "components": {"schemas": dict(sorted(schemas.items()))},
    }


def _paths() -> dict[str, Any]:
    project = _parameter("project", "A project of the catalog.")
    record = _operation(
        "record", "A record", Record, ("bad-request", "not-in-catalog"),
        _parameter("id", "Its id, an earlier one, or its first 6 digits or more.", where="path"),
        _parameter("version", "As this version of its project has it. Left out: the current one."),
    )  # fmt: skip
    record["responses"] |= {
        "301": _redirect("An earlier id: Location has the one that took its place."),
        "302": _redirect("The beginning of an id: Location has the whole."),
    }
    search = _operation(
        "errors", "Search records, or list a project's", Hits, ("bad-request", "not-in-catalog"),
        _parameter("q", "Words, a type, a path or an id; the best come first. Left out: all of `project`."), project,
        _parameter("limit", "So many at most.", schema=_number(1, MOST_LIMIT, 20)),
        _parameter("offset", "Leave out so many.", schema=_number(0, MOST_OFFSET, 0)),
    )  # fmt: skip
    projects = _operation(
        "projects", "The projects", Projects, ("bad-request",),
        _parameter("every_version", "Earlier versions too.", schema={"type": "boolean", "default": False}),
    )  # fmt: skip
    difference = _operation(
        "diff", "What errors two versions differ in", Difference, ("bad-request", "not-in-catalog"),
        _parameter("a", "PROJECT@VERSION, or a project's current version: the earlier one.", required=True),
        _parameter("b", "The later one.", required=True),
    )  # fmt: skip
    explain = _operation(
        "explain", "What an error is, from a line, a log, a traceback or an HTTP body", Explanation,
        ("bad-request", "not-in-catalog", "too-slow", "too-large", "unsupported-media-type"),
    )  # fmt: skip
    del explain["responses"]["304"]
    explain["requestBody"] = {
        "required": True,
        "description": f"At most {MOST_BODY_BYTES:,} bytes.",
        "content": {
            "text/plain": {"schema": {"type": "string"}},
            "application/json": {"schema": {"$ref": _REF.format(name="ExplainAsked")}},
        },
    }
    description = _operation("openapi", "This description", dict, ())
    schema = _operation("schema", f"The JSON Schema of a record ({SCHEMA})", dict, ())
    return {
        "/api/errors": {"get": search},
        "/api/errors/{id}": {"get": record},
        "/api/explain": {"post": explain},
        "/api/projects": {"get": projects},
        "/api/diff": {"get": difference},
        "/error-record.schema.json": {"get": schema},
        "/openapi.json": {"get": description},
    }


def _operation(name: str, summary: str, type_: type, kinds: tuple[str, ...], *parameters: Any) -> dict[str, Any]:
    schema = {"type": "object"} if type_ is dict else {"$ref": _REF.format(name=type_.__name__)}
    etag = {"ETag": {"description": "Of this answer's bytes.", "schema": {"type": "string"}}}
    responses: dict[str, Any] = {
        "200": {"description": summary, "headers": etag, "content": {"application/json": {"schema": schema}}},
        "304": {"description": "If-None-Match names the ETag.", "headers": etag},
    }
    statuses: dict[int, list[str]] = {}
    for kind in (*kinds, *_EVERY):
        statuses.setdefault(KINDS[kind].status, []).append(KINDS[kind].title)
    for status, titles in sorted(statuses.items()):
        content = {MEDIA_TYPE: {"schema": {"$ref": _REF.format(name="Problem")}}}
        responses[str(status)] = {"description": "; ".join(titles), "content": content}
    return {"operationId": name, "summary": summary, "parameters": list(parameters), "responses": responses}


def _redirect(description: str) -> dict[str, Any]:
    return {"description": description, "headers": {"Location": {"schema": {"type": "string"}}}}


def _parameter(
    name: str, description: str, *, where: str = "query", required: bool = False, schema: dict[str, Any] | None = None
) -> dict[str, Any]:
    return {
        "name": name, "in": where, "required": required or where == "path", "description": description,
        "schema": schema or {"type": "string"},
    }  # fmt: skip


def _number(least: int, most: int, default: int) -> dict[str, Any]:
    return {"type": "integer", "minimum": least, "maximum": most, "default": default}
