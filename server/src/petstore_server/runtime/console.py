"""The operator console of this process: what it needs, from the settings and the parts that run."""

import secrets
from collections.abc import Callable, Mapping

from petstore_server.console.application import Console
from petstore_server.console.services import Services
from petstore_server.domain.usage import Usage
from petstore_server.runtime import composition
from petstore_server.runtime.deferred_console import Reports
from petstore_server.runtime.installation import LocalInstallation
from petstore_server.settings import Settings
from petstore_server.store import Store
from petstore_server.telemetry.recent import RecentRequests


def make_console(
    settings: Settings,
    store: Store,
    reports: Reports,
    requests: RecentRequests,
    clock: Callable[[], float],
    *,
    is_sample: bool = False,
) -> Console:
    """The console over an open store; `requests` has its metrics of the last hour."""

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
            requests=requests,
            usages=usages,
            usage_of=usage_of,
            clock=clock,
            random_token=secrets.token_urlsafe,
            random_below=secrets.randbelow,
            is_sample=is_sample,
        )
    )
