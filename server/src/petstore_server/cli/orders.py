"""`petstore orders`: load, look at, ship, complete and cancel orders."""

from collections.abc import AsyncIterator, Callable
from datetime import datetime
from typing import Any

import click

from petstore_server.cli.arguments import OrderId, When
from petstore_server.cli.commands import Group, WritingCommand
from petstore_server.cli.exporting import export_orders
from petstore_server.cli.failures import explain, report
from petstore_server.cli.importing import Kind, import_file
from petstore_server.cli.output import details, log_to_stderr, show, wants_json, write, write_json
from petstore_server.cli.stores import now, operator, with_store
from petstore_server.domain.orders import ORDER_FIELDS, Order, order_from_fields
from petstore_server.formats.csv_rows import boolean_cell, integer_cell, text_cell
from petstore_server.formats.reading import FORMATS, STDIN
from petstore_server.operations import orders as operations
from petstore_server.operations.orders import Changed
from petstore_server.ports import Store

ORDERS = Kind(
    "orders",
    dict(
        zip(ORDER_FIELDS, (integer_cell, integer_cell, integer_cell, text_cell, boolean_cell, text_cell), strict=True)
    ),
    order_from_fields,
    lambda store: store.orders.import_batch,
    "The order has moved on in the store (shipped or cancelled) and differs from this row; it was not touched.",
)
FORMAT = click.option("--format", "file_format", type=click.Choice(FORMATS), help="Of the file; told from its name.")
REJECTS = click.option("--rejects", metavar="FILE", help="Write rejected rows here, as JSON Lines with the reason.")
_COLUMNS = "{:>20}  {:>20}  {:>20}  {:<27}  {:<8}  {}\n"
_NEGATIVE_IDS = {"ignore_unknown_options": True}  # so that -5 is an identifier; `OrderId` refuses what is none


@click.group(cls=Group)
def orders() -> None:
    """Orders: import, export, list, ship, complete, cancel.

    \b
    Example:
      petstore orders import orders.csv --rejects rejects.jsonl
    """


@orders.command("import", cls=WritingCommand)
@click.argument("file")
@FORMAT
@REJECTS
def import_orders(file: str, file_format: str | None, rejects: str | None) -> None:
    """Take in the orders of FILE (- for stdin): JSON Lines, a JSON array, or CSV as spreadsheets leave it.

    A record has the fields id (required), petId, quantity, shipDate, complete, and status (pending unless given).
    An order that stands in the store already is left alone where it is identical, replaced while it is pending,
    and rejected once it has shipped or was cancelled. Bad rows are rejected with their line, column and reason, and
    the others taken in; the exit code is then 3.

    \b
    Examples:
      petstore orders import orders.jsonl
      petstore orders import export.csv --rejects rejects.jsonl
      zcat orders.csv.gz | petstore orders import - --format csv
    """
    import_file(ORDERS, file, file_format, rejects)


@orders.command()
@click.argument("file")
@FORMAT
def export(file: str, file_format: str | None) -> None:
    """Write all orders, with their status, to FILE (- for stdout): JSON Lines unless its ending or --format differ.

    The file can be imported again. It takes its name only when it is whole.

    \b
    Examples:
      petstore orders export orders.jsonl
      petstore orders export - --format csv | head
    """
    count = with_store(lambda store: export_orders(store, file, file_format))
    if file == STDIN:
        return
    if wants_json():
        write_json({"file": file, "exported": count})
    else:
        log_to_stderr(f"Exported {count} orders to {file}.")


@orders.command("list")
def list_orders() -> None:
    """List all orders with their status, ascending by id; with --json one object a line.

    \b
    Examples:
      petstore orders list
      petstore orders list --json | grep '"status":"pending"'
    """

    async def stream(store: Store) -> None:
        if not wants_json():
            write(_COLUMNS.format("ID", "PET", "QUANTITY", "SHIP DATE", "COMPLETE", "STATUS"))
        async for batch in store.orders.scan():
            for order in batch:
                _write_order(order)

    with_store(stream)


@orders.command("show", context_settings=_NEGATIVE_IDS)
@click.argument("order_id", type=OrderId(), metavar="ID")
def show_order(order_id: int) -> None:
    """Show the order ID with its status.

    \b
    Example:
      petstore orders show 42
    """
    order = with_store(lambda store: store.orders.find(order_id))
    fields = {name: order.fields().get(name) for name in ORDER_FIELDS}
    show(order.fields(), lambda: details((name, _plain(value)) for name, value in fields.items()))


ORDER_IDS = click.argument("order_ids", type=OrderId(), nargs=-1, required=True, metavar="ID...")
SEVERAL = "With several ids each is tried; the exit code is that of the first that failed."


@orders.command("ship", cls=WritingCommand, context_settings=_NEGATIVE_IDS, epilog=SEVERAL)
@ORDER_IDS
@click.option("--at", type=When(), metavar="WHEN", help="The ship date to set; now unless given.")
def ship_orders(order_ids: tuple[int, ...], at: datetime | None) -> None:
    """Ship pending orders: their status becomes shipped, and shipDate is set.

    \b
    Examples:
      petstore orders ship 42
      petstore orders ship 42 43 44 --at 2026-11-20T09:30:00Z
    """
    _change(lambda store: operations.ship_orders(store, order_ids, at or now(), operator()))


@orders.command("complete", cls=WritingCommand, context_settings=_NEGATIVE_IDS, epilog=SEVERAL)
@ORDER_IDS
def complete_orders(order_ids: tuple[int, ...]) -> None:
    """Mark shipped orders as complete: they have been fulfilled.

    \b
    Example:
      petstore orders complete 42
    """
    _change(lambda store: operations.complete_orders(store, order_ids, operator()))


@orders.command("cancel", cls=WritingCommand, context_settings=_NEGATIVE_IDS, epilog=SEVERAL)
@ORDER_IDS
def cancel_orders(order_ids: tuple[int, ...]) -> None:
    """Cancel pending orders. What has shipped cannot be cancelled.

    \b
    Example:
      petstore orders cancel 42
    """
    _change(lambda store: operations.cancel_orders(store, order_ids, operator()))


def _change(change: Callable[[Store], AsyncIterator[Changed]]) -> None:
    """Change orders and show what became of each; exits with the code of the first failure."""

    async def run(store: Store) -> int:
        code = 0
        async for changed in change(store):
            if changed.error is not None:
                failure = explain(changed.error)
                report(failure, wants_json())
                code = code or failure.exit_code
            elif changed.order is not None:
                order = changed.order
                show(order.fields(), lambda order=order: _told(order))  # type: ignore[misc]
        return code

    click.get_current_context().exit(with_store(run, writes=True))


def _told(order: Order) -> str:
    complete = ", complete" if order.complete else ""
    return f"order {order.id}: {order.status}{complete}"


def _write_order(order: Order) -> None:
    if wants_json():
        write_json(order.fields())
        return
    cells = (order.id, order.pet_id, order.quantity, order.ship_date, order.complete)
    write(_COLUMNS.format(*map(_plain, cells), order.status))


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "-" if value is None else str(value)
