"""The operations of the interface, as calls that do no I/O."""

from collections.abc import Callable, Sequence
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import NamedTuple

import msgspec

from petstore_client.call import Call, Session
from petstore_client.errors import (
    APIConnectionError,
    APITimeoutError,
    ConflictError,
    InvalidResponseError,
)
from petstore_client.records import Order, Pet
from petstore_client.steps import Emit, Read, Steps
from petstore_client.stream import OrdersDecoder, reader
from petstore_client.wire import Reply, check_success


class Listed(NamedTuple):
    """A list and the ETag under which the server knows it."""

    etag: str
    orders: Sequence[Order]


def list_orders(session: Session, known: Listed | None) -> Steps[Listed]:
    """All orders; those of `known` again, without a body, if they have not changed since."""
    call = Call(session, "listOrders", "GET", "/store/orders")
    if known is not None:
        call.headers["If-None-Match"] = known.etag

    def receive(reply: Reply) -> Steps[Listed]:
        if reply.status == 304 and known is not None:
            yield from call.read_small(reply)
            return known
        check_success(reply, 200, session.target)
        orders: list[Order] = []
        yield from _receive_orders(reply, _kept_in(orders))
        return Listed(reply.headers.get("etag", ""), orders)

    return call.run(receive)


def iter_orders(session: Session) -> Steps[None]:
    """All orders, emitted as they arrive. There is no second attempt once the first has been emitted."""
    call = Call(session, "listOrders", "GET", "/store/orders")

    def emit(orders: list[Order]) -> Steps[None]:
        if orders:
            call.committed = True
            yield Emit(orders)

    def receive(reply: Reply) -> Steps[None]:
        check_success(reply, 200, session.target)
        yield from _receive_orders(reply, emit)

    return call.run(receive)


def cancel_order(session: Session, order_id: int) -> Steps[None]:
    """Cancel an order.

    Where an earlier attempt may have been carried out although its answer was lost, `order_already_cancelled` says that
    it was. On a first attempt, or after 429s alone, somebody else was faster: that is a conflict.
    """
    call = Call(session, "cancelOrder", "DELETE", f"/store/orders/{_identifier(order_id)}")

    def receive(reply: Reply) -> Steps[None]:
        check_success(reply, 204, session.target)
        try:
            yield from call.read_small(reply)
        except (APIConnectionError, InvalidResponseError):
            return  # 204 has said it all, whatever breaks after it

    try:
        yield from call.run(receive)
    except ConflictError as error:
        if not (call.in_doubt and error.code == "order_already_cancelled"):
            raise


def get_pet(session: Session, pet_id: int) -> Steps[tuple[Pet, datetime | None]]:
    """A pet, and the operation's sunset where the answer named it (RFC 8594)."""
    call = Call(session, "getPet", "GET", f"/pets/{_identifier(pet_id)}")

    def receive(reply: Reply) -> Steps[tuple[Pet, datetime | None]]:
        check_success(reply, 200, session.target)
        body = yield from call.read_small(reply)
        try:
            return msgspec.json.decode(body, type=Pet), _sunset(reply)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InvalidResponseError(f"The answer is no pet: {error}.", reply.status) from None

    return call.run(receive)


def _receive_orders(reply: Reply, take: Callable[[list[Order]], Steps[None]]) -> Steps[None]:
    """Decode the body as it comes. Raises InvalidResponseError where it breaks off, APITimeoutError where it stalls."""
    inflate, decoder = reader(reply.encoding), OrdersDecoder()
    while (piece := (yield from _next_piece(reply))) is not None:
        for text in inflate.feed(piece):
            yield from take(decoder.feed(text))
    for text in inflate.finish():
        yield from take(decoder.feed(text))
    yield from take(decoder.finish())


def _next_piece(reply: Reply) -> Steps[bytes | None]:
    try:
        piece: bytes | None = yield Read()
    except APITimeoutError:
        raise
    except APIConnectionError as error:
        raise InvalidResponseError(f"The list is incomplete: {error} Ask for it again.", reply.status, True) from error
    return piece


def _kept_in(orders: list[Order]) -> Callable[[list[Order]], Steps[None]]:
    def take(more: list[Order]) -> Steps[None]:
        orders.extend(more)
        yield from ()

    return take


def _identifier(number: int) -> int:
    """The identifier, if it is one: a text in its place could name another path."""
    if isinstance(number, bool) or not isinstance(number, int):
        raise TypeError(f"An identifier is an int; this is a {type(number).__name__}.")
    return number


def _sunset(reply: Reply) -> datetime | None:
    try:
        return parsedate_to_datetime(reply.headers["sunset"])
    except (KeyError, TypeError, ValueError, IndexError):
        return None
