"""The operations of version 2 of the fake service. They raise Refused."""

import re
from datetime import UTC, datetime
from typing import Any

import httpx2
import msgspec

from petstore_client import v2
from petstore_client._types import Order
from petstore_client.testing.faults import Raw
from petstore_client.testing.operations import JSON, identifier_of, order_not_found, representation
from petstore_client.testing.pages import page_of
from petstore_client.testing.parameters import GET_USAGE, LIST_ORDERS, Refused, read_body, read_query
from petstore_client.testing.store import Placed, Store
from petstore_client.testing.usage import DAY, HOUR, MOST_ENTRIES

REMEMBERED = 86_400.0
"""Seconds for which an idempotency key is remembered."""

_KEY = re.compile(r"[!-~]{1,255}", re.ASCII)
_JSON = re.compile(r'application/json\s*(;\s*charset="?utf-8"?\s*)?', re.IGNORECASE)


def list_orders(store: Store, request: httpx2.Request, _: str) -> Raw:
    """One page of the orders that match."""
    query = read_query(request.url.query.decode(), LIST_ORDERS)
    return representation(request, msgspec.json.encode(page_of(store.tracked().values(), query, store.work_limit)))


def get_order(store: Store, request: httpx2.Request, number: str) -> Raw:
    """One order."""
    read_query(request.url.query.decode(), {})
    order_id = identifier_of(number)
    order = None if order_id is None else store.tracked().get(order_id)
    return order_not_found(number) if order is None else representation(request, msgspec.json.encode(order))


def place_order(store: Store, request: httpx2.Request, _: str) -> Raw:
    """Store an order, or respond as the first time to a key that was used before."""
    read_query(request.url.query.decode(), {})
    if not _JSON.fullmatch(request.headers.get("content-type", "")):
        raise Refused("unsupported_media_type", "Send the body as JSON, with 'Content-Type: application/json'.", 415)
    key = _idempotency_key(request)
    asked = read_body(request.content)
    earlier = store.placed.get(key)
    if earlier is not None and store.clock.now() < earlier.at + REMEMBERED:
        if earlier.asked != asked:
            raise Refused("idempotency_key_reused", "This Idempotency-Key was used for another order.", 422)
        return _placed(earlier, {"idempotency-replayed": "true"})
    store.placed[key] = _store(store, asked)
    return _placed(store.placed[key], {})


def get_usage(store: Store, request: httpx2.Request, _: str) -> Raw:
    """The account's windows, and the history of its requests."""
    query = read_query(request.url.query.decode(), GET_USAGE)
    now, seconds = store.clock.now(), HOUR if query["granularity"] == "hour" else DAY
    end = now + 1 if query["to"] is None else query["to"].timestamp()
    start = end - DAY if query["from"] is None else query["from"].timestamp()
    if start > end or end - start > MOST_ENTRIES * seconds:
        raise Refused("invalid_parameter", f"'from' to 'to' must be at most {MOST_ENTRIES} times the granularity.")
    windows = [
        v2.UsageWindow(name=name, limit=limit, remaining=left, reset=ends)
        for name, limit, left, ends in store.limits.windows(now)
    ]
    usage = v2.Usage(plan="enterprise", windows=windows, history=store.history.entries(seconds, start, end))
    return representation(request, msgspec.json.encode(usage))


def _idempotency_key(request: httpx2.Request) -> str:
    key = request.headers.get("idempotency-key")
    if key is None:
        raise Refused("idempotency_key_missing", "Send an Idempotency-Key header.")
    if not _KEY.fullmatch(key):
        raise Refused("invalid_parameter", "'Idempotency-Key' must be 1 to 255 visible ASCII characters.")
    return str(key)


def _store(store: Store, asked: dict[str, Any]) -> Placed:
    order_id = store.next_id()
    ship_date: datetime | None = asked["shipDate"]
    store.orders[order_id] = Order(
        id=order_id,
        pet_id=asked["petId"],
        quantity=asked["quantity"],
        ship_date=ship_date and ship_date.astimezone(UTC),
    )
    store.track()
    body = msgspec.json.encode(store.tracked()[order_id])
    return Placed(asked, order_id, body, store.clock.now())


def _placed(placed: Placed, more: dict[str, str]) -> Raw:
    return Raw(201, {**JSON, "location": f"/v2/store/orders/{placed.order_id}", **more}, (placed.body,))
