"""Signing in and out."""

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from petstore_server.console.security import NOTICE_COOKIE, PATH, SESSION_COOKIE
from petstore_server.console.visit import Visit
from petstore_server.domain.sessions import TOKEN_BYTES
from petstore_server.operations import sessions

_PREFETCH_HEADERS = ("sec-purpose", "purpose", "x-moz", "x-purpose")


async def sign_in(visit: Visit) -> Response:
    """Use up the link, start a session, and go to the first page.

    HEAD, as of a program that shows a preview, does nothing. A browser that only fetches the page in advance gets 503,
    and fetches it again when the link is opened.
    """
    request = visit.request
    if request.method == "HEAD":
        return HTMLResponse()
    if _is_prefetch(request):
        return Response(status_code=503, headers={"Retry-After": "1"})
    token = visit.services.random_token(TOKEN_BYTES)
    if await sessions.sign_in(visit.store, visit.query.get("token", ""), token, visit.now) is None:
        return visit.page("signed_out.html", 401, link="used")
    response = _continue(request)
    response.set_cookie(SESSION_COOKIE, token, path=PATH, httponly=True, samesite="strict")
    return response


async def sign_out(visit: Visit) -> Response:
    """End this session."""
    await visit.form()
    await sessions.sign_out(visit.store, visit.request.cookies[SESSION_COOKIE])
    visit.session = None
    response = visit.page("signed_out.html", link="signed out")
    for name in (SESSION_COOKIE, NOTICE_COOKIE):
        response.delete_cookie(name, path=PATH, httponly=True, samesite="strict")
    return response


def _continue(request: Request) -> Response:
    """Go to the first page. Where another site's page has opened the link, browsers would not send the new cookie to
    the target of a redirect (SameSite=Strict), so that a page of the console goes there instead.
    """
    if request.headers.get("sec-fetch-site") == "cross-site":
        page = (
            '<!doctype html><html lang="en"><meta charset="utf-8"><title>Signed in</title>'
            f'<meta http-equiv="refresh" content="0; url={PATH}/"><p><a href="{PATH}/">Open the console</a></p></html>'
        )
        return HTMLResponse(page)
    return RedirectResponse(f"{PATH}/", 303)


def _is_prefetch(request: Request) -> bool:
    return any(
        word in request.headers.get(name, "").lower()
        for name in _PREFETCH_HEADERS
        for word in ("prefetch", "prerender", "preview")
    )
