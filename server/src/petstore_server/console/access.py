"""Who makes a request, signing in and out, and the pages of sessions."""

import asyncio
import re
import secrets

from starlette.responses import HTMLResponse, RedirectResponse, Response

from petstore_server.console.forms import is_path
from petstore_server.console.proxies import RefusedSignIn, proxied_operator
from petstore_server.console.security import delete_cookie, get_cookie, set_cookie
from petstore_server.console.visit import RefusedRequest, Visit
from petstore_server.domain.errors import ServiceUnavailable
from petstore_server.domain.sessions import TOKEN_BYTES
from petstore_server.domain.texts import looks_like_key
from petstore_server.operations.admin_port import CONSOLE_PATH

_WANTED_SECONDS = 3600
_WRONG_LINK = "The link was used up, has expired, or was made for another store."
_IN_ADVANCE = re.compile("prefetch|prerender|preview", re.IGNORECASE)  # in a header that says why a page is fetched


async def identify(visit: Visit) -> None:
    """Find out whose request it is: what a proxy says, or else the session. Raises RefusedRequest, ServiceUnavailable.

    Without a session, forms carry tokens of a secret of the operator's.
    """
    sources = visit.sources
    try:
        proxied = proxied_operator(visit.request, sources.settings)
    except RefusedSignIn as refused:
        sources.refused_sign_ins.log(visit.request, refused.text, refused.operator)
        raise
    if proxied is not None:
        visit.token, _ = await asyncio.gather(sources.secret_of(proxied.name), sources.monitor.look())
        visit.operator, visit.role, visit.verified = proxied.name, proxied.role, True
    elif visit.token:
        session, _ = await asyncio.gather(sources.find_session(visit.token, visit.now), sources.monitor.look())
        if session is not None:
            visit.operator, visit.role, visit.session = session.operator, session.role, session.id


async def sign_in(visit: Visit) -> Response:
    """Use up the link, start a session, and go to the page that was wanted, or to the first.

    HEAD, as of a program that shows a preview, does nothing. A browser that only fetches the page in advance gets 503,
    and fetches it again when the link is opened. An operator whom a proxy has signed in needs no link.
    """
    if visit.verified:
        return RedirectResponse(f"{CONSOLE_PATH}/", 303)
    request = visit.request
    if request.method == "HEAD":
        return HTMLResponse()
    names = ("sec-purpose", "purpose", "x-moz", "x-purpose")
    if _IN_ADVANCE.search(" ".join(value for name in names for value in request.headers.getlist(name))):
        return Response(status_code=503, headers={"Retry-After": "1"})
    token = secrets.token_urlsafe(TOKEN_BYTES)
    try:
        session = await visit.store.sessions.sign_in(visit.parameter("token"), token, visit.now)
    except ServiceUnavailable as error:  # such as of a lock on the audit log, which it names
        text = f"{error.explanation} Open the link again shortly. If it has been used up by then, make another one."
        raise RefusedRequest(503, "You cannot sign in now", text) from None
    if session is None:
        visit.sources.refused_sign_ins.log(request, _WRONG_LINK)
        return visit.page("signed_out.html", 401, link="used")
    root, _, path = get_cookie(request, "wanted").partition(CONSOLE_PATH)
    wanted = CONSOLE_PATH + (path if is_path(path) and not root else "/")
    response: Response = RedirectResponse(wanted, 303)
    # Where another site's page has opened the link, browsers would not send the new cookie to the target of a redirect
    # (SameSite=Strict), so that a page of the console goes there instead.
    if request.headers.get("sec-fetch-site") == "cross-site":
        response = visit.page("signed_in.html", target=wanted)
    set_cookie(request, response, "session", token)
    delete_cookie(request, response, "wanted")
    return response


async def sign_out(visit: Visit) -> Response:
    await visit.form(once=False)
    if visit.verified:
        raise RefusedRequest(409, "You are still signed in", "The proxy has signed you in; sign out there.")
    await visit.store.sessions.end(visit.token)
    visit.sources.forget_session(visit.token)
    visit.operator = ""
    response = visit.page("signed_out.html", link="signed out")
    for cookie in ("session", "notice", "kept"):
        delete_cookie(visit.request, response, cookie)
    return response


async def ask_to_sign_in(visit: Visit) -> Response:
    """Say how to sign in, and note the page that was wanted, or the form that was submitted."""
    request = visit.request
    kept = request.method == "POST" and visit.token != "" and await visit.keep_form()
    response = visit.page("signed_out.html", 401, link="kept" if kept else None)
    if request.method in ("GET", "POST") and is_path(visit.here) and not looks_like_key(visit.here):
        path = CONSOLE_PATH + visit.here
        set_cookie(request, response, "wanted", path, max_age=_WANTED_SECONDS, strict=False)
    return response


async def list_sessions(visit: Visit) -> Response:
    return visit.page("sessions.html", sessions=await visit.require(visit.store.sessions.list(visit.now)))


async def end_session(visit: Visit) -> Response:
    """End a session of any operator, whose unused links then become invalid."""
    await visit.form()
    ended = await visit.store.sessions.end_one(visit.path["session"], visit.actor)
    return visit.redirect_with_notice(
        "/sessions", f"Ended the session of {ended.operator}. Unused links of {ended.operator} are invalid now."
    )
