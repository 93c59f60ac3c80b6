"""The operations of both versions of the interface. No I/O."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import NamedTuple, SupportsIndex, TypeVar

import msgspec

from petstore_client import errors, v2
from petstore_client._admission import Session
from petstore_client._arguments import entity_tags, integer, query
from petstore_client._call import Call, Operation
from petstore_client._effects import Effects, Emit, Sleep
from petstore_client._http import MAX_SMALL_BODY, Reply
from petstore_client._limits import http_date, read_limits
from petstore_client._stream import Inflater, OrdersDecoder, is_truncation
from petstore_client._types import UNDECODABLE, Order, Pet, Record

RecordT = TypeVar("RecordT", bound=Record)

_CANCELLED = "It may have been applied; if so, a later attempt responds order_already_cancelled."
_PLACED = "The order may have been placed; repeat the call with the idempotency_key of this error to find out."

LIST_ORDERS = Operation("listOrders", "GET", "/store/orders", {200})
CANCEL_ORDER = Operation("cancelOrder", "DELETE", "/store/orders/{id}", {204}, "v1", _CANCELLED, frozenset({404, 409}))
GET_PET = Operation("getPet", "GET", "/pets/{id}", {200})
LIST_PAGE = LIST_ORDERS._replace(version="v2")
CANCEL_ORDER_V2 = CANCEL_ORDER._replace(version="v2", conclusive=frozenset({404, 409, 412}))
GET_ORDER = Operation("getOrder", "GET", "/store/orders/{id}", {200}, "v2")
PLACE_ORDER = Operation("placeOrder", "POST", "/store/orders", {201}, "v2", _PLACED, frozenset({409, 422}))
LIST_CHANGES = Operation("listChanges", "GET", "/store/changes", {200}, "v2")
GET_USAGE = Operation("getUsage", "GET", "/usage", {200}, "v2")

MAX_PAGE_BYTES = 1 << 22  # no page of 1000 orders, and no usage history, is longer


NOW = "now"  # as `after`: what changes from now on
MIN_ROUND = 1.0  # seconds from a request for changes that got none, to the next one


class Listed(NamedTuple):
    """A list and its ETag."""

    etag: str
    orders: Sequence[Order]


def list_orders(session: Session, known: Listed | None) -> Effects[Listed]:
    """All orders. If they have not changed since `known`, that list again, without a body."""
    call = Call(session, LIST_ORDERS)
    if known is not None:
        call.headers["If-None-Match"] = known.etag

    def receive(reply: Reply) -> Effects[Listed]:
        if reply.status == 304 and known is not None:
            yield from call.read_small(reply)
            return known
        orders: list[Order] = []
        yield from _receive_orders(call, reply, orders)
        etag = reply.headers.get("etag", "")
        return Listed(etag if etag.isascii() else "", orders)  # others cannot be sent back

    return call.run(receive)


def iter_orders(enter: Callable[[], Session]) -> Effects[None]:
    """All orders, emitted as they arrive. After the first one has been emitted there is no further attempt."""
    call = Call(enter(), LIST_ORDERS)
    yield from call.run(lambda reply: _receive_orders(call, reply))


def cancel_order(
    session: Session, order_id: SupportsIndex, operation: Operation = CANCEL_ORDER, if_match: str | None = None
) -> Effects[None]:
    """Cancel an order.

    If an earlier attempt whose response was lost may have been carried out, `order_already_cancelled` shows that it
    was. On a first attempt, or after only 429s, another client was faster: a conflict.
    """
    call = Call(session, operation, integer("An identifier", order_id))
    if if_match is not None:
        call.headers["If-Match"] = entity_tags(if_match)
    return end(call, "order_already_cancelled")


def end(call: Call, done: str) -> Effects[None]:
    """Send a request whose response has no body. After a lost response, the code `done` shows that it was carried out.

    Raises PetstoreError.
    """

    def receive(reply: Reply) -> Effects[None]:
        try:
            yield from call.read_small(reply)
        except (errors.APIConnectionError, errors.InvalidResponseError):
            return  # it is done, whatever happens after the 204

    try:
        yield from call.run(receive)
    except errors.APIStatusError as error:
        if not (call.in_doubt and error.code == done):
            raise
        call.report_success()


def get_pet(session: Session, pet_id: SupportsIndex) -> Effects[tuple[Pet, datetime | None]]:
    """A pet, and the sunset of the operation if the response names it (RFC 8594)."""
    call = Call(session, GET_PET, integer("An identifier", pet_id))
    pet = yield from get(call, Pet, MAX_SMALL_BODY)
    return pet, http_date(call.reply.headers.get("sunset"))


def list_page(session: Session, **arguments: object) -> Effects[v2.Page]:
    """One page of orders."""
    return get(Call(session, LIST_PAGE, text=query(arguments)), v2.Page)


def get_order(session: Session, order_id: SupportsIndex) -> Effects[v2.Order]:
    """One order."""
    return get_one(Call(session, GET_ORDER, integer("An identifier", order_id)))


def place_order(enter: Callable[[], Session], body: bytes, key: str) -> Effects[v2.Order]:
    """Place an order. All attempts carry the same key, so that together they place at most one order."""
    call = Call(enter(), PLACE_ORDER)  # here, so that the error of a closed client has the key too
    call.content = body
    call.headers |= {"Content-Type": "application/json", "Idempotency-Key": key}
    return (yield from get_one(call))


def get_usage(session: Session, **arguments: object) -> Effects[v2.Usage]:
    """The limits and requests of the account."""
    return get(Call(session, GET_USAGE, text=query(arguments)), v2.Usage)


def iter_pages(enter: Callable[[], Session], **arguments: object) -> Effects[None]:
    """The orders of all pages, emitted page by page. Each page is a separate call."""
    cursor: str | None = None
    while True:
        page = yield from list_page(enter(), **arguments, cursor=cursor)
        yield Emit(page.data)
        if page.next_cursor is None:
            return
        if page.next_cursor == cursor:
            raise errors.InvalidResponseError("The next page has the same cursor as this one: an endless list.", 200)
        cursor = page.next_cursor


def list_changes(session: Session, wait: int, after: str | None, **more: object) -> Effects[v2.Changes]:
    """One page of changes, which may be empty."""
    return get(_changes(session, wait, after, **more), v2.Changes)


def follow_changes(
    enter: Callable[[], Session], closed: Callable[[], bool], wait: int, after: str | None, **more: object
) -> Effects[None]:
    """The pages of changes that are not empty, emitted one by one, until the client is closed."""
    session = enter()
    clock = session.options.clock
    try:
        while True:
            call = _changes(session, wait, after, **more)
            began = clock.monotonic()
            page = yield from get(call, v2.Changes)
            earliest = clock.monotonic() + (read_limits(call.reply.headers, clock.now()).retry_after or 0.0)
            if page.data:
                yield Emit([page])
            elif after != NOW and not (
                call.probes and wait
            ):  # what does not hold a request must not be asked again and again
                earliest = max(earliest, began + MIN_ROUND)
            after = page.next
            if (pause := earliest - clock.monotonic()) > 0:
                yield Sleep(pause)
            session = enter()
    except errors.PetstoreError:
        if not closed():
            raise


def _changes(session: Session, wait: int, after: str | None, **more: object) -> Call:
    hold = 0 if after == NOW else wait  # without a response to `now`, a repeated request would begin later
    return Call(session, LIST_CHANGES, text=query({"after": after, **more}), hold=hold)


def get_one(call: Call) -> Effects[v2.Order]:
    """The one order in the response, with its ETag: without one "", or None from `place_order`."""
    order = yield from get(call, v2.Order, MAX_SMALL_BODY)
    vars(order)["etag"] = call.reply.headers.get("etag", None if call.operation is PLACE_ORDER else "")
    return order


def get(call: Call, kind: type[RecordT], longest: int = MAX_PAGE_BYTES) -> Effects[RecordT]:
    """The record in the response, of at most `longest` bytes."""
    return call.run(lambda reply: read_record(call, reply, kind, longest))


def read_record(call: Call, reply: Reply, kind: type[RecordT], longest: int = MAX_SMALL_BODY) -> Effects[RecordT]:
    """The record in a successful response of at most `longest` bytes. Raises InvalidResponseError."""
    body = yield from call.read_small(reply, longest)
    try:
        return msgspec.json.decode(body, type=kind)
    except UNDECODABLE as error:
        message = f"The response is not a valid {kind.__name__.lower()}: {error}."
        raise errors.InvalidResponseError(message, reply.status, is_truncation(error)) from None


def _receive_orders(call: Call, reply: Reply, orders: list[Order] | None = None) -> Effects[None]:
    """Decode the body as it arrives, and append to `orders`, or emit without it.

    Raises InvalidResponseError if the list ends early, APITimeoutError if it stalls.
    """

    def take(more: list[Order]) -> Effects[None]:
        if orders is not None:
            orders.extend(more)
        elif more:
            yield from call.emit(more)

    inflate, decoder = Inflater(reply.encoding), OrdersDecoder()
    while (piece := (yield from _next_piece(call, reply))) is not None:
        for text in inflate.feed(piece):
            yield from take(decoder.feed(text))
    inflate.finish()
    yield from take(decoder.finish())


def _next_piece(call: Call, reply: Reply) -> Effects[bytes | None]:
    try:
        return (yield from call.read())
    except errors.APITimeoutError:
        raise
    except errors.APIConnectionError as error:
        text = f"The list is incomplete: {error} Request it again."
        raise errors.InvalidResponseError(text, reply.status, True) from error
