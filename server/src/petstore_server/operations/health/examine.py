"""All health checks in order. The command line and the operator console show the results."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from petstore_server.domain.errors import DomainError, ServiceUnavailable
from petstore_server.operations.health.deployment import check_deployment, check_ports, find_server
from petstore_server.operations.health.engines import check_postgres, check_redis
from petstore_server.operations.health.files import check_clock, check_disk, check_files, is_quick_to_read
from petstore_server.operations.health.partners import check_backups, check_identifiers, check_partners
from petstore_server.operations.health.results import CheckResult
from petstore_server.settings import Settings, SettingsError, describe_url
from petstore_server.store import Store


class Installation(Protocol):
    """What the checks examine: the settings, and what these name."""

    @property
    def settings(self) -> Settings: ...

    @property
    def store_file(self) -> Path | None:
        """The file of a SQLite store; None for PostgreSQL."""

    def require_servable(self) -> None:
        """Raises SettingsError if no server can start with these settings."""

    def server_holds_store(self) -> bool:
        """Whether a server holds the lock of a SQLite store; always False for PostgreSQL."""

    async def open_store(self) -> Store:
        """Open the store, which must exist. Raises SettingsError, StoreUnusable."""

    async def redis_info(self) -> Mapping[str, Any]:
        """The fields of Redis's INFO. Raises SettingsError, ServiceUnavailable."""

    async def postgres_settings(self) -> Mapping[str, str]:
        """PostgreSQL's settings that make an acknowledged change durable, by name. Raises StoreUnusable."""

    @property
    def admin_url(self) -> str:
        """The address of the admin port, as seen from this machine."""

    def ask_server(self, path: str) -> tuple[int, bytes]:
        """The status and the body of the admin port's response to GET. Raises OSError if no server responds."""

    def store_problems(self) -> list[str]:
        """Read the whole SQLite store; return what is wrong with it, an empty list if it is sound."""


async def examine(installation: Installation, now: float) -> AsyncIterator[CheckResult]:
    """Run every check at `now` (Unix seconds). If the store cannot be opened, checks of its content are left out."""
    settings, file = installation.settings, installation.store_file
    yield CheckResult("settings", "ok", f"All settings are valid; the environment is {settings.environment}.")
    for result in check_deployment(settings):
        yield result
    async for result in _redis(installation):
        yield result
    if file is not None:
        for result in (*check_files(file), *check_disk(file)):
            yield result
    yield check_clock(file, now)
    async for result in _store(installation, now):
        yield result
    for result in await asyncio.to_thread(lambda: list(_server(installation))):
        yield result


async def _redis(installation: Installation) -> AsyncIterator[CheckResult]:
    try:
        installation.require_servable()
        if installation.settings.redis_url is None:
            return
        results = list(check_redis(await installation.redis_info()))
    except SettingsError as error:
        remedy = "Set PETSTORE_REDIS_URL, for example to redis://127.0.0.1:6379/0; no server starts without it."
        if installation.settings.redis_url is not None:
            remedy = "Install the driver, or remove PETSTORE_REDIS_URL; no server starts without the driver."
        yield CheckResult("redis", "fail", str(error), remedy)
    except ServiceUnavailable as error:
        where = describe_url(installation.settings.redis_url or "")
        message = f"Limits cannot be counted at {where} ({error.reason})."
        remedy = "Check that Redis runs there and accepts this user; until then each process counts limits on its own."
        yield CheckResult("redis", "fail", message, remedy)
    else:
        for result in results:
            yield result


async def _store(installation: Installation, now: float) -> AsyncIterator[CheckResult]:
    try:
        store = await installation.open_store()
        try:
            await store.check()
            results = [CheckResult("store", "ok", "The store opens, has this version's schema, and can be written.")]
            results += [result async for result in check_partners(store, now)]
            with suppress(ServiceUnavailable, ValueError):  # the search index is behind, or the order is damaged
                results += [result async for result in check_identifiers(store)]
            if installation.store_file is not None:
                results.append(await check_backups(store, now))
        finally:
            await store.close()
        if installation.store_file is None:
            results += check_postgres(await installation.postgres_settings())
    except (DomainError, SettingsError, OSError) as error:
        yield CheckResult("store", "fail", _reason(error), "Correct that, then check again.")
        return
    for result in results:
        yield result
    yield await asyncio.to_thread(_integrity, installation)


def _reason(error: Exception) -> str:
    if isinstance(error, ServiceUnavailable):
        return error.explanation
    return str(error)


def _integrity(installation: Installation) -> CheckResult:
    file = installation.store_file
    if file is None or not is_quick_to_read(file):
        return CheckResult("integrity", "ok", "The store was not read in full.", action="check store")
    problems = installation.store_problems()
    if not problems:
        return CheckResult("integrity", "ok", "The store was read in full and is sound.")
    message = f"The store was read in full and is not sound: {problems[0]}"
    return CheckResult("integrity", "fail", message, "Restore the latest sound backup.", "restore")


def _server(installation: Installation) -> Iterator[CheckResult]:
    settings = installation.settings
    holds_store = installation.server_holds_store()
    if not holds_store and installation.store_file is not None:
        yield CheckResult("server", "ok", "No server runs on this store.")
        yield from check_ports(settings)
    elif server := find_server(installation.ask_server, installation.admin_url, holds_store=holds_store):
        yield server
    else:
        yield from check_ports(settings)
