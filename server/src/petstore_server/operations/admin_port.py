"""Asking the server that runs on this host, through its admin port."""

import urllib.error
import urllib.request
from http.client import HTTPException
from typing import Any

from petstore_server.settings import Settings

_RESPONSE_SECONDS = 5.0
_LONGEST_BODY = 1 << 20  # bytes
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # the admin port is never behind a proxy


def ask_server(settings: Settings, path: str) -> tuple[int, bytes]:
    """The status and the body of a response to GET from the admin port of the settings.

    Raises OSError if no server responds.
    """
    try:
        with _response(admin_url(settings) + path) as response:
            return response.status, response.read(_LONGEST_BODY)
    except HTTPException as error:
        raise OSError(f"the response is not HTTP ({type(error).__name__})") from None


def _response(url: str) -> Any:
    try:
        return _DIRECT.open(url, timeout=_RESPONSE_SECONDS)
    except urllib.error.HTTPError as error:  # which is the response, too
        return error


def admin_url(settings: Settings) -> str:
    """The address of the admin port of the settings, as seen from this machine."""
    return f"http://{_in_url(settings.admin_host)}:{settings.admin_port}"


def _in_url(host: str) -> str:
    """The address at which a server that listens on `host` answers on this machine."""
    if host in ("0.0.0.0", "::", ""):  # noqa: S104 - compared, not bound
        return "127.0.0.1" if host == "0.0.0.0" else "[::1]"  # noqa: S104
    return f"[{host}]" if ":" in host else host
