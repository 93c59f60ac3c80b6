"""The options of the import commands."""

from collections.abc import Callable
from functools import reduce
from typing import Any, TypeVar

import click

from petstore_server.cli.arguments import FileToWrite, Parsed
from petstore_server.imports import options as checks
from petstore_server.imports.options import EVERY_COLUMN, FORMATS

Command = TypeVar("Command", bound=Callable[..., Any])

_REJECTS = FileToWrite(dir_okay=False)
_MAPPING, _ENCODING = Parsed("mapping", checks.parse_mapping), Parsed("encoding", checks.check_encoding)
_ZONE, _DATE_FORMAT = Parsed("zone", checks.parse_timezone), Parsed("format", checks.check_date_format)
_IGNORED = f"A column to leave out, repeatable; '{EVERY_COLUMN}' for every column that is not a field."
_PROGRESS = "With --json: write the progress to stdout too, an object a line; the last line is the result."
_PLACED = "Also replace pending orders that were placed over the API; without it, their rows are rejected."

FORMAT = click.option(
    "--format", "file_format", type=click.Choice(FORMATS), help="The format, if the name of the file does not show it."
)
_OPTIONS = (
    FORMAT,
    click.option("--rejects", type=_REJECTS, metavar="FILE", help="Write rejected rows here, with the reasons."),
    click.option("--dry-run", is_flag=True, help="Report what the import would do, and change nothing."),
    click.option("--map", "columns", type=_MAPPING, metavar="COLUMN=FIELD", multiple=True, help="A field's column."),
    click.option("--ignore-column", "ignored", metavar="COLUMN", multiple=True, help=_IGNORED),
    click.option("--encoding", type=_ENCODING, metavar="NAME", help="If it is not UTF-8: such as windows-1252."),
    click.option("--progress", "progress_lines", is_flag=True, help=_PROGRESS),
)
_ORDER_OPTIONS = (
    click.option("--timezone", "zone", type=_ZONE, metavar="ZONE", help="Of times without an offset: Europe/Berlin."),
    click.option("--date-format", type=_DATE_FORMAT, metavar="FORMAT", help="Of dates, such as '%d/%m/%Y %H:%M'."),
    click.option("--replace-placed", is_flag=True, help=_PLACED),
)


def import_options(command: Command) -> Command:
    """Add the options of an import to a command."""
    return reduce(lambda given, add: add(given), reversed(_OPTIONS), command)


def order_options(command: Command) -> Command:
    """Add the options that only an import of orders has."""
    return reduce(lambda given, add: add(given), reversed(_ORDER_OPTIONS), command)
