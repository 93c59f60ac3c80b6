"""Who may use the console: checks of Host, Origin and form token, cookies, response headers, and the log of refusals.

The console is on a private port, but a browser that reaches it also runs pages of other sites: DNS rebinding, forms
submitted from elsewhere, and frames are refused here (decision record 0018).

Browsers send the cookies of a host to all its ports, so their names contain the port: the consoles of two stores on one
host do not sign each other out.
"""

import asyncio
import hmac
import logging
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from hashlib import sha256
from typing import Literal

from starlette.requests import Request
from starlette.responses import Response

from petstore_server.operations.admin_port import CONSOLE_PATH, host_name, is_loopback

_log = logging.getLogger(__name__)

_LINES_PER_SECOND = 5  # of the log about sign-ins that were refused, so that no program can fill the disk

HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""Sent with every response of the console."""


def is_same_origin(headers: Mapping[str, str]) -> bool:
    """Whether a form was submitted from a page of this console.

    Browsers send `Origin: null` with forms of a page that has `Referrer-Policy: no-referrer`. Then Sec-Fetch-Site says
    where the form came from; they send that to loopback addresses and over HTTPS.
    """
    host, origin, site = headers["host"], headers.get("origin"), headers.get("sec-fetch-site")
    if site is not None and site != "same-origin":
        return False
    if origin is None:
        return True
    if origin == "null":
        return site is not None or not is_loopback(host_name(host) or "")
    return origin.partition("://")[2].lower() == host.lower()


def form_token(session_token: str, page: str) -> str:
    """The token that the forms of a page carry; `page` is a random text, so that no two pages have the same."""
    mac = _mac(session_token, b"form:" + page.encode())
    return f"{page}.{mac}"


def is_form_token(given: str, session_token: str) -> bool:
    """Whether a form carries a token of this session."""
    expected = form_token(session_token, given.partition(".")[0].encode("ascii", "replace").decode())
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), expected.encode())


def signed(secret: str, content: bytes) -> str:
    """The value of a cookie that only the console can make: with the session's token, or the store's epoch."""
    text = urlsafe_b64encode(content).decode()
    return f"{text}.{_mac(secret, b'cookie:' + text.encode())}"


def verified(secret: str, value: str) -> bytes | None:
    """The content of what `signed` made with this secret; None if the value is another text."""
    text, _, mac = value.partition(".")
    expected = _mac(secret, b"cookie:" + text.encode())
    return urlsafe_b64decode(text) if hmac.compare_digest(expected.encode(), mac.encode()) else None


def _mac(key: str, text: bytes) -> str:
    return hmac.new(key.encode(), text, sha256).hexdigest()


# `wanted` is the page that was wanted before signing in, `kept` what was typed in a form that was not done.
Cookie = Literal["session", "notice", "wanted", "kept"]


def get_cookie(request: Request, cookie: Cookie) -> str:
    """The value of a cookie; empty if there is none."""
    return request.cookies.get(_cookie_name(request, cookie), "")


def set_cookie(
    request: Request, response: Response, cookie: Cookie, value: str, *, max_age: int | None = None, strict: bool = True
) -> None:
    """Set a cookie; for `max_age` seconds, or until the browser ends.

    Behind TLS it is Secure. Unless `strict`, browsers send it also when a link of another site is opened.
    """
    scheme = request.headers.get("x-forwarded-proto", request.url.scheme)  # a client may only harm its own cookie
    response.set_cookie(
        _cookie_name(request, cookie),
        value,
        max_age=max_age,
        path=CONSOLE_PATH,
        httponly=True,
        secure=scheme.lower() == "https",
        samesite="strict" if strict else "lax",
    )


def delete_cookie(request: Request, response: Response, cookie: Cookie) -> None:
    set_cookie(request, response, cookie, "", max_age=0)


def _cookie_name(request: Request, cookie: Cookie) -> str:
    return f"petstore_{cookie}_{request.url.port or request.url.scheme}"


class RefusedSignIns:
    """Logs refused sign-ins: the first ones of a second at once, and at its end the number of those omitted.

    Belongs to one event loop.
    """

    def __init__(self) -> None:
        self._second: asyncio.TimerHandle | None = None
        self._lines = 0
        self._omitted = 0

    def log(self, request: Request, reason: str, operator: str = "") -> None:
        """Log that a sign-in was refused. `operator` is a name from a trusted proxy."""
        if self._second is None:
            self._second = asyncio.get_running_loop().call_later(1, self.end_second)
        if self._lines == _LINES_PER_SECOND:
            self._omitted += 1
            return
        self._lines += 1
        fields = {"peer": peer_of(request), "reason": reason}
        if operator:
            fields["operator"] = operator
        _log.warning("sign-in refused", extra=fields)

    def end_second(self) -> None:
        """Log how many refusals of this second were omitted, if any were; also before a stop."""
        if self._second is not None:
            self._second.cancel()
        if self._omitted:
            _log.warning("sign-in refused", extra={"omitted": self._omitted})
        self._second, self._lines, self._omitted = None, 0, 0


def peer_of(request: Request) -> str:
    """The address from which the connection comes, in words if it has none."""
    return request.client.host if request.client else "a socket without an address"
