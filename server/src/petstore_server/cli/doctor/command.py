"""`petstore doctor`: what is wrong with this installation, and what to do."""

import ipaddress
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator

import click

from petstore_server.cli.console import FAILURE, Command, mask, paint, show
from petstore_server.cli.doctor.redis import examine_redis
from petstore_server.cli.doctor.results import CheckResult
from petstore_server.cli.doctor.store import examine_store, server_runs
from petstore_server.cli.stores import settings_here
from petstore_server.settings import Settings, SettingsError
from petstore_server.storage import engines

_SIGNS = {"ok": ("ok  ", "green"), "warn": ("warn", "yellow"), "fail": ("FAIL", "red")}
_ANSWER_SECONDS = 2.0


@click.command(cls=Command)
def doctor() -> None:
    """Say what is wrong and what to do: settings, store, disk, ports, clock, keys. Exit code 1 if anything fails.

    Changes no data, and never shows a password or a key.

    \b
    Examples:
      petstore doctor
      petstore doctor --json
    """
    results = [_masked(result) for result in _examine()]
    show([result._asdict() for result in results], lambda: "\n".join(map(_line, results)))
    if any(result.level == "fail" for result in results):
        click.get_current_context().exit(FAILURE)


def _examine() -> Iterator[CheckResult]:
    try:
        settings = settings_here()
    except SettingsError as error:
        yield CheckResult("settings", "fail", str(error), "Correct the variable; the other checks need it.")
        return
    yield CheckResult("settings", "ok", f"All settings can be read; the environment is {settings.environment}.")
    yield from _deployment(settings)
    yield from examine_redis(settings)
    yield from examine_store(settings)
    yield from _ports(settings, server_runs(settings))


def _deployment(settings: Settings) -> Iterator[CheckResult]:
    """Settings that are valid, but may not be meant."""
    name, address = "PETSTORE_BASE_URL", settings.base_url
    if settings.environment == "staging":
        name, address = "PETSTORE_STAGING_BASE_URL", settings.staging_base_url
    if address is None:
        remedy = f"Set {name}, such as https://api.example.com/v1."
        yield CheckResult("address", "warn", "The contract does not say where this service is.", remedy)
    elif _is_loopback(settings.host) and not settings.trusted_proxies:
        message = "The service has a public address but listens here only, and trusts no proxy."
        remedy = "Set PETSTORE_TRUSTED_PROXIES to the proxy's address, or all its clients count as one address."
        yield CheckResult("proxies", "warn", message, remedy)
    if not _is_loopback(settings.admin_host):
        remedy = "Set PETSTORE_ADMIN_HOST to 127.0.0.1 or a private address: the admin port asks for no key."
        yield CheckResult("admin", "warn", f"The admin port listens on {settings.admin_host}.", remedy)


def _ports(settings: Settings, running: bool) -> Iterator[CheckResult]:
    if running:
        yield _running_server(settings)
        return
    if engines.is_sqlite(settings.database_url):
        yield CheckResult("server", "ok", "No server runs on this store.")
    elif (server := _running_server(settings)).level != "warn":  # one answers, on this host
        yield server
        return
    for name, host, port in (
        ("PETSTORE_PORT", settings.host, settings.port),
        ("PETSTORE_ADMIN_PORT", settings.admin_host, settings.admin_port),
    ):
        reason = _cannot_listen(host, port)
        if reason:
            message = f"A server could not listen on {host}:{port}: {reason}."
            yield CheckResult("ports", "fail", message, f"Stop what uses it, or choose another with {name}.")


def _running_server(settings: Settings) -> CheckResult:
    """What the server that holds the store says of itself."""
    address = f"http://{_in_url(settings.admin_host)}:{settings.admin_port}/readyz"
    try:
        with urllib.request.urlopen(address, timeout=_ANSWER_SECONDS):
            return CheckResult("server", "ok", "A server runs on this store and is ready.")
    except urllib.error.HTTPError as error:
        told = error.read(500).decode("utf-8", "replace")
        return CheckResult("server", "fail", f"A server runs on this store and is not ready: {told}", "See its log.")
    except OSError:
        remedy = "If it was started with other settings, set PETSTORE_ADMIN_PORT as it was; else see its log."
        return CheckResult("server", "warn", f"A server runs on this store, but does not answer at {address}.", remedy)


def _cannot_listen(host: str, port: int) -> str | None:
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            probe.listen(1)  # where the address may be reused, only this tells that somebody listens already
    except OSError as error:
        return error.strerror or str(error)
    return None


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _in_url(host: str) -> str:
    """The address at which a server listening on `host` answers from here."""
    if host in ("0.0.0.0", "::", ""):  # noqa: S104 - compared, not bound
        return "127.0.0.1" if host == "0.0.0.0" else "[::1]"  # noqa: S104
    return f"[{host}]" if ":" in host else host


def _masked(result: CheckResult) -> CheckResult:
    return result._replace(message=mask(result.message), remedy=mask(result.remedy))


def _line(result: CheckResult) -> str:
    sign, colour = _SIGNS[result.level]
    line = f"{paint(sign, colour)}  {result.check}: {result.message}"
    return f"{line}\n      → {result.remedy}" if result.remedy else line
