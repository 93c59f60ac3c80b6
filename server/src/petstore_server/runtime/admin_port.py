"""Asking the server that runs on this host, on its admin port."""

import urllib.error
import urllib.request
from http.client import HTTPException
from typing import Any

from petstore_server.operations.admin_port import admin_url
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
