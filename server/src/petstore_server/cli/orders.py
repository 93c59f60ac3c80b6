"""`petstore orders`: import, export, list, show, ship, complete and cancel orders. `petstore pets`: import pets."""

from collections.abc import Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import click

from petstore_server.cli import arguments
from petstore_server.cli.commands import ACCOUNT_NAME, Noun, operator, require_writable, with_store, written_file
from petstore_server.cli.failures import report_error
from petstore_server.cli.import_options import FORMAT, IMPORT_OPTIONS, ORDER_OPTIONS
from petstore_server.cli.output import details, plural, progress, show, show_done, wants_json, write_json, write_rows
from petstore_server.domain.errors import InvalidInput, OrderNotFound
from petstore_server.domain.lists import Filters
from petstore_server.domain.orders import CANCEL, COMPLETE, ORDER_FIELDS, Order, Status, correct, ship
from petstore_server.domain.transitions import Transition
from petstore_server.imports.options import STDIN
from petstore_server.operations import orders as use_cases
from petstore_server.operations.orders import WITHOUT_OWNER, export_orders
from petstore_server.store import Store

_NEGATIVE_IDS = {"ignore_unknown_options": True}  # so that -5 is an identifier; `ORDER_ID` rejects other options
_ENDINGS = {"": "jsonl", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json", ".csv": "csv"}  # of exports
_TITLES, _SIDES = ("ID", "PET", "QUANTITY", "SHIP DATE", "COMPLETE", "STATUS", "REFERENCE", "ACCOUNT"), ">>><<<<<"

_STATUS = click.Choice(list(map(str, Status)))
_OWNER = f"Only orders that this account owns; {WITHOUT_OWNER} for those without an owner."
_REFERENCE = "Only orders with this reference, the shop's number of the order; repeatable."


class _IsReference(OrderNotFound):
    message = "There is no order {}; `petstore orders list --reference {}` finds an order by its reference."


orders = Noun("orders", "$ petstore orders import orders.csv --rejects rejects.jsonl")
pets = Noun("pets", "$ petstore pets import pets.csv")


@orders.command("import", writes=True, params=[*IMPORT_OPTIONS, *ORDER_OPTIONS])
@click.argument("file", type=arguments.FILE_OR_STDIN)
def import_orders(file: str, **options: Any) -> None:
    """Import the orders in FILE (- for stdin): JSON Lines, a JSON array, or CSV as shops and spreadsheets export it.

    A record has the fields id, petId, quantity, shipDate, complete, status (pending if absent), reference and account;
    it needs an id or a reference. An order that is in the store already is left unchanged if it is identical, replaced
    if it is pending, and rejected if it has shipped, was cancelled, or was placed over the API. Bad rows are rejected
    with their line, column and reason; the others are imported, and the exit code is 3. `petstore imports` shows what
    became of each import, also of one that was killed.

    The account owns the order. An order without an owner gets the one that its row names, also if it has shipped or was
    cancelled. An owner stays: a row without an account keeps it, and one that names another account is rejected. An
    account has each reference once.

    $ petstore orders import orders.jsonl
    $ petstore orders import export.csv --dry-run --rejects rejects.jsonl
    $ petstore orders import export.csv --timezone Europe/Berlin --map Bestellnr=id --ignore-column Kunde
    $ zcat orders.csv.gz | petstore orders import - --format csv
    """
    from petstore_server.cli.importing import import_file  # which loads much
    from petstore_server.imports.kinds import ORDERS

    import_file(ORDERS, file, **options)


@pets.command("import", writes=True, params=list(IMPORT_OPTIONS))
@click.argument("file", type=arguments.FILE_OR_STDIN)
def import_pets(file: str, **options: Any) -> None:
    """Import the pets in FILE (- for stdin): JSON Lines, a JSON array, or CSV, with the fields id, name and tag.

    A pet that is in the store already is replaced. Bad rows are rejected as in `petstore orders import`.

    $ petstore pets import pets.jsonl --rejects rejects.jsonl
    """
    from petstore_server.cli.importing import import_file  # which loads much
    from petstore_server.imports.kinds import PETS

    import_file(PETS, file, **options)


@orders.command(params=[FORMAT])
@click.argument("file", type=arguments.FileToWrite(dir_okay=False, allow_dash=True))
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
def export(file: str, file_format: str | None, force: bool) -> None:
    """Write all orders, with their status, to FILE (- for stdout).

    --format or the file's extension selects the format; JSON Lines without either. The file can be imported again. It
    appears only when it is complete.

    $ petstore orders export orders.jsonl
    $ petstore orders export - --format csv | head
    """
    ending = "" if file == STDIN else Path(file).suffix.lower()
    chosen = file_format or _ENDINGS.get(ending)
    if chosen is None:
        known = ", ".join(filter(None, _ENDINGS))
        raise InvalidInput(f"'{ending}' is not the ending of an export format ({known}); rename it or give --format.")
    if file != STDIN:
        require_writable(file, force=force)

    async def write_to_file(store: Store) -> int:
        count = 0
        target = click.open_file(file, "wb") if file == STDIN else written_file(file, force=force)
        async with aclosing(export_orders(store, chosen)) as parts:
            with target as opened, progress("Exporting orders") as advance:
                async for part, count in parts:
                    opened.write(part)
                    advance(count)
                opened.flush()
        return count

    count = with_store(write_to_file)
    if file != STDIN:
        show_done({"file": file, "exported": count}, f"Exported {plural(count, 'order')} to {file}.")


@orders.command("list")
@click.option("--status", "statuses", type=_STATUS, multiple=True, help="Only orders with this status; repeatable.")
@click.option("--pet-id", type=arguments.INT64, metavar="ID", help="Only orders of this pet.")
@click.option("--reference", "references", type=arguments.REFERENCE, multiple=True, metavar="TEXT", help=_REFERENCE)
@click.option("--account", type=ACCOUNT_NAME, default="", metavar="NAME", help=_OWNER)
@click.option("--limit", type=arguments.WholeNumber(1), metavar="N", help="Show at most N orders.")
def list_orders(
    statuses: tuple[str, ...], pet_id: int | None, references: tuple[str, ...], account: str, limit: int | None
) -> None:
    """List orders with their status and owner, ascending by id; with --json one object a line.

    $ petstore orders list --status pending --limit 20
    $ petstore orders list --reference '#1003'
    $ petstore orders list --account acme --json
    $ petstore orders list --account -
    """

    async def stream(store: Store) -> None:
        owner = await use_cases.owner_named(store, account)
        filters = Filters(frozenset(map(Status, statuses)), pet_id, references=frozenset(references), owner=owner)
        titles: list[Sequence[object]] = [_TITLES]
        widths = [0] * len(_TITLES)
        async with aclosing(use_cases.list_orders(store, filters, limit)) as batches:
            async for batch in batches:
                if wants_json():
                    for order in batch:
                        write_json(order.fields())
                else:
                    write_rows([*titles, *batch], _SIDES, widths)
                    titles = []
        if titles and not wants_json():  # there was no order
            write_rows(titles, _SIDES, widths)

    with_store(stream)


@orders.command("show", context_settings=_NEGATIVE_IDS)
@click.argument("order_id", type=arguments.ORDER_ID, metavar="ID")
def show_order(order_id: int) -> None:
    """Show the order ID with its status and the account that owns it.

    $ petstore orders show 42
    """

    async def find(store: Store) -> Order:
        try:
            return await store.orders.find(order_id)
        except OrderNotFound as error:
            raise await _by_reference(store, order_id, error) from error

    order = with_store(find)
    fields = order.fields()
    show(fields, lambda: details((name, fields.get(name)) for name in ORDER_FIELDS))


ORDER_IDS = click.Argument(["order_ids"], type=arguments.ORDER_ID, nargs=-1, required=True, metavar="ID...")
_SEVERAL = "With several ids each is tried until the store fails; the exit code is that of the first error shown."
_OF_SEVERAL: Any = {"writes": True, "context_settings": _NEGATIVE_IDS, "epilog": _SEVERAL}


@orders.command("ship", **_OF_SEVERAL, params=[ORDER_IDS])
@click.option("--at", type=arguments.WHEN, help="The ship date to set; now unless given.")
def ship_orders(order_ids: tuple[int, ...], at: datetime | None) -> None:
    """Ship pending orders: their status becomes shipped, and shipDate is set.

    $ petstore orders ship 42
    $ petstore orders ship 42 43 44 --at 2026-11-20T09:30:00Z
    """
    _change(order_ids, ship(at or datetime.now(UTC)))


@orders.command("complete", **_OF_SEVERAL, params=[ORDER_IDS])
def complete_orders(order_ids: tuple[int, ...]) -> None:
    """Mark shipped orders as complete: they have been fulfilled.

    $ petstore orders complete 42
    """
    _change(order_ids, COMPLETE)


@orders.command("edit", writes=True, context_settings=_NEGATIVE_IDS)
@click.argument("order_id", type=arguments.ORDER_ID, metavar="ID")
@click.option("--pet-id", type=arguments.NUMBER_OR_NONE, metavar="N", help="The pet's identifier.")
@click.option("--quantity", type=arguments.NUMBER_OR_NONE, metavar="N", help="The quantity.")
@click.option("--ship-date", type=arguments.WHEN_OR_NONE, help="The ship date.")
@click.option(
    "--reference", type=arguments.REFERENCE_OR_NONE, metavar="TEXT", help="The reference, once for each owner."
)
@click.option("--complete/--not-complete", "is_complete", default=None, help="Whether the order is complete.")
def edit_order(order_id: int, is_complete: bool | None, **given: tuple[Any] | None) -> None:
    """Correct the order ID, which is pending or has shipped. An empty text removes a value.

    Of a cancelled order, only the reference can be removed.

    $ petstore orders edit 42 --quantity 2
    $ petstore orders edit 42 --ship-date 2026-11-20T09:30:00Z --reference ''
    """
    values = {name: value[0] for name, value in given.items() if value is not None}
    if is_complete is not None:
        values["complete"] = is_complete
    if not values:
        raise click.UsageError("Give an option for each value to correct.")
    _change([order_id], correct(values))


@orders.command("cancel", **_OF_SEVERAL, params=[ORDER_IDS])
def cancel_orders(order_ids: tuple[int, ...]) -> None:
    """Cancel pending orders. What has shipped cannot be cancelled.

    $ petstore orders cancel 42
    """
    _change(order_ids, CANCEL)


async def _by_reference(store: Store, order_id: int, error: OrderNotFound) -> OrderNotFound:
    """The error for an order that does not exist; another one if orders have the number as their reference."""
    found = await use_cases.ids_with_reference(store, str(order_id))
    return _IsReference(order_id, order_id) if found else error


def _change(order_ids: Sequence[int], transition: Transition[Order]) -> None:
    """Change orders and show what became of each; exits with the code of the first failure."""

    async def run(store: Store) -> int:
        code = 0
        async for order_id, outcome in use_cases.change_orders(store, order_ids, transition, operator()):
            if isinstance(outcome, Order):
                complete = ", complete" if outcome.complete else ""
                account = (await store.orders.find(outcome.id)).account if wants_json() else None
                show(
                    outcome._replace(account=account).fields(),
                    partial(str, f"order {outcome.id}: {outcome.status}{complete}"),
                )
            else:
                error = await _by_reference(store, order_id, outcome) if type(outcome) is OrderNotFound else outcome
                failed = report_error(error, wants_json())
                code = code or failed
        return code

    click.get_current_context().exit(with_store(run, concurrent=True))
