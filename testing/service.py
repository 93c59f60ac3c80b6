"""The whole application in this process, over a store of its own, with a clock that tests set."""

import random
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2
import pytest

from petstore_server.domain.accounts import Limits, Plan, plan_limits
from petstore_server.domain.audit import Actor
from petstore_server.domain.keys import DEFAULT_SCOPES, ApiKey, Environment, Scope, digest, new_key, new_key_id
from petstore_server.domain.orders import Order
from petstore_server.runtime.application import Application
from petstore_server.runtime.backend import Backend, opened_backend
from petstore_server.settings import Settings, read_settings
from petstore_server.telemetry.logs import configure_logging
from testing.checked_clients import checked_async_client
from testing.clock import Clock
from testing.deployment import Deployment
from testing.wire import RawTransport

UNLIMITED = Limits(1_000_000, 1_000_000)

embedded = pytest.mark.parametrize("each_deployment", ["embedded"], indirect=True)
"""Marks tests whose outcome no engine decides: they run on SQLite only."""


@dataclass
class Service:
    """A running application and what tests do with it.

    `client` adds no key; `transport` is the way to the service, for other clients.
    """

    application: Application
    backend: Backend
    clock: Clock
    client: httpx2.AsyncClient
    transport: RawTransport
    settings: Settings
    source: random.Random = field(default_factory=lambda: random.Random(5))
    _accounts: int = 0

    @property
    def actor(self) -> Actor:
        return Actor("operator:test", self.clock.now)

    async def account(self, plan: Plan = Plan.FREE, limits: Limits | None = None) -> str:
        """Make an account; return its name."""
        self._accounts += 1
        name = f"account {self._accounts}"
        await self.backend.store.accounts.create(name, plan, limits or plan_limits(plan, None, None), self.actor)
        return name

    async def key(self, account: str | None = None, **options: Any) -> str:
        """Make a key, in a new account unless one is given; return the key. Options are as of `key_and_id`."""
        return (await self.key_and_id(account, **options))[0]

    async def key_and_id(
        self,
        account: str | None = None,
        *,
        scopes: frozenset[Scope] = DEFAULT_SCOPES,
        environment: Environment = Environment.PRODUCTION,
        expires_at: float | None = None,
    ) -> tuple[str, str]:
        """Make a key, in a new account unless one is given; return the key and its id."""
        key = new_key(environment, self.source.randrange)
        entry = ApiKey(
            new_key_id(self.source.randrange),
            account or await self.account(),
            digest(key),
            environment,
            scopes,
            "",
            self.clock.now,
            expires_at,
        )
        return key, (await self.backend.store.keys.create(entry, self.actor)).id

    async def orders(self, *orders: Order) -> None:
        """Put orders into the store."""
        await self.backend.store.orders.import_batch(orders, "test", self.actor)

    async def background_round(self) -> None:
        """One round of the background tasks that a serving process repeats every quarter of a second."""
        await self.backend.save()
        await self.backend.watch_access(self.application.authenticator.confirm)


@asynccontextmanager
async def running(deployment: Deployment, clock: Clock | None = None, /, **more: str) -> AsyncIterator[Service]:
    """A service over a deployment, with more settings; several of these, one after another, share its store."""
    clock = clock or Clock()
    settings = read_settings(deployment.made(more))
    configure_logging(settings.log_level)
    async with AsyncExitStack() as stack:
        backend = await stack.enter_async_context(opened_backend(settings, clock, redis_clock=clock))
        application = Application(settings, backend, clock, lambda size: "r" * size)
        server = application.public_server()
        with socket.create_server(("127.0.0.1", 0)) as listener:
            await server.start(listener)
            transport = RawTransport(listener.getsockname()[1])
            try:
                async with checked_async_client(transport) as client:
                    yield Service(application, backend, clock, client, transport, settings)
            finally:  # a loop with sockets that listen would wait forever when it is closed
                application.drain()
                await server.stop(5)


def bearer(key: str, **more: str) -> dict[str, str]:
    """The headers of a request with this key."""
    return {"Authorization": f"Bearer {key}", **more}


def code(response: httpx2.Response) -> tuple[int, str]:
    """The status and the code of an error."""
    return response.status_code, response.json()["code"]


def limits(response: httpx2.Response) -> tuple[int, int, int]:
    """The values of the X-RateLimit headers: the limit, what remains, and the time of the reset."""
    names = ("limit", "remaining", "reset")
    limit, remaining, reset = (int(response.headers[f"x-ratelimit-{name}"]) for name in names)
    return limit, remaining, reset
