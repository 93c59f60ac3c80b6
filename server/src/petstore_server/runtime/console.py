"""The operator console of this process: what it needs, from the settings and the parts that run."""

import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Protocol

from petstore_server.console.application import Console
from petstore_server.console.readings import Pace
from petstore_server.console.sources import Service, Sources
from petstore_server.console.statistics import UsageSource
from petstore_server.domain.usage import Usage
from petstore_server.runtime.background import BackgroundTask
from petstore_server.runtime.installation import LocalInstallation
from petstore_server.settings import Settings
from petstore_server.store import Store
from petstore_server.telemetry.aggregation import Families
from petstore_server.telemetry.recent import SAMPLE_SECONDS, RecentRequests


class MeasuredService(Service, Protocol):
    """The service on this host, with its metrics."""

    async def request_metrics(self) -> Families:
        """The metrics of all its processes."""


class _CountedUsage:
    """Usage from where it is counted, which the settings of a server say."""

    def __init__(self, installation: LocalInstallation, store: Store) -> None:
        self._installation = installation
        self._store = store

    async def find(self, account_id: int) -> Usage:
        return await self._installation.account_usage(self._store, account_id) or Usage()

    async def all(self) -> Mapping[int, Usage]:
        return await self._installation.all_usage(self._store) or {}


def make_console(
    settings: Settings, store: Store, service: MeasuredService, clock: Callable[[], float], pace: Pace | None = None
) -> Console:
    """The console over an open store. `clock` gives Unix seconds."""
    installation = LocalInstallation(settings, serves=True)
    usage: UsageSource = _CountedUsage(installation, store)
    return Console(
        Sources(
            settings=settings,
            store=store,
            installation=installation,
            service=service,
            requests=RecentRequests(service.request_metrics, clock),
            usage=usage,
            clock=clock,
            random_token=secrets.token_urlsafe,
            random_below=secrets.randbelow,
            pace=pace or Pace(),
        )
    )


def sampling(console: Console) -> BackgroundTask:
    """The background task that keeps the console's metrics of the last hour."""
    return BackgroundTask("sample requests", console.sources.requests.sample, SAMPLE_SECONDS)


@asynccontextmanager
async def open_console(
    settings: Settings, service: MeasuredService, clock: Callable[[], float]
) -> AsyncIterator[Console]:
    """The console of a process that serves no requests. It opens the store, which must exist, and closes it at the end.

    Raises SettingsError, StoreUnusable.
    """
    async with LocalInstallation(settings).opened_store() as store:
        console = make_console(settings, store, service, clock)
        try:
            yield console
        finally:
            await console.close()
