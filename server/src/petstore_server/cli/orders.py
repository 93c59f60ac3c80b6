"""`petstore orders`: import, export, list, show, ship, complete and cancel orders."""

from collections.abc import Sequence
from contextlib import aclosing
from datetime import datetime
from typing import Any

import click

from petstore_server.cli.arguments import FILE_OR_STDIN, ORDER_ID, WHEN, FileToWrite, WholeNumber
from petstore_server.cli.commands import noun
from petstore_server.cli.failures import explain, report
from petstore_server.cli.import_options import FORMAT, import_options, order_options
from petstore_server.cli.output import details, plural, show, show_done, wants_json, write, write_json
from petstore_server.cli.stores import now, operator, with_store
from petstore_server.domain.orders import CANCEL, COMPLETE, INT64_MAX, INT64_MIN, ORDER_FIELDS, Order, Status, ship
from petstore_server.domain.transitions import Transition
from petstore_server.imports.options import STDIN
from petstore_server.operations import orders as operations
from petstore_server.store import Store

_NEGATIVE_IDS = {"ignore_unknown_options": True}  # so that -5 is an identifier; `ORDER_ID` rejects other options


orders = noun("orders", "petstore orders import orders.csv --rejects rejects.jsonl")


@orders.command("import", writes=True)
@click.argument("file", type=FILE_OR_STDIN)
@import_options
@order_options
def import_orders(file: str, **options: Any) -> None:
    """Import the orders in FILE (- for stdin): JSON Lines, a JSON array, or CSV as shops and spreadsheets export it.

    A record has the fields id (required), petId, quantity, shipDate, complete, and status (pending if absent).
    An order that is in the store already is left unchanged if it is identical, replaced if it is pending, and
    rejected if it has shipped, was cancelled, or was placed over the API. Bad rows are rejected with their line,
    column and reason; the others are imported, and the exit code is 3.

    $ petstore orders import orders.jsonl
    $ petstore orders import export.csv --dry-run --rejects rejects.jsonl
    $ petstore orders import export.csv --timezone Europe/Berlin --map Bestellnr=id --ignore-column Kunde
    $ zcat orders.csv.gz | petstore orders import - --format csv
    """
    from petstore_server.cli.importing import import_file  # which loads much
    from petstore_server.imports.kinds import ORDERS

    import_file(ORDERS, file, **options)


@orders.command()
@click.argument("file", type=FileToWrite(dir_okay=False, allow_dash=True))
@FORMAT
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
def export(file: str, file_format: str | None, force: bool) -> None:
    """Write all orders, with their status, to FILE (- for stdout).

    --format or the file's extension selects the format; JSON Lines without either.

    The file can be imported again. It appears only when it is complete.

    $ petstore orders export orders.jsonl
    $ petstore orders export - --format csv | head
    """
    from petstore_server.cli.exporting import export_to  # which loads much

    count = export_to(file, file_format, force)
    if file != STDIN:
        show_done({"file": file, "exported": count}, f"Exported {plural(count, 'order')} to {file}.")


@orders.command("list")
@click.option(
    "--status",
    "statuses",
    type=click.Choice([str(status) for status in Status]),
    multiple=True,
    help="Only orders with this status; repeatable.",
)
@click.option("--pet-id", type=WholeNumber(INT64_MIN, INT64_MAX), metavar="ID", help="Only orders of this pet.")
@click.option("--limit", type=WholeNumber(1), metavar="N", help="Show at most N orders.")
def list_orders(statuses: tuple[str, ...], pet_id: int | None, limit: int | None) -> None:
    """List orders with their status, ascending by id; with --json one object a line.

    $ petstore orders list --status pending --limit 20
    $ petstore orders list --pet-id 266 --json
    """
    chosen = frozenset(map(Status, statuses))

    async def stream(store: Store) -> None:
        table = None if wants_json() else _OrderTable()
        async with aclosing(operations.list_orders(store, chosen, pet_id, limit)) as batches:
            async for batch in batches:
                if table is not None:
                    table.write(batch)
                else:
                    for order in batch:
                        write_json(order.fields())
        if table is not None:
            table.write([])  # the titles, if there was no order

    with_store(stream)


@orders.command("show", context_settings=_NEGATIVE_IDS)
@click.argument("order_id", type=ORDER_ID, metavar="ID")
def show_order(order_id: int) -> None:
    """Show the order ID with its status.

    $ petstore orders show 42
    """
    order = with_store(lambda store: store.orders.find(order_id))
    fields = {name: order.fields().get(name) for name in ORDER_FIELDS}
    show(order.fields(), lambda: details((name, _plain(value)) for name, value in fields.items()))


ORDER_IDS = click.argument("order_ids", type=ORDER_ID, nargs=-1, required=True, metavar="ID...")
SEVERAL = "With several ids each is tried; the exit code is that of the first that failed."


@orders.command("ship", writes=True, context_settings=_NEGATIVE_IDS, epilog=SEVERAL)
@ORDER_IDS
@click.option("--at", type=WHEN, help="The ship date to set; now unless given.")
def ship_orders(order_ids: tuple[int, ...], at: datetime | None) -> None:
    """Ship pending orders: their status becomes shipped, and shipDate is set.

    $ petstore orders ship 42
    $ petstore orders ship 42 43 44 --at 2026-11-20T09:30:00Z
    """
    _change(order_ids, ship(at or now()))


@orders.command("complete", writes=True, context_settings=_NEGATIVE_IDS, epilog=SEVERAL)
@ORDER_IDS
def complete_orders(order_ids: tuple[int, ...]) -> None:
    """Mark shipped orders as complete: they have been fulfilled.

    $ petstore orders complete 42
    """
    _change(order_ids, COMPLETE)


@orders.command("cancel", writes=True, context_settings=_NEGATIVE_IDS, epilog=SEVERAL)
@ORDER_IDS
def cancel_orders(order_ids: tuple[int, ...]) -> None:
    """Cancel pending orders. What has shipped cannot be cancelled.

    $ petstore orders cancel 42
    """
    _change(order_ids, CANCEL)


def _change(order_ids: Sequence[int], transition: Transition[Order]) -> None:
    """Change orders and show what became of each; exits with the code of the first failure."""

    async def run(store: Store) -> int:
        code = 0
        async for changed in operations.change_orders(store, order_ids, transition, operator()):
            if changed.error is not None:
                failure = explain(changed.error)
                report(failure, wants_json())
                code = code or failure.exit_code
            elif changed.order is not None:
                order = changed.order
                show(order.fields(), lambda order=order: _summary(order))  # type: ignore[misc]
        return code

    click.get_current_context().exit(with_store(run, writes=True))


def _summary(order: Order) -> str:
    complete = ", complete" if order.complete else ""
    return f"order {order.id}: {order.status}{complete}"


class _OrderTable:
    """Writes orders as a table, batch by batch. A column is as wide as the widest cell so far."""

    def __init__(self) -> None:
        self._titles = ("ID", "PET", "QUANTITY", "SHIP DATE", "COMPLETE", "STATUS")
        self._widths = list(map(len, self._titles))
        self._begun = False

    def write(self, batch: list[Order]) -> None:
        cells = [tuple(map(_plain, order)) for order in batch]
        if cells:
            columns = zip(self._widths, zip(*cells, strict=True), strict=True)
            self._widths = [max(width, *map(len, column)) for width, column in columns]
        for row in cells if self._begun else [self._titles, *cells]:
            numbers = [f"{cell:>{width}}" for cell, width in zip(row[:3], self._widths, strict=False)]
            words = [f"{cell:<{width}}" for cell, width in zip(row[3:], self._widths[3:], strict=True)]
            write("  ".join(numbers + words).rstrip() + "\n")
        self._begun = True


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "-" if value is None else str(value)
