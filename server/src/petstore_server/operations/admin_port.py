"""Asking the server that runs on this host, through its admin port."""

import urllib.error
import urllib.request
from collections.abc import Sequence
from http.client import HTTPException

import msgspec

from petstore_server.domain.errors import ServiceUnavailable
from petstore_server.settings import Settings
from petstore_server.telemetry.refusals import RefusedAddress, most_refused

_RESPONSE_SECONDS = 5.0
_LONGEST_BODY = 1 << 20  # bytes
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # the admin port is never behind a proxy


class _Address(msgspec.Struct):
    address: str
    statuses: dict[int, int]


class _Refused(msgspec.Struct):
    addresses: list[_Address]


def ask_server(settings: Settings, path: str) -> bytes:
    """The body of a response to GET from the admin port of the settings.

    Raises HTTPError (an OSError) for a status of 400 and above, and OSError if no server responds.
    """
    try:
        with _DIRECT.open(admin_url(settings) + path, timeout=_RESPONSE_SECONDS) as response:
            body: bytes = response.read(_LONGEST_BODY)
    except HTTPException as error:
        raise OSError(f"the response is not HTTP ({type(error).__name__})") from None
    return body


def admin_url(settings: Settings) -> str:
    """The address of the admin port of the settings, as seen from this machine."""
    return f"http://{_in_url(settings.admin_host)}:{settings.admin_port}"


def read_refused_addresses(settings: Settings, limit: int) -> Sequence[RefusedAddress]:
    """The addresses that the server on this host refused most in the last hour. Raises ServiceUnavailable."""
    where = admin_url(settings)
    try:
        found = msgspec.json.decode(ask_server(settings, "/refused-addresses"), type=_Refused)
    except (urllib.error.HTTPError, msgspec.MsgspecError):
        raise ServiceUnavailable(f"what responds at {where} is not a server of this version") from None
    except OSError as error:
        remedy = "set PETSTORE_ADMIN_HOST and PETSTORE_ADMIN_PORT as for the server"
        raise ServiceUnavailable(f"no server responds at {where} ({_reason(error)}); {remedy}") from None
    return most_refused([[RefusedAddress(each.address, each.statuses) for each in found.addresses]], limit)


def _reason(error: OSError) -> str:
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    return (cause.strerror if isinstance(cause, OSError) else None) or str(cause)


def _in_url(host: str) -> str:
    """The address at which a server that listens on `host` answers on this machine."""
    if host in ("0.0.0.0", "::", ""):  # noqa: S104 - compared, not bound
        return "127.0.0.1" if host == "0.0.0.0" else "[::1]"  # noqa: S104
    return f"[{host}]" if ":" in host else host
