"""The options of the commands that import a file: how to read it, and what to do with its rows."""

import json

import click

from petstore_server.cli.arguments import TEXT, FileToWrite, Parsed
from petstore_server.cli.commands import ACCOUNT_NAME
from petstore_server.imports import options as checks
from petstore_server.imports.options import EVERY_COLUMN, FORMATS
from petstore_server.imports.shops import SHOPS

_REJECTS = FileToWrite(dir_okay=False)
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
