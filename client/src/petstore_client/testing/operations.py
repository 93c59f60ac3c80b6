"""What the fake service does with an admitted request. It reads input less strictly than the real service."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import get_args
from urllib.parse import parse_qsl

import httpx2
import msgspec
from msgspec import structs

from petstore_client import v2
from petstore_client._types import UNDECODABLE, Timestamp, read_timestamp
from petstore_client.testing import webhooks
from petstore_client.testing.changes import existing, first_with, in_utc, represent, seen
from petstore_client.testing.faults import JSON, NO_STORE, Raw, ServiceRaw, error
from petstore_client.testing.shop import IDENTIFIER, Operation, batch, changing, identifier
from petstore_client.testing.store import FIRST, Placed, Refusal, Store, place_of

_MAX_LIMIT = 1000
_KEY_LIFETIME = 86_400  # seconds for which an idempotency key gets the order that was placed with it
_MATCHES: dict[str, Callable[[v2.Order, str], bool]] = {
    "petId": lambda order, text: order.pet_id == int(text),
    "complete": lambda order, text: bool(order.complete) is (text == "true"),
    "shipDateFrom": lambda order, text: order.ship_date is not None and order.ship_date >= read_timestamp(text),
    "shipDateTo": lambda order, text: order.ship_date is not None and order.ship_date < read_timestamp(text),
    "updatedFrom": lambda order, text: order.updated_at >= read_timestamp(text),
}


class NewOrder(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """The body of a request that places an order."""

    pet_id: int
    quantity: int
    ship_date: Timestamp | None = None
    reference: str | None = None


def perform(store: Store, request: httpx2.Request, version: str, path: str, now: float) -> Raw:
    """The response to a request at this time, in Unix seconds."""
    raw = _respond(store, request, version, path, now)
    if not path.startswith("/pets/"):
        return raw
    link = '<../../docs>; rel="deprecation"; type="text/html", <../../docs>; rel="sunset"; type="text/html"'
    return replace(raw, headers={**raw.headers, "deprecation": "@1793491200", "sunset": store.sunset, "link": link})


def _respond(store: Store, request: httpx2.Request, version: str, path: str, now: float) -> Raw:
    target = f"{version} {request.method} {path}"
    for pattern, scopes, operation in _ROUTES:
        found = re.fullmatch(pattern, target)
        if found is None:
            continue
        if webhooks.SCOPE in store.key.scopes and webhooks.SCOPE in scopes and not store.has_webhooks:
            return error(403, "webhooks_disabled", "This store has not turned webhooks on; ask the store.")
        try:
            for scope in scopes.split():
                store.require_scope(scope)
            return operation(store, request, found.groupdict().get("id", ""), now)
        except Refusal as refusal:  # whose Location is relative to the path
            orders = "" if request.method in ("PUT", "PATCH") else "orders/"
            more = {} if refusal.order_id is None else {"location": f"{orders}{refusal.order_id}"}
            if refusal.scope:
                more["www-authenticate"] = f'Bearer realm="orders", error="insufficient_scope", scope="{refusal.scope}"'
            return error(refusal.status, refusal.code, refusal.message, more=more)
    return error(404, "not_found", "There is no such path.")


def _list_all(store: Store, request: httpx2.Request, _: str, now: float) -> Raw:
    orders = [order for number, order in store.orders.items() if store.sees == "all" or number in store.visible]
    return represent(request, sorted(orders, key=lambda order: order.id or 0))


def _get(store: Store, request: httpx2.Request, number: str, now: float) -> Raw:
    return represent(request, seen(store, existing(store, identifier(number))))


def _pet(store: Store, request: httpx2.Request, number: str, now: float) -> Raw:
    pet = store.pets.get(int(number)) if IDENTIFIER.fullmatch(number) else None
    if pet is None:
        return error(404, "pet_not_found", "There is no pet with this identifier.")
    return Raw(200, JSON, pieces=(msgspec.json.encode(pet),))


def _list(store: Store, request: httpx2.Request, _: str, now: float) -> Raw:
    """One page of the orders that match. It examines at most `work_limit` orders, so it may be short, even empty."""
    given = parse_qsl(request.url.query.decode())
    query = dict(given)
    states, references = [[value for name, value in given if name == wanted] for wanted in ("status", "reference")]
    sort, limit = query.get("sort", "id"), _limit(query)
    if sort not in get_args(v2.Sort):
        raise Refusal(400, "invalid_parameter", f"The parameter 'sort' is one of {', '.join(get_args(v2.Sort))}.")
    places = sorted((place_of(order, sort), order) for order in store.visible.values())
    try:
        after = tuple(map(int, query["cursor"].split("_"))) if "cursor" in query else ()
    except ValueError:
        return error(400, "invalid_cursor", "This cursor is not one of this service.")
    rest = [(place, order) for place, order in places if place > after]
    examined = rest[: store.work_limit]
    found = [
        (place, order)
        for place, order in examined
        if (not states or order.status in states)
        and (not references or order.reference in references)
        and _matches(order, query)
    ]
    last = found[limit - 1] if len(found) > limit else examined[-1] if len(rest) > len(examined) else None
    cursor = None if last is None else "_".join(map(str, last[0]))
    page = v2.Page(data=[seen(store, order) for _, order in found[:limit]], next_cursor=cursor)
    return _with_link(represent(request, page), request.url.query.decode(), cursor)


def _with_link(raw: Raw, query: str, cursor: str | None) -> Raw:
    if cursor is None:
        return raw
    kept = [pair for pair in query.split("&") if pair and not pair.startswith("cursor=")]
    following = "&".join([*kept, f"cursor={cursor}"])
    return replace(raw, headers={**raw.headers, "link": f'<orders?{following}>; rel="next"'})


def _changes(store: Store, request: httpx2.Request, _: str, now: float) -> Raw:
    """The orders that have changed after a token, which is the history and the place of the last one."""
    query = dict(parse_qsl(request.url.query.decode()))
    place = store.position_after(query["after"]) if "after" in query else FIRST
    found = store.changed_after(place)
    page = found[: _limit(query)]
    token = store.token_of(page[-1][0] if page else place)
    changes = v2.Changes(data=[seen(store, order) for _, order in page], next=token, more=len(found) > len(page))
    idle = "" if page else token
    return ServiceRaw(200, NO_STORE, pieces=(msgspec.json.encode(changes),), idle=idle)


def _limit(query: dict[str, str]) -> int:
    """The most orders on a page. Raises Refusal."""
    limit = int(query.get("limit", 100))
    if not 1 <= limit <= _MAX_LIMIT:
        raise Refusal(400, "invalid_parameter", f"The parameter 'limit' is from 1 to {_MAX_LIMIT}.")
    return limit


def _matches(order: v2.Order, query: dict[str, str]) -> bool:
    return all(test(order, query[name]) for name, test in _MATCHES.items() if name in query)


def _place(store: Store, request: httpx2.Request, _: str, now: float) -> Raw:
    """Store an order, or respond as the first time to a key that was used before. References are unique."""
    if "idempotency-key" not in request.headers:
        return error(400, "idempotency_key_missing", "This request needs the header Idempotency-Key.")
    key = re.sub(r'^"(.+)"$', r"\1", request.headers["idempotency-key"])  # in quotes, it is the same key
    known = store.placed.get(key)
    if known is not None and now - known.at < _KEY_LIFETIME:
        if known.content != request.content:
            return error(422, "idempotency_key_reused", "This Idempotency-Key was used for another order.")
        return replace(known.raw, headers={**known.raw.headers, "idempotency-replayed": "true"})
    try:
        new = msgspec.json.decode(request.content, type=NewOrder)
    except UNDECODABLE as wrong:
        return error(400, "invalid_body", f"The body is not an order: {wrong}.")
    account = store.accounts[0]
    first = first_with(store, new.reference, account)
    if first is not None:
        message = f"Order {first} already has this reference; if it is the same order, do not place it again."
        raise Refusal(409, "reference_in_use", message, first)
    number = store.highest_id + 1
    store.placed_ids.add(number)
    order = v2.Order(
        id=number, pet_id=new.pet_id, quantity=new.quantity, ship_date=in_utc(new.ship_date), status="pending",
        reference=new.reference, account=account, created_at=store.last_change, updated_at=store.last_change,
    )  # fmt: skip
    body = msgspec.json.encode(seen(store, store.write(order, now)))
    headers = {**JSON, "location": f"orders/{number}", "cache-control": "no-store"}
    raw = Raw(201, headers, pieces=(body,))
    store.placed[key] = Placed(request.content, raw, now)
    return raw


def _usage(store: Store, request: httpx2.Request, _: str, now: float) -> Raw:
    """The account's windows, with an empty history."""
    windows = [
        v2.UsageWindow(name=each.name, limit=each.limit, remaining=each.left(now), reset_timestamp=each.ends(now))
        for each in store.limits.windows
    ]
    key = structs.replace(store.key, last_ban=store.limits.last_ban)
    usage = v2.Usage(plan="enterprise", orders=store.sees, key=key, windows=windows, history=[])
    return represent(request, usage)


_ORDERS = "/store/orders"
_ORDER = f"{_ORDERS}/(?P<id>[^/]*)"
_ROUTES: tuple[tuple[str, str, Operation], ...] = (
    (f"v1 GET {_ORDERS}", "orders:read", _list_all),
    (f"v1 DELETE {_ORDER}", "orders:cancel", changing("cancel")),
    ("v1 GET /pets/(?P<id>[^/]*)", "pets:read", _pet),
    (f"v2 GET {_ORDERS}", "orders:read", _list),
    (f"v2 POST {_ORDERS}", "orders:write", _place),
    (f"v2 POST {_ORDERS}/batch", "orders:manage", batch),
    (f"v2 GET {_ORDER}", "orders:read", _get),
    (f"v2 DELETE {_ORDER}", "orders:cancel", changing("cancel")),
    (f"v2 PUT {_ORDER}", "orders:manage", changing("put")),
    (f"v2 PATCH {_ORDER}", "orders:manage", changing("update")),
    (f"v2 POST {_ORDER}/ship", "orders:manage", changing("ship")),
    (f"v2 POST {_ORDER}/complete", "orders:manage", changing("complete")),
    ("v2 GET /store/changes", "orders:read", _changes),
    ("v2 GET /usage", "", _usage),
    *webhooks.ROUTES,
)
"""Each path with its version and method, the scopes that it needs, and what responds."""
