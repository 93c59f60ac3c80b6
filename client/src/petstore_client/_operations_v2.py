"""The operations of version 2 of the interface. No I/O."""

from collections.abc import Callable
from typing import SupportsIndex

from petstore_client._admission import Session
from petstore_client._arguments import integer
from petstore_client._call import Call, Operation
from petstore_client._effects import Effects, Emit
from petstore_client._operations import CANCEL_ORDER as CANCEL_ORDER_V1
from petstore_client._operations import RecordT, read_record
from petstore_client._operations import cancel_order as cancel_order_v1
from petstore_client.errors import InvalidResponseError
from petstore_client.v2 import Order, Page, Usage

LIST_ORDERS = Operation("listOrders", "GET", "/store/orders", 200, "v2")
GET_ORDER = Operation("getOrder", "GET", "/store/orders/{id}", 200, "v2")
CANCEL_ORDER = CANCEL_ORDER_V1._replace(version="v2")
PLACE_ORDER = Operation(
    "placeOrder",
    "POST",
    "/store/orders",
    201,
    "v2",
    doubt="The order may have been placed; repeat the call with the idempotency_key of this error to find out.",
    conclusive=frozenset({422}),
)
GET_USAGE = Operation("getUsage", "GET", "/usage", 200, "v2")

LONGEST_PAGE = 1 << 22
"""Bytes. No page of 1000 orders, and no usage history, is longer."""


def list_orders(session: Session, query: str) -> Effects[Page]:
    """One page of orders."""
    return _get(Call(session, LIST_ORDERS, query=query), LIST_ORDERS, Page)


def iter_orders(enter: Callable[[], Session], query: Callable[..., str]) -> Effects[None]:
    """The orders of all pages, emitted page by page. Each page is a separate call; `query` takes the cursor."""
    cursor: str | None = None
    while True:
        page = yield from list_orders(enter(), query(cursor=cursor))
        yield Emit(page.data)
        if page.next_cursor is None:
            return
        if page.next_cursor == cursor:
            raise InvalidResponseError(
                "The next page has the same cursor as this one, so the list would never end.", 200
            )
        cursor = page.next_cursor


def get_order(session: Session, order_id: SupportsIndex) -> Effects[Order]:
    """One order."""
    return _get(Call(session, GET_ORDER, integer("An identifier", order_id)), GET_ORDER, Order)


def cancel_order(session: Session, order_id: SupportsIndex) -> Effects[None]:
    """Cancel an order, as version 1 does."""
    return cancel_order_v1(session, order_id, CANCEL_ORDER)


def place_order(session: Session, body: bytes, key: str) -> Effects[Order]:
    """Place an order. All attempts carry the same key, so that together they place at most one order."""
    call = Call(session, PLACE_ORDER)
    call.content = body
    call.headers |= {"Content-Type": "application/json", "Idempotency-Key": key}
    return _get(call, PLACE_ORDER, Order)


def get_usage(session: Session, query: str) -> Effects[Usage]:
    """The limits and requests of the account."""
    return _get(Call(session, GET_USAGE, query=query), GET_USAGE, Usage)


def _get(call: Call, operation: Operation, kind: type[RecordT]) -> Effects[RecordT]:
    return call.run(lambda reply: read_record(call, reply, operation, kind, LONGEST_PAGE))
