"""The order operations of version 2: listOrders, getOrder, placeOrder (D20)."""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from petstore_server.api.errors import IdempotencyKeyMissing, InvalidParameter
from petstore_server.api.representation import answer, body_response
from petstore_server.api.routes import Call
from petstore_server.api.v2.bodies import check_media_type, read_new_order
from petstore_server.api.v2.cursors import Cursors
from petstore_server.api.v2.parameters import IDEMPOTENCY_KEY, LIST_ORDERS, NO_PARAMETERS, decoded
from petstore_server.domain.keys import Principal
from petstore_server.domain.lists import Filters, Query, Sort, SortField, query_digest
from petstore_server.domain.orders import Status, parse_order_id
from petstore_server.domain.placement import Placement
from petstore_server.domain.windows import Decision
from petstore_server.server.messages import Request, Response
from petstore_server.store import Store

PATH = "/v2/store/orders"

_KEPT = 256  # listings in memory, each with a query of up to 8 KB
_LAST_CURSOR = re.compile(rb"(?:(.*)&)?cursor=([A-Za-z0-9_-]{40})", re.DOTALL)  # as in every Link


class OrderOperations:
    """Handlers over the store's orders. `clock` gives Unix seconds."""

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock
        self._cursors = Cursors("", "")

    async def list_orders(self, call: Call, _: Principal, __: Decision) -> Response:
        """One page of the orders that match. Raises InvalidParameter, InvalidCursor."""
        listing, cursor = read_listing(call.request.query)
        cursors = await self._current_cursors()
        after = None if cursor is None else cursors.decode(cursor, listing.digest)
        page = await self._store.search.page(Query(listing.filters, listing.sort, listing.limit, after))
        if page.next is None:
            return answer(call.request.headers, f'{{"data":[{page.text()}]}}'.encode())
        following = cursors.encode(page.next, listing.digest)
        body = f'{{"data":[{page.text()}],"nextCursor":"{following}"}}'
        link = b'link: <%s%s>; rel="next"\r\n' % (listing.next, following.encode())  # RFC 8288
        return answer(call.request.headers, body.encode(), link)

    async def get_order(self, call: Call, _: Principal, __: Decision) -> Response:
        """One order. Raises InvalidOrderId, InvalidParameter, OrderNotFound."""
        order_id = parse_order_id(call.segments[-1])
        NO_PARAMETERS.read(call.request.query)
        order = await self._store.search.find(order_id)
        return answer(call.request.headers, order.text().encode())

    async def place_order(self, call: Call, principal: Principal, _: Decision) -> Response:
        """Store a new order; the response is sent once it is durable, and again when the key is used again.

        Raises InvalidParameter, UnsupportedMediaType, IdempotencyKeyMissing, InvalidBody, IdempotencyKeyReused,
        IdempotencyKeyInUse.
        """
        NO_PARAMETERS.read(call.request.query)
        request = call.request
        check_media_type(request.headers.get(b"content-type"), request.headers.get(b"content-encoding"))
        key = _idempotency_key(request)
        asked = read_new_order(request.body)
        placement = Placement(principal.account_id, key, *asked)
        placed = await self._store.orders.place(placement, call.actor(principal, self._clock()))
        headers = b"location: %s/%d\r\ncache-control: no-store\r\n" % (PATH.encode(), placed.order_id)
        if placed.replayed:
            headers += b"idempotency-replayed: true\r\n"
        return body_response((placed.body,), len(placed.body), "application/json", headers, 201)

    async def _current_cursors(self) -> Cursors:
        epoch = await self._store.epoch()
        if epoch != self._cursors.epoch:
            self._cursors = Cursors(await self._store.identity(), epoch)
        return self._cursors


def _idempotency_key(request: Request) -> str:
    text = request.headers.get(b"idempotency-key")
    if text is None:
        raise IdempotencyKeyMissing
    try:
        return str(IDEMPOTENCY_KEY.kind.from_text(text.decode("latin-1")))
    except ValueError:
        raise InvalidParameter(f"'{IDEMPOTENCY_KEY.name}' must be {IDEMPOTENCY_KEY.kind.allowed}.") from None


class Listing(NamedTuple):
    """A list and the size of its pages. The pages of a walk share all but their cursors, so it is read once.

    `cursor` is that of the query. Cursors are bound to `digest`. `next` is the request target of the next page, without
    the value of its cursor.
    """

    filters: Filters
    sort: Sort
    limit: int
    cursor: str | None
    digest: bytes
    next: bytes


def read_listing(query: bytes) -> tuple[Listing, str | None]:
    """The listing and the cursor in the query of a request. Raises InvalidParameter."""
    found = _LAST_CURSOR.fullmatch(query)
    if found is not None:
        listing = _listing(found[1] or b"")
        if listing.cursor is None:
            return listing, found[2].decode("ascii")
    listing = _listing(query)
    return listing, listing.cursor


@lru_cache(maxsize=_KEPT)
def _listing(query: bytes) -> Listing:
    values = LIST_ORDERS.read(query)
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
    return Listing(filters, sort, values["limit"], values["cursor"], query_digest(filters, sort), _next(query))


def _next(query: bytes) -> bytes:
    kept = [pair for pair in query.split(b"&") if pair and decoded(pair.partition(b"=")[0]) != "cursor"]
    return b"%s?%s" % (PATH.encode(), b"&".join([*kept, b"cursor="]))
