"""Filters, sort orders and cursors of the fake service."""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Mapping
from datetime import datetime
from hashlib import sha256
from typing import Any

from petstore_client.testing.parameters import Refused
from petstore_client.v2 import Order, Page

Place = tuple[bool, float, int]
"""Where an order is in the sort order, as a key that sorts ascending."""


def page_of(orders: Iterable[Order], query: Mapping[str, Any], work_limit: int) -> Page:
    """One page of the orders that match; at most `work_limit` orders are examined. Raises Refused."""
    after = None if query["cursor"] is None else _read_cursor(query["cursor"], query)
    places = sorted(((_place(order, query["sort"]), order) for order in orders), key=lambda pair: pair[0])
    rest = [(place, order) for place, order in places if after is None or place > after]
    found: list[tuple[Place, Order]] = []
    for place, order in rest[:work_limit]:
        if _matches(order, query):
            if len(found) == query["limit"]:
                return _page(found, found[-1][0], query)
            found.append((place, order))
    return _page(found, rest[work_limit - 1][0] if len(rest) > work_limit else None, query)


def _page(found: list[tuple[Place, Order]], last: Place | None, query: Mapping[str, Any]) -> Page:
    return Page(data=[order for _, order in found], next_cursor=None if last is None else _write_cursor(last, query))


def _matches(order: Order, query: Mapping[str, Any]) -> bool:
    tests = (
        not query["status"] or order.status in query["status"],
        query["petId"] in (None, order.pet_id),
        query["complete"] in (None, bool(order.complete)),
        _lies_within(order.ship_date, query["shipDateFrom"], query["shipDateTo"]),
        _lies_within(order.updated_at, query["updatedFrom"], None),
    )
    return all(tests)


def _lies_within(date: datetime | None, start: datetime | None, end: datetime | None) -> bool:
    if start is None and end is None:
        return True
    return date is not None and (start is None or date >= start) and (end is None or date < end)


def _place(order: Order, sort: str) -> Place:
    sign = -1 if sort.startswith("-") else 1
    dates = {"id": None, "shipDate": order.ship_date, "updatedAt": order.updated_at}
    date = dates[sort.removeprefix("-")]
    if date is None:  # without a ship date: last in both directions
        return True, 0, sign * order.id
    return False, sign * _microseconds(date), sign * order.id


def _microseconds(date: datetime) -> int:
    return int(date.timestamp()) * 1_000_000 + date.microsecond


def _write_cursor(place: Place, query: Mapping[str, Any]) -> str:
    text = json.dumps([_digest(place, query), *place])
    return urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _read_cursor(cursor: str, query: Mapping[str, Any]) -> Place:
    try:
        digest, last, value, order_id = json.loads(urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (ValueError, TypeError):
        digest, last, value, order_id = "", False, 0, 0
    place = (last, value, order_id)
    if digest != _digest(place, query):
        raise Refused("invalid_cursor", "This cursor does not belong to this request; start again without a cursor.")
    return place


def _digest(place: Place, query: Mapping[str, Any]) -> str:
    bound = {name: value for name, value in query.items() if name not in ("limit", "cursor")}
    return sha256(repr((place, {**bound, "status": sorted(set(bound["status"] or ()))})).encode()).hexdigest()[:16]
