"""The types that users of the package rely on. Only type-checked, never run."""

import uuid
from collections.abc import AsyncIterator, Iterator, Mapping
from datetime import datetime
from typing import Literal, assert_type

import httpx2

from petstore_client import AsyncClient, Client, Order, Pet, RateLimit, RateLimitEvent, RetryEvent, errors, v2
from petstore_client.testing import Dropped, FakeClock, FakePetstore, RateLimited


def blocking() -> None:
    with Client(
        "https://api.example.com/v1", api_key="key", timeout=None, transport=httpx2.HTTPTransport()
    ) as petstore:
        assert_type(petstore, Client)
        assert_type(petstore.list_orders(), list[Order])
        orders: Iterator[Order] = petstore.iter_orders()
        order = next(orders)
        assert_type(order.id, int | None)
        petstore.cancel_order(order.id or 0)
        assert_type(petstore.get_pet(1), Pet)
        assert_type(petstore.rate_limit, RateLimit | None)
        petstore.cancel_order("7")  # type: ignore[arg-type]
        assert_type(petstore.v2.list_orders(status=("pending", "shipped"), limit=5), v2.Page)
        assert_type(petstore.v2.get_order(7).updated_at, datetime)
        for found in petstore.v2.iter_orders(sort="-updatedAt"):
            assert_type(found, v2.Order)
        assert_type(petstore.v2.place_order(pet_id=3, quantity=1, idempotency_key=uuid.uuid4()).reference, str | None)
        assert_type(petstore.v2.list_changes(after="now"), v2.Changes)
        for page in petstore.v2.follow_changes(after="now"):
            assert_type(page, v2.Changes)
        assert_type(petstore.v2.get_usage().windows[0].reset, datetime)
        changed = petstore.v2.put_order(8, quantity=2, status="pending", create_only=True)
        assert_type(changed, v2.Order)
        assert_type(changed.etag, str | None)
        assert_type(petstore.v2.update_order(8, quantity=None, reference=v2.UNSET, if_match=changed.etag), v2.Order)
        assert_type(petstore.v2.ship_order(8, ship_date=changed.ship_date), v2.Order)
        results = petstore.v2.batch_orders([v2.Complete(8), v2.Cancel(9, if_match=changed.etag)])
        assert_type(results, list[v2.BatchResult])
        petstore.v2.put_order(8, status="lost")  # type: ignore[arg-type]
        v2.Update(8, status="shipped")  # type: ignore[call-arg]
        petstore.with_options(request_id="warehouse-17").cancel_order(7)
        if petstore.last_response is not None:
            assert_type(petstore.last_response.replayed, bool)
        petstore.v2.place_order(pet_id=3)  # type: ignore[call-arg]
        petstore.v2.list_orders(status="lost")  # type: ignore[arg-type]
        petstore.v2.iter_orders(cursor="x")  # type: ignore[call-arg]
    Client("https://api.example.com/v1", "key")  # type: ignore[call-arg]
    Client(transport=httpx2.AsyncHTTPTransport())  # type: ignore[arg-type]


async def awaited() -> None:
    async with AsyncClient(max_retries=2, max_wait=10) as petstore:
        assert_type(petstore, AsyncClient)
        assert_type(await petstore.list_orders(), list[Order])
        orders: AsyncIterator[Order] = petstore.iter_orders()
        async for order in orders:
            await petstore.cancel_order(order.id or 0)
        assert_type(await petstore.get_pet(1), Pet)
        assert_type(await petstore.v2.list_orders(), v2.Page)
        async for found in petstore.v2.iter_orders(pet_id=3):
            assert_type(found, v2.Order)
        assert_type((await petstore.v2.batch_orders([v2.Ship(8)]))[0].error, errors.APIStatusError | None)
        await petstore.v2.list_orders(status="lost")  # type: ignore[arg-type]


def hooks() -> None:
    def retried(event: RetryEvent) -> None:
        assert_type(event.error, errors.PetstoreError)
        assert_type(event.wait, float)

    def limited(event: RateLimitEvent) -> str:
        assert_type(event.retry_at, datetime)
        return "ignored"

    Client(on_retry=retried, on_rate_limit=limited)
    Client(on_retry=limited)  # type: ignore[arg-type]


def exceptions() -> None:
    try:
        Client().cancel_order(1)
    except errors.RateLimitError as error:
        assert_type(error.retry_at, datetime)
        assert_type(error.code, errors.ErrorCode | Literal[""])
        _ = error.code == "rate_limit_exeeded"  # type: ignore[comparison-overlap]
    except errors.ServerError as error:
        assert_type(error.retry_after, float | None)
    except errors.PetstoreError as error:
        assert_type(error.request_id, str | None)
        assert_type(error.may_have_been_applied, bool)


def fakes() -> None:
    fake = FakePetstore([Order(id=1)], clock=FakeClock())
    fake.then(RateLimited(3), Dropped(applied=True))
    assert_type(fake.client(max_wait=1), Client)
    assert_type(fake.async_client(), AsyncClient)


def webhooks() -> None:
    with Client() as petstore:
        created = petstore.v2.webhooks.create("https://shop.example/orders", statuses="cancelled", after="beginning")
        assert_type(created, v2.RevealedWebhook)
        assert_type(created.secret, str)
        assert_type(petstore.v2.webhooks.list(), list[v2.Webhook])
        assert_type(petstore.v2.webhooks.get(created.id), v2.Webhook)
        assert_type(petstore.v2.webhooks.update(created.id, state="paused", statuses=None), v2.Webhook)
        assert_type(petstore.v2.webhooks.ping(created.id).status, int | None)
        assert_type(petstore.v2.webhooks.rotate(created.id, grace=60), v2.RevealedWebhook)
        petstore.v2.webhooks.update(created.id, state="stopped")  # type: ignore[arg-type]
        petstore.v2.webhooks.create("https://shop.example/orders", statuses=["lost"])  # type: ignore[list-item]
        _ = petstore.v2.webhooks.get(created.id).secret  # type: ignore[attr-defined]


async def awaited_webhooks() -> None:
    async with AsyncClient() as petstore:
        created = await petstore.v2.webhooks.create("https://shop.example/orders")
        assert_type(created, v2.RevealedWebhook)
        assert_type(await petstore.v2.webhooks.ping(created.id), v2.Attempt)


def receivers() -> None:
    def receive(headers: Mapping[str, str], body: bytes) -> int:
        return 204 if headers["webhook-id"] and body else 400

    fake = FakePetstore()
    fake.receivers["https://shop.example/orders"] = receive
    fake.receivers["https://shop.example/other"] = lambda headers, body: httpx2.Response(429)
    assert_type(fake.deliver(), int)
