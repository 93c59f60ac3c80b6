"""The operations of version 2 of the interface. No I/O."""

from collections.abc import Callable
from typing import SupportsIndex

from petstore_client._admission import Session
from petstore_client._arguments import NewOrder, PageQuery, PagesQuery, UsageQuery, integer
from petstore_client._call import Call, Operation
from petstore_client._effects import Effects, Emit
from petstore_client._http import Reply
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


def list_orders(session: Session, query: PageQuery) -> Effects[Page]:
    """One page of orders."""
    return _get(Call(session, LIST_ORDERS, query=query.encode()), LIST_ORDERS, Page)


def iter_orders(enter: Callable[[], Session], pages: PagesQuery) -> Effects[None]:
    """The orders of all pages, emitted page by page. Each page is a separate call."""
    query: PageQuery | None = pages.page(None)
    while query is not None:
        page = yield from list_orders(enter(), query)
        yield Emit(page.data)
        query = _next_query(pages, query, page)


def get_order(session: Session, order_id: SupportsIndex) -> Effects[Order]:
    """One order."""
    return _get(Call(session, GET_ORDER, integer("An identifier", order_id)), GET_ORDER, Order)


def cancel_order(session: Session, order_id: SupportsIndex) -> Effects[None]:
    """Cancel an order, as version 1 does."""
    return cancel_order_v1(session, order_id, CANCEL_ORDER)


def get_usage(session: Session, query: UsageQuery) -> Effects[Usage]:
    """The limits and requests of the account."""
    return _get(Call(session, GET_USAGE, query=query.encode()), GET_USAGE, Usage)


def place_order(session: Session, order: NewOrder, key: str) -> Effects[Order]:
    """Place an order. All attempts carry the same key, so that together they place at most one order."""
    call = Call(session, PLACE_ORDER)
    call.content = order.encode()
    call.headers |= {"Content-Type": "application/json", "Idempotency-Key": key}
    return _get(call, PLACE_ORDER, Order)


def _next_query(pages: PagesQuery, asked: PageQuery, page: Page) -> PageQuery | None:
    """The query of the page after this one; None at the end. Raises InvalidResponseError if it is the same again."""
    if page.next_cursor is None:
        return None
    if page.next_cursor == asked.cursor:
        raise InvalidResponseError("The next page has the same cursor as this one, so the list would never end.", 200)
    return pages.page(page.next_cursor)


def _get(call: Call, operation: Operation, kind: type[RecordT]) -> Effects[RecordT]:
    def receive(reply: Reply) -> Effects[RecordT]:
        return read_record(call, reply, operation, kind, LONGEST_PAGE)

    return call.run(receive)
