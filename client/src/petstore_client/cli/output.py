"""How orders are printed: a table on a terminal, plain columns or JSON in a pipe."""

import itertools
import sys
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec
from rich.console import Console
from rich.progress import Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from petstore_client._types import Order

PAGE = 500
"""Orders for each table, so that memory stays bounded."""

_COLUMNS = ("ID", "PET", "QUANTITY", "SHIP DATE", "COMPLETE")
_WIDTHS = (20, 20, 20, 27, 8)
_PLAIN = "{:>20}  {:>20}  {:>20}  {:<27}  {}\n"


def write_table(orders: Iterable[Order]) -> None:
    """Print tables of one page each, on a terminal."""
    console = Console()
    pages = iter(orders)
    shown = 0
    while page := list(itertools.islice(pages, PAGE)):
        table = Table(box=None, show_header=shown == 0, header_style="bold", pad_edge=False)
        for number, (name, width) in enumerate(zip(_COLUMNS, _WIDTHS, strict=True)):
            justify: Any = "right" if number < 3 else "left"
            table.add_column(name, justify=justify, min_width=min(width, 10), overflow="fold")
        for order in page:
            table.add_row(*_cells(order), style="dim" if order.complete else None)
        console.print(table)
        shown += len(page)
    console.print(f"{shown} orders" if shown != 1 else "1 order", style="dim", highlight=False)


def write_columns(orders: Iterable[Order]) -> None:
    """Print the same columns for a pipe: one header, then one line for each order."""
    sys.stdout.write(_PLAIN.format(*_COLUMNS))
    sys.stdout.writelines(_PLAIN.format(*_cells(order)) for order in orders)


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


def _cells(order: Order) -> tuple[str, ...]:
    date = "-" if order.ship_date is None else _timestamp(order.ship_date)
    complete = "-" if order.complete is None else str(order.complete).lower()
    return (*("-" if n is None else str(n) for n in (order.id, order.pet_id, order.quantity)), date, complete)


def _timestamp(date: datetime) -> str:
    return date.astimezone(UTC).isoformat().replace("+00:00", "Z")
