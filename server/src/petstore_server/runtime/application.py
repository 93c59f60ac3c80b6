"""The application for the server: what `http` and the backend form, and how it is run and drained."""

import asyncio
import contextlib
import itertools
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

import uvicorn

from petstore_server.domain.errors import ServiceUnavailable
from petstore_server.domain.keys import Environment, Scope
from petstore_server.http.admin import Readiness, admin_application
from petstore_server.http.auth import Authenticator
from petstore_server.http.clients import ClientAddress
from petstore_server.http.connection import IDLE_SECONDS, Connection
from petstore_server.http.documentation import Documents
from petstore_server.http.gate import Gate
from petstore_server.http.observer import RequestObserver
from petstore_server.http.orders import OrderOperations
from petstore_server.http.pets import PetOperations, deprecation_notices
from petstore_server.http.routes import Operation, Route, Routes
from petstore_server.runtime.backend import Backend
from petstore_server.runtime.background import background_tasks
from petstore_server.settings import Settings
from petstore_server.telemetry.logs import lost_lines
from petstore_server.telemetry.metrics import Metrics

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
        self.background = background_tasks(backend, self.confirm, clock)
        self.admin = admin_application(self.readiness, self.exposition)
        self._watch_backend()

    def confirm(self, changed: bool) -> None:
        """Note that the store was read just now, and whether access changed."""
        self.authenticator.confirm(changed=changed)

    async def readiness(self) -> Readiness:
        """What /readyz says: 503 while the process drains or the store is unusable; degraded is ready (D19)."""
        state = await self._readiness()
        self.metrics.ready.set(state.ready)
        return state

    async def exposition(self) -> bytes:
        """The body of /metrics. Readiness is evaluated for it: nothing else may ever ask."""
        await self.readiness()
        return self.metrics.exposition()

    async def _readiness(self) -> Readiness:
        if self.draining:
            return Readiness(False, {"status": "unavailable", "reason": "draining: the process is about to stop"})
        stalled = self.background.stalled()
        if stalled is not None:
            return Readiness(False, {"status": "unavailable", "reason": stalled})
        try:
            await self.backend.check()
        except ServiceUnavailable as error:
            return Readiness(False, {"status": "unavailable", "reason": error.reason})
        fault = self.backend.limiter.fault or await self.backend.limiter.check()
        if fault is not None:
            return Readiness(True, {"status": "degraded", "reason": f"each process counts limits by itself: {fault}"})
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
        self.metrics.count("petstore_log_lines_lost", "Log lines that could not be written to stderr.", lost_lines)
        self.metrics.count(
            "petstore_limit_decisions_alone",
            "Decisions of a process that counted limits by itself, as Redis did not answer.",
            lambda: limiter.local_decisions,
        )
        self.metrics.state(
            "petstore_limits_degraded",
            "Processes that count limits by themselves, as Redis does not answer.",
            lambda: limiter.fault is not None,
        )


def _request_ids(prefix: str) -> Callable[[], str]:
    """Identifiers that differ in every process and for every request, at the cost of counting."""
    numbers = itertools.count(1)
    return lambda: f"{prefix}-{next(numbers):x}"


class Server(uvicorn.Server):
    """A uvicorn server among others in one process: signals are not its business."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def begun(self) -> None:
        """Wait until it listens."""
        while not self.started:  # noqa: ASYNC110 - uvicorn tells it by a flag alone
            await asyncio.sleep(0.01)


def admin_server(app: Any) -> Server:
    """A server for the admin port."""
    return _server(app, "h11")


def stop_signals() -> asyncio.Event:
    """An event that SIGTERM and SIGINT set."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop


async def run(
    settings: Settings,
    application: Application,
    public: socket.socket,
    on_ready: Callable[[], Awaitable[None]],
    *,
    admin: socket.socket | None = None,
    beside: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT, then drain: 503 from /readyz, the delay, close, finish.

    `beside` goes on all the while; when it ends the server drains too.
    """
    stop = stop_signals()
    servers = [(_server(application.gate, Connection), public)]
    if admin is not None:
        servers.append((admin_server(application.admin), admin))
    serving = [asyncio.ensure_future(server.serve([listener])) for server, listener in servers]
    others = [asyncio.ensure_future(application.background.run())]
    try:
        for server, _ in servers:
            await first(server.begun, [*serving, *others])
        await on_ready()
        if beside is not None:
            others.append(asyncio.ensure_future(beside()))
        await first(stop.wait, [*serving, *others])
        application.draining = True
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(_again(stop), settings.drain_delay_seconds)
        for (server, _), task in zip(servers, serving, strict=True):  # the admin port last: it tells of the draining
            server.should_exit = True
            await task
    finally:
        for task in others:
            task.cancel()
        for server, _ in servers:  # also where one of the tasks has failed: the process then ends with its error
            server.should_exit = True
        await asyncio.gather(*serving, *others, return_exceptions=True)


async def first(wait: Callable[[], Awaitable[Any]], tasks: Sequence[asyncio.Future[None]]) -> None:
    """Wait for what `wait` waits for, or for a task that ends before it and should not have: its error is raised."""
    waiting = asyncio.ensure_future(wait())
    done, _ = await asyncio.wait([waiting, *tasks], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    for task in done - {waiting}:
        task.result()


async def _again(stop: asyncio.Event) -> None:
    """A second signal ends the delay."""
    stop.clear()
    await stop.wait()


def _server(app: Any, protocol: Any) -> Server:
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
    return Server(config)
