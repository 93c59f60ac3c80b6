"""The admin port: under which names it responds, where the console is, and asking the server that runs on this host."""

import ipaddress
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import Any
from urllib.parse import urlsplit

from petstore_server.settings import Settings

CONSOLE_PATH = "/console"
"""Where the console is on the admin port, and the path of its cookies."""

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


def sign_in_url(address: str, token: str) -> str:
    """The link that signs in to the console; `address` is that of the admin port, such as http://127.0.0.1:8081."""
    return f"{address.rstrip('/')}{CONSOLE_PATH}/sign-in?token={token}"


def is_allowed_host(host: str, settings: Settings) -> bool:
    """Whether a Host header names this machine, the admin host, or one of PETSTORE_CONSOLE_HOSTS."""
    name = host_name(host)
    return name is not None and (
        is_loopback(name) or name == settings.admin_host.lower() or name in settings.console_hosts
    )


def host_name(host: str) -> str | None:
    """The name in a Host header in lower case, without its port; None if the header is malformed."""
    try:
        parts = urlsplit(f"//{host}")
        _ = parts.port
    except ValueError:
        return None
    if parts.username is not None or parts.path or parts.query or parts.fragment:
        return None
    return parts.hostname.rstrip(".") if parts.hostname else None


def is_loopback(name: str) -> bool:
    """Whether a host name is that of this machine for itself."""
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost" or name.endswith(".localhost")


def _in_url(host: str) -> str:
    """The address at which a server that listens on `host` answers on this machine."""
    if host in ("0.0.0.0", "::", ""):  # noqa: S104 - compared, not bound
        return "127.0.0.1" if host == "0.0.0.0" else "[::1]"  # noqa: S104
    return f"[{host}]" if ":" in host else host
