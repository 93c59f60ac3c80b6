"""The cookies of the console: the session, a notice for the next page, and the page that was wanted before signing in.

Browsers send the cookies of a host to all its ports, so their names contain the port: the consoles of two stores on one
host do not sign each other out.
"""

from typing import Literal
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from petstore_server.operations.admin_port import CONSOLE_PATH

_WANTED_SECONDS = 3600
_LONGEST_WANTED = 1000

Cookie = Literal["session", "notice", "wanted"]


def get_cookie(request: Request, cookie: Cookie) -> str:
    """The value of a cookie; empty if there is none."""
    return request.cookies.get(_name(request, cookie), "")


def set_cookie(
    request: Request, response: Response, cookie: Cookie, value: str, *, max_age: int | None = None, strict: bool = True
) -> None:
    """Set a cookie; for `max_age` seconds, or until the browser ends.

    Behind TLS it is Secure. Unless `strict`, browsers send it also when a link of another site is opened.
    """
    response.set_cookie(
        _name(request, cookie),
        value,
        max_age=max_age,
        path=CONSOLE_PATH,
        httponly=True,
        secure=_is_behind_tls(request),
        samesite="strict" if strict else "lax",
    )


def delete_cookie(request: Request, response: Response, cookie: Cookie) -> None:
    """Make the browser forget a cookie."""
    set_cookie(request, response, cookie, "", max_age=0)


def set_wanted(request: Request, response: Response) -> None:
    """Note the page that an operator wanted who is not signed in."""
    path = quote(request.url.path) + (f"?{request.url.query}" if request.url.query else "")
    if request.method == "GET" and _is_page(path):
        set_cookie(request, response, "wanted", path, max_age=_WANTED_SECONDS, strict=False)


def wanted(request: Request) -> str:
    """The page to show after signing in: the one that was wanted, or the first."""
    path = get_cookie(request, "wanted")
    return path if _is_page(path) else f"{CONSOLE_PATH}/"


def _is_page(path: str) -> bool:
    """Whether this is a page of the console, in characters that a cookie can hold."""
    return (
        path.startswith(f"{CONSOLE_PATH}/")
        and not path.startswith(f"{CONSOLE_PATH}/sign-")
        and path.isascii()
        and path.isprintable()
        and not set(path) & set(' ";,\\')
        and len(path) <= _LONGEST_WANTED
    )


def _name(request: Request, cookie: Cookie) -> str:
    return f"petstore_{cookie}_{request.url.port or request.url.scheme}"


def _is_behind_tls(request: Request) -> bool:
    """A proxy says so; a client that says so itself only keeps its own cookie from plain HTTP."""
    return request.url.scheme == "https" or request.headers.get("x-forwarded-proto", "").lower() == "https"
