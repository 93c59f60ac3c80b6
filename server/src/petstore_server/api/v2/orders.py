"""Orders of version 2: pages and single orders, and placing (D20)."""

import re
from collections.abc import Callable
from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple

from petstore_server.api.errors import IdempotencyKeyMissing
from petstore_server.api.representation import answer, json_response
from petstore_server.api.routes import Call, Operation, Route
from petstore_server.api.v2 import input as v2_input
from petstore_server.api.v2.bodies import check_media_type, read_new_order
from petstore_server.api.v2.shop import ShopHandlers
from petstore_server.domain.keys import Scope
from petstore_server.domain.lists import Filters, PageQuery, Sort, query_digest
from petstore_server.domain.orders import parse_order_id
from petstore_server.domain.placements import Placement
from petstore_server.domain.tokens import Cursors
from petstore_server.server.messages import Response
from petstore_server.store import Store

_PATH = "/v2/store/orders"
_KEPT = 256  # listings in memory, each with a query of up to 8 KB
_NOT_IN_A_URI = re.compile(rb'[][<>"\\^`{|}]|%(?![0-9A-Fa-f]{2})')
_LAST_CURSOR = re.compile(rb"(?:(.*)&)?cursor=([A-Za-z0-9_-]{40})", re.DOTALL)  # as in every Link


def routes(store: Store, clock: Callable[[], float]) -> list[Route]:
    """The routes of orders over a store. `clock` gives Unix seconds."""
    handlers, shop = _Handlers(store, clock), ShopHandlers(store, clock)
    list_orders = Operation("v2.listOrders", Scope.ORDERS_READ, handlers.list_orders)
    place_order = Operation("v2.placeOrder", Scope.ORDERS_WRITE, handlers.place_order)
    get_order = Operation("v2.getOrder", Scope.ORDERS_READ, handlers.get_order)
    return [
        Route(_PATH, {"GET": list_orders, "HEAD": list_orders, "POST": place_order}),
        Route(f"{_PATH}/{{orderId}}", {"GET": get_order, "HEAD": get_order, **shop.operations()}),
        *shop.routes(),
    ]


class _Handlers:
    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock
        self._cursors = Cursors("", "")

    async def list_orders(self, call: Call) -> Response:
        """One page of the orders that match. Raises InvalidParameter, InvalidCursor."""
        listing, cursor = read_listing(call.request.query, call.caller.owner)
        epoch, cursors = await self._store.epoch(), self._cursors
        if epoch != cursors.epoch:
            cursors = self._cursors = Cursors(await self._store.engine.identity(), epoch)
        after = None if cursor is None else cursors.decode(cursor, listing.digest)
        page = await self._store.search.page(PageQuery(listing.filters, listing.sort, listing.limit, after))
        text = await self._store.search.text(page, with_accounts=call.caller.sees_accounts)
        if page.next is None:
            return answer(call.request.headers, f'{{"data":[{text}]}}'.encode())
        following = cursors.encode(page.next, listing.digest)
        body = f'{{"data":[{text}],"nextCursor":"{following}"}}'
        link = b'Link: <%s%s>; rel="next"\r\n' % (listing.next, following.encode())
        return answer(call.request.headers, body.encode(), link)

    async def get_order(self, call: Call) -> Response:
        """One order. Raises InvalidOrderId, InvalidParameter, OrderNotFound."""
        order_id = parse_order_id(call.parameter)
        v2_input.NO_PARAMETERS.read(call.request.query)
        caller = call.caller
        order = await self._store.search.find(order_id, caller.owner, with_account=caller.sees_accounts)
        return answer(call.request.headers, order.text().encode())

    async def place_order(self, call: Call) -> Response:
        """Store a new order; the response is sent once it is durable, and again when the key is used again.

        Raises InvalidParameter, UnsupportedMediaType, IdempotencyKeyMissing, InvalidBody, IdempotencyKeyReused,
        IdempotencyKeyInUse, ReferenceInUse.
        """
        v2_input.NO_PARAMETERS.read(call.request.query)
        headers = call.request.headers
        check_media_type(headers)
        key = headers.get(b"idempotency-key")
        if key is None:
            raise IdempotencyKeyMissing
        if len(key) > 2 and key[:1] == key[-1:] == b'"':  # as the draft writes it
            key = key[1:-1]
        idempotency_key = v2_input.IDEMPOTENCY_KEY.read([key.decode("latin-1")])
        kept = sha256(idempotency_key.encode()).hexdigest()  # not the client's text, which may hold an API key
        caller = call.caller
        shown_account = caller.account if caller.sees_accounts else None
        placement = Placement(caller.account_id, kept, *read_new_order(call.request.body), shown_account)
        placed = await self._store.orders.place(placement, call.actor(self._clock()))
        lines = b"Location: orders/%d\r\nCache-Control: no-store\r\n" % placed.order_id
        if placed.replayed:
            lines += b"Idempotency-Replayed: true\r\n"
        return json_response(placed.body, lines, 201)


class Listing(NamedTuple):
    """A list and the size of its pages. The pages of a walk share all but their cursors, so it is read once.

    `cursor` is that of the query. Cursors are bound to `digest`. `next` is the link to the next page, without the value
    of its cursor. It is relative to this page, because a base address may have a path prefix (RFC 3986), and names the
    last segment of the path: Java's `URI` resolves a query without one against the folder.
    """

    filters: Filters
    sort: Sort
    limit: int
    cursor: str | None
    digest: bytes
    next: bytes


def read_listing(query: bytes, owner: int | None = None) -> tuple[Listing, str | None]:
    """The listing and the cursor in the query of a request, of this owner's orders if one is given (D21).

    Raises InvalidParameter.
    """
    match = _LAST_CURSOR.fullmatch(query)
    if match is not None:
        listing = _listing(match[1] or b"", owner)
        if listing.cursor is None:
            return listing, match[2].decode("ascii")
    listing = _listing(query, owner)
    return listing, listing.cursor


@lru_cache(maxsize=_KEPT)
def _listing(query: bytes, owner: int | None) -> Listing:
    values = v2_input.LIST_ORDERS.read(query)
    filters = Filters(
        frozenset(values["status"] or ()),
        values["petId"],
        values["complete"],
        values["shipDateFrom"],
        values["shipDateTo"],
        values["updatedFrom"],
        frozenset(values["reference"] or ()),
        owner,
    )
    kept = [pair for pair in query.split(b"&") if pair and v2_input.decoded(pair.partition(b"=")[0]) != "cursor"]
    # What cannot be in a URI, but may come in a request, is encoded for the header Link: a > would end it (RFC 8288).
    # So Link may have three times the bytes of the query; deploy/nginx accepts that.
    kept = [_NOT_IN_A_URI.sub(lambda found: b"%%%02X" % ord(found[0]), pair) for pair in kept]
    following = b"orders?" + b"&".join([*kept, b"cursor="])
    sort = values["sort"]
    return Listing(filters, sort, values["limit"], values["cursor"], query_digest(filters, sort), following)
