"""The console as an ASGI application: its routes, and the checks that every request passes."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from petstore_server.console import access
from petstore_server.console.forms import account_path, require_storable
from petstore_server.console.pages import accounts, audit, imports, keys, orders, overview
from petstore_server.console.rendering import static_file
from petstore_server.console.security import HEADERS, is_same_origin
from petstore_server.console.sources import Sources
from petstore_server.console.visit import DuplicateSubmission, Handler, RefusedRequest, Visit
from petstore_server.domain.errors import Conflict, InvalidInput, InvalidOrderId, NotFound, ServiceUnavailable
from petstore_server.domain.keys import holds_key
from petstore_server.operations.admin_port import CONSOLE_PATH, WRONG_HOST, is_allowed_host

_log = logging.getLogger(__name__)

_CHANGES = 3  # of an account or a key, that the page of a conflict shows
_SAFE_METHODS = {"GET", "HEAD"}  # they change nothing (RFC 9110 section 9.2.1)
_METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
_STATIC = {"console.css": "text/css", "icon.svg": "image/svg+xml"}
HANDLERS: dict[str, tuple[Handler | None, Handler | None]] = {
    "/sign-in": (access.sign_in, None),
    "/sign-out": (None, access.sign_out),
    "/": (overview.overview, None),
    "/search": (None, overview.search),
    "/check": (None, overview.check_again),
    "/accounts": (accounts.list_accounts, accounts.create),
    "/accounts/{name}": (accounts.show, None),
    "/accounts/{name}/plan": (None, accounts.change_plan),
    "/accounts/{name}/orders": (None, accounts.change_orders),
    "/accounts/{name}/details": (None, accounts.edit),
    "/accounts/{name}/suspend": (partial(accounts.ask, "suspend.html"), accounts.suspend),
    "/accounts/{name}/resume": (None, accounts.resume),
    "/accounts/{name}/close": (partial(accounts.ask, "close.html"), accounts.close),
    "/accounts/{name}/keys": (None, keys.create),
    "/keys/{key}": (keys.show, None),
    "/keys/{key}/rotate": (keys.ask_rotate, keys.rotate),
    "/keys/{key}/revoke": (keys.ask_revoke, keys.revoke),
    "/keys/{key}/unban": (None, keys.lift_ban),
    "/bans": (keys.list_bans, keys.lift_bans),
    "/orders": (orders.list_orders, None),
    "/orders/export": (orders.export, None),
    "/orders/ship": (None, partial(orders.change, "ship")),
    "/orders/complete": (None, partial(orders.change, "complete")),
    "/orders/cancel": (None, partial(orders.change, "cancel")),
    "/orders/{order}": (orders.show, None),
    "/orders/{order}/edit": (None, orders.edit),
    "/imports": (imports.list_imports, None),
    "/imports/new": (imports.ask, imports.upload),
    "/imports/{upload}": (imports.show, None),
    "/imports/{upload}/rejects": (imports.rejects, None),
    "/imports/{upload}/check": (None, imports.check),
    "/imports/{upload}/import": (None, imports.start),
    "/imports/{upload}/stop": (None, imports.stop),
    "/imports/{upload}/discard": (None, imports.discard),
    "/audit": (audit.audit, None),
}
"""What GET shows and what POST does, by the path below the console's."""


class Console:
    def __init__(self, sources: Sources) -> None:
        self.sources = sources
        self.routes: Sequence[BaseRoute] = [
            Route(CONSOLE_PATH, self._checked(_to_overview)),
            *(Route(f"{CONSOLE_PATH}/static/{name}", self._checked(partial(_static, name))) for name in _STATIC),
            *(
                Route(CONSOLE_PATH + path, self._endpoint(handler), methods=[method])
                for path, handlers in HANDLERS.items()
                for method, handler in zip(("GET", "POST"), handlers, strict=True)
                if handler is not None
            ),
            Route(CONSOLE_PATH + "/{path:path}", self._endpoint(_missing), methods=_METHODS),
        ]

    def _endpoint(self, handle: Handler) -> Callable[[Request], Awaitable[Response]]:
        async def respond(request: Request) -> Response:
            visit = Visit(request, self.sources)
            response = Response(status_code=500)
            try:
                response = await _respond(handle, visit)
            finally:
                await visit.end(response)
            return response

        return self._checked(respond)

    def _checked(self, respond: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        async def checked(request: Request) -> Response:
            response = _refused(request, self.sources) or await respond(request)
            response.headers.update(HEADERS)
            return response

        return checked


async def _respond(handle: Handler, visit: Visit) -> Response:
    """The page, or a page that says why there is none."""
    try:
        if visit.request.method == "GET" and any(map(holds_key, visit.query.values())):
            text = "An API key does not belong in an address, which is kept in histories and logs; use the search box."
            return visit.redirect_with_notice(visit.here.partition("?")[0], text, kind="bad")
        if visit.token:
            find = visit.sources.find_session(visit.token, visit.now)
            session, _ = await asyncio.gather(find, visit.sources.monitor.look())
            visit.operator = session.operator if session else ""
        if not visit.operator and handle is not access.sign_in:
            return await access.ask_to_sign_in(visit)
        require_storable([*visit.query.values(), *visit.path.values()])
        return await handle(visit)
    except DuplicateSubmission as repeated:
        return repeated.response
    except Conflict as conflict:
        return await _explain(visit, conflict)
    except ClientDisconnect:
        return Response(status_code=400)
    except Exception as error:  # noqa: BLE001 - no traceback may reach a user
        refused = _refusal(visit, error)
        kept = visit.request.method == "POST" and refused.status in (403, 503) and await visit.keep_form()
        again = visit.here if kept else None
        return visit.page("error.html", refused.status, title=refused.title, text=refused.text, again=again)


def _refusal(visit: Visit, error: Exception) -> RefusedRequest:
    match error:
        case RefusedRequest():
            return error
        case ServiceUnavailable():
            return RefusedRequest(503, "This cannot be shown now", f"{error.explanation} Try again shortly.")
        case NotFound() | InvalidOrderId():  # the identifier comes from the URL
            return RefusedRequest(404, "Not found", error.message)
        case InvalidInput():
            return RefusedRequest(400, "This cannot be done", error.message)
    _log.error("console page failed", extra={"path": visit.request.url.path}, exc_info=error)
    text = "The log of the server has the details. What you entered may or may not have been done."
    return RefusedRequest(500, "This page has failed", text)


async def _explain(visit: Visit, conflict: Conflict) -> Response:
    """The page that says what the last changes of the account or key were, and that nothing was changed now."""
    name, key = visit.path.get("name"), visit.path.get("key")
    found = await visit.last_changes(f"account:{name}" if name else f"key:{key}", _CHANGES) if name or key else None
    return visit.page(
        "conflict.html",
        409,
        text=conflict.message,
        changes=found.value.entries if found and found.value else (),
        back=account_path(name) if name else f"/keys/{key}" if key else None,
        subject=name or key,
    )


def _refused(request: Request, sources: Sources) -> Response | None:
    """Plain text, because the request may come from a page of another site."""
    if not is_allowed_host(request.headers.get("host", ""), sources.settings):
        return PlainTextResponse(WRONG_HOST, 421)
    if request.method not in _SAFE_METHODS and not is_same_origin(request.headers):
        return PlainTextResponse("This form was submitted from another site; nothing was changed.\n", 403)
    return None


async def _static(name: str, _: Request) -> Response:
    return Response(static_file(name), media_type=_STATIC[name])


async def _to_overview(_: Request) -> Response:
    return RedirectResponse(f"{CONSOLE_PATH}/", 307)


async def _missing(_: Visit) -> Response:
    raise RefusedRequest(404, "Page not found", "There is no such page in this console.")
