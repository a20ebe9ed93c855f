"""The pages. They say what the API says, and need no script."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.responses import HTMLResponse, RedirectResponse, Response

from windtunnel.catalog.store import Project
from windtunnel.catalog.web import api
from windtunnel.catalog.web.asked import Asked, ExplainAsked, explain_asked, explained
from windtunnel.catalog.web.browse import PAGE, Filters, counts, shown
from windtunnel.catalog.web.links import Links, Served
from windtunnel.catalog.web.problems import KINDS, Refused
from windtunnel.catalog.web.render import render, static_digests
from windtunnel.catalog.web.sheet import Sheet
from windtunnel.errors import NotInCatalog

_MOST_HITS = 1000
_MOST_CHANGES = 200
"""Of one kind, on a page of a comparison."""


def page(template: str, status: int = 200, **facts: Any) -> Response:
    """An answer in HTML."""
    headers = {"Cache-Control": "no-cache"}
    return HTMLResponse(render(template, Served(static_digests()), **facts), status, headers=headers)


def home(asked: Asked) -> Response:
    """GET /: a search field and the projects."""
    return page("home.html", projects=asked.store.projects(), q="", project=None)


def search(asked: Asked) -> Response:
    """GET /search: what words point at."""
    words, name = asked.text("q"), asked.text("project")
    number = asked.number("page", 1, least=1, most=_MOST_HITS // PAGE)
    projects = asked.store.projects()
    if name is not None:
        asked.store.project(name)
    if words is None:
        return RedirectResponse("/" if name is None else Served({}).project(name), 302)
    hits = asked.store.search(words, project=name, limit=PAGE + 1, offset=(number - 1) * PAGE)
    more = len(hits) > PAGE and number < _MOST_HITS // PAGE
    return page("search.html", q=words, project=name, projects=projects, hits=hits[:PAGE], number=number, more=more)


def project(asked: Asked) -> Response:
    """GET /projects/NAME: its records, filtered, counted and page by page."""
    version = asked.text("version")
    found = asked.store.project(asked.request.path_params["name"], version)
    under = asked.text("under")
    filters = Filters(
        asked.text("kind"), asked.text("severity"), asked.text("language"), under.strip("/") or None if under else None
    )
    every = asked.memory.lists.of(asked.store, found)
    hits = shown(every, filters)
    num_pages = max(1, -(-len(hits) // PAGE))
    number = min(asked.number("page", 1, least=1, most=10**6), num_pages)
    return page(
        "project.html", q="", project=found.name, found=found, version=None if found.current else found.version,
        versions=_versions(asked, found), filters=filters, counts=counts(every, filters), num_hits=len(hits),
        hits=hits[(number - 1) * PAGE : number * PAGE], number=number, num_pages=num_pages,
        address=addresses(Served({}), found, filters),
    )  # fmt: skip


def addresses(links: Links, found: Project, filters: Filters) -> Callable[..., str]:
    """Of a project's page with its filters, some of them changed; another page than the first has to be named."""
    version = None if found.current else found.version
    return lambda **changed: links.project(found.name, version, **(filters._asdict() | changed))


def _versions(asked: Asked, found: Project) -> list[Project]:
    return [each for each in asked.store.projects(every_version=True) if each.name == found.name]


def record(asked: Asked) -> Response:
    """GET /errors/ID: a record; an earlier id redirects for good, the beginning of one for now."""
    key, version = asked.request.path_params["id"], asked.text("version")
    try:
        found = asked.store.record(key, version=version)
    except NotInCatalog:
        versions = asked.store.versions_of(key) if version is None else []
        if not versions:
            raise
        return RedirectResponse(Served({}).record(key, versions[0]) or "/", 302)
    if found.id != key:
        return api.redirect(asked, f"/errors/{found.id}", is_earlier=not found.id.startswith(key))
    versions = asked.store.versions_of(found.id)
    current = asked.store.project(found.project).version
    sheet = Sheet(found, every_site=asked.text("every_site") == "true")
    return page(
        "record.html", q="", project=found.project, record=found, sheet=sheet, versions=versions,
        version=None if found.provenance.version == current else found.provenance.version, current=current,
    )  # fmt: skip


def explain(asked: Asked) -> Response:
    """GET and POST /explain: a form, and what the pasted text's errors are."""
    projects = asked.store.projects()
    if asked.request.method != "POST":
        empty = ExplainAsked(asked.text("text") or "", asked.text("project"))
        return page(
            "explain.html", q="", project=None, projects=projects, asked=empty, found=None, problem=None, by_id={}
        )
    form = explain_asked(asked.body, asked.request.headers.get("content-type", ""))
    try:
        found, problem, status = explained(form, asked.store), None, 200
    except Refused as error:
        found, problem, status = None, error, error.status
    by_id = {match.id: match for match in found.records} if found else {}
    return page(
        "explain.html", status, q="", project=None, projects=projects, asked=form, found=found, problem=problem,
        by_id=by_id,
    )  # fmt: skip


def difference(asked: Asked) -> Response:
    """GET /diff: a form, and what two versions differ in."""
    snapshots = asked.store.projects(every_version=True)
    facts: dict[str, Any] = {
        "q": "",
        "project": None,
        "snapshots": snapshots,
        "a": asked.text("a"),
        "b": asked.text("b"),
    }
    if facts["a"] is None or facts["b"] is None:
        return page("diff.html", difference=None, versions=(None, None), most=None, **facts)
    before, after = asked.snapshot("a"), asked.snapshot("b")
    found = asked.memory.differences.of(asked.store, before, after, asked.ended)
    versions = tuple(
        None if each.current else each.version for each in (asked.store.project(*before), asked.store.project(*after))
    )
    most = None if asked.text("every") == "true" else _MOST_CHANGES
    return page("diff.html", difference=found, versions=versions, most=most, **facts)


def problem_kind(asked: Asked) -> Response:
    """GET /problems/NAME: what a kind of problem is."""
    name = asked.request.path_params["name"]
    if name not in KINDS:
        raise Refused("no-such-page", f"there is no kind of problem {name[:80]!r}")
    return page("problem_kind.html", q="", project=None, name=name, kind=KINDS[name])


def about_api(asked: Asked) -> Response:
    """GET /api: what the API has, from its own description."""
    from windtunnel.catalog.web.openapi import document

    return page("api.html", q="", project=None, document=document(), base_url=str(asked.request.base_url))


def problem_page(error: Refused) -> Response:
    """A problem, for people."""
    return page("problem.html", error.status, q="", project=None, error=error, kind=KINDS[error.kind])
