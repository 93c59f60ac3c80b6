"""The operations of the shop's own systems: change single orders, one by one or in batches. No I/O."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import msgspec
from msgspec import field

from petstore_client import _arguments as arguments
from petstore_client import _http as http
from petstore_client import _operations as operations
from petstore_client import errors, v2
from petstore_client._admission import Session
from petstore_client._call import Call, Operation
from petstore_client._effects import Effects
from petstore_client._http import Reply
from petstore_client._types import Record

MAX_OPERATIONS, MAX_BATCH_BYTES = 500, 256 * 1024  # of one request

_ORDER = "/store/orders/{id}"
_LOST = "It may have been applied; repeat the call to find out."
_SOME_LOST = "Some of its operations may have been applied; repeat the call to find out."
_FINAL = frozenset({404, 409, 412})  # what an attempt has done, nothing undoes

_OPERATIONS = {
    "put": Operation("putOrder", "PUT", _ORDER, {200, 201}, "v2", _LOST, frozenset({404})),
    "update": Operation("updateOrder", "PATCH", _ORDER, {200}, "v2", _LOST, frozenset({404})),
    "ship": Operation("shipOrder", "POST", f"{_ORDER}/ship", {200}, "v2", _LOST, _FINAL),
    "complete": Operation("completeOrder", "POST", f"{_ORDER}/complete", {200}, "v2", _LOST, frozenset({404, 409})),
    "cancel": operations.CANCEL_ORDER_V2,
}
_BATCH_ORDERS = Operation("batchOrders", "POST", "/store/orders/batch", {200}, "v2", _SOME_LOST)
_DONE = {"ship": "order_already_shipped", "complete": "order_already_complete", "cancel": "order_already_cancelled"}
"""The code that shows, after a lost response, that an earlier attempt was carried out."""
BODIES = {"put": "order", "update": "changes"}
"""The members of operations of a batch that are the bodies of requests for one order."""
_JSON = {"Content-Type": "application/json"}
_NEVER = '"-"'  # the ETag of no order

Change = Mapping[str, Any]
"""An operation as `batchOrders` takes it."""


def change_order(session: Session, change: Change) -> Effects[v2.Order]:
    """Change one order, and return it.

    If an earlier attempt whose response was lost may have been carried out, the code in `_DONE` shows that it was. An
    order that was to be created only, and exists, is then put again, which changes nothing if it is equal.
    """
    call = Call(session, _OPERATIONS[change["operation"]], change["orderId"])
    call.headers |= {header: change[name] for header, name in _CONDITIONS.items() if name in change}
    if (body := _body(change)) is not None:
        call.content = msgspec.json.encode(body)
        call.headers |= _JSON
    try:
        return (yield from operations.get_one(call))
    except errors.ConflictError as error:
        if not (call.in_doubt and error.code == _DONE.get(change["operation"])):
            raise
        call.report_success()
    except errors.PreconditionFailedError as error:
        if not (call.in_doubt and "ifNoneMatch" in change):
            raise
        return (yield from _put_again(call.rest(), change, error))
    with _in_doubt("The order was changed; only reading it has failed."):
        return (yield from operations.get_order(call.rest(), change["orderId"]))


def _put_again(session: Session, change: Change, refused: errors.PreconditionFailedError) -> Effects[v2.Order]:
    """The order, if it is equal to the one that was to be created; otherwise raise the error."""
    with _in_doubt(_LOST), suppress(errors.PreconditionFailedError, errors.ConflictError):
        return (yield from change_order(session, _unchanging_put(change)))
    raise refused


def _unchanging_put(change: Change) -> Change:
    """The put of an order that changes nothing: it succeeds only if the order is equal already."""
    return {name: value for name, value in change.items() if name != "ifNoneMatch"} | {"ifMatch": _NEVER}


@contextmanager
def _in_doubt(note: str) -> Iterator[None]:
    """Say in each exception that an earlier attempt of the call may have been applied."""
    try:
        yield
    except BaseException as error:
        if isinstance(error, errors.PetstoreError):
            error.may_have_been_applied = True
        error.add_note(note)
        raise


_CONDITIONS = {"If-Match": "ifMatch", "If-None-Match": "ifNoneMatch"}


def _body(change: Change) -> object:
    """The body of the request for one change; None without one."""
    if (member := BODIES.get(change["operation"])) is not None:
        return change[member]
    return {"shipDate": change["shipDate"]} if "shipDate" in change else None


class Outcome(msgspec.Struct):
    """What `batchOrders` says of one operation."""

    status: int
    order: v2.Order | None = None
    code: str = ""
    message: str = ""
    order_id: int | None = field(default=None, name="orderId")


class Batch(Record, frozen=True, kw_only=True, gc=False):
    """The response of `batchOrders`."""

    results: list[Outcome]


class _Item(NamedTuple):
    operation: v2.BatchOperation
    change: Change
    text: bytes  # as JSON


def batch_orders(
    enter: Callable[[], Session], changes: Sequence[tuple[v2.BatchOperation, Change]]
) -> Effects[list[v2.BatchResult]]:
    """Carry out the operations, in as many requests as they need, and return their outcomes in their order."""
    results: list[v2.BatchResult] = []
    try:
        for part in _parts(_items(changes)):
            results += yield from _Part(enter(), part).run()
    except BaseException as error:
        if isinstance(error, errors.PetstoreError):
            error.batch_results = tuple(results)
        elif results and not hasattr(error, "__notes__"):  # the call of the last request knows nothing of the others
            error.add_note(_SOME_LOST)
        raise
    return results


def _items(changes: Sequence[tuple[v2.BatchOperation, Change]]) -> list[_Item]:
    return [_Item(operation, change, msgspec.json.encode(change)) for operation, change in changes]


def _parts(items: Sequence[_Item]) -> Iterator[list[_Item]]:
    """The operations of each request."""
    part: list[_Item] = []
    size = 0
    for item in items:
        if part and (len(part) == MAX_OPERATIONS or size + len(item.text) >= MAX_BATCH_BYTES):
            yield part
            part = []
        size = (size if part else len(_batch([]))) + len(item.text) + 1
        part.append(item)
    if part:
        yield part


def _batch(texts: Sequence[bytes]) -> bytes:
    return b'{"operations":[%s]}' % b",".join(texts)


class _Part:
    """The operations of one request, which is repeated with those that the service could not carry out."""

    def __init__(self, session: Session, items: Sequence[_Item]) -> None:
        self._items = items
        self._call = Call(session, _BATCH_ORDERS)
        self._call.headers |= _JSON
        self._results: dict[int, v2.BatchResult] = {}  # by the place of the operation
        self._places = list(range(len(items)))  # of the operations in the next request

    def run(self) -> Effects[list[v2.BatchResult]]:
        """Send until each operation has an outcome. Raises PetstoreError if none has one."""
        self._set_content()
        try:
            yield from self._call.run(self._receive)
        except errors.PetstoreError:
            if not self._results:
                raise  # else the outcomes stand: 503 for those that could not be repeated
        yield from self._resolve()
        return [self._results[place] for place in range(len(self._items))]

    def _set_content(self) -> None:
        self._call.content = _batch([self._items[place].text for place in self._places])

    def _receive(self, reply: Reply) -> Effects[None]:
        """Note the outcomes. Raises ServerError, so that the rest is sent again after a pause."""
        batch = yield from operations.read_record(self._call, reply, Batch, operations.MAX_PAGE_BYTES)
        if len(batch.results) != len(self._places):
            what = f"The response has {len(batch.results)} results for {len(self._places)} operations."
            raise errors.InvalidResponseError(what, reply.status)
        for place, outcome in zip(self._places, batch.results, strict=True):
            self._results[place] = self._result(self._items[place], outcome)
        self._places = self._to_repeat()
        if self._places:
            self._set_content()
            error = self._results[self._places[0]].error
            raise errors.ServerError("service_unavailable", str(error and error.message), 503)

    def _result(self, item: _Item, outcome: Outcome) -> v2.BatchResult:
        kind, in_doubt = item.change["operation"], self._call.in_doubt
        if outcome.status < 400:
            return v2.BatchResult(operation=item.operation, status=outcome.status, order=outcome.order)
        if in_doubt and outcome.code == _DONE.get(kind):
            return v2.BatchResult(operation=item.operation, status=204 if kind == "cancel" else 200)
        record = http.ErrorBody(outcome.code, outcome.message, outcome.status)
        error = http.status_error(record, self._call.target, order_id=outcome.order_id)
        error.request_id = self._call.request_id
        conclusive = outcome.status in _OPERATIONS[kind].conclusive
        error.may_have_been_applied = outcome.status >= 500 or (in_doubt and not conclusive)
        return v2.BatchResult(operation=item.operation, status=outcome.status, error=error)

    def _to_repeat(self) -> list[int]:
        """The places of the operations that the service could not carry out, and of later ones on the same orders."""
        orders, places = set[int](), []
        for place, item in enumerate(self._items):
            order_id = item.change["orderId"]
            if self._results[place].status == 503:
                orders.add(order_id)
            if order_id in orders:
                places.append(place)
        return places

    def _resolve(self) -> Effects[None]:
        """Find out in one more request, which changes nothing, what lost responses said.

        It reads the orders that were changed, and finds out whether those that were to be created only are equal. What
        it does not show stays as it is.
        """
        asked: dict[int, tuple[v2.BatchOperation, Change]] = {}
        for place, result in self._results.items():
            operation, change, _ = self._items[place]
            if result.status == 200 and result.order is None:
                asked[place] = operation, arguments.batch_operation(v2.Update(change["orderId"]))
            elif (
                result.status == 412 and "ifNoneMatch" in change and result.error and result.error.may_have_been_applied
            ):
                asked[place] = operation, _unchanging_put(change)
        if not asked:
            return
        try:
            with _in_doubt(_SOME_LOST):
                found = yield from _Part(self._call.rest(), _items(list(asked.values()))).run()
        except errors.PetstoreError:
            return  # the operations themselves have their outcomes
        for place, each in zip(asked, found, strict=True):
            if each.status == 200:
                self._results[place] = each
