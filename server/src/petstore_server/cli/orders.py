"""`petstore orders`: import, export, list, show, ship, complete and cancel orders; and `petstore pets import`."""

import json
from collections.abc import Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import click

from petstore_server.cli.arguments import (
    FILE_OR_STDIN,
    NUMBER_OR_NONE,
    ORDER_ID,
    REFERENCE_OR_NONE,
    TEXT,
    WHEN,
    WHEN_OR_NONE,
    FileToWrite,
    Parsed,
    WholeNumber,
)
from petstore_server.cli.commands import ACCOUNT_NAME, Noun, operator, require_writable, with_store, written_file
from petstore_server.cli.failures import report_error
from petstore_server.cli.output import details, plural, progress, show, show_done, wants_json, write_json, write_rows
from petstore_server.domain.errors import InvalidInput
from petstore_server.domain.lists import Filters
from petstore_server.domain.orders import (
    CANCEL,
    COMPLETE,
    INT64_MAX,
    INT64_MIN,
    ORDER_FIELDS,
    Order,
    Status,
    correct,
    ship,
)
from petstore_server.domain.transitions import Transition
from petstore_server.imports import options as checks
from petstore_server.imports.options import EVERY_COLUMN, FORMATS, STDIN
from petstore_server.imports.shops import SHOPS
from petstore_server.operations import orders as operations
from petstore_server.operations.orders import WITHOUT_OWNER, export_orders
from petstore_server.store import Store

_NEGATIVE_IDS = {"ignore_unknown_options": True}  # so that -5 is an identifier; `ORDER_ID` rejects other options
_ENDINGS = {"": "jsonl", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json", ".csv": "csv"}  # of exports
_TITLES, _SIDES = ("ID", "PET", "QUANTITY", "SHIP DATE", "COMPLETE", "STATUS", "REFERENCE", "ACCOUNT"), ">>><<<<<"

_REJECTS, _STATUS = FileToWrite(dir_okay=False), click.Choice(list(map(str, Status)))
_MAPPING, _ENCODING = Parsed("mapping", checks.parse_mapping), Parsed("encoding", checks.check_encoding)
_LINES = (
    "Make each line of an order an order: the first keeps the number, the others are NUMBER/2 and so on by reference."
)
_CORRECTED = "Also correct the pet, quantity, ship date and completeness of orders that have shipped."
_STATUS_VALUE = Parsed("status", checks.parse_status)
_STATUSES = "What a value of the status means, repeatable; '*=pending' for all others, '=pending' for empty cells."
_ZONE, _DATE_FORMAT = Parsed("zone", checks.parse_timezone), Parsed("format", checks.check_date_format)
_IGNORED = f"A column to leave out, repeatable; '{EVERY_COLUMN}' for every column that is not a field."
_PROGRESS = "With --json: write the progress to stdout too, an object a line; the last line is the result."
_OWNER = f"Only orders that this account owns; {WITHOUT_OWNER} for those without an owner."
_SHOP = "The shop of whose orders the file is an export: stands for the options that it needs; others win over it."
_PLACED = "Also replace pending orders that were placed over the API, by rows with their account and reference."
_ASSIGNED = "Also create orders under identifiers from PETSTORE_ASSIGNED_IDS_FROM on: to move an export."

_FORMAT_HELP = "The format, if the name of the file does not show it."
FORMAT = click.Option(["--format", "file_format"], type=click.Choice(FORMATS), help=_FORMAT_HELP)
IMPORT_OPTIONS = (
    FORMAT,
    click.Option(["--rejects"], type=_REJECTS, metavar="FILE", help="Write rejected rows here, with the reasons."),
    click.Option(["--force"], is_flag=True, help="Replace the file of --rejects if it exists."),
    click.Option(["--dry-run"], is_flag=True, help="Report what the import would do, and change nothing."),
    click.Option(["--map", "columns"], type=_MAPPING, metavar="COLUMN=FIELD", multiple=True, help="A field's column."),
    click.Option(["--ignore-column", "ignored"], metavar="COLUMN", multiple=True, help=_IGNORED),
    click.Option(["--decimal"], type=click.Choice([".", ","]), help="The decimal mark: with a comma, 1.000 is 1000."),
    click.Option(["--encoding"], type=_ENCODING, metavar="NAME", help="If it is not UTF-8: such as windows-1252."),
    click.Option(["--name"], type=TEXT, help="The file's name in `petstore imports`, if it comes from stdin."),
    click.Option(["--progress", "progress_lines"], is_flag=True, help=_PROGRESS),
)
ORDER_OPTIONS = (
    click.Option(["--shop"], type=click.Choice(list(SHOPS)), help=_SHOP),
    click.Option(["--timezone", "zone"], type=_ZONE, metavar="ZONE", help="Of times without an offset: Europe/Berlin."),
    click.Option(["--date-format"], type=_DATE_FORMAT, metavar="FORMAT", help="Of dates, such as '%d/%m/%Y %H:%M'."),
    click.Option(
        ["--map-status", "statuses"], type=_STATUS_VALUE, metavar="VALUE=STATUS", multiple=True, help=_STATUSES
    ),
    click.Option(["--keep-markers"], is_flag=True, help="Take NULL, N/A and such words as references."),
    click.Option(["--split-lines/--no-split-lines"], is_flag=True, default=None, help=_LINES),
    click.Option(["--account"], type=ACCOUNT_NAME, metavar="NAME", help="The owner of the rows that name none."),
    click.Option(["--update-only"], is_flag=True, help="Reject rows of orders that do not exist."),
    click.Option(["--correct-shipped"], is_flag=True, help=_CORRECTED),
    click.Option(["--replace-placed"], is_flag=True, help=_PLACED),
    click.Option(["--assigned"], is_flag=True, help=_ASSIGNED),
    # Of the console: it keeps what a check writes, and has its own words for the options.
    click.Option(["--bounded"], is_flag=True, hidden=True),
    click.Option(["--phrases"], type=Parsed("phrases", json.loads), hidden=True),
    click.Option(["--verified"], is_flag=True, hidden=True),  # a proxy has given the name of --as
)

orders = Noun("orders", "$ petstore orders import orders.csv --rejects rejects.jsonl")


@orders.command("import", writes=True, params=[*IMPORT_OPTIONS, *ORDER_OPTIONS])
@click.argument("file", type=FILE_OR_STDIN)
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


pets = Noun("pets", "$ petstore pets import pets.csv")


@pets.command("import", writes=True, params=[*IMPORT_OPTIONS])
@click.argument("file", type=FILE_OR_STDIN)
def import_pets(file: str, **options: Any) -> None:
    """Import the pets in FILE (- for stdin): JSON Lines, a JSON array, or CSV, with the fields id, name and tag.

    A pet that is in the store already is replaced. Bad rows are rejected as in `petstore orders import`.

    $ petstore pets import pets.jsonl --rejects rejects.jsonl
    """
    from petstore_server.cli.importing import import_file  # which loads much
    from petstore_server.imports.kinds import PETS

    import_file(PETS, file, **options)


@orders.command(params=[FORMAT])
@click.argument("file", type=FileToWrite(dir_okay=False, allow_dash=True))
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
@click.option("--pet-id", type=WholeNumber(INT64_MIN, INT64_MAX), metavar="ID", help="Only orders of this pet.")
@click.option("--account", type=ACCOUNT_NAME, default="", metavar="NAME", help=_OWNER)
@click.option("--limit", type=WholeNumber(1), metavar="N", help="Show at most N orders.")
def list_orders(statuses: tuple[str, ...], pet_id: int | None, account: str, limit: int | None) -> None:
    """List orders with their status and owner, ascending by id; with --json one object a line.

    $ petstore orders list --status pending --limit 20
    $ petstore orders list --account acme --json
    $ petstore orders list --account -
    """

    async def stream(store: Store) -> None:
        owner = await operations.owner_named(store, account)
        filters = Filters(frozenset(map(Status, statuses)), pet_id, owner=owner)
        titles: list[Sequence[object]] = [_TITLES]
        widths = [0] * len(_TITLES)
        async with aclosing(operations.list_orders(store, filters, limit)) as batches:
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
@click.argument("order_id", type=ORDER_ID, metavar="ID")
def show_order(order_id: int) -> None:
    """Show the order ID with its status and the account that owns it.

    $ petstore orders show 42
    """
    order = with_store(lambda store: store.orders.find(order_id))
    fields = order.fields()
    show(fields, lambda: details((name, fields.get(name)) for name in ORDER_FIELDS))


ORDER_IDS = click.Argument(["order_ids"], type=ORDER_ID, nargs=-1, required=True, metavar="ID...")
_SEVERAL = "With several ids each is tried until the store fails; the exit code is that of the first error shown."
_OF_SEVERAL: Any = {"writes": True, "context_settings": _NEGATIVE_IDS, "epilog": _SEVERAL}


@orders.command("ship", **_OF_SEVERAL, params=[ORDER_IDS])
@click.option("--at", type=WHEN, help="The ship date to set; now unless given.")
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
@click.argument("order_id", type=ORDER_ID, metavar="ID")
@click.option("--pet-id", type=NUMBER_OR_NONE, metavar="N", help="The pet's identifier.")
@click.option("--quantity", type=NUMBER_OR_NONE, metavar="N", help="The quantity.")
@click.option("--ship-date", type=WHEN_OR_NONE, help="The ship date.")
@click.option("--reference", type=REFERENCE_OR_NONE, metavar="TEXT", help="The reference, once for each owner.")
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


def _change(order_ids: Sequence[int], transition: Transition[Order]) -> None:
    """Change orders and show what became of each; exits with the code of the first failure."""

    async def run(store: Store) -> int:
        code = 0
        async for _, outcome in operations.change_orders(store, order_ids, transition, operator()):
            if isinstance(outcome, Order):
                complete = ", complete" if outcome.complete else ""
                account = (await store.orders.find(outcome.id)).account if wants_json() else None
                show(
                    outcome._replace(account=account).fields(),
                    partial(str, f"order {outcome.id}: {outcome.status}{complete}"),
                )
            else:
                failed = report_error(outcome, wants_json())
                code = code or failed
        return code

    click.get_current_context().exit(with_store(run, concurrent=True))
