"""How an operator says what a file does not: its format and encoding, its time zone and dates, its columns."""

import codecs
import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo

from petstore_server.domain.orders import STATUSES

FORMATS = ("jsonl", "json", "csv")
STDIN = "-"
EVERY_COLUMN = "*"  # as an ignored column: every column that is not a field
EVERY_STATUS = "*"  # as the value of a status: every other value

_NAMES_YEAR = re.compile(r"%[YyGcx]")
_NO_DATE = "does not name the year, the month and the day; give one such as %d.%m.%Y %H:%M"
_NOT_OF_FILES = ("idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape")
"""Python's text encodings of domain names and of source code."""


@dataclass(frozen=True)
class ReadOptions:
    """How to read a file. `columns` has names in the file with their fields; the columns in `ignored` are left out.

    `statuses` has values of the status with what they mean; `decimal` is the decimal mark, `.` or `,`; with
    `keep_markers` a reference may be NULL or such a word.
    `account` owns the orders of rows that name none, and `split_lines` makes each line of an order an order.
    The others are as for `Orders.import_batch`.
    """

    file_format: str | None = None
    encoding: str | None = None
    zone: tzinfo | None = None
    date_format: str | None = None
    columns: tuple[tuple[str, str], ...] = ()
    ignored: tuple[str, ...] = ()
    statuses: tuple[tuple[str, str], ...] = ()
    decimal: str | None = None
    keep_markers: bool = False
    account: str | None = None
    update_only: bool = False
    correct_shipped: bool = False
    replace_placed: bool = False
    assigned: bool = False
    split_lines: bool | None = None
    shop: str | None = None


def plain_name(name: str) -> str:
    """A column's name without what programs write differently: case, spaces, underscores and hyphens."""
    return re.sub(r"[\s_-]+", "", name).casefold()


def parse_timezone(text: str) -> tzinfo:
    """A time zone by its IANA name (Europe/Berlin), an offset (+01:00) or UTC. Raises ValueError."""
    if match := re.fullmatch(r"([+-])(\d{2}):?([0-5]\d)", text, re.ASCII):
        offset = timedelta(hours=int(match[2]), minutes=int(match[3]))
        return timezone(-offset if match[1] == "-" else offset)
    from zoneinfo import ZoneInfo  # loading it takes long, and most commands do not need it

    try:
        return ZoneInfo(text)
    except (ValueError, OSError, KeyError):  # KeyError: ZoneInfoNotFoundError
        raise ValueError("is not a time zone of this system; give a name such as Europe/Berlin, or +01:00") from None


def check_date_format(text: str) -> str:
    """A strptime format that names year, month and day. Raises ValueError for any other."""
    plain = text.replace("%%", "")
    if "%d" in plain and not _NAMES_YEAR.search(plain):  # strptime issues a warning about a day without a year
        raise ValueError(_NO_DATE)
    example = datetime(2026, 11, 23, tzinfo=UTC)
    try:
        read = datetime.strptime(example.strftime(text), text)  # noqa: DTZ007 - only its date counts
    except (ValueError, re.error):
        raise ValueError("is not a date format; give one such as %d.%m.%Y %H:%M") from None
    if read.date() != example.date():
        raise ValueError(_NO_DATE)
    return text


def check_encoding(text: str) -> str:
    """The name of an encoding of text files that Python knows. Raises ValueError for any other."""
    try:
        with suppress(UnicodeError):
            b"text".decode(text)  # raises LookupError for codecs that do not decode text, too
        name = codecs.lookup(text).name
    except (LookupError, ValueError):  # ValueError: characters that no name has
        name = None
    if name is None or name in _NOT_OF_FILES:
        raise ValueError("is not an encoding of text files; give one such as windows-1252, iso-8859-1 or utf-16-le")
    return text


def parse_mapping(text: str) -> tuple[str, str]:
    """A column's name and its field from COLUMN=FIELD. Raises ValueError."""
    column, separator, name = text.rpartition("=")
    if not (separator and column.strip() and name):
        raise ValueError("is not of the form COLUMN=FIELD")
    return column.strip(), name


def parse_status(text: str) -> tuple[str, str]:
    """A value of the status, which may be empty or `*`, and the status that it means. Raises ValueError."""
    value, separator, status = text.rpartition("=")
    if not separator or status.casefold() not in STATUSES:
        raise ValueError(f"is not of the form VALUE=STATUS with a STATUS of {', '.join(STATUSES)}")
    return value.strip(), status.casefold()
