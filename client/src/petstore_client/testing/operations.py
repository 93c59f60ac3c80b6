"""What the fake service does with an admitted request. It reads parameters less strictly than the real service."""

import hashlib
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from urllib.parse import parse_qsl

import httpx2
import msgspec

from petstore_client import v2
from petstore_client._types import UNDECODABLE, Order, Timestamp, read_timestamp
from petstore_client.testing.faults import JSON, Raw, ServiceRaw, error
from petstore_client.testing.store import Store

_IDENTIFIER = re.compile(r"0|-?[1-9][0-9]{0,18}", re.ASCII)
_MATCHES: dict[str, Callable[[v2.Order, str], bool]] = {
    "petId": lambda order, text: order.pet_id == int(text),
    "complete": lambda order, text: bool(order.complete) is (text == "true"),
    "shipDateFrom": lambda order, text: order.ship_date is not None and order.ship_date >= read_timestamp(text),
    "shipDateTo": lambda order, text: order.ship_date is not None and order.ship_date < read_timestamp(text),
    "updatedFrom": lambda order, text: order.updated_at >= read_timestamp(text),
}
KEY = v2.UsageKey(id="fake", scopes=["orders:read", "orders:cancel", "orders:write", "pets:read"])
Place = tuple[int, int, int]
"""Where an order is in the sort order, as a key that sorts ascending."""


class NewOrder(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """The body of a request that places an order."""

    pet_id: int
    quantity: int
    ship_date: Timestamp | None = None
    reference: str | None = None


def perform(store: Store, request: httpx2.Request, version: str, path: str, now: float) -> Raw:
    """The response to a request at this time, in Unix seconds."""
    match [version, request.method, *path.split("/")[1:]]:
        case ["v1", "GET", "store", "orders"]:
            return _represent(request, sorted(store.orders.values(), key=lambda order: order.id or 0))
        case ["v2", "GET", "store", "orders"]:
            return _list(store, request)
        case ["v2", "POST", "store", "orders"]:
            return _place(store, request, now)
        case ["v2", "GET", "store", "orders", number] | ["v1" | "v2", "DELETE", "store", "orders", number]:
            return _missing(store, number) or _one(store, request, int(number))
        case ["v1", "GET", "pets", number]:
            return _pet(store, number)
        case ["v2", "GET", "store", "changes"]:
            return _changes(store, request)
        case ["v2", "GET", "usage"]:
            return _usage(store, request, now)
    return error(404, "not_found", "There is no such path.")


def _missing(store: Store, number: str) -> Raw | None:
    """The response if there is no such order; identifiers are written as the service demands (D4)."""
    if not _IDENTIFIER.fullmatch(number) or not -(2**63) <= int(number) < 2**63:
        return error(404, "invalid_order_id", "An order identifier is a whole number of at most 64 bits.")
    return None if int(number) in store.orders else error(404, "order_not_found", f"There is no order {number}.")


def _one(store: Store, request: httpx2.Request, number: int) -> Raw:
    """One order, which is cancelled if the method is DELETE."""
    if request.method == "GET":
        return _represent(request, store.tracked[number])
    for state, numbers in (("shipped", store.shipped), ("cancelled", store.cancelled)):
        if number in numbers:
            return error(409, f"order_already_{state}", f"Order {number} is already {state}.")
    store.cancelled.add(number)
    return Raw(204, {})


def _pet(store: Store, number: str) -> Raw:
    notices = {"deprecation": "@1793491200", "sunset": store.sunset}
    pet = store.pets.get(int(number)) if _IDENTIFIER.fullmatch(number) else None
    if pet is None:
        return error(404, "pet_not_found", "There is no pet with this identifier.", more=notices)
    return Raw(200, {**JSON, **notices}, pieces=(msgspec.json.encode(pet),))


def _list(store: Store, request: httpx2.Request) -> Raw:
    """One page of the orders that match. It examines at most `work_limit` orders, so it may be short, even empty."""
    given = parse_qsl(request.url.query.decode())
    query = dict(given)
    states, references = [[value for name, value in given if name == wanted] for wanted in ("status", "reference")]
    sort = query.get("sort", "id")
    places = sorted((_place_of(order, sort), order) for order in store.tracked.values())
    try:
        after = tuple(map(int, query["cursor"].split("."))) if "cursor" in query else ()
    except ValueError:
        return error(400, "invalid_cursor", "This cursor is not one of this service.")
    rest = [(place, order) for place, order in places if place > after]
    found: list[v2.Order] = []
    cursor = None
    for number, (place, order) in enumerate(rest[: store.work_limit], 1):
        known = (not states or order.status in states) and (not references or order.reference in references)
        if known and _matches(order, query):
            found.append(order)
        cursor = ".".join(map(str, place)) if number < len(rest) else None
        if len(found) == int(query["limit"]):
            break
    return _represent(request, v2.Page(data=found, next_cursor=cursor))


def _changes(store: Store, request: httpx2.Request) -> Raw:
    """The orders that have changed after a token, which is the history and the place of the last one."""
    query = dict(parse_qsl(request.url.query.decode()))
    after = query.get("after", f"{store.history}.0.0.{-(2**63)}")
    if after == "now":
        after = f"{store.history}.0.{_microseconds(store.last_change)}.{2**63 - 1}"
    if not re.fullmatch(r"\d+\.\d+\.\d+\.-?\d+", after):
        return error(400, "invalid_cursor", "This token is not one of this service.")
    history, *place = map(int, after.split("."))
    if history != store.history:
        return error(410, "changes_reset", "The store was restored: read everything again, into an empty copy.")
    places = sorted((_place_of(order, "updatedAt"), order) for order in store.tracked.values())
    found = [each for each in places if each[0] > tuple(place)]
    page = found[: int(query.get("limit", 100))]
    token = ".".join(map(str, (history, *page[-1][0]))) if page else after
    changes = v2.Changes(data=[order for _, order in page], next=token, more=len(found) > len(page))
    idle = "" if page else token
    headers, body = {**JSON, "cache-control": "no-store"}, msgspec.json.encode(changes)
    return ServiceRaw(200, headers, pieces=(body,), idle=idle)


def _place_of(order: v2.Order, sort: str) -> Place:
    sign = -1 if sort.startswith("-") else 1
    date = {"id": None, "shipDate": order.ship_date, "updatedAt": order.updated_at}[sort.removeprefix("-")]
    if date is None:  # without a ship date: last in both directions
        return 1, 0, sign * order.id
    return 0, sign * _microseconds(date), sign * order.id


def _microseconds(date: datetime) -> int:
    return int(date.timestamp()) * 1_000_000 + date.microsecond


def _matches(order: v2.Order, query: dict[str, str]) -> bool:
    return all(test(order, query[name]) for name, test in _MATCHES.items() if name in query)


def _place(store: Store, request: httpx2.Request, now: float) -> Raw:
    """Store an order, or respond as the first time to a key that was used before. References are unique."""
    key = re.sub(r'^"(.+)"$', r"\1", request.headers["idempotency-key"])  # in quotes, it is the same key
    if key in store.placed:
        body, raw = store.placed[key]
        if body != request.content:
            return error(422, "idempotency_key_reused", "This Idempotency-Key was used for another order.")
        return replace(raw, headers={**raw.headers, "idempotency-replayed": "true"})
    try:
        new = msgspec.json.decode(request.content, type=NewOrder)
    except UNDECODABLE as wrong:
        return error(400, "invalid_body", f"The body is not an order: {wrong}.")
    known = [each.id for each in store.tracked.values() if new.reference and each.reference == new.reference]
    if known:
        message = f"Order {min(known)} already has this reference; if it is the same order, do not place it again."
        return error(409, "reference_in_use", message, more={"location": f"orders/{min(known)}"})
    number = store.highest_id + 1
    ship_date = new.ship_date and new.ship_date.astimezone(UTC)
    store.references[number] = new.reference
    store.orders[number] = Order(id=number, pet_id=new.pet_id, quantity=new.quantity, ship_date=ship_date)
    store.track(now)
    headers = {**JSON, "location": f"orders/{number}"}
    raw = Raw(201, headers, pieces=(msgspec.json.encode(store.tracked[number]),))
    store.placed[key] = (request.content, raw)
    return raw


def _usage(store: Store, request: httpx2.Request, now: float) -> Raw:
    """The account's windows, with an empty history."""
    windows = [
        v2.UsageWindow(name=each.name, limit=each.limit, remaining=each.left(now), reset_timestamp=each.ends(now))
        for each in store.limits.windows
    ]
    return _represent(request, v2.Usage(plan="enterprise", orders="all", key=KEY, windows=windows, history=[]))


def _represent(request: httpx2.Request, content: object) -> Raw:
    """200 with the content and its ETag, or 304."""
    body = msgspec.json.encode(content)
    etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    if request.headers.get("if-none-match") == etag:
        return Raw(304, {"etag": etag})
    return Raw(200, {**JSON, "etag": etag}, pieces=(body,))
