"""Checks of how the service is deployed: addresses, proxies, ports, and the server that runs."""

import socket
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPException
from urllib.parse import urlsplit

from petstore_server.operations.admin_port import admin_url, is_loopback
from petstore_server.operations.health import CheckResult
from petstore_server.settings import Settings

_RESPONSE_SECONDS = 5.0
_LONGEST_ANSWER = 500  # bytes of a response that are shown
_FEWEST_BITS = 8  # of a network that may consist of proxies, such as 10.0.0.0/8
_ALL_ADDRESSES = {"0.0.0.0", "::"}  # noqa: S104 - compared only


def check_deployment(settings: Settings) -> Iterator[CheckResult]:
    """Settings that are valid but may not be intended."""
    name, address = "PETSTORE_BASE_URL", settings.base_url
    if settings.environment == "staging":
        name, address = "PETSTORE_STAGING_BASE_URL", settings.staging_base_url
    if address is None:
        remedy = f"Set {name}, for example to https://api.example.com/v1."
        yield CheckResult("address", "warn", "The contract does not name this service's address.", remedy)
    elif is_loopback(settings.host) and not settings.trusted_proxies:
        message = "The service has a public address but listens on the loopback interface and trusts no proxy."
        remedy = "Set PETSTORE_TRUSTED_PROXIES to the proxy's address; otherwise all its clients count as one address."
        yield CheckResult("proxies", "warn", message, remedy)
    yield from _check_addresses(settings)
    if settings.access_log != "off" and settings.log_level in ("warning", "error"):
        message = f"PETSTORE_ACCESS_LOG is {settings.access_log}, but PETSTORE_LOG_LEVEL omits its lines."
        yield CheckResult("log", "warn", message, "Set PETSTORE_LOG_LEVEL to info, or PETSTORE_ACCESS_LOG to off.")
    if not is_loopback(settings.admin_host):
        remedy = "Set PETSTORE_ADMIN_HOST to 127.0.0.1 or a private address: the admin port requires no key."
        yield CheckResult("admin", "warn", f"The admin port listens on {settings.admin_host}.", remedy)


def _check_addresses(settings: Settings) -> Iterator[CheckResult]:
    """Addresses that contradict each other, or what they are for."""
    for network in settings.trusted_proxies:
        if network.prefixlen < _FEWEST_BITS:
            message = f"PETSTORE_TRUSTED_PROXIES has {network}: clients in it can name any address as their own."
            remedy = "Set it to the addresses of the proxies only; otherwise no limit by address holds."
            yield CheckResult("proxies", "warn", message, remedy)
    if settings.port == settings.admin_port != 0 and _overlap(settings.host, settings.admin_host):
        message = f"PETSTORE_PORT and PETSTORE_ADMIN_PORT are both {settings.port}: no server can start."
        yield CheckResult("ports", "fail", message, "Choose another port for one of them.")


def find_server(settings: Settings, *, holds_store: bool) -> CheckResult | None:
    """Ask the server at the admin port whether it is ready.

    `holds_store` is whether a server is known to run on this store. Otherwise the one that answers may use another
    store, and the result is None if none answers.
    """
    address = f"{admin_url(settings)}/readyz"
    server, unknown = "A server runs on this store", ""
    if not holds_store:
        server, unknown = f"A server answers at {address}", "; whether it uses this store is not known"
    try:
        status, answer = _ask(address)
    except OSError:
        if not holds_store:
            return None
        message = f"A server runs on this store, but does not answer at {address}."
        remedy = "Set PETSTORE_ADMIN_HOST and PETSTORE_ADMIN_PORT as for the server; if they are, see its log."
        return CheckResult("server", "warn", message, remedy)
    if status >= 400:
        return CheckResult("server", "fail", f"{server} and is not ready{unknown}: {answer}", "See its log.")
    return CheckResult("server", "ok", f"{server} and is ready{unknown}.")


def _ask(address: str) -> tuple[int, str]:
    """The status and the body of the response to GET. Raises OSError if no server responds."""
    where = urlsplit(address)
    connection = HTTPConnection(where.netloc, timeout=_RESPONSE_SECONDS)
    try:
        connection.request("GET", where.path)
        response = connection.getresponse()
        return response.status, response.read(_LONGEST_ANSWER).decode("utf-8", "replace")
    except HTTPException as error:
        raise OSError(f"the response is not HTTP ({type(error).__name__})") from None
    finally:
        connection.close()


def check_ports(settings: Settings) -> Iterator[CheckResult]:
    """Whether a server could listen on the ports of the settings."""
    for name, host, port in (
        ("PETSTORE_PORT", settings.host, settings.port),
        ("PETSTORE_ADMIN_PORT", settings.admin_host, settings.admin_port),
    ):
        reason = _cannot_listen(host, port)
        if reason:
            message = f"A server could not listen on {host}:{port}: {reason}."
            yield CheckResult(
                "ports", "fail", message, f"Stop the program that uses it, or choose another with {name}."
            )


def _cannot_listen(host: str, port: int) -> str | None:
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            probe.listen(1)  # with SO_REUSEADDR only this fails if another program listens there
    except OSError as error:
        return error.strerror or str(error)
    return None


def _overlap(host: str, other: str) -> bool:
    """Whether a socket on one of the hosts keeps another one from the same port on the other."""
    return host == other or not _ALL_ADDRESSES.isdisjoint((host, other))
