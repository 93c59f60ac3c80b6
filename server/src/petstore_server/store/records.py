"""An order's row: the one reader and the one writer of it."""

import json
from datetime import datetime

import msgspec

from petstore_server.domain.errors import DamagedRecord, InvalidField
from petstore_server.domain.orders import STATUSES, Order, order_from_fields
from petstore_server.domain.timestamps import microseconds
from petstore_server.store.statements import Row

COLUMNS = "record, status, id, reference"  # for `read_order`, before the name of the owner
WITH_IDS = "FROM petstore.orders WHERE id = ANY(%s::bigint[])"
MAX_PROBLEMS = 100  # problems that a check of a store reports at most
# For `order_problem`.
CHECKED = "SELECT id, status, pet_id, complete, ship_date, reference, record FROM petstore.orders"


class _Record(msgspec.Struct, rename="camel", forbid_unknown_fields=True, gc=False):
    """The JSON that `Order.record` writes."""

    id: int
    pet_id: int | None = None
    quantity: int | None = None
    ship_date: str | None = None
    complete: bool | None = None


_decode = msgspec.json.Decoder(_Record).decode


def order_row(order: Order, owner: int | None = None) -> Row:
    """The columns of CHECKED for an order, and its owner; `complete` is 0 or 1, `ship_date` in Unix microseconds."""
    order_id, pet_id, _, ship_date, complete, status, reference, _ = order
    instant = None if ship_date is None else microseconds(datetime.fromisoformat(ship_date))
    return order_id, str(status), pet_id, 1 if complete else 0, instant, reference, order.record(), owner


def changed_row(before: Order, after: Order, owner: int | None) -> Row:
    """The row to write for a change: `order_row`, or the status only if nothing else has changed."""
    if before[:5] == after[:5] and before[6:] == after[6:]:  # all but the status; `_replace` takes five times as long
        return after.id, str(after.status), None, None, None, None, None, None
    return order_row(after, owner)


def read_order(
    record: str, status: str, order_id: int | None = None, reference: str | None = None, account: str | None = None
) -> Order:
    """Return the order of a row; `account` is the name of its owner.

    Raises DamagedRecord if it cannot be read, or if its identifier differs.
    """
    try:
        fields = _decode(record)
        values = fields.id, fields.pet_id, fields.quantity, fields.ship_date, fields.complete
        order = Order(*values, STATUSES[status], reference, account)
    except (msgspec.MsgspecError, KeyError, TypeError):  # TypeError: in a damaged file, a column may have any type
        raise DamagedRecord(order_id) from None
    if order_id is not None and order.id != order_id:
        raise DamagedRecord(order_id)
    return order


_ADDED = "which another program has added: drop it."


def trigger_problem(name: str, table: str, kind: str = "trigger") -> str:
    """Return what is wrong with a trigger or rule, in plain words: no store has one, and it may change any order."""
    return f"The table {table} has a {kind}, {name}, {_ADDED}"


def is_trigger_problem(problem: str) -> bool:
    """Whether what `trigger_problem` or `order_problem` returned is about a trigger or rule: no restore is needed."""
    return problem.endswith(_ADDED)


def order_problem(row: Row) -> str | None:
    """Return what is wrong with a row of CHECKED, in plain words; it must be what the service would write."""
    order_id, status, *_, reference, record = row
    try:
        order = order_from_fields({**json.loads(record), "status": status, "reference": reference}, stored=True)
    except (ValueError, TypeError, InvalidField) as error:
        return f"Order {order_id} has a record that cannot be read ({error})."
    if order.id != order_id:
        return f"Order {order_id} has a record that names order {order.id}."
    if order.record() != record:
        return f"Order {order_id} has a record in another form than the service writes."
    return None if order_row(order)[:-1] == tuple(row) else f"Order {order_id} has columns that differ from its record."
