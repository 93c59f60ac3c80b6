"""The console as an ASGI application: its routes, and the checks that every request passes."""

import logging
from functools import partial

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Match, Route
from starlette.types import Message, Receive, Scope, Send

from petstore_server.console import access
from petstore_server.console.forms import account_path, require_storable
from petstore_server.console.rendering import static_file
from petstore_server.console.routes import ROUTES, Endpoint, needed_role
from petstore_server.console.security import HEADERS, is_same_origin
from petstore_server.console.sources import Sources
from petstore_server.console.visit import DuplicateSubmission, RefusedRequest, Visit
from petstore_server.domain.errors import Conflict, InvalidInput, InvalidOrderId, NotFound, ServiceUnavailable
from petstore_server.domain.keys import holds_key
from petstore_server.domain.roles import Role
from petstore_server.domain.texts import hide_keys
from petstore_server.operations.admin_port import CONSOLE_PATH, WRONG_HOST, is_allowed_host

_log = logging.getLogger(__name__)

_CHANGES = 3  # of an account, a key, a webhook or an order, that the page of a conflict shows
_SAFE_METHODS = {"GET", "HEAD"}  # they change nothing (RFC 9110 section 9.2.1)
_METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
_STATIC = {"console.css": "text/css", "icon.svg": "image/svg+xml"}


class Console(BaseRoute):
    """The route of all paths under CONSOLE_PATH, with any method."""

    def __init__(self, sources: Sources) -> None:
        self.sources = sources
        routes = [Route(CONSOLE_PATH, _to_overview)]
        routes += [Route(f"{CONSOLE_PATH}/static/{name}", partial(_static, name)) for name in _STATIC]
        for each in ROUTES:
            routes.append(Route(CONSOLE_PATH + each.path, partial(self._respond, each), methods=[each.method]))
        routes.append(Route(CONSOLE_PATH + _MISSING.path, partial(self._respond, _MISSING), methods=_METHODS))
        self._application = Starlette(routes=routes)
        self._application.router.redirect_slashes = False

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        is_own = scope["type"] == "http" and f"{scope['path']}/".startswith(f"{CONSOLE_PATH}/")
        return Match.FULL if is_own else Match.NONE, {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse the request, or respond; with HEADERS, also where no page has the method or the path."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        respond = _refused(Request(scope), self.sources) or self._application
        await respond(scope, receive, send_with_headers)

    async def _respond(self, endpoint: Endpoint, request: Request) -> Response:
        visit = Visit(request, self.sources, needed_role)
        response = Response(status_code=500)
        try:
            response = await _respond(endpoint, visit)
        finally:
            await visit.end(response)
        return response


async def _respond(endpoint: Endpoint, visit: Visit) -> Response:
    """The page, or a page that says why there is none."""
    try:
        await access.identify(visit)
        if visit.request.method == "GET" and any(map(holds_key, visit.query.values())):
            text = "An API key does not belong in an address, which is kept in histories and logs; use the search box."
            return visit.redirect_with_notice(visit.here.partition("?")[0], text, kind="bad")
        if not visit.operator and endpoint.role is not None:
            return await access.ask_to_sign_in(visit)
        require_storable([*visit.query.values(), *visit.path.values()])
        if endpoint.role is not None and not visit.role.allows(endpoint.role):
            return await _forbid(visit, endpoint.role)
        return await endpoint.handle(visit)
    except DuplicateSubmission as repeated:
        return repeated.response
    except Conflict as conflict:
        return await _explain(visit, conflict)
    except ClientDisconnect:
        return Response(status_code=400)
    except Exception as error:  # noqa: BLE001 - no traceback may reach a user
        refused = _refusal(visit, error)
        keeps = refused.status in (401, 503) or (refused.status == 403 and visit.operator != "")
        posted = visit.request.method == "POST" and keeps
        kept = posted and await visit.keep_form()
        again = visit.here if kept or (posted and visit.here != "/" and not visit.is_kept) else None
        text = hide_keys(refused.text)  # which may quote the address
        return visit.page("error.html", refused.status, title=refused.title, text=text, again=again, kept=kept)


async def _forbid(visit: Visit, needed: Role) -> Response:
    """The page that says which role is needed. That a form was submitted all the same is recorded, if that is possible.

    The form is not read: it may be an upload.
    """
    if visit.request.method == "POST":
        try:
            path = visit.request.url.path.removeprefix(CONSOLE_PATH)
            await visit.require(visit.store.sessions.record_refusal(path, visit.role, needed, visit.actor))
        except ServiceUnavailable as error:
            _log.warning("refusal not recorded", extra={"actor": visit.actor.name, "reason": error.explanation})
    text = f"Your role is {visit.role}, and this needs the role {needed}. Nothing was changed."
    return visit.page("error.html", 403, title="Your role does not allow this", text=text, again=None, kept=False)


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
    """The page with the last changes of the account, key, webhook or order, which says that nothing was changed now."""
    # By the part of the path:
    kinds = {"name": "account", "key": "key", "webhook": "webhook", "order": "order", "upload": "import"}
    kind, subject = next(((kinds[part], name) for part, name in visit.path.items() if part in kinds), ("", ""))
    found = await visit.last_changes(f"{kind}:{subject}", _CHANGES) if kind else None
    return visit.page(
        "conflict.html",
        409,
        text=conflict.message,
        changes=found.value.entries if found and found.value else (),
        back=None if not kind else account_path(subject) if kind == "account" else f"/{kind}s/{subject}",
        subject="the upload" if kind == "import" else subject,
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


_MISSING = Endpoint("GET", "/{path:path}", Role.VIEWER, _missing)
