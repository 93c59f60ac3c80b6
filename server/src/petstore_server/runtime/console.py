"""The operator console of this process: what it needs, from the settings and the parts that run."""

from collections.abc import Callable
from functools import partial

from petstore_server.console.application import Console
from petstore_server.console.readings import Pace
from petstore_server.console.sources import Service, Sources
from petstore_server.runtime.background import BackgroundTask
from petstore_server.runtime.health import examine
from petstore_server.runtime.installation import LocalInstallation
from petstore_server.settings import Settings
from petstore_server.store import Store
from petstore_server.telemetry.recent import SAMPLE_SECONDS


def make_console(
    settings: Settings, store: Store, service: Service, clock: Callable[[], float], pace: Pace | None = None
) -> Console:
    """The console over an open store. `clock` gives Unix seconds. Close its `sources` at the end."""
    installation = LocalInstallation(settings)
    return Console(
        Sources(
            settings=settings,
            store=store,
            service=service,
            examine=lambda: examine(installation, clock()),
            usage_of=partial(installation.account_usage, store),
            all_usage=partial(installation.all_usage, store),
            clock=clock,
            pace=pace or Pace(),
        )
    )


def sampling(console: Console) -> BackgroundTask:
    """The background task that keeps the console's metrics of the last hour."""
    return BackgroundTask("sample requests", console.sources.requests.sample, SAMPLE_SECONDS)
