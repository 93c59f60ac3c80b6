"""The application for the server: what `http` and `backends` make together, and how it is run and drained."""

import asyncio
import contextlib
import itertools
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import uvicorn

from petstore_server.backends import Backend
from petstore_server.domain.errors import ServiceUnavailable
from petstore_server.domain.keys import Environment, Scope
from petstore_server.http.admin import Readiness, admin_application
from petstore_server.http.auth import Authenticator
from petstore_server.http.clients import ClientAddress
from petstore_server.http.connection import IDLE_SECONDS, Connection
from petstore_server.http.docs import Documents
from petstore_server.http.gate import Gate
from petstore_server.http.observe import Metrics, RequestObserver
from petstore_server.http.orders import OrderOperations
from petstore_server.http.pets import PetOperations, deprecation_notices
from petstore_server.http.routes import Operation, Route, Routes
from petstore_server.settings import Settings

DRAIN_SECONDS = 8
"""What is under way may take this long after the listeners have closed; then it is cut off."""


class Application:
    """Everything one serving process holds. `clock` gives Unix seconds, `token` a random text of so many bytes."""

    def __init__(
        self, settings: Settings, backend: Backend, clock: Callable[[], float], token: Callable[[int], str]
    ) -> None:
        self.backend = backend
        self.draining = False
        self.metrics = Metrics()
        self.order_operations = OrderOperations(backend.store.orders, clock)
        self.routes = self._routes(settings, clock)
        self.authenticator = Authenticator(backend.store.keys, Environment(settings.environment), clock)
        self.gate = Gate(
            self.routes,
            self.authenticator,
            backend.limiter,
            ClientAddress(settings.trusted_proxies, settings.forwarded_header),
            Documents(settings),
            RequestObserver(self.metrics),
            _request_ids(token(6)),
        )
        self.admin = admin_application(self.metrics, self.readiness)
        self._watch_backend()

    async def keep_up(self) -> None:
        """Run the upkeep until cancelled."""
        await self.backend.keep_up(self.confirm)

    def confirm(self, changed: bool) -> None:
        """Hear what the store says of access."""
        self.authenticator.confirm(changed=changed)

    async def readiness(self) -> Readiness:
        """What /readyz says: 503 while the process drains or the store is unusable."""
        if self.draining:
            return Readiness(False, {"status": "unavailable", "reason": "draining: the process is about to stop"})
        try:
            await self.backend.check()
        except ServiceUnavailable as error:
            return Readiness(False, {"status": "unavailable", "reason": error.reason})
        return Readiness(True, {"status": "ok"})

    def _routes(self, settings: Settings, clock: Callable[[], float]) -> Routes:
        orders = self.order_operations
        pets = PetOperations(self.backend.store.pets, clock, settings.pets_sunset)
        list_orders = Operation("listOrders", Scope.ORDERS_READ, orders.list_orders)
        cancel_order = Operation("cancelOrder", Scope.ORDERS_CANCEL, orders.cancel_order)
        get_pet = Operation("getPet", Scope.PETS_READ, pets.get_pet)
        notices = deprecation_notices(settings.pets_deprecated_at, settings.pets_sunset)
        return Routes(
            [
                Route("/v1/store/orders", {"GET": list_orders, "HEAD": list_orders}),
                Route("/v1/store/orders/{orderId}", {"DELETE": cancel_order}),
                Route("/v1/pets/{petId}", {"GET": get_pet, "HEAD": get_pet}, notices),
            ]
        )

    def _watch_backend(self) -> None:
        store, limiter = self.backend.store, self.backend.limiter
        store.stats.on_commit = self.metrics.committed
        store.stats.on_rebuild = self.metrics.rebuilt
        self.metrics.count("petstore_strikes", "Requests that counted as strikes.", lambda: limiter.strikes)
        self.metrics.count("petstore_bans", "Bans that began.", lambda: limiter.bans)


def _request_ids(prefix: str) -> Callable[[], str]:
    """Identifiers that differ in every process and for every request, at the cost of counting."""
    numbers = itertools.count(1)
    return lambda: f"{prefix}-{next(numbers):x}"


class _Server(uvicorn.Server):
    """A uvicorn server among others in one process: signals are not its business."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def run(
    settings: Settings,
    application: Application,
    public: socket.socket,
    admin: socket.socket,
    on_ready: Callable[[], None],
) -> None:
    """Serve on both sockets until SIGTERM or SIGINT, then drain: 503 from /readyz, the delay, close, finish."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    servers = _server(application.gate, Connection), _server(application.admin, "h11")
    tasks = [
        asyncio.create_task(servers[0].serve([public])),
        asyncio.create_task(servers[1].serve([admin])),
        asyncio.create_task(application.keep_up()),
    ]
    try:
        while not all(server.started for server in servers):  # noqa: ASYNC110 - uvicorn tells it by a flag alone
            await asyncio.sleep(0.01)
        on_ready()
        await _first(stop.wait, tasks)
        application.draining = True
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(_again(stop), settings.drain_delay_seconds)
        for server, task in zip(servers, tasks, strict=False):  # the admin port last: it tells of the draining
            server.should_exit = True
            await task
    finally:
        tasks[2].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _first(wait: Callable[[], Awaitable[Any]], tasks: list[asyncio.Task[None]]) -> None:
    """Wait for the stop signal, or for a task that ends before it and should not have: its error is raised."""
    waiting = asyncio.ensure_future(wait())
    done, _ = await asyncio.wait([waiting, *tasks], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    for task in done - {waiting}:
        task.result()


async def _again(stop: asyncio.Event) -> None:
    """A second signal ends the delay."""
    stop.clear()
    await stop.wait()


def _server(app: Any, protocol: Any) -> _Server:
    config = uvicorn.Config(
        app,
        http=protocol,
        ws="none",
        lifespan="off",
        access_log=False,
        log_config=None,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=DRAIN_SECONDS,
        backlog=2048,
    )
    return _Server(config)
