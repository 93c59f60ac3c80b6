"""The order operations of version 2: listOrders, getOrder, cancelOrder, placeOrder (D20)."""

from collections.abc import Callable, Mapping
from typing import Any

from petstore_server.domain.orders import CANCEL, Order, Status, parse_order_id
from petstore_server.domain.placement import Placement
from petstore_server.domain.search import Filters, Page, Query, Sort, SortField
from petstore_server.domain.transitions import Transition
from petstore_server.http.request import Request
from petstore_server.http.responses import Response, content, lines
from petstore_server.http.v2.bodies import check_media_type, read_new_order
from petstore_server.http.v2.cursors import Cursors
from petstore_server.http.v2.errors import IdempotencyKeyMissing, InvalidParameter, OrderChanged
from petstore_server.http.v2.parameters import IDEMPOTENCY_KEY, LIST_ORDERS, NO_PARAMETERS, decoded
from petstore_server.http.v2.representations import etag_of, representation
from petstore_server.ports import Store

PATH = "/v2/store/orders"


class OrderOperations:
    """Handlers over the store's orders. `clock` gives Unix seconds."""

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock
        self._known_cursors: Cursors | None = None

    async def list_orders(self, request: Request) -> Response:
        """One page of the orders that match. Raises InvalidParameter, InvalidCursor."""
        query = _query(LIST_ORDERS.read(request.query), await self._cursors())
        page = await self._store.search.page(query)
        cursor = page.next and (await self._cursors()).encode(page.next, query.filters, query.sort)
        link = lines(("link", _next_link(request.query, cursor))) if cursor else b""
        return representation(request, _page_body(page, cursor), link)

    async def get_order(self, request: Request) -> Response:
        """One order. Raises InvalidOrderId, InvalidParameter, OrderNotFound."""
        order_id = parse_order_id(request.segments[-1])
        NO_PARAMETERS.read(request.query)
        order = await self._store.search.find(order_id)
        return representation(request, order.text().encode())

    async def cancel_order(self, request: Request) -> Response:
        """Cancel the order that the path names; the response is sent once that is durable (D5).

        Raises InvalidOrderId, InvalidParameter, OrderNotFound, OrderAlreadyShipped, OrderAlreadyCancelled and
        OrderChanged.
        """
        order_id = parse_order_id(request.segments[-1])
        NO_PARAMETERS.read(request.query)
        if_match = request.headers.get(b"if-match", b"*")
        transition = CANCEL if if_match == b"*" else await self._cancel_if(order_id, if_match)
        await self._store.orders.change(order_id, transition, request.actor(self._clock()))
        return Response(204)

    async def place_order(self, request: Request) -> Response:
        """Store a new order; the response is sent once it is durable, and again when the key is used again.

        Raises InvalidParameter, UnsupportedMediaType, IdempotencyKeyMissing, InvalidBody, IdempotencyKeyReused,
        IdempotencyKeyInUse.
        """
        NO_PARAMETERS.read(request.query)
        check_media_type(request.headers.get(b"content-type"), request.headers.get(b"content-encoding"))
        key = _idempotency_key(request)
        asked = read_new_order(request.body)
        placement = Placement(request.caller.account_id, key, *asked)
        placed = await self._store.placements.place(placement, request.actor(self._clock()))
        headers = lines(("location", f"{PATH}/{placed.order_id}"), ("cache-control", "no-store"))
        if placed.replayed:
            headers += lines(("idempotency-replayed", "true"))
        return content(placed.body, "application/json", headers, 201)

    async def _cursors(self) -> Cursors:
        if self._known_cursors is None:
            self._known_cursors = Cursors(await self._store.identity())
        return self._known_cursors

    async def _cancel_if(self, order_id: int, if_match: bytes) -> Transition[Order]:
        """A cancellation of the order in the state that has one of these ETags (RFC 9110 section 13.1.1)."""
        seen = await self._store.search.find(order_id)
        etag = etag_of(seen.text().encode())
        matched = any(tag.strip() in (etag, b"*") for tag in if_match.split(b","))

        def apply(order: Order) -> Order:
            cancelled = CANCEL.apply(order)  # any other error comes first (RFC 9110 section 13.2.1)
            if not matched or (order.record(), order.status) != (seen.record, seen.status):
                raise OrderChanged
            return cancelled

        return Transition(CANCEL.action, apply)


def _query(values: Mapping[str, Any], cursors: Cursors) -> Query:
    filters = Filters(
        frozenset(map(Status, values["status"] or ())),
        values["petId"],
        values["complete"],
        values["shipDateFrom"],
        values["shipDateTo"],
        values["updatedFrom"],
    )
    name = values["sort"]
    sort = Sort(SortField(name.removeprefix("-")), name.startswith("-"))
    cursor = values["cursor"]
    after = None if cursor is None else cursors.decode(cursor, filters, sort)
    return Query(filters, sort, values["limit"], after)


def _page_body(page: Page, cursor: str | None) -> bytes:
    end = f'],"nextCursor":"{cursor}"}}' if cursor else "]}"
    return f'{{"data":[{page.text()}{end}'.encode()


def _next_link(query: bytes, cursor: str) -> bytes:
    """The request for the next page (RFC 8288): this one with another cursor. The query has passed its checks."""
    kept = [pair for pair in query.split(b"&") if pair and decoded(pair.partition(b"=")[0]) != "cursor"]
    target = b"&".join([*kept, b"cursor=" + cursor.encode()])
    return b'<%s?%s>; rel="next"' % (PATH.encode(), target)


def _idempotency_key(request: Request) -> str:
    text = request.headers.get(b"idempotency-key")
    if text is None:
        raise IdempotencyKeyMissing
    try:
        key: str = IDEMPOTENCY_KEY.kind.from_text(text.decode("latin-1"))
    except ValueError:
        raise InvalidParameter(f"'{IDEMPOTENCY_KEY.name}' must be {IDEMPOTENCY_KEY.kind.allowed}.") from None
    return key
