"""Positions in lists and in the order of changes of the fake service, and tokens of these."""

import re
from datetime import datetime

from petstore_client import v2
from petstore_client.testing.changes import Refusal
from petstore_client.testing.store import Place, Store

LAST_ID = 2**63 - 1
FIRST: Place = (0, 0, -(2**63))
"""The position before every change."""


def place_of(order: v2.Order, sort: str = "updatedAt") -> Place:
    """Where an order is in the sort order."""
    sign = -1 if sort.startswith("-") else 1
    date = {"id": None, "shipDate": order.ship_date, "updatedAt": order.updated_at}[sort.removeprefix("-")]
    if date is None:  # without a ship date: last in both directions
        return 1, 0, sign * order.id
    return 0, sign * _microseconds(date), sign * order.id


def changed_after(store: Store, place: Place) -> list[tuple[Place, v2.Order]]:
    """The orders that have changed after a position, in the order of their last change, each with its own position."""
    places = sorted((place_of(order), order) for order in store.visible.values())
    return [each for each in places if each[0] > place]


def token_of(store: Store, place: Place) -> str:
    """The token of a position: the history, and the position in it."""
    return "_".join(map(str, (store.history, *place)))


def position_after(store: Store, token: str) -> Place:
    """The position of a token, or "now". Raises Refusal."""
    if token == "now":  # noqa: S105 - not a secret
        return 0, _microseconds(store.last_change), LAST_ID
    if not re.fullmatch(r"\d+_\d+_\d+_-?\d+", token):
        raise Refusal(400, "invalid_cursor", "This token is not one of this service.")
    history, first, at, order_id = map(int, token.split("_"))
    if history != store.history:
        raise Refusal(410, "changes_reset", "The store was restored: read everything again, into an empty copy.")
    return first, at, order_id


def _microseconds(date: datetime) -> int:
    return int(date.timestamp()) * 1_000_000 + date.microsecond
