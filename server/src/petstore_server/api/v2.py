"""Version 2 of the API: pages, changes and single orders, placing and cancelling orders, usage; its routes (D20)."""

import re
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from hashlib import sha256
from typing import Any, NamedTuple, cast

import msgspec

from petstore_server.api import v2_input
from petstore_server.api.errors import IdempotencyKeyMissing, InvalidParameter
from petstore_server.api.representation import answer, body_response
from petstore_server.api.routes import Call, Operation, Route
from petstore_server.api.v2_changes import Changes
from petstore_server.api.v2_tokens import Cursors
from petstore_server.domain.bans import Ban
from petstore_server.domain.keys import Principal, Scope
from petstore_server.domain.lists import Filters, PageQuery, Sort, query_digest
from petstore_server.domain.orders import CANCEL, Placement, parse_order_id
from petstore_server.domain.timestamps import DAY, format_unix, timestamp_text
from petstore_server.domain.usage import Granularity, UsageCounts
from petstore_server.domain.windows import AccountDecision
from petstore_server.server.messages import Response
from petstore_server.store import Store

_MAX_ENTRIES = 1000  # hours or days in one response of getUsage
_PATH = "/v2/store/orders"
_MICROSECONDS = 1_000_000
_KEPT = 256  # listings in memory, each with a query of up to 8 KB
_LAST_CURSOR = re.compile(rb"(?:(.*)&)?cursor=([A-Za-z0-9_-]{40})", re.DOTALL)  # as in every Link

ReadUsage = Callable[[int, int, int, Granularity], Awaitable[Mapping[int, UsageCounts]]]
"""Reads the usage history of an account, from one time to another in Unix seconds, by hour or day."""


def routes(store: Store, changes: Changes, read_usage: ReadUsage, clock: Callable[[], float]) -> list[Route]:
    """The routes of version 2 over a store. `clock` gives Unix seconds."""
    handlers = _Handlers(store, read_usage, clock)
    list_orders = Operation("v2.listOrders", Scope.ORDERS_READ, handlers.list_orders)
    place_order = Operation("v2.placeOrder", Scope.ORDERS_WRITE, handlers.place_order)
    list_changes = Operation("v2.listChanges", Scope.ORDERS_READ, changes.list_changes)
    get_order = Operation("v2.getOrder", Scope.ORDERS_READ, handlers.get_order)
    cancel = Operation("v2.cancelOrder", Scope.ORDERS_CANCEL, handlers.cancel_order)
    get_usage = Operation("v2.getUsage", None, handlers.get_usage)
    return [
        Route(_PATH, {"GET": list_orders, "HEAD": list_orders, "POST": place_order}),
        Route(f"{_PATH}/{{orderId}}", {"GET": get_order, "HEAD": get_order, "DELETE": cancel}),
        Route("/v2/store/changes", {"GET": list_changes}),
        Route("/v2/usage", {"GET": get_usage, "HEAD": get_usage}),
    ]


class _Handlers:
    def __init__(self, store: Store, read_usage: ReadUsage, clock: Callable[[], float]) -> None:
        self._store = store
        self._read_usage = read_usage
        self._clock = clock
        self._cursors = Cursors("", "")

    async def list_orders(self, call: Call) -> Response:
        """One page of the orders that match. Raises InvalidParameter, InvalidCursor."""
        listing, cursor = read_listing(call.request.query)
        epoch, cursors = await self._store.epoch(), self._cursors
        if epoch != cursors.epoch:
            cursors = self._cursors = Cursors(await self._store.engine.identity(), epoch)
        after = None if cursor is None else cursors.decode(cursor, listing.digest)
        page = await self._store.search.page(PageQuery(listing.filters, listing.sort, listing.limit, after))
        if page.next is None:
            return answer(call.request.headers, f'{{"data":[{page.text()}]}}'.encode())
        following = cursors.encode(page.next, listing.digest)
        body = f'{{"data":[{page.text()}],"nextCursor":"{following}"}}'
        link = b'link: <%s%s>; rel="next"\r\n' % (listing.next, following.encode())
        return answer(call.request.headers, body.encode(), link)

    async def get_order(self, call: Call) -> Response:
        """One order. Raises InvalidOrderId, InvalidParameter, OrderNotFound."""
        order_id = parse_order_id(call.segments[-1])
        v2_input.NO_PARAMETERS.read(call.request.query)
        order = await self._store.search.find(order_id)
        return answer(call.request.headers, order.text().encode())

    async def place_order(self, call: Call) -> Response:
        """Store a new order; the response is sent once it is durable, and again when the key is used again.

        Raises InvalidParameter, UnsupportedMediaType, IdempotencyKeyMissing, InvalidBody, IdempotencyKeyReused,
        IdempotencyKeyInUse.
        """
        v2_input.NO_PARAMETERS.read(call.request.query)
        headers = call.request.headers
        v2_input.check_media_type(headers.get(b"content-type"), headers.get(b"content-encoding"))
        key = headers.get(b"idempotency-key")
        if key is None:
            raise IdempotencyKeyMissing
        if len(key) > 2 and key[:1] == key[-1:] == b'"':  # as the draft writes it
            key = key[1:-1]
        idempotency_key = v2_input.IDEMPOTENCY_KEY.read([key.decode("latin-1")])
        kept = sha256(idempotency_key.encode()).hexdigest()  # not the client's text, which may hold an API key
        placement = Placement(call.caller.account_id, kept, *v2_input.read_new_order(call.request.body))
        placed = await self._store.orders.place(placement, call.actor(self._clock()))
        lines = b"location: orders/%d\r\ncache-control: no-store\r\n" % placed.order_id
        if placed.replayed:
            lines += b"idempotency-replayed: true\r\n"
        return body_response((placed.body,), len(placed.body), "application/json", lines, 201)

    async def cancel_order(self, call: Call) -> Response:
        """As in version 1, but for InvalidParameter."""
        order_id = parse_order_id(call.segments[-1])
        v2_input.NO_PARAMETERS.read(call.request.query)
        await self._store.orders.change(order_id, CANCEL, call.actor(self._clock()), call.caller.account_id)
        return Response(204)

    async def get_usage(self, call: Call) -> Response:
        """The account's windows and history, both with this request, and the key. Raises InvalidParameter."""
        values = v2_input.GET_USAGE.read(call.request.query)
        principal, by = call.caller, values["granularity"]
        decision = cast(AccountDecision, call.decision)  # there is one of each valid key
        start, end = _range(values, by, self._clock())
        history = await self._read_usage(principal.account_id, start, end, by)
        body = {
            "plan": str(principal.plan),
            "windows": [window._asdict() for window in decision.windows],
            "history": [
                {"start": format_unix(at), "admitted": counts.admitted, "refused": counts.refused}
                for at, counts in history.items()
            ],
            "key": _key(principal, await self._store.usage.last_ban(principal.key_id)),
        }
        return answer(call.request.headers, msgspec.json.encode(body))


class Listing(NamedTuple):
    """A list and the size of its pages. The pages of a walk share all but their cursors, so it is read once.

    `cursor` is that of the query. Cursors are bound to `digest`. `next` is the link to the next page, without the value
    of its cursor. It is relative to this page, because a base address may have a path prefix (RFC 3986).
    """

    filters: Filters
    sort: Sort
    limit: int
    cursor: str | None
    digest: bytes
    next: bytes


def read_listing(query: bytes) -> tuple[Listing, str | None]:
    """The listing and the cursor in the query of a request. Raises InvalidParameter."""
    match = _LAST_CURSOR.fullmatch(query)
    if match is not None:
        listing = _listing(match[1] or b"")
        if listing.cursor is None:
            return listing, match[2].decode("ascii")
    listing = _listing(query)
    return listing, listing.cursor


@lru_cache(maxsize=_KEPT)
def _listing(query: bytes) -> Listing:
    values = v2_input.LIST_ORDERS.read(query)
    filters = Filters(
        frozenset(values["status"] or ()),
        values["petId"],
        values["complete"],
        values["shipDateFrom"],
        values["shipDateTo"],
        values["updatedFrom"],
        frozenset(values["reference"] or ()),
    )
    kept = [pair for pair in query.split(b"&") if pair and v2_input.decoded(pair.partition(b"=")[0]) != "cursor"]
    # What cannot be in a URI, but may come in a request, is encoded for the header Link: a > would end it (RFC 8288).
    kept = [re.sub(rb'[<>"\\^`{|}]', lambda found: b"%%%02X" % ord(found[0]), pair) for pair in kept]
    following = b"?" + b"&".join([*kept, b"cursor="])
    sort = values["sort"]
    return Listing(filters, sort, values["limit"], values["cursor"], query_digest(filters, sort), following)


def _key(principal: Principal, ban: Ban | None) -> dict[str, Any]:
    """What getUsage shows of the key that asks."""
    key: dict[str, Any] = {"id": principal.key_id, "scopes": sorted(principal.scopes)}
    if principal.expires_at is not None:
        key["expiresAt"] = timestamp_text(int(principal.expires_at * _MICROSECONDS))
    if ban is not None:
        key["lastBan"] = {"began": format_unix(ban.began), "ended": format_unix(ban.until)}
    return key


def _range(values: Mapping[str, Any], by: Granularity, now: float) -> tuple[int, int]:
    """The hours or days that overlap the range asked for, as Unix seconds: the start of the first, and the end."""
    end = int(now) + 1 if values["to"] is None else -(-values["to"] // _MICROSECONDS)
    start = end - DAY if values["from"] is None else values["from"] // _MICROSECONDS
    if start > end:
        raise InvalidParameter("'from' is after now; give a time in the past, or 'to' as well.")
    start = by.start(start)
    if end - start > _MAX_ENTRIES * by.seconds:
        raise InvalidParameter(
            f"'from' and 'to' must be at most {_MAX_ENTRIES} times the granularity apart; ask for less, or for "
            "granularity=day."
        )
    return start, end
