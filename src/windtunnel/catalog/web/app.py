"""The ASGI application: routes, each with an open catalog, its time bounded, its errors as problems."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from threading import Event

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Scope

from windtunnel.catalog.export import record_schema
from windtunnel.catalog.store import Store
from windtunnel.catalog.web import api, openapi, pages
from windtunnel.catalog.web.asked import MOST_BODY_BYTES, Asked, Differences, Memory
from windtunnel.catalog.web.browse import MOST_KEPT, Lists
from windtunnel.catalog.web.guard import Guard
from windtunnel.catalog.web.problems import MEDIA_TYPE, Refused, refused
from windtunnel.catalog.web.render import STATIC, compile_templates, static_digests, static_file
from windtunnel.errors import WindtunnelError

_NUM_THREADS = 4
_MOST_BODY_S = 15.0
_MOST_DRAINED_BYTES = 8 * MOST_BODY_BYTES
_MOST_ANSWER_S = 30.0
_KEPT_FOR_EVER = "public, max-age=31536000, immutable"
_log = logging.getLogger(__name__)

Answer = Callable[[Asked], Response]


def build(store: Path, *, hosts: Collection[str] = ()) -> Starlette:
    """The application on a catalog, which is opened anew for each request. `hosts`: names of it beside localhost."""
    compile_templates()
    server = _Server(store)
    routes = [
        Route("/static/{name}", _static),
        Route("/favicon.ico", _icon),
        *(
            Route(path, server.serve(answer), methods=list(methods))
            for path, (methods, answer) in (_PAGES | _API).items()
        ),
    ]
    return Starlette(
        routes=routes,
        middleware=[Middleware(Guard, hosts=hosts, answer=_refuse)],
        exception_handlers={HTTPException: _http_problem},  # type: ignore[dict-item]
        lifespan=server.lifespan,
    )


_GET, _POST = ("GET",), ("POST",)
_PAGES: dict[str, tuple[tuple[str, ...], Answer]] = {
    "/": (_GET, pages.home),
    "/search": (_GET, pages.search),
    "/projects/{name:path}": (_GET, pages.project),
    "/errors/{id}": (_GET, pages.record),
    "/explain": (_GET + _POST, pages.explain),
    "/diff": (_GET, pages.difference),
    "/problems/{name}": (_GET, pages.problem_kind),
    "/api": (_GET, pages.about_api),
}
_API: dict[str, tuple[tuple[str, ...], Answer]] = {
    "/api/errors": (_GET, api.errors),
    "/api/errors/{id}": (_GET, api.record),
    "/api/explain": (_POST, api.explain),
    "/api/projects": (_GET, api.projects),
    "/api/diff": (_GET, api.difference),
    "/error-record.schema.json": (_GET, lambda asked: api.answer(asked, record_schema())),
    "/openapi.json": (_GET, lambda asked: api.answer(asked, openapi.document())),
}
_COMPARISONS = (pages.difference, api.difference)


class _Server:
    """The catalog, and the threads that read it: SQLite would hold up the event loop."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self._threads = ThreadPoolExecutor(_NUM_THREADS, thread_name_prefix="catalog")
        self._comparing = ThreadPoolExecutor(1, thread_name_prefix="catalog-comparing")
        self._memory = Memory(Lists(), Differences())

    @asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        self._threads.submit(self._warm)
        yield
        for threads in (self._threads, self._comparing):
            threads.shutdown(wait=False, cancel_futures=True)

    def _warm(self) -> None:
        """Read what the first pages need, so that nobody waits for it."""
        with suppress(WindtunnelError), Store.open(self._store) as store:
            for project in store.projects()[:MOST_KEPT]:
                self._memory.lists.of(store, project)

    def serve(self, answer: Answer) -> Callable[[Request], Awaitable[Response]]:
        # Comparisons take seconds, and stand in a line of their own, so that no page waits for them.
        threads = self._comparing if answer in _COMPARISONS else self._threads

        async def endpoint(request: Request) -> Response:
            ended = Event()
            try:
                body = await _body_of(request) if request.method == "POST" else b""
                work = asyncio.get_running_loop().run_in_executor(
                    threads, partial(self._answered, answer, request, body, ended)
                )
                async with asyncio.timeout(_MOST_ANSWER_S):
                    return await work
            except TimeoutError:
                return _problem(request, Refused("busy", f"there was no answer within {_MOST_ANSWER_S:.0f} s"))
            except asyncio.CancelledError:  # by uvicorn, where its grace is over
                return _problem(request, Refused("busy", "the server ends"))
            except Refused as error:
                return _problem(request, error)
            except WindtunnelError as error:
                return _problem(request, refused(error))
            except Exception:
                _log.exception("%s %s failed", request.method, request.url.path)
                return _problem(request, Refused("fault", "the server's stderr says more"))
            finally:
                ended.set()

        return endpoint

    def _answered(self, answer: Answer, request: Request, body: bytes, ended: Event) -> Response:
        with Store.open(self._store) as store:
            return answer(Asked(request, store, body, self._memory, ended))


async def _body_of(request: Request) -> bytes:
    """The body, as far as it is accepted. Raises Refused.

    One that is somewhat too large is read to its end, since a client that is still sending does not read the answer.
    """
    body = bytearray()
    num_bytes = 0
    try:
        async with asyncio.timeout(_MOST_BODY_S):
            async for chunk in request.stream():
                num_bytes += len(chunk)
                if num_bytes > _MOST_DRAINED_BYTES:
                    break
                if num_bytes <= MOST_BODY_BYTES:
                    body += chunk
    except TimeoutError:
        raise Refused("too-slow", f"the body did not come within {_MOST_BODY_S:.0f} s") from None
    except ClientDisconnect:
        raise Refused("too-slow", "the connection was closed before the body's end") from None
    if num_bytes > MOST_BODY_BYTES:
        problem = f"more than {MOST_BODY_BYTES:,} bytes"
        raise Refused("too-large", problem, "`windtunnel explain FILE` takes any length.")
    return bytes(body)


async def _icon(request: Request) -> Response:
    """What browsers ask for where no page names an icon, as with JSON."""
    return Response(static_file("icon.svg"), media_type=STATIC["icon.svg"], headers={"Cache-Control": "max-age=86400"})


async def _static(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in STATIC:
        return _problem(request, Refused("no-such-page", f"there is no file {name[:80]!r}"))
    known = request.query_params.get("v") == static_digests()[name]
    headers = {"Cache-Control": _KEPT_FOR_EVER if known else "no-cache"}
    return Response(static_file(name), media_type=STATIC[name], headers=headers)


def _problem(request: Request, error: Refused) -> Response:
    """As JSON under /api/, else as a page."""
    headers = {"Cache-Control": "no-store"}
    if error.kind == "busy":
        headers["Retry-After"] = "10"
    if error.kind in ("too-large", "too-slow"):
        headers["Connection"] = "close"
    if not request.url.path.startswith(("/api/", "/openapi.json", "/error-record.schema.json")):
        response = pages.problem_page(error)
        response.headers.update(headers)
        return response
    base_url = str(request.base_url).rstrip("/") if error.kind != "wrong-host" else ""
    return Response(msgspec.json.encode(error.problem(base_url)), error.status, headers=headers, media_type=MEDIA_TYPE)


async def _refuse(scope: Scope, error: Refused) -> ASGIApp:
    return _problem(Request(scope), error)


async def _http_problem(request: Request, error: HTTPException) -> Response:
    if error.status_code == 405:
        response = _problem(request, Refused("method-not-allowed", f"{request.method} is not taken here"))
        response.headers.update(error.headers or {})
        return response
    return _problem(request, Refused("no-such-page", f"there is nothing at {request.url.path[:200]}"))
