"""Signing in and out."""

import secrets

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from petstore_server.console.cookies import delete_cookie, set_cookie, set_wanted, wanted
from petstore_server.console.visit import Visit
from petstore_server.domain.sessions import TOKEN_BYTES

_PREFETCH_HEADERS = ("sec-purpose", "purpose", "x-moz", "x-purpose")


async def sign_in(visit: Visit) -> Response:
    """Use up the link, start a session, and go to the page that was wanted, or to the first.

    HEAD, as of a program that shows a preview, does nothing. A browser that only fetches the page in advance gets 503,
    and fetches it again when the link is opened.
    """
    request = visit.request
    if request.method == "HEAD":
        return HTMLResponse()
    if _is_prefetch(request):
        return Response(status_code=503, headers={"Retry-After": "1"})
    token = secrets.token_urlsafe(TOKEN_BYTES)
    if await visit.store.sessions.sign_in(visit.query.get("token", ""), token, visit.now) is None:
        return visit.page("signed_out.html", 401, link="used")
    response = _continue(visit, wanted(request))
    set_cookie(request, response, "session", token)
    delete_cookie(request, response, "wanted")
    return response


async def sign_out(visit: Visit) -> Response:
    """End this session."""
    await visit.form()
    await visit.store.sessions.end(visit.token)
    visit.sources.sessions.forget(visit.token)
    visit.session = None
    response = visit.page("signed_out.html", link="signed out")
    delete_cookie(visit.request, response, "session")
    delete_cookie(visit.request, response, "notice")
    return response


def ask_to_sign_in(visit: Visit) -> Response:
    """Say how to sign in, and note the page that was wanted."""
    response = visit.page("signed_out.html", 401, link=None)
    set_wanted(visit.request, response)
    return response


def _continue(visit: Visit, path: str) -> Response:
    """Go to a page. Where another site's page has opened the link, browsers would not send the new cookie to the target
    of a redirect (SameSite=Strict), so that a page of the console goes there instead.
    """
    if visit.request.headers.get("sec-fetch-site") == "cross-site":
        return visit.page("signed_in.html", target=path)
    return RedirectResponse(path, 303)


def _is_prefetch(request: Request) -> bool:
    return any(
        word in request.headers.get(name, "").lower()
        for name in _PREFETCH_HEADERS
        for word in ("prefetch", "prerender", "preview")
    )
