"""The options of the import commands."""

import click

from petstore_server.cli.arguments import FileToWrite, Parsed
from petstore_server.imports import options as checks
from petstore_server.imports.options import EVERY_COLUMN, FORMATS

_REJECTS = FileToWrite(dir_okay=False)
_MAPPING, _ENCODING = Parsed("mapping", checks.parse_mapping), Parsed("encoding", checks.check_encoding)
_ZONE, _DATE_FORMAT = Parsed("zone", checks.parse_timezone), Parsed("format", checks.check_date_format)
_IGNORED = f"A column to leave out, repeatable; '{EVERY_COLUMN}' for every column that is not a field."
_PROGRESS = "With --json: write the progress to stdout too, an object a line; the last line is the result."
_PLACED = "Also replace pending orders that were placed over the API; without it, their rows are rejected."

FORMAT = click.Option(
    ["--format", "file_format"],
    type=click.Choice(FORMATS),
    help="The format, if the name of the file does not show it.",
)
IMPORT_OPTIONS = (
    FORMAT,
    click.Option(["--rejects"], type=_REJECTS, metavar="FILE", help="Write rejected rows here, with the reasons."),
    click.Option(["--dry-run"], is_flag=True, help="Report what the import would do, and change nothing."),
    click.Option(["--map", "columns"], type=_MAPPING, metavar="COLUMN=FIELD", multiple=True, help="A field's column."),
    click.Option(["--ignore-column", "ignored"], metavar="COLUMN", multiple=True, help=_IGNORED),
    click.Option(["--encoding"], type=_ENCODING, metavar="NAME", help="If it is not UTF-8: such as windows-1252."),
    click.Option(["--progress", "progress_lines"], is_flag=True, help=_PROGRESS),
)
ORDER_OPTIONS = (
    click.Option(["--timezone", "zone"], type=_ZONE, metavar="ZONE", help="Of times without an offset: Europe/Berlin."),
    click.Option(["--date-format"], type=_DATE_FORMAT, metavar="FORMAT", help="Of dates, such as '%d/%m/%Y %H:%M'."),
    click.Option(["--replace-placed"], is_flag=True, help=_PLACED),
)
