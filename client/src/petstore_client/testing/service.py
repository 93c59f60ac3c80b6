"""The service in memory, as a transport: requests never leave the process."""

import hashlib
import itertools
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator
from email.utils import formatdate
from math import ceil, floor
from typing import Any, NamedTuple

import httpx2
import msgspec

from petstore_client._async_client import AsyncClient
from petstore_client._client import Client
from petstore_client._types import Clock, Order, Pet
from petstore_client.testing.clock import FakeClock
from petstore_client.testing.faults import Fault, Raw, error

_numbers = itertools.count(1)


class Received(NamedTuple):
    """A request that arrived. `at` is in Unix seconds; `path` does not include the /v1 of the base URL."""

    method: str
    path: str
    headers: httpx2.Headers
    at: float


class FakePetstore(httpx2.BaseTransport, httpx2.AsyncBaseTransport):
    """The Pet Store Orders API in memory, for tests.

    `shipped` lists the identifiers of shipped orders. `per_minute` and `per_day` are the limits of its only account.
    `requests` lists all requests, `cancelled` holds the cancelled orders, and `early` counts requests that arrived
    before the Retry-After of a 429 had elapsed, for which the real service eventually bans the key.
    """

    def __init__(
        self,
        orders: Iterable[Order] = (),
        *,
        pets: Iterable[Pet] = (),
        shipped: Iterable[int] = (),
        per_minute: int = 1_000_000,
        per_day: int = 1_000_000,
        clock: Clock | None = None,
        sunset: str = "Wed, 01 Dec 2027 00:00:00 GMT",
    ) -> None:
        self.orders = {order.id: order for order in orders}
        self.pets = {pet.id: pet for pet in pets}
        self.shipped = set(shipped)
        self.cancelled: set[int] = set()
        self.clock: Clock = clock or FakeClock()
        self.requests: list[Received] = []
        self.early = 0
        self.base_url = f"http://petstore-{next(_numbers)}.test/v1"  # unique, so that each fake has its own limits
        self.api_key = "pso_test_fake_key_for_tests"
        self._sunset = sunset
        self._faults: deque[Fault] = deque()
        self._windows = (_Window("minute", 60, per_minute), _Window("day", 86_400, per_day))
        self._retry_at = float("-inf")

    def then(self, *faults: Fault) -> None:
        """Apply these faults to the next requests, one each."""
        self._faults.extend(faults)

    def client(self, **options: Any) -> Client:
        """A client of this service that uses its clock; the options are those of `Client`."""
        return Client(**self._options(options))

    def async_client(self, **options: Any) -> AsyncClient:
        """The same for asyncio."""
        return AsyncClient(**self._options(options))

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Respond to a request of a blocking client."""
        return self._respond(request)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Respond to a request of an asynchronous client."""
        return self._respond(request)

    def _options(self, options: dict[str, Any]) -> dict[str, Any]:
        own = {"base_url": self.base_url, "api_key": self.api_key, "transport": self, "clock": self.clock}
        return {**own, **options}

    def _respond(self, request: httpx2.Request) -> httpx2.Response:
        now = self.clock.now()
        path = request.url.path.removeprefix("/v1")
        self.requests.append(Received(request.method, path, request.headers, now))
        self.early += now < self._retry_at

        def serve() -> Raw:
            return self._serve(request, path)

        raw = self._faults.popleft().apply(request, self.clock, serve) if self._faults else serve()
        if raw.status == 429 and raw.headers.get("retry-after", "").isdigit():
            self._retry_at = max(self._retry_at, now + int(raw.headers["retry-after"]))
        headers = {
            "date": formatdate(floor(now), usegmt=True),
            "x-request-id": request.headers.get("x-request-id", "fake"),
            **raw.headers,
        }
        return httpx2.Response(raw.status, headers=headers, stream=_Body(raw, self.clock, request))

    def _serve(self, request: httpx2.Request, path: str) -> Raw:
        """The response of the real service."""
        now = self.clock.now()
        if request.headers.get("authorization") != f"Bearer {self.api_key}":
            return error(401, "invalid_api_key", "This API key is not valid here.")
        spent = [window for window in self._windows if window.left(now) == 0]
        if spent:
            wait = max(1, ceil(max(window.ends for window in spent) - now))
            raw = error(429, "rate_limit_exceeded", "The limit is used up.", {"retry-after": str(wait)})
        else:
            for window in self._windows:
                window.used += 1
            raw = self._operate(request, path)
        return raw._replace(headers={**raw.headers, **self._limit_headers(now)})

    def _operate(self, request: httpx2.Request, path: str) -> Raw:
        collection, _, number = path.rpartition("/")
        operation = (request.method, collection)
        if (request.method, path) == ("GET", "/store/orders"):
            return self._list(request)
        if operation == ("DELETE", "/store/orders"):
            return self._cancel(number)
        if operation == ("GET", "/pets"):
            return self._pet(number)
        return error(404, "not_found", "There is no such path.")

    def _list(self, request: httpx2.Request) -> Raw:
        body = msgspec.json.encode(list(self.orders.values()))
        etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
        if request.headers.get("if-none-match") == etag:
            return Raw(304, {"etag": etag}, ())
        return Raw(200, {"content-type": "application/json", "etag": etag}, (body,))

    def _cancel(self, number: str) -> Raw:
        order_id = int(number) if number.lstrip("-").isdigit() else None
        if order_id is None or order_id not in self.orders:
            return error(404, "order_not_found", f"There is no order {number}.")
        if order_id in self.shipped:
            return error(409, "order_already_shipped", f"Order {number} has already shipped.")
        if order_id in self.cancelled:
            return error(409, "order_already_cancelled", f"Order {number} is already cancelled.")
        self.cancelled.add(order_id)
        return Raw(204, {}, ())

    def _pet(self, number: str) -> Raw:
        notices = {"deprecation": "@1793491200", "sunset": self._sunset}
        pet = self.pets.get(int(number)) if number.lstrip("-").isdigit() else None
        if pet is None:
            return error(404, "pet_not_found", "There is no pet with this identifier.", notices)
        return Raw(200, {"content-type": "application/json", **notices}, (msgspec.json.encode(pet),))

    def _limit_headers(self, now: float) -> dict[str, str]:
        shown = min(self._windows, key=lambda window: (window.left(now), -window.ends))
        return {
            "x-ratelimit-limit": str(shown.limit),
            "x-ratelimit-remaining": str(shown.left(now)),
            "x-ratelimit-reset": str(shown.ends),
            "ratelimit-policy": ", ".join(f'"{w.name}";q={w.limit};w={w.seconds}' for w in self._windows),
            "ratelimit": ", ".join(f'"{w.name}";r={w.left(now)};t={max(1, ceil(w.ends - now))}' for w in self._windows),
        }


class _Window:
    """A fixed window (D12)."""

    def __init__(self, name: str, seconds: int, limit: int) -> None:
        self.name = name
        self.seconds = seconds
        self.limit = limit
        self.ends = 0
        self.used = 0

    def left(self, now: float) -> int:
        if now >= self.ends:
            self.ends, self.used = floor(now) + self.seconds, 0
        return self.limit - self.used


class _Body(httpx2.SyncByteStream, httpx2.AsyncByteStream):
    """A body that may arrive slowly and end early."""

    def __init__(self, raw: Raw, clock: Clock, request: httpx2.Request) -> None:
        self._raw = raw
        self._clock = clock
        self._patience = request.extensions.get("timeout", {}).get("read") or float("inf")

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._raw.pieces:
            self._clock.sleep(self._pause())
            self._check()
            yield piece
        self._end()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._raw.pieces:
            if self._raw.pause:
                await self._clock.sleep_async(self._pause())
            self._check()
            yield piece
        self._end()

    def _pause(self) -> float:
        return min(self._raw.pause, self._patience)

    def _check(self) -> None:
        if self._raw.pause > self._patience:
            raise httpx2.ReadTimeout("timed out")

    def _end(self) -> None:
        if self._raw.cut:
            raise httpx2.ReadError("peer closed connection without sending complete message body")
