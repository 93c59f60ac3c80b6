"""The service in memory, as a transport: requests never leave the process."""

import itertools
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from email.utils import formatdate
from math import floor, inf
from typing import Any, Self, get_args

import httpx2

from petstore_client import _gate as gates
from petstore_client import v2
from petstore_client._async_client import AsyncClient
from petstore_client._client import Client
from petstore_client._options import InMemory, Options, substitutes
from petstore_client._types import Clock, Order, Pet, Secret
from petstore_client.testing.clock import FakeClock
from petstore_client.testing.faults import Fault, Raw, ServiceRaw, error
from petstore_client.testing.limits import Limits
from petstore_client.testing.operations import perform
from petstore_client.testing.store import Receiver, Sees, Store
from petstore_client.testing.webhooks import deliver

_numbers = itertools.count(1)
_LOOK = 0.25  # seconds after which a held request looks for changes again


@dataclass(frozen=True, slots=True)
class Received:
    """A request that arrived at a time in Unix seconds. `path` lacks the `version`, such as "v1", and the `query`."""

    method: str
    path: str
    headers: httpx2.Headers
    at: float
    version: str
    query: str
    body: bytes


class FakePetstore(InMemory, httpx2.BaseTransport, httpx2.AsyncBaseTransport):
    """The Pet Store Orders API in memory, versions 1 and 2, for tests.

    `orders` and `pets` are dictionaries by id, which tests may change. Orders of version 2 (`petstore_client.v2.Order`)
    have their status and timestamps; others were created when the fake first sees them. `shipped` lists the
    identifiers of shipped orders. `per_minute` and `per_day` are the limits of its only account; `ban_strikes` and
    `ban_seconds` say when and for how long its key is first banned for requests that come too early. A page of version
    2 examines at most `work_limit` orders, so it may be short, even empty. `sunset` is the header of `get_pet`.

    `receivers` are the functions that `deliver` and a ping call with the headers and the body of each message, by the
    URLs of the webhooks. Each returns a status, an httpx2.Response, or None for 204. A URL without one has no response.
    Without `webhooks`, the store has not turned them on.

    `scopes` are those of the key: add "orders:manage" for the shop's own systems, and "webhooks:manage" for webhooks.
    `accounts` are the names of the store's accounts: the key belongs to the first, and others may own orders. The first
    `sees` "all" orders or its "own": orders of version 1 are its own, and those of version 2 that name another account,
    or none, do not exist for it. Placed orders get identifiers from `assigned_ids_from` on, or after the largest.

    `requests` lists all requests, `cancelled` holds the cancelled orders, `early` counts requests that arrived before
    the Retry-After of a 429 had elapsed, and `bans` counts bans. Several threads may send requests to one fake.
    """

    def __init__(
        self,
        orders: Iterable[Order] = (),
        *,
        pets: Iterable[Pet] = (),
        shipped: Iterable[int] = (),
        per_minute: int = 1_000_000,
        per_day: int = 1_000_000,
        ban_strikes: int = 20,
        ban_seconds: int = 120,
        clock: Clock | None = None,
        sunset: str = "Wed, 01 Dec 2027 00:00:00 GMT",
        work_limit: int = 3000,
        scopes: Iterable[str] = ("orders:read", "orders:cancel", "orders:write", "pets:read"),
        accounts: Iterable[str] = ("fake",),
        assigned_ids_from: int | None = None,
        webhooks: bool = True,
        sees: Sees = "all",
    ) -> None:
        if sees not in get_args(Sees):
            raise ValueError(f"sees is one of {', '.join(get_args(Sees))}, not {sees!r}")
        self.clock: Clock = clock or FakeClock()
        self.orders = {order.id: order for order in orders}
        self.pets = {pet.id: pet for pet in pets}
        self.shipped = set(shipped)
        self.cancelled: set[int] = set()
        self.requests: list[Received] = []
        self.early = 0
        self.base_url = f"http://petstore-{next(_numbers)}.test/v1"  # unique, so that each fake has its own limits
        self.api_key = "pso_test_fake_key_for_tests"
        self.receivers: dict[str, Receiver] = {}
        self._faults: deque[Fault] = deque()
        self._limits = Limits(per_minute, per_day, ban_strikes, ban_seconds)
        self._store = Store(
            self.orders, self.pets, self.shipped, self.cancelled, self._limits, sunset, work_limit,
            v2.UsageKey(id="fake", scopes=list(scopes)), list(accounts), assigned_ids_from, self.receivers,
            webhooks, sees,
        )  # fmt: skip
        self._store.track(self.clock.now())

    @property
    def bans(self) -> int:
        """How often the key was banned."""
        return self._limits.bans

    @property
    def unused_faults(self) -> list[Fault]:
        """The faults that have not affected a request yet."""
        return list(self._faults)

    def then(self, *faults: Fault) -> None:
        """Apply these faults to the next requests, one each."""
        self._faults.extend(faults)

    def restore(self) -> None:
        """Begin a new history of changes, as the restore of a backup does: an earlier token is 410 `changes_reset`."""
        self._store.history += 1

    def deliver(self) -> int:
        """Deliver the messages of webhooks that are due now to the `receivers`, and return how many were sent.

        They are those of the service, signed by Standard Webhooks. After a failure the webhook waits, as there: let the
        clock advance. An exception of a receiver is raised, but httpx2.TransportError means that there is no response.
        """
        with gates.lock:
            return deliver(self._store, self.clock)

    def client(self, **options: Any) -> Client:
        """A client of this service that uses its clock; the options are those of `Client`."""
        return Client(**self._own(options))

    def async_client(self, **options: Any) -> AsyncClient:
        """A client for asyncio of this service; the options are those of `AsyncClient`."""
        return AsyncClient(**self._own(options))

    @contextmanager
    def installed(self) -> Iterator[Self]:
        """Intercept all clients that the program makes within the block, in any thread.

        They use the address, the key, the transport and the clock of this service, whatever the program passes; other
        options stay. At the end, unused faults raise AssertionError.
        """

        def substitute(options: Options[Any, Any]) -> Options[Any, Any]:
            is_of_a_fake = isinstance(options.transport, FakePetstore)
            own = self._own({"api_key": Secret(self.api_key)})
            return options if is_of_a_fake else replace(options, http_client=None, **own)

        substitutes.append(substitute)
        try:
            yield self
        finally:
            substitutes.remove(substitute)
        self.assert_faults_used()

    def assert_faults_used(self) -> None:
        """Raise AssertionError if a fault has not affected a request: the test expected more requests than came."""
        if self._faults:
            count = len(self.requests)
            came = f"after {count} request{'s' * (count != 1)}"
            raise AssertionError(f"These faults were never used, {came}: {', '.join(map(repr, self._faults))}.")

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Respond to a request."""
        done: list[httpx2.Response] = []
        for pause in self._respond(request, done):
            self.clock.sleep(pause)
        return done[0]

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Respond to a request of a client for asyncio."""
        done: list[httpx2.Response] = []
        for pause in self._respond(request, done):
            await self.clock.sleep_async(pause)
        return done[0]

    def _respond(self, request: httpx2.Request, done: list[httpx2.Response]) -> Iterator[float]:
        """Append the response to `done`. Yields seconds to wait for while the request is held."""
        version, slash, rest = request.url.path.removeprefix("/").partition("/")
        query, body = request.url.query.decode(), request.read()
        with gates.lock:  # in each step of a request, never while it waits
            now = self.clock.now()
            self.requests.append(Received(request.method, slash + rest, request.headers, now, version, query, body))
            self.early += now < self._limits.retry_at
            fault = self._faults.popleft() if self._faults else None

        def serve() -> Raw:
            return self._serve(request, version, slash + rest)

        if fault is not None:
            raw = fault.apply(request, self.clock, serve)
        else:
            raw, until = serve(), now + int(request.url.params.get("wait", 0))
            while isinstance(raw, ServiceRaw) and raw.idle and self.clock.now() < until:
                yield _LOOK
                request.url = request.url.copy_set_param("after", raw.idle)
                raw = self._perform(request, version, slash + rest)
        if raw.status == 429:
            with gates.lock:
                raw = self._limits.refused(raw, now)
        date, number = formatdate(floor(self.clock.now()), usegmt=True), request.headers.get("x-request-id", "fake")
        headers = {"date": date, "x-request-id": number, **raw.headers}
        done.append(httpx2.Response(raw.status, headers=headers, stream=_Body(raw, self.clock, request)))

    def _own(self, options: dict[str, Any]) -> dict[str, Any]:
        transport = {} if "http_client" in options else {"transport": self}
        return {"base_url": self.base_url, "api_key": self.api_key, "clock": self.clock, **transport, **options}

    def _serve(self, request: httpx2.Request, version: str, path: str) -> Raw:
        """The response of the real service."""
        if request.headers.get("authorization") != f"Bearer {self.api_key}":
            return error(401, "invalid_api_key", "This API key is not valid here.")
        with gates.lock:
            return self._limits.refuse(self.clock.now()) or self._perform(request, version, path)

    def _perform(self, request: httpx2.Request, version: str, path: str) -> Raw:
        """The response to a request that has been admitted."""
        with gates.lock:
            now = self.clock.now()
            self._store.track(now)
            raw = perform(self._store, request, version, path, now)
            self._store.track(now)
            return replace(raw, headers={**raw.headers, **self._limits.headers(now)})


class _Body(httpx2.SyncByteStream, httpx2.AsyncByteStream):
    """A body that may arrive slowly and end early."""

    def __init__(self, raw: Raw, clock: Clock, request: httpx2.Request) -> None:
        self._raw = raw
        self._clock = clock
        self._patience = request.extensions.get("timeout", {}).get("read") or inf

    def __iter__(self) -> Iterator[bytes]:
        for pause, piece in self._steps():
            self._clock.sleep(pause)
            yield piece

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for pause, piece in self._steps():
            if pause:
                await self._clock.sleep_async(pause)
            yield piece

    def _steps(self) -> Iterator[tuple[float, bytes]]:
        """The pieces, each with the seconds before it. Raises httpx2.ReadTimeout or ReadError."""
        for piece in self._raw.pieces:
            if self._raw.pause > self._patience:
                yield self._patience, b""
                raise httpx2.ReadTimeout("timed out")
            yield self._raw.pause, piece
        if self._raw.cut:
            raise httpx2.ReadError("peer closed connection without sending complete message body")
