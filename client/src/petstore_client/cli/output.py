"""How orders are printed: a table on a terminal, plain columns or JSON in a pipe."""

import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from petstore_client._types import Order
from petstore_client.errors import printable

PAGE = 500
"""Orders for each table, so that memory stays bounded."""


class Column(NamedTuple):
    """A column: its heading, its width in a pipe, and the text of an order in it."""

    heading: str
    width: int
    text: Callable[[Any], str]
    is_number: bool = False


def _number(name: str) -> Callable[[Any], str]:
    def text(order: Any) -> str:
        number = getattr(order, name)
        return "-" if number is None else str(number)

    return text


def _date(name: str) -> Callable[[Any], str]:
    def text(order: Any) -> str:
        date: datetime | None = getattr(order, name)
        if date is None:
            return "-"
        with suppress(OverflowError):  # out of range in UTC, so it is shown with its offset
            date = date.astimezone(UTC)
        return date.isoformat().replace("+00:00", "Z")

    return text


COLUMNS = (
    Column("ID", 20, _number("id"), is_number=True),
    Column("PET", 20, _number("pet_id"), is_number=True),
    Column("QUANTITY", 20, _number("quantity"), is_number=True),
    Column("SHIP DATE", 27, _date("ship_date")),
    Column("COMPLETE", 8, lambda order: "-" if order.complete is None else str(order.complete).lower()),
)
COLUMNS_V2 = (
    *COLUMNS,
    Column("STATUS", 9, lambda order: printable(order.status)),
    Column("UPDATED", 27, _date("updated_at")),
)


def write_table(orders: Iterable[Order], columns: Sequence[Column]) -> None:
    """Print tables of one page each, on a terminal."""
    console = Console()
    pages = iter(orders)
    shown = 0
    while page := list(itertools.islice(pages, PAGE)):
        table = Table(box=None, show_header=shown == 0, header_style="bold", pad_edge=False)
        for column in columns:
            justify: Any = "right" if column.is_number else "left"
            table.add_column(column.heading, justify=justify, min_width=min(column.width, 10), overflow="fold")
        for order in page:
            cells = [escape(column.text(order)) for column in columns]
            table.add_row(*cells, style="dim" if order.complete else None)
        console.print(table)
        shown += len(page)
    console.print(f"{shown} orders" if shown != 1 else "1 order", style="dim", highlight=False)


def write_columns(orders: Iterable[Order], columns: Sequence[Column]) -> None:
    """Print the same columns for a pipe: one header, then one line for each order."""
    formats = [f"{{:{'>' if column.is_number else '<'}{column.width}}}" for column in columns]
    line = "  ".join(formats)
    sys.stdout.write(line.format(*(column.heading for column in columns)).rstrip() + "\n")
    sys.stdout.writelines(line.format(*(column.text(order) for column in columns)).rstrip() + "\n" for order in orders)


def write_json(records: Iterable[Any], lines: bool, flush: bool = False) -> None:
    """Write a JSON array, or JSON Lines, as the records arrive; `flush` after each one."""
    before, after, end, empty = ("", "\n", "", "") if lines else (",\n", "", "]\n", "[]\n")
    count = 0
    for count, record in enumerate(records, 1):
        start = before if count > 1 or lines else "["
        sys.stdout.write(start + msgspec.json.encode(record).decode() + after)
        if flush:
            sys.stdout.flush()
    sys.stdout.write(end if count else empty)


def with_progress(orders: Iterable[Order]) -> Iterator[Order]:
    """The same orders, counted on stderr if that is a terminal and stdout is not."""
    if not sys.stderr.isatty() or sys.stdout.isatty():
        yield from orders
        return
    columns = (TextColumn("{task.completed:,.0f} orders"), TimeElapsedColumn())
    # Without redirect_stdout, or rich would send stdout to the terminal.
    with Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False) as progress:
        task = progress.add_task("orders", total=None)
        for count, order in enumerate(orders, 1):
            yield order
            if count % PAGE == 0:
                progress.update(task, completed=count)
