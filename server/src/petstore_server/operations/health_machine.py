"""Health checks of this machine: the store's file and disk, the clock, addresses and ports, the server that runs."""

import json
import os
import re
import shutil
import ssl
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from urllib.parse import urlsplit

from petstore_server.operations.admin_port import admin_url, is_loopback, is_private
from petstore_server.operations.health import CheckResult, Level
from petstore_server.partial_files import user_name
from petstore_server.server.sockets import is_foreign_address, listening_socket
from petstore_server.settings import SETTINGS, Settings

_MIB = 1 << 20
_MIN_FREE = 64 * _MIB  # bytes that must be free on the disk

LARGE_LOG = 256 * _MIB  # bytes above which the store's log is too large

_RESPONSE_SECONDS = 5.0
_MAX_RESPONSE = 10_000  # bytes
_MOUNTED_SECRETS = "/run/secrets/"  # of a container
_MIN_PREFIX_BITS = 8  # of a network that may consist of proxies, such as 10.0.0.0/8
_HASHED_NAME = re.compile(r"[0-9a-f]{8}\.[0-9]+")  # of a certificate, as OpenSSL looks for it in a directory
_ALL_ADDRESSES = {"0.0.0.0", "::"}  # noqa: S104 - compared only


def check_authorities() -> Iterator[CheckResult]:
    """A warning if this machine trusts no authority: then no receiver of webhooks is, whose address is public."""
    if ssl.create_default_context().cert_store_stats()["x509_ca"]:
        return
    folder = ssl.get_default_verify_paths().capath  # its files are read when a certificate is verified
    if not folder or not any(_HASHED_NAME.fullmatch(each.name) for each in Path(folder).iterdir()):
        message = "This machine has no certificates of authorities, so deliveries to https:// addresses fail."
        remedy = "Install the package ca-certificates, or name their file in SSL_CERT_FILE; then restart the server."
        yield CheckResult("certificates", "warn", message, remedy)


def check_place(file: Path) -> list[CheckResult]:
    """Permissions, the disk and the log of a store; one that fails if this user may not see its directory."""
    try:
        with suppress(FileNotFoundError, NotADirectoryError):
            file.stat()  # raises what Path.exists hides since Python 3.14
        return [*check_files(file), *check_disk(file)]
    except OSError as error:
        message = f"This user cannot see {file}: {error.strerror or error}."
        remedy = f"Run as the owner of {file.parent}, or let this user enter it and the directories above it."
        return [CheckResult("permissions", "fail", message, remedy)]


def check_files(file: Path) -> list[CheckResult]:
    """Permissions: this user, and the service as the owner, must be able to read and write, other users should not."""
    results = []
    files = [place for suffix in ("", "-wal", "-shm") if (place := Path(f"{file}{suffix}")).exists()]
    needed = os.R_OK if _is_read_only(file.parent) else os.R_OK | os.W_OK  # another check is about the disk
    for place in (file.parent, *files):
        if place.exists() and not os.access(place, needed):
            remedy = f"Run as the owner of {place}, or let this user read and write it."
            results.append(CheckResult("permissions", "fail", f"This user cannot read and write {place}.", remedy))
    owners = [place.stat().st_uid for place in (file, file.parent) if place.exists()]
    service = next(filter(None, owners), 0)
    for place in files:
        found = place.stat()
        if found.st_uid != service and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            user, owner = user_name(service), user_name(found.st_uid)
            message = f"{place} belongs to {owner}: a service that runs as {user} cannot use it."
            results.append(CheckResult("permissions", "fail", message, f"chown {user} {place}"))
        if found.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            message = f"Other users of this machine have access to {place} (mode {stat.S_IMODE(found.st_mode):04o})."
            results.append(CheckResult("permissions", "warn", message, f"chmod 600 {place}"))
    if file.exists() and not results:
        results.append(CheckResult("permissions", "ok", f"Only its owner can read and write {file}."))
    return results


def check_secrets(environ: Mapping[str, str]) -> Iterator[CheckResult]:
    """A warning for each file with a secret setting that all users of this machine can read or write.

    None for a secret that Docker mounts: any process of the container may read it, and no other can see it.
    """
    for setting in SETTINGS:
        file = environ.get(setting.file_name, "") if setting.secret else ""
        if not file or file.startswith(_MOUNTED_SECRETS):
            continue
        if (mode := stat.S_IMODE(Path(file).stat().st_mode)) & (stat.S_IROTH | stat.S_IWOTH):
            message = (
                f"All users of this machine have access to {file} (mode {mode:04o}), which {setting.file_name} names."
            )
            yield CheckResult("secrets", "warn", message, f"chmod o= {file}")


def check_disk(file: Path) -> Iterator[CheckResult]:
    """Space on the disk of the store, and the size of its log."""
    if not file.parent.is_dir():
        return
    if _is_read_only(file.parent):
        message = f"The disk of {file.parent} is mounted read-only: no change can be stored."
        yield CheckResult("disk", "fail", message, "Mount it for writing; the kernel's log may say why it is not.")
    free = shutil.disk_usage(file.parent).free
    size = file.stat().st_size if file.exists() else 0
    message = f"{free // _MIB:,} MiB are free in {file.parent}; the store takes {size / _MIB:,.1f} MiB."
    if free < _MIN_FREE:
        yield CheckResult("disk", "fail", message, "Free some space: changes fail on a full disk.")
    elif free < 2 * size:
        yield CheckResult("disk", "warn", message, "Free some space: a backup here needs as much again.")
    else:
        yield CheckResult("disk", "ok", message)
    log = Path(f"{file}-wal")
    if log.exists() and log.stat().st_size > LARGE_LOG:
        remedy = "Look for an export or backup that does not end; the log shrinks after it has."
        yield CheckResult("log", "warn", f"The store's log {log} has {log.stat().st_size // _MIB:,} MiB.", remedy)


def _is_read_only(folder: Path) -> bool:
    """Whether the folder exists on a disk that is mounted read-only: then no permission lets anybody write."""
    return folder.exists() and bool(os.statvfs(folder).f_flag & os.ST_RDONLY)


def check_deployment(settings: Settings) -> Iterator[CheckResult]:
    """Settings that are valid but may not be intended."""
    if settings.own_base_url is None:
        name = "PETSTORE_STAGING_BASE_URL" if settings.environment == "staging" else "PETSTORE_BASE_URL"
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
    yield from _check_sign_in(settings)
    if not (is_loopback(settings.admin_host) or is_private(settings.admin_host)):
        remedy = (
            "Set PETSTORE_ADMIN_HOST to 127.0.0.1 or a private address, or let only private networks reach the port, "
            "as those of containers: it requires no key."
        )
        yield CheckResult("admin", "warn", f"The admin port listens on {settings.admin_host}.", remedy)


def _check_sign_in(settings: Settings) -> Iterator[CheckResult]:
    """Who signs in to the console by a proxy, and with which role."""
    if not settings.console or settings.console_user_header is None:
        return
    proxies = ", ".join(map(str, settings.console_proxies))
    message = f"The console accepts the names of operators from {proxies}, in the header {settings.console_user_header}"
    if settings.console_roles:
        yield CheckResult("console", "ok", f"{message}.")
    else:
        remedy = "Set PETSTORE_CONSOLE_ROLES, such as to admin:pets-admins,viewer:*."
        yield CheckResult("console", "warn", f"{message}; everybody whom it names is a viewer.", remedy)


def _check_addresses(settings: Settings) -> Iterator[CheckResult]:
    """Addresses that contradict each other, or what they are for."""
    for network in settings.trusted_proxies:
        if network.prefixlen < _MIN_PREFIX_BITS:
            message = f"PETSTORE_TRUSTED_PROXIES has {network}: clients in it can name any address as their own."
            remedy = "Set it to the addresses of the proxies only; otherwise no limit by address holds."
            yield CheckResult("proxies", "warn", message, remedy)
    for network in settings.console_proxies:
        if network.prefixlen < _MIN_PREFIX_BITS:
            message = f"PETSTORE_CONSOLE_PROXIES has {network}: programs in it can sign in to the console as anybody."
            yield CheckResult("proxies", "warn", message, "Set it to the addresses of the proxies only.")
    hosts = {settings.host, settings.admin_host}
    if settings.port == settings.admin_port != 0 and (len(hosts) == 1 or hosts & _ALL_ADDRESSES):
        message = f"PETSTORE_PORT and PETSTORE_ADMIN_PORT are both {settings.port}: no server can start."
        yield CheckResult("ports", "fail", message, "Choose another port for one of them.")


def check_server(settings: Settings, is_held: Callable[[], bool | None]) -> Iterator[CheckResult]:
    """Whether a server runs on this store, and what it says of itself; if none responds, whether one could start.

    `is_held` returns whether a server has locked the store; None if that is not known. It has not if another file has
    taken the place of the one that it serves, or none has.
    """
    address = f"{admin_url(settings)}/readyz"
    holds_store, found = is_held(), _ask(address)
    if holds_store is False:  # one may have been started meanwhile, by this very connection
        holds_store = is_held()
    server = "A server runs on this store" if holds_store else f"A server answers at {address}"
    if found is None:
        if holds_store:
            remedy = "Set PETSTORE_ADMIN_HOST and PETSTORE_ADMIN_PORT as for the server; if they are, see its log."
            yield CheckResult("server", "warn", f"{server}, but does not answer at {address}.", remedy)
            return
        message = f"No server answers at {address}." if holds_store is None else "No server runs on this store."
        remedy = "Start it, such as with `systemctl start petstore`; if it has ended, its log says why."
        yield CheckResult("server", "warn", message, remedy)
        yield from _check_ports(settings)
        return
    ready, status, reason = found
    state = "ready" if ready else "not ready"
    if status != "ok":
        state += f" ({status}: {reason})"
    if holds_store is False:
        remedy = "Set PETSTORE_DATABASE_URL as for that server. If its file was moved, put it back, and create none."
        yield CheckResult("server", "fail", f"{server} and is {state}, but it does not use this store.", remedy)
        return
    unknown = "; whether it uses this store is not known" if holds_store is None else ""
    level: Level = "fail" if not ready else "warn" if status != "ok" else "ok"
    yield CheckResult("server", level, f"{server} and is {state}{unknown}.", "" if level == "ok" else "See its log.")


def _ask(address: str) -> tuple[bool, str, str] | None:
    """Whether the server is ready, its status and the reason for that; None if none of this service answers."""
    where = urlsplit(address)
    try:
        with closing(HTTPConnection(where.netloc, timeout=_RESPONSE_SECONDS)) as connection:
            connection.request("GET", where.path)
            response = connection.getresponse()
            found = json.loads(response.read(_MAX_RESPONSE))
            return response.status == HTTPStatus.OK, found["status"], found.get("reason", "")
    except (OSError, HTTPException, ValueError, LookupError, TypeError):  # or it is another program
        return None


def _check_ports(settings: Settings) -> Iterator[CheckResult]:
    """Whether a server could listen on the ports of the settings."""
    for name, host, port in (
        ("PETSTORE_PORT", settings.host, settings.port),
        ("PETSTORE_ADMIN_PORT", settings.admin_host, settings.admin_port),
    ):
        try:
            listening_socket(host, port).close()
        except OSError as error:
            message = f"A server could not listen on {host}:{port}: {error.strerror or error}."
            remedy = f"`ss -ltnp` shows what uses it. If that is this service, see its log; else change {name}."
            if is_foreign_address(error):
                remedy = f"Set {name.replace('PORT', 'HOST')} to an address of this machine."
            yield CheckResult("ports", "fail", message, remedy)
