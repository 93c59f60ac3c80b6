"""The operations of version 1 of the interface, and what those of version 2 share with them. No I/O."""

from collections.abc import Callable, Sequence
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import NamedTuple, SupportsIndex, TypeVar

import msgspec

from petstore_client._admission import Session
from petstore_client._arguments import integer
from petstore_client._call import Call, Operation
from petstore_client._effects import Effects, Emit
from petstore_client._http import LONGEST_SMALL_BODY, Reply, check_success
from petstore_client._stream import OrdersDecoder, is_truncation, reader
from petstore_client._types import UNDECODABLE, Order, Pet, Record
from petstore_client.errors import (
    APIConnectionError,
    APITimeoutError,
    ConflictError,
    InvalidResponseError,
)

RecordT = TypeVar("RecordT", bound=Record)

LIST_ORDERS = Operation("listOrders", "GET", "/store/orders", 200)
CANCEL_ORDER = Operation(
    "cancelOrder",
    "DELETE",
    "/store/orders/{id}",
    204,
    doubt="It may have been applied; if so, a later attempt responds order_already_cancelled.",
    conclusive=frozenset({404, 409}),
)
GET_PET = Operation("getPet", "GET", "/pets/{id}", 200)


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
        yield from _receive_orders(call, reply, _append_to(orders))
        return Listed(reply.headers.get("etag", ""), orders)

    return call.run(receive)


def iter_orders(enter: Callable[[], Session]) -> Effects[None]:
    """All orders, emitted as they arrive. After the first one has been emitted there is no further attempt."""
    session = enter()
    call = Call(session, LIST_ORDERS)

    def emit(orders: list[Order]) -> Effects[None]:
        if orders:
            call.committed = True
            yield Emit(orders)
            session.check()

    def receive(reply: Reply) -> Effects[None]:
        yield from _receive_orders(call, reply, emit)

    yield from call.run(receive)


def cancel_order(session: Session, order_id: SupportsIndex, operation: Operation = CANCEL_ORDER) -> Effects[None]:
    """Cancel an order.

    If an earlier attempt whose response was lost may have been carried out, `order_already_cancelled` shows that it
    was. On a first attempt, or after only 429s, another client was faster: a conflict.
    """
    call = Call(session, operation, integer("An identifier", order_id))

    def receive(reply: Reply) -> Effects[None]:
        check_success(reply, operation.success, session.target)
        try:
            yield from call.read_small(reply)
        except (APIConnectionError, InvalidResponseError):
            return  # the order is cancelled, whatever happens after the 204

    try:
        yield from call.run(receive)
    except ConflictError as error:
        if not (call.in_doubt and error.code == "order_already_cancelled"):
            raise
        call.report_success(error.status, None)


def get_pet(session: Session, pet_id: SupportsIndex) -> Effects[tuple[Pet, datetime | None]]:
    """A pet, and the sunset of the operation if the response names it (RFC 8594)."""
    call = Call(session, GET_PET, integer("An identifier", pet_id))

    def receive(reply: Reply) -> Effects[tuple[Pet, datetime | None]]:
        pet = yield from read_record(call, reply, GET_PET, Pet)
        return pet, _sunset(reply)

    return call.run(receive)


def read_record(
    call: Call, reply: Reply, operation: Operation, kind: type[RecordT], longest: int = LONGEST_SMALL_BODY
) -> Effects[RecordT]:
    """The record in a successful response of at most `longest` bytes. Raises InvalidResponseError."""
    check_success(reply, operation.success, call.target)
    body = yield from call.read_small(reply, longest)
    try:
        return msgspec.json.decode(body, type=kind)
    except UNDECODABLE as error:
        message = f"The response is not a valid {kind.__name__.lower()}: {error}."
        raise InvalidResponseError(message, reply.status, is_truncation(error)) from None


def _receive_orders(call: Call, reply: Reply, take: Callable[[list[Order]], Effects[None]]) -> Effects[None]:
    """Decode the body as it arrives. Raises InvalidResponseError if it ends early, APITimeoutError if it stalls."""
    check_success(reply, LIST_ORDERS.success, call.target)
    inflate, decoder = reader(reply.encoding), OrdersDecoder()
    while (piece := (yield from _next_piece(call, reply))) is not None:
        for text in inflate.feed(piece):
            yield from take(decoder.feed(text))
    for text in inflate.finish():
        yield from take(decoder.feed(text))
    yield from take(decoder.finish())


def _next_piece(call: Call, reply: Reply) -> Effects[bytes | None]:
    try:
        return (yield from call.read())
    except APITimeoutError:
        raise
    except APIConnectionError as error:
        raise InvalidResponseError(f"The list is incomplete: {error} Request it again.", reply.status, True) from error


def _append_to(orders: list[Order]) -> Callable[[list[Order]], Effects[None]]:
    def take(more: list[Order]) -> Effects[None]:
        orders.extend(more)
        yield from ()

    return take


def _sunset(reply: Reply) -> datetime | None:
    try:
        return parsedate_to_datetime(reply.headers["sunset"])
    except (KeyError, TypeError, ValueError, OverflowError, IndexError):
        return None
