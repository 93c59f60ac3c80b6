"""The operator console of this process: what it needs, from the settings and the parts that run."""

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from petstore_server.console.application import Console
from petstore_server.console.services import Services
from petstore_server.ports import Store, Usage
from petstore_server.runtime import composition, engines
from petstore_server.runtime.background import BackgroundTask
from petstore_server.runtime.import_process import run_import
from petstore_server.runtime.installation import LocalInstallation
from petstore_server.settings import Settings
from petstore_server.telemetry.aggregation import Families
from petstore_server.telemetry.recent import SAMPLE_SECONDS, RecentRequests
from petstore_server.telemetry.refusals import RefusedAddress


class Reports(NamedTuple):
    """What the service on this host, with all its workers, reports of itself.

    Readiness as /readyz shows it, its metrics, and the client addresses that were refused most in the last hour.
    """

    readiness: Callable[[], Awaitable[tuple[bool, dict[str, Any]]]]
    metrics: Callable[[], Awaitable[Families]]
    refused_addresses: Callable[[], Awaitable[Sequence[RefusedAddress]]]


def make_console(settings: Settings, store: Store, reports: Reports, clock: Callable[[], float]) -> Console:
    """The console over an open store."""

    async def usages() -> Mapping[int, Usage]:
        return await composition.all_usage(settings, store)

    async def usage_of(account_id: int) -> Usage:
        return await composition.account_usage(settings, store, account_id)

    return Console(
        Services(
            settings=settings,
            store=store,
            installation=LocalInstallation(settings),
            readiness=reports.readiness,
            requests=RecentRequests(reports.metrics, clock),
            refused_addresses=reports.refused_addresses,
            usages=usages,
            usage_of=usage_of,
            run_import=run_import,
            clock=clock,
            random_token=secrets.token_urlsafe,
            random_below=secrets.randbelow,
        )
    )


def sampling(console: Console) -> BackgroundTask:
    """The background task that keeps the console's figures of the last hour."""
    return BackgroundTask("sample requests", console.services.requests.sample, SAMPLE_SECONDS)


@asynccontextmanager
async def open_console(settings: Settings, reports: Reports, clock: Callable[[], float]) -> AsyncIterator[Console]:
    """The console of a process that serves no requests. It opens the store, which must exist, and closes it at the end.

    Raises SettingsError, StoreUnusable.
    """
    async with engines.opened_store(settings.database_url) as store:
        console = make_console(settings, store, reports, clock)
        try:
            yield console
        finally:
            await console.close()
