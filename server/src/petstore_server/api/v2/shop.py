"""The shop's own systems (version 2): put, correct, ship and complete orders, one by one or in batches (D22)."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import msgspec

from petstore_server.api.errors import STATUS, InternalError, InvalidBody, error_fields
from petstore_server.api.representation import etag_of, json_response, uncached
from petstore_server.api.routes import Call, Operation, Route
from petstore_server.api.v2 import bodies
from petstore_server.api.v2 import input as v2_input
from petstore_server.api.v2.bodies import BatchItem
from petstore_server.domain.changes import ChangedOrder, OrderChange, Put
from petstore_server.domain.errors import DomainError, InsufficientScope, ServiceUnavailable, UnknownAccount
from petstore_server.domain.keys import Scope
from petstore_server.domain.orders import CANCEL, COMPLETE, Order, correct, parse_order_id, ship, ship_on
from petstore_server.domain.transitions import Transition
from petstore_server.server.messages import Response
from petstore_server.store import Store

BATCH_PATH = "/v2/store/orders/batch"

_ORDER_PATH = "/v2/store/orders/{orderId}"
_log = logging.getLogger(__name__)


class ShopHandlers:
    """The operations that change orders, with a store. `clock` gives Unix seconds."""

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock

    def operations(self) -> dict[str, Operation]:
        """The operations on the path of an order, by method."""
        return {
            "DELETE": Operation("v2.cancelOrder", Scope.ORDERS_CANCEL, self.cancel_order),
            "PUT": Operation("v2.putOrder", Scope.ORDERS_MANAGE, self.put_order),
            "PATCH": Operation("v2.updateOrder", Scope.ORDERS_MANAGE, self.update_order),
        }

    def routes(self) -> list[Route]:
        """The routes on other paths."""
        ship_order = Operation("v2.shipOrder", Scope.ORDERS_MANAGE, self.ship_order)
        complete_order = Operation("v2.completeOrder", Scope.ORDERS_MANAGE, self.complete_order)
        batch = Operation("v2.batchOrders", Scope.ORDERS_MANAGE, self.batch_orders)
        return [
            Route(f"{_ORDER_PATH}/ship", {"POST": ship_order}),
            Route(f"{_ORDER_PATH}/complete", {"POST": complete_order}),
            Route(BATCH_PATH, {"POST": batch}),
        ]

    async def cancel_order(self, call: Call) -> Response:
        """As in version 1, but for InvalidParameter, and PreconditionFailed with If-Match."""
        await self._change(call, _order_id(call), CANCEL)
        return Response(204)

    async def put_order(self, call: Call) -> Response:
        """Create an order under the shop's own number, or replace it: the outcomes of an import of one record.

        Raises InvalidOrderId, InvalidParameter, UnsupportedMediaType, InvalidBody, OrderNotFound, OrderAlreadyShipped,
        OrderAlreadyCancelled, AccountMismatch, ReferenceInUse, IdentifierReserved, PreconditionFailed.
        """
        order_id, headers = _order_id(call), call.request.headers
        bodies.check_media_type(headers)
        order = bodies.read_put_order(call.request.body, order_id)
        creates_only = b"if-none-match" in headers
        if creates_only:
            v2_input.IF_NONE_MATCH.read([headers[b"if-none-match"].decode("latin-1")])
        return await self._answer(call, order_id, _put(call, order, creates_only=creates_only))

    async def update_order(self, call: Call) -> Response:
        """Correct fields of a pending or shipped order (RFC 7396).

        Raises InvalidOrderId, InvalidParameter, UnsupportedMediaType, InvalidBody, OrderNotFound, OrderNotShipped,
        OrderAlreadyCancelled, ReferenceInUse, PreconditionFailed.
        """
        order_id = _order_id(call)
        bodies.check_media_type(call.request.headers, patch=True)
        return await self._answer(call, order_id, correct(bodies.read_corrections(call.request.body)))

    async def ship_order(self, call: Call) -> Response:
        """Ship a pending order, now or with the ship date given.

        Raises InvalidOrderId, InvalidParameter, UnsupportedMediaType, InvalidBody, OrderNotFound, OrderAlreadyShipped,
        OrderAlreadyCancelled, PreconditionFailed.
        """
        order_id, body = _order_id(call), call.request.body
        if body:
            bodies.check_media_type(call.request.headers)
        return await self._answer(call, order_id, self._shipment(bodies.read_ship_date(body)))

    async def complete_order(self, call: Call) -> Response:
        """Mark a shipped order as complete.

        Raises InvalidOrderId, InvalidParameter, OrderNotFound, OrderNotShipped, OrderAlreadyComplete,
        OrderAlreadyCancelled, PreconditionFailed.
        """
        return await self._answer(call, _order_id(call), COMPLETE)

    async def batch_orders(self, call: Call) -> Response:
        """Carry out the operations of a batch; each has its own outcome, durable when the response is sent.

        Those on the same order are carried out in their sequence, up to the first that the store cannot carry out now,
        others together. Raises InvalidParameter, UnsupportedMediaType, InvalidBody; ServiceUnavailable if it is the
        outcome of each.
        """
        v2_input.NO_PARAMETERS.read(call.request.query)
        bodies.check_media_type(call.request.headers)
        items = bodies.read_batch(call.request.body)
        results = [_failure(call, item) if isinstance(item, InvalidBody) else "" for item in items]
        of_order: defaultdict[int, list[tuple[int, BatchItem]]] = defaultdict(list)  # with their places
        for place, item in enumerate(items):
            if isinstance(item, BatchItem):
                of_order[item.order_id].append((place, item))
        now = self._shipment(None)
        in_turn = [self._carry_out_in_turn(call, operations, now, results) for operations in of_order.values()]
        unavailable = [error for errors in await asyncio.gather(*in_turn) for error in errors]
        if len(unavailable) == len(items):
            raise unavailable[0]
        if unavailable:  # one line, as for any request: a batch may have hundreds of such operations
            _log.warning("store unavailable", extra={"reason": unavailable[0].reason, **call.context()})
        return uncached(call.request.headers, f'{{"results":[{",".join(results)}]}}'.encode())

    def _shipment(self, ship_date: str | None) -> Transition[Order]:
        now = datetime.fromtimestamp(int(self._clock()), UTC)
        return ship(now) if ship_date is None else ship_on(ship_date)

    async def _change(self, call: Call, order_id: int, transition: Transition[Order] | Put) -> ChangedOrder:
        """Change an order if it is as If-Match says."""
        header = call.request.headers.get(b"if-match")
        if_match = None if header is None else v2_input.IF_MATCH.read([header.decode("latin-1")])
        changed = await self._request(call, order_id, transition, if_match)
        call.cancelled = changed.cancelled  # also by a put
        return changed

    async def _request(
        self, call: Call, order_id: int, transition: Transition[Order] | Put, if_match: str | None
    ) -> ChangedOrder:
        caller, matches = call.caller, None
        if if_match is not None:
            matches = v2_input.matches(if_match, sees_account=caller.sees_accounts)
        actor, sees = call.actor(self._clock()), caller.sees_accounts
        change = OrderChange(order_id, transition, actor, caller.owner, matches, sees)
        try:
            return await self._store.orders.request(change, caller.account_id)
        except UnknownAccount as error:
            raise InvalidBody(error.message) from None

    async def _answer(self, call: Call, order_id: int, transition: Transition[Order] | Put) -> Response:
        """The response with the order after the change, and its new ETag."""
        changed = await self._change(call, order_id, transition)
        body = _text(call, changed).encode()
        lines = b'ETag: "%s"\r\nCache-Control: no-store\r\n' % etag_of(body).encode()
        if changed.created:
            lines += b"Location: %d\r\n" % changed.order.id
        return json_response(body, lines, 201 if changed.created else 200)

    async def _carry_out_in_turn(
        self, call: Call, operations: Sequence[tuple[int, BatchItem]], now: Transition[Order], results: list[str]
    ) -> list[ServiceUnavailable]:
        """Carry out operations of a batch on one order; set their `results`, by their places.

        Return, for each that could not be carried out now, why.
        """
        for number, (place, item) in enumerate(operations):
            try:
                results[place] = await self._carry_out(call, item, now)
            except ServiceUnavailable as error:
                # Later ones would change an order that lacks this change, and each would wait as long.
                failure, rest = _failure(call, error), operations[number:]
                for left, _ in rest:
                    results[left] = failure
                return [error] * len(rest)
            except Exception as error:  # noqa: BLE001 - the outcome of this operation; others have their own
                results[place] = _failure(call, error)
        return []

    async def _carry_out(self, call: Call, item: BatchItem, now: Transition[Order]) -> str:
        """Carry out an operation of a batch; return its result as JSON text. `now` ships without a ship date."""
        changed = await self._request(call, item.order_id, _transition(call, item, now), item.if_match)
        if item.operation == "cancel":
            return '{"status":204}'
        return f'{{"status":{201 if changed.created else 200},"order":{_text(call, changed)}}}'


def _order_id(call: Call) -> int:
    """The order that the path names. Raises InvalidOrderId, InvalidParameter."""
    order_id = parse_order_id(call.parameter)
    v2_input.NO_PARAMETERS.read(call.request.query)
    return order_id


def _failure(call: Call, error: Exception) -> str:
    """The result of an operation of a batch that failed, as JSON text; a defect is logged."""
    if not isinstance(error, DomainError) or type(error) not in STATUS:
        _log.error("operation failed", extra=call.context(), exc_info=error)
        error = InternalError()
    return msgspec.json.encode(error_fields(error)).decode()


def _transition(call: Call, item: BatchItem, now: Transition[Order]) -> Transition[Order] | Put:
    """The change of an operation of a batch, one of bodies.MEMBERS. Raises InsufficientScope, InvalidBody."""
    match item.operation:
        case "put":
            return _put(call, item.value, creates_only=item.if_none_match is not None)
        case "update":
            return correct(item.value)
        case "ship":
            return now if item.value is None else ship_on(item.value)
        case "complete":
            return COMPLETE
        case "cancel":
            if Scope.ORDERS_CANCEL not in call.caller.scopes:
                raise InsufficientScope(Scope.ORDERS_CANCEL)
            return CANCEL
    raise ValueError(f"no change is known for the operation {item.operation} of a batch")


def _put(call: Call, order: Order, *, creates_only: bool) -> Put:
    """The change of putOrder. Raises InvalidBody: an account that sees only its own orders can name no other one."""
    caller = call.caller
    if caller.owner is not None:
        if order.account not in (None, caller.account):
            raise InvalidBody(UnknownAccount().message)
        order = order._replace(account=caller.account)
    return Put(order, creates_only)


def _text(call: Call, changed: ChangedOrder) -> str:
    return changed.stored.tracked(with_account=call.caller.sees_accounts).text()
