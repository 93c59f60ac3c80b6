"""Asking the server that runs on this host, through its admin port."""

import urllib.error
import urllib.request
from collections.abc import Sequence
from http.client import HTTPException
from typing import Any

import msgspec

from petstore_server.domain.errors import Unreachable
from petstore_server.settings import Settings
from petstore_server.telemetry.refusals import RefusedAddress, most_refused

_SET_ADMIN = "{} PETSTORE_ADMIN_HOST and PETSTORE_ADMIN_PORT as for the server."
_RESPONSE_SECONDS = 5.0
_LONGEST_BODY = 1 << 20  # bytes
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # the admin port is never behind a proxy


class _Address(msgspec.Struct):
    address: str
    statuses: dict[int, int]


class _Refused(msgspec.Struct):
    addresses: list[_Address]


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


def read_refused_addresses(settings: Settings, limit: int) -> Sequence[RefusedAddress]:
    """The addresses that the server on this host refused most in the last hour. Raises ServiceUnavailable."""
    where = admin_url(settings)
    try:
        _, body = ask_server(settings, "/refused-addresses")
        found = msgspec.json.decode(body, type=_Refused)
    except msgspec.MsgspecError:
        problem = f"What responds at {where} cannot be asked for refused addresses"
        raise Unreachable(problem, "it is not a server of this version", _SET_ADMIN.format("Set")) from None
    except OSError as error:
        remedy = _SET_ADMIN.format("Start it, or set")
        raise Unreachable(f"No server responds at {where}", _reason(error), remedy) from None
    return most_refused([[RefusedAddress(each.address, each.statuses) for each in found.addresses]], limit)


def _reason(error: OSError) -> str:
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    return (cause.strerror if isinstance(cause, OSError) else None) or str(cause)


def _in_url(host: str) -> str:
    """The address at which a server that listens on `host` answers on this machine."""
    if host in ("0.0.0.0", "::", ""):  # noqa: S104 - compared, not bound
        return "127.0.0.1" if host == "0.0.0.0" else "[::1]"  # noqa: S104
    return f"[{host}]" if ":" in host else host
