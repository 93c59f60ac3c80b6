"""The operator console, whose modules are loaded after the server is ready.

They are a quarter of all modules of a server, and no request of the API needs them. Everything that only the console
needs is imported in `load_modules`, and nowhere else before the server is ready.
"""

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from starlette.routing import BaseRoute, Route, Router
from starlette.types import Receive, Scope, Send

from petstore_server.console.cache import Cached
from petstore_server.console.security import PATH
from petstore_server.runtime import composition, engines
from petstore_server.runtime.background import BackgroundTask
from petstore_server.runtime.loading import loading
from petstore_server.settings import Settings
from petstore_server.store import Store
from petstore_server.telemetry.aggregation import Families
from petstore_server.telemetry.recent import SAMPLE_SECONDS, RecentRequests

if TYPE_CHECKING:
    from petstore_server.console.application import Console

LOAD_AFTER_SECONDS = 1.0
"""Not at once, because loading competes with the first requests of the API."""

_log = logging.getLogger(__name__)


class Reports(NamedTuple):
    """What the service on this host, with all its workers, reports of itself: readiness as in /readyz, and metrics."""

    readiness: Callable[[], Awaitable[tuple[bool, dict[str, Any]]]]
    metrics: Callable[[], Awaitable[Families]]


class DeferredConsole:
    """The console as an ASGI application, which is loaded for its first request, unless `load_soon` has done so.

    `is_sample` means that the store has sample data; it is read when the console is loaded.
    """

    def __init__(self, settings: Settings, store: Store, reports: Reports, clock: Callable[[], float]) -> None:
        self.requests = RecentRequests(reports.metrics, clock)
        self.is_sample = False
        self._parts = settings, store, reports, clock
        self._loaded = Cached(self._load, math.inf)
        self._timer: asyncio.TimerHandle | None = None
        self._console: Console | None = None

    @property
    def routes(self) -> list[BaseRoute]:
        """Its paths on the admin port."""
        return [Route(PATH, self), Route(PATH + "/{path:path}", self)]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond to a request, as ASGI defines it."""
        router = await self._loaded.get()
        await router(scope, receive, send)

    def load_soon(self) -> None:
        """Load the console in a second, unless a request comes first.

        Its first page is then as fast as the others, and its modules are those of the version that was started, also
        where the installation is upgraded later.
        """
        self._timer = asyncio.get_running_loop().call_later(LOAD_AFTER_SECONDS, self._loaded.latest)

    def sampling(self) -> BackgroundTask:
        """The background task that keeps the console's metrics of the last hour."""
        return BackgroundTask("sample requests", self.requests.sample, SAMPLE_SECONDS)

    async def close(self) -> None:
        """Stop what runs behind the pages."""
        if self._timer is not None:
            self._timer.cancel()
        await self._loaded.close()
        if self._console is not None:
            await self._console.close()

    async def _load(self) -> Router:
        try:
            make_console = await asyncio.to_thread(load_modules)
        except Exception as error:
            _log.error("console cannot be loaded", exc_info=error)
            raise
        settings, store, reports, clock = self._parts
        self._console = make_console(settings, store, reports, self.requests, clock, is_sample=self.is_sample)
        self._console.prepare()
        return Router(self._console.routes, redirect_slashes=False)


def load_modules() -> "Callable[..., Console]":
    """Load what only the console needs; return what makes a console."""
    with loading():
        from petstore_server.runtime.console import make_console
    return make_console


@asynccontextmanager
async def open_console(
    settings: Settings, reports: Reports, clock: Callable[[], float]
) -> AsyncIterator[DeferredConsole]:
    """The console of a process that serves no requests. It opens the store, which must exist, and closes it at the end.

    Raises SettingsError, StoreUnusable.
    """
    async with engines.opened_store(settings.database_url, composition.timeline_sharing(settings)) as store:
        console = DeferredConsole(settings, store, reports, clock)
        try:
            yield console
        finally:
            await console.close()
