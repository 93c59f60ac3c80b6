"""How orders are printed: a table on a terminal, plain columns or JSON in a pipe."""

import io
import itertools
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from json import dumps
from typing import Any, NamedTuple

import click
import msgspec

from petstore_client._types import Order
from petstore_client.errors import printable
from petstore_client.v2 import Usage

PAGE = 500  # orders for each table, so that memory stays bounded

_GAP = "  "
_TIME = "%Y-%m-%d %H:%MZ"
_TO_THE_MINUTE = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d):[\d.]+Z")


class Column(NamedTuple):
    """A column: its heading, its width in a pipe, and the field of an order that it shows."""

    heading: str
    width: int
    field: str
    is_number: bool = False

    def text(self, order: Any) -> str:
        """The text of an order in this column."""
        value = getattr(order, self.field)
        if isinstance(value, datetime):
            with suppress(OverflowError):  # out of range in UTC, so it is shown with its offset
                value = value.astimezone(UTC)
            return value.isoformat().replace("+00:00", "Z")
        return "-" if value is None else str(value).lower() if isinstance(value, bool) else printable(str(value))


COLUMNS = (
    Column("ID", 20, "id", is_number=True),
    Column("PET", 20, "pet_id", is_number=True),
    Column("QUANTITY", 20, "quantity", is_number=True),
    Column("SHIP DATE", 27, "ship_date"),
    Column("COMPLETE", 8, "complete"),
)
COLUMNS_V2 = (*COLUMNS, Column("STATUS", 9, "status"), Column("UPDATED", 27, "updated_at"))


def write_table(orders: Iterable[Order], columns: Sequence[Column]) -> None:
    """Print tables of one page each: too wide ones with dates to the minute, or else each field on its own line."""
    pages, shown, wide = iter(orders), 0, shutil.get_terminal_size().columns
    titles = [column.heading for column in columns]
    while page := list(itertools.islice(pages, PAGE)):
        rows = [[column.text(order) for column in columns] for order in page]
        short = [[_TO_THE_MINUTE.sub(r"\1 \2", text) for text in row] for row in rows]
        for each in (rows, short):
            widths = [max(map(len, cells)) for cells in zip(titles, *each, strict=True)]
            if sum(widths) + len(_GAP) * (len(widths) - 1) <= wide:
                fixed = [column._replace(width=width) for column, width in zip(columns, widths, strict=True)]
                sys.stdout.writelines(_lines(each if shown else [titles, *each], fixed))
                break
        else:
            for row in rows:
                fields = [(title, text) for title, text in zip(titles, row, strict=True) if text != "-"]
                sys.stdout.writelines([*(f"{title:9} {text}\n" for title, text in fields), "\n"])
        shown += len(page)
    sys.stdout.write(f"{shown} orders\n" if shown != 1 else "1 order\n")


def write_columns(orders: Iterable[Order], columns: Sequence[Column]) -> None:
    """Print the same columns for a pipe: one header, then one line for each order; nothing if the first one fails."""
    rows = ([column.text(order) for column in columns] for order in orders)
    first = list(itertools.islice(rows, 1))
    sys.stdout.writelines(_lines(itertools.chain([[column.heading for column in columns]], first, rows), columns))


def _lines(rows: Iterable[Sequence[str]], columns: Sequence[Column]) -> Iterator[str]:
    formats = [f"{{:{'>' if column.is_number else '<'}{column.width}}}" for column in columns]
    line = _GAP.join(formats)
    return (line.format(*row).rstrip() + "\n" for row in rows)


class Output:
    """Writes records to stdout as they arrive: as JSON Lines, as a JSON array, or as text."""

    def __init__(self, as_json: bool, as_lines: bool) -> None:
        if as_json and as_lines:
            raise click.UsageError("--json and --jsonl cannot be combined.")
        self.in_json = as_json or as_lines
        self._lines = as_lines
        self._before = "" if as_lines else "["
        if self.in_json and isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(encoding="utf-8", errors="strict")  # as RFC 8259 demands, whatever the locale is

    def write(self, record: Any, text: str = "") -> None:
        """Write a record, or its text. Until `close`, an array is visibly incomplete."""
        if self.in_json:
            text = _escaped(msgspec.json.encode(record).decode())
            text = f"{text}\n" if self._lines else f"{self._before}{text}"
        sys.stdout.write(text)
        self._before = ",\n"

    def close(self) -> None:
        """Write the end of the array."""
        if self.in_json and not self._lines:
            sys.stdout.write("[]\n" if self._before == "[" else "]\n")

    def write_orders(self, orders: Iterable[Order], columns: Sequence[Column]) -> None:
        """Write orders, as text in a table on a terminal, or in columns in a pipe."""
        if not self.in_json:
            (write_table if sys.stdout.isatty() else write_columns)(orders, columns)
            return
        for order in orders:
            self.write(order)
        self.close()


def _escaped(text: str) -> str:
    """JSON in which no character can control a terminal: msgspec escapes those of ASCII only."""
    return text if text.isprintable() else "".join(each if each.isprintable() else dumps(each)[1:-1] for each in text)


def usage_text(usage: Usage) -> str:
    """The plan, the key, the limits and the history, for people."""
    key = usage.key
    lines = [
        f"plan    {usage.plan}",
        *([f"orders  {usage.orders}"] if usage.orders else ()),
        f"key     {key.id}, {' '.join(key.scopes)}" + (f", until {key.expires_at:{_TIME}}" if key.expires_at else ""),
        *([f"ban     until {key.last_ban.ended:{_TIME}}"] if key.last_ban else ()),
        *(f"{each.name:7} {each.remaining} of {each.limit} left until {each.reset:{_TIME}}" for each in usage.windows),
        f"{'FROM':17}  {'ADMITTED':>10}  {'REFUSED':>10}",
        *(f"{each.start:{_TIME}}  {each.admitted:10}  {each.refused:10}" for each in usage.history),
    ]
    return "".join(f"{printable(line)}\n" for line in lines)
