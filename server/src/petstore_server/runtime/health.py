"""Health checks: all in order, for the command line; those of a server that runs, for the console; and its host."""

import asyncio
import ipaddress
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from petstore_server.domain import errors
from petstore_server.domain.webhooks import SigningSecrets
from petstore_server.operations import health
from petstore_server.operations import health_machine as machine
from petstore_server.operations.health import Action, CheckResult
from petstore_server.runtime import opening
from petstore_server.runtime.backend import allowed_connections, require_servable, tracing
from petstore_server.runtime.opening import is_served, is_sqlite, named_store, read_counters, store_file
from petstore_server.settings import Settings, SettingsError
from petstore_server.settings.values import describe_url
from petstore_server.store import Store
from petstore_server.store.records import is_trigger_problem

_ELSEWHERE = "192.0.2.1"  # of no host (RFC 5737)
_QUICK_TO_READ = 200_000_000  # bytes of a store that can be read in a few seconds


@dataclass
class _Seen:
    """Facts collected by earlier checks: the seconds by which clocks are ahead, and the state of the store."""

    clock: Callable[[], float]
    ahead: dict[str, float] = field(default_factory=dict)
    last_change: float = 0.0
    store_id: str | None = None


async def examine(settings: Settings, clock: Callable[[], float]) -> list[CheckResult]:
    """Run every check, in a process that serves no requests. `clock` gives Unix seconds.

    If the store cannot be opened, checks of its content are left out. One that is quick to read is read in full.
    """
    seen = _Seen(clock)
    file = store_file(settings)

    def holds_store() -> bool | None:
        return None if file is None else is_served(file)

    server = await asyncio.to_thread(lambda: list(machine.check_server(settings, holds_store)))
    moved = server[0].level == "fail" and holds_store() is False  # to create a store would put an empty one in place
    store = await _store(settings, seen, advise=not moved)
    redis = await _redis(settings, seen)
    return [
        *_settings(settings),
        *await _environment(os.environ, settings),
        *redis,
        *_machine(settings, seen),
        *store,
        *server,
    ]


async def examine_serving(settings: Settings, store: Store, clock: Callable[[], float]) -> list[CheckResult]:
    """Run the checks that cost little on an open store. `clock` gives Unix seconds.

    A check of the store that cannot run is a warning: readiness says whether the store, or Redis, can be used.
    """
    results, seen = _settings(settings), _Seen(clock)

    @contextmanager
    def attempt(check: str) -> Iterator[None]:
        try:
            yield
        except (errors.ServiceUnavailable, errors.StoreUnusable) as error:
            results.append(CheckResult(check, "warn", f"This was not checked: {error.explanation}"))

    with suppress(errors.ServiceUnavailable, SettingsError):
        if settings.redis_url is not None:
            async with read_counters(settings) as counters:
                results += _redis_info(await counters.info(), seen)
    content = await _content(settings, store, seen, attempt)
    return [*results, *await asyncio.to_thread(_machine, settings, seen), *content]


def _settings(settings: Settings) -> list[CheckResult]:
    valid = CheckResult("settings", "ok", f"All settings are valid; the environment is {settings.environment}.")
    return [valid, *machine.check_deployment(settings)]


async def _environment(environ: Mapping[str, str], settings: Settings) -> list[CheckResult]:
    """The checks of the process's environment: files with secrets, variables of OpenTelemetry, open files."""
    results = [*machine.check_secrets(environ)]
    try:
        allowed_connections(settings.max_connections)
    except SettingsError as error:
        results.append(CheckResult("connections", "fail", str(error), "Do that; until then no server starts."))
    try:
        if traces := tracing(environ, settings):
            await traces.close()
    except SettingsError as error:
        remedy = "Do that, or set OTEL_TRACES_EXPORTER=none; until then no server starts."
        results.append(CheckResult("traces", "fail", str(error), remedy))
    return results


def _machine(settings: Settings, seen: _Seen) -> list[CheckResult]:
    file = store_file(settings)
    results = [] if file is None else machine.check_place(file)
    if settings.webhook_secret is not None:
        results += machine.check_authorities()
    return [*results, health.check_clock(seen.clock(), seen.ahead, seen.last_change)]


def _redis_info(info: Mapping[str, Any], seen: _Seen) -> list[CheckResult]:
    if at := info.get("server_time_usec"):  # the oldest version may not report it
        seen.ahead["Redis"] = at / 1e6 - seen.clock()
    return list(health.check_redis(info))


async def _content(
    settings: Settings,
    store: Store,
    seen: _Seen,
    attempt: Callable[[str], AbstractContextManager[object]] = nullcontext,
) -> list[CheckResult]:
    """The checks of what the store holds. `attempt` gets the name of each, and may handle what it raises."""
    results: list[CheckResult] = []
    now, with_tools = seen.clock(), store_file(settings) is None
    with attempt("last change"):
        seen.last_change = await store.audit.last_change()
    with attempt("accounts"):
        results += [result async for result in health.check_partners(store, now)]
    with attempt("webhooks"):
        digest = None if settings.webhook_secret is None else SigningSecrets(settings.webhook_secret).digest
        results += await health.check_webhooks(store, digest)
    with attempt("identifiers"):
        results += [result async for result in health.check_identifiers(store)]
    with attempt("backup"):
        results.append(health.check_backups(await store.audit.last_backup(), now, with_tools=with_tools))
    if with_tools:
        with attempt("postgresql"):
            state = await opening.postgres_state(settings)
            seen.ahead["PostgreSQL"] = float(state["now"]) - seen.clock()
            results += health.check_postgres(state)
    return results


async def _redis(settings: Settings, seen: _Seen) -> list[CheckResult]:
    results: list[CheckResult] = []
    try:
        require_servable(settings)
        if settings.redis_url is None:
            return []
        async with read_counters(settings) as counters:
            results = _redis_info(await counters.info(), seen)
            if seen.store_id is not None:  # else it has no name under which to write
                counters.use_store(seen.store_id)
                await counters.prove()
            return results
    except SettingsError as error:
        remedy = "Set PETSTORE_REDIS_URL, for example to redis://127.0.0.1:6379/0; no server starts without it."
        if settings.redis_url is not None:
            remedy = "Correct that; until then no server starts."
        return [CheckResult("redis", "fail", str(error), remedy)]
    except errors.ServiceUnavailable as error:
        message = f"Limits cannot be counted at {describe_url(settings.redis_url or '')} ({error.reason})."
        check = "Correct that" if results else "Check that Redis runs there and accepts this user"
        remedy = f"{check}; until then each process counts limits on its own."
        if isinstance(error, errors.Unreachable) and error.refused:
            remedy = (
                "Correct PETSTORE_REDIS_URL or the rights of its user; until then each process that runs counts limits "
                "on its own, and no server starts."
            )
        if "certificate is not trusted" in error.reason:
            remedy = (
                "Use a host name that the certificate has, and name the file of its authority in "
                "PETSTORE_REDIS_CA_FILE. If that is empty, the authorities of the package ca-certificates are trusted."
            )
        # What is right has no part in it: a Redis that reports a good state may refuse to count all the same.
        warned = [result for result in results if result.level != "ok"]
        return [CheckResult("redis", "fail", message, remedy), *warned]


async def _store(settings: Settings, seen: _Seen, *, advise: bool) -> list[CheckResult]:
    try:
        async with named_store(settings) as store:
            await store.check()
            seen.store_id = await store.engine.identity()
            results = [CheckResult("store", "ok", "The store opens, has this version's schema, and can be written.")]
            results += await _content(settings, store, seen)
    except (errors.DomainError, SettingsError, OSError) as error:
        reason = error.explanation if isinstance(error, errors.ServiceUnavailable) else str(error)
        if isinstance(error, errors.StoreUnusable) and not advise:
            reason = error.problem
        if isinstance(error, errors.NoStore):
            remedy = "Check that its disk is mounted and that PETSTORE_DATABASE_URL is right."
            if not advise:
                return [CheckResult("store", "fail", reason, remedy)]
            return [CheckResult("store", "fail", reason, f"{remedy} To create a new store:", "migrate")]
        if isinstance(error, errors.StoreOutdated):
            return [CheckResult("store", "fail", reason, "Bring it to this version's schema.", "migrate")]
        if isinstance(error, errors.StoreDamaged) or (isinstance(error, errors.ServiceUnavailable) and error.damaged):
            damaged = CheckResult("store", "fail", reason, *_after_damage(settings))
            return [damaged, await _backup_of_damaged(settings, seen.clock())]
        return [CheckResult("store", "fail", reason, "Correct that, then check again.")]
    return [*results, await asyncio.to_thread(_integrity, settings)]


async def _backup_of_damaged(settings: Settings, now: float) -> CheckResult:
    """The check of backups for a store that is damaged, which has the record of the last one."""
    with suppress(errors.DomainError, SettingsError, OSError):
        async with named_store(settings) as store:
            last = await store.audit.last_backup()
        return health.check_backups(last, now, with_tools=store_file(settings) is None)
    message = "The record of the last backup is in the store, and cannot be read."
    return CheckResult("backup", "warn", message, "Look for your backups on this host and on others.")


def _after_damage(settings: Settings) -> tuple[str, Action]:
    if store_file(settings) is None:
        return "Stop all servers, and restore PostgreSQL or promote a replica.", "check store"
    return "Stop all servers, restore the latest sound backup, then start them.", "restore"


def _integrity(settings: Settings) -> CheckResult:
    file = store_file(settings)
    if file is None or file.stat().st_size > _QUICK_TO_READ:
        return CheckResult("integrity", "ok", "The store was not read in full.", action="check store")
    try:
        problems, _ = opening.check_store(settings)
    except errors.StoreUnusable as error:
        return CheckResult(
            "integrity", "fail", f"The store was not read in full: {error.message}", action="check store"
        )
    if not problems:
        return CheckResult("integrity", "ok", "The store was read in full and is sound.")
    damage = [problem for problem in problems if not is_trigger_problem(problem)]
    message = f"The store was read in full and is not sound: {(damage or problems)[0]}"
    if not damage:
        return CheckResult("integrity", "fail", message, "Do that, then check again; no backup has to be restored.")
    return CheckResult("integrity", "fail", message, "Restore the latest sound backup.", "restore")


def host_identity(settings: Settings) -> str:
    """The identity of this host among those that share the store: its name and its admin port.

    With PostgreSQL also its address on the way there, or to other networks: machines and containers may share a name.
    """
    name = f"{socket.gethostname()}:{settings.admin_port}"
    if is_sqlite(settings.database_url):
        return name
    listed = urlsplit(describe_url(settings.database_url)).netloc.split(",")
    hosts = [host for each in listed if (host := urlsplit(f"//{each}").hostname)]
    found = (address for host in (*hosts, _ELSEWHERE) if (address := _own_address(host)) is not None)
    return f"{name} at {address}" if (address := next(found, None)) else name


def _own_address(destination: str) -> str | None:
    """The address from which this machine reaches another one, without sending anything; None if it is loopback."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(destination, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as trial:
            trial.connect(address)
            own = str(trial.getsockname()[0])
    except OSError:
        return None
    return None if ipaddress.ip_address(own.partition("%")[0]).is_loopback else own
