"""The console as an ASGI application: its routes, and the checks that every request passes."""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Sequence

from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from petstore_server.console import access
from petstore_server.console.cache import Cached
from petstore_server.console.entry import Entry
from petstore_server.console.pages import accounts, audit, imports, keys, orders, overview
from petstore_server.console.rendering import compile_templates, environment, static_file
from petstore_server.console.security import HEADERS, PATH, SESSION_COOKIE, is_allowed_host, is_same_origin
from petstore_server.console.services import Services
from petstore_server.console.visit import RefusedRequest, Visit
from petstore_server.domain.errors import (
    Conflict,
    DomainError,
    InvalidInput,
    InvalidOrderId,
    NotFound,
    OrderConflict,
    OrderNotFound,
    ServiceUnavailable,
    Unreachable,
)
from petstore_server.operations.sessions import find_session

_log = logging.getLogger(__name__)

_READING = {"GET", "HEAD"}
_METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]


ENTRIES = (
    Entry("/sign-in", access.sign_in, public=True),
    Entry("/sign-out", access.sign_out, ("POST",)),
    *overview.ENTRIES,
    *accounts.ENTRIES,
    *keys.ENTRIES,
    *orders.ENTRIES,
    *imports.ENTRIES,
    *audit.ENTRIES,
)


class Console:
    """The console of one process."""

    def __init__(self, services: Services) -> None:
        self.services = services
        self._templates = environment()
        self._compiled = Cached(lambda: asyncio.to_thread(compile_templates, self._templates), math.inf)
        routes = [Route(PATH + each.path, self._endpoint(each), methods=list(each.methods)) for each in ENTRIES]
        static = [
            Route(f"{PATH}/static/{name}", self._static(name, kind))
            for name, kind in (("console.css", "text/css"), ("icon.svg", "image/svg+xml"))
        ]
        bare = Route(PATH, self._checked(_to_overview))
        missing = Route(PATH + "/{path:path}", self._endpoint(Entry("", _missing, public=True)), methods=_METHODS)
        self.routes: Sequence[BaseRoute] = [bare, *static, *routes, missing]

    def prepare(self) -> None:
        """Compile the templates behind this call, so that the first page need not wait for it."""
        self._compiled.latest()

    async def close(self) -> None:
        """Stop what runs behind the pages."""
        await self._compiled.close()
        await self.services.close()

    def _endpoint(self, entry: Entry) -> Callable[[Request], Awaitable[Response]]:
        async def respond(request: Request) -> Response:
            token = request.cookies.get(SESSION_COOKIE, "")
            now = self.services.clock()
            visit = Visit(request, self.services, self._templates, token, None)
            try:
                await self._compiled.get()
                visit.session = await find_session(self.services.store, token, now) if token else None
                if visit.session is None and not entry.public:
                    return visit.page("signed_out.html", 401, link=None)
                return await entry.page(visit)
            except (RefusedRequest, DomainError) as error:
                return _error_page(visit, error)
            except ClientDisconnect:
                return Response(status_code=400)
            except Exception as error:  # noqa: BLE001 - no traceback may reach a user
                _log.error("console page failed", extra={"path": request.url.path}, exc_info=error)
                text = "The log of the server has the details. What you entered may or may not have been done."
                return _error_page(visit, RefusedRequest(500, "This page has failed", text))

        return self._checked(respond)

    def _static(self, name: str, media_type: str) -> Callable[[Request], Awaitable[Response]]:
        content = static_file(name)

        async def respond(_: Request) -> Response:
            return Response(content, media_type=media_type)

        return self._checked(respond)

    def _checked(self, respond: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        async def checked(request: Request) -> Response:
            response = _refused(request, self.services) or await respond(request)
            response.headers.update(HEADERS)
            return response

        return checked


def _refused(request: Request, services: Services) -> Response | None:
    """Plain text, because the request may come from a page of another site."""
    if not is_allowed_host(request.headers.get("host", ""), services.settings):
        text = "This host name is not allowed here; add it to PETSTORE_CONSOLE_HOSTS, or use 127.0.0.1.\n"
        return PlainTextResponse(text, 421)
    if request.method not in _READING and not is_same_origin(request.headers):
        return PlainTextResponse("This form was submitted from another site; nothing was changed.\n", 403)
    return None


async def _to_overview(_: Request) -> Response:
    return RedirectResponse(f"{PATH}/", 307)


async def _missing(visit: Visit) -> Response:
    if visit.session is None:
        return visit.page("signed_out.html", 401, link=None)
    raise RefusedRequest(404, "Page not found", "There is no such page in this console.")


_STATUSES: tuple[tuple[type[DomainError], int, str], ...] = (
    (NotFound, 404, "Not found"),
    (OrderNotFound, 404, "Not found"),
    (InvalidOrderId, 404, "Not found"),
    (Conflict, 409, "Nothing was changed"),
    (OrderConflict, 409, "Nothing was changed"),
    (InvalidInput, 400, "This cannot be done"),
)


def _error_page(visit: Visit, error: RefusedRequest | DomainError) -> Response:
    if isinstance(error, RefusedRequest):
        return visit.page("error.html", error.status, title=error.title, text=error.text)
    if isinstance(error, Unreachable):
        return visit.page("error.html", 503, title="This cannot be shown now", text=error.explanation)
    if isinstance(error, ServiceUnavailable):
        text = f"{error.explanation} Try again shortly."
        return visit.page("error.html", 503, title="The store cannot be used now", text=text)
    found = next(((status, title) for kind, status, title in _STATUSES if isinstance(error, kind)), None)
    if found is None:
        raise error
    return visit.page("error.html", found[0], title=found[1], text=error.message)
