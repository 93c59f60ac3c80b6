"""From text to values: booleans, integers and timestamps in the forms that shops and spreadsheets export.

Only what is unambiguous is converted. For the rest the operator gives options, and the reasons name them.
"""

import codecs
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

from petstore_server.domain.timestamps import canonical_timestamp, format_timestamp

Cell = Callable[[str], object]
"""Converts the text of a cell. Returns text that it cannot convert as it is, or raises ValueError with the problem."""

_PLAIN_DIGITS = re.compile(r"0|-?[1-9][0-9]{0,99}", re.ASCII)
_ZERO_DECIMALS = re.compile(r"(0|-?[1-9][0-9]{0,15})[.,]0{1,2}", re.ASCII)
_GROUPED = re.compile(
    r"-?[1-9][0-9]{0,2}(?:([ \u00a0\u202f'\u2019])[0-9]{3}(?:\1[0-9]{3}){0,32}|([.,])[0-9]{3}(?:\2[0-9]{3}){1,32})"
)
_EXACT_AS_FLOAT = 2**53

_TRUE = "true 1 yes y t wahr ja vrai oui verdadero sí si verdadeiro sim vero sì waar"
_FALSE = "false 0 no n f falsch nein faux non falso não nao onwaar nee"
_BOOLEANS = {**dict.fromkeys(_TRUE.split(), True), **dict.fromkeys(_FALSE.split(), False)}

_TIME = r"(\d{1,2}):(\d{2})(?::(\d{2})(\.\d+)?)?\s?(Z|UTC|GMT|[+-]\d{2}(?::?\d{2})?)?"
_YEAR_FIRST = re.compile(rf"(\d{{4}})([-/.])(\d{{2}})\2(\d{{2}})(?:T|,?\s+){_TIME}", re.ASCII | re.IGNORECASE)
_DOTTED = re.compile(rf"(\d{{1,2}})\.(\d{{1,2}})\.(\d{{4}})(?:T|,?\s+){_TIME}", re.ASCII | re.IGNORECASE)
_NUMERIC_DATE = re.compile(r"\d{1,4}([./-])\d{1,2}\1\d{1,4}\b.*", re.ASCII)
_NAMES_YEAR = re.compile(r"%[YyGcx]")
_DATE_ONLY = re.compile(r"\d{4}([-/.])\d{2}\1\d{2}|\d{1,2}\.\d{1,2}\.\d{4}", re.ASCII)

_NO_OFFSET = "has no UTC offset; give --timezone, such as --timezone Europe/Berlin"
_NO_TIME = "has no time; to take it as midnight give --date-format, such as --date-format %d.%m.%Y"
_AMBIGUOUS = (
    "is not an RFC 3339 date-time such as 2026-11-01T10:00:00Z, and its day, month and year are ambiguous; "
    "give --date-format, such as --date-format %d/%m/%Y"
)
_UNKNOWN = "is not an RFC 3339 date-time such as 2026-11-01T10:00:00Z; for another form give --date-format"
_NO_DATE = "does not name the year, the month and the day; give one such as %d.%m.%Y %H:%M"
_CLOCK_CHANGE = "does not name one time, because clocks change then in {}; write it with its UTC offset"

_NOT_OF_FILES = ("idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape")
"""Python's text encodings of domain names and of source code."""


def integer_cell(text: str) -> int | str:
    """A whole number of any size; the domain decides whether it fits.

    Besides plain digits: digits grouped by spaces or apostrophes, or by two or more equal points or commas, and
    decimals of one or two zeros where a floating-point number is exact. `1.000` and `007` stay text.
    """
    text = text.strip()
    if _PLAIN_DIGITS.fullmatch(text):
        return int(text)
    if (match := _ZERO_DECIMALS.fullmatch(text)) and abs(int(match[1])) <= _EXACT_AS_FLOAT:
        return int(match[1])
    if _GROUPED.fullmatch(text):
        return int(re.sub(r"[^0-9-]", "", text))
    return text


def boolean_cell(text: str) -> bool | str:
    """A boolean, in any case: true or false, 1 or 0, yes or no, also as spreadsheets in other languages write them."""
    return _BOOLEANS.get(text.strip().lower(), text)


def choice_cell(choices: Iterable[str]) -> Cell:
    """Reads one of the choices, which are lower case, in any case."""
    known = {choice: choice for choice in choices}
    return lambda text: known.get(text.strip().lower(), text)


def text_cell(text: str) -> str:
    """The text as it is."""
    return text


class Timestamps:
    """Reads timestamps as shops export them, and writes them as the service does (D7)."""

    def __init__(self, zone: tzinfo | None = None, date_format: str | None = None) -> None:
        """`zone` is where local times belong; `date_format` is a strptime format that is tried first."""
        self._zone = zone
        self._date_format = date_format

    def __call__(self, text: str) -> str:
        """RFC 3339 in UTC with `Z`. Raises ValueError, whose text completes a sentence about the value."""
        text = text.strip()
        try:
            return canonical_timestamp(text)
        except ValueError as error:
            problem = error
        try:
            return self._convert(text)
        except OverflowError:
            raise ValueError("is outside the years 1 to 9999") from problem

    def _convert(self, text: str) -> str:
        if self._date_format is not None and (parsed := self._formatted(text)) is not None:
            return format_timestamp(parsed)
        if match := _YEAR_FIRST.fullmatch(text):
            year, _, month, day, *time = match.groups()
        elif match := _DOTTED.fullmatch(text):
            day, month, year, *time = match.groups()
        elif _DATE_ONLY.fullmatch(text):
            raise ValueError(_NO_TIME)
        else:
            raise ValueError(_AMBIGUOUS if _NUMERIC_DATE.fullmatch(text) else _UNKNOWN)
        return self._standard(f"{year}-{month:0>2}-{day:0>2}", *time)

    def _standard(
        self, day: str, hour: str, minute: str, second: str | None, fraction: str | None, offset: str | None
    ) -> str:
        text = f"{day}T{hour:0>2}:{minute}:{second or '00'}{fraction or ''}"
        if offset:
            return canonical_timestamp(text + _plain_offset(offset))
        in_utc = canonical_timestamp(text + "Z")  # the problems that it would have with any offset
        if self._zone is None:
            raise ValueError(_NO_OFFSET)
        return format_timestamp(self._localized(datetime.fromisoformat(in_utc[:-1])))

    def _formatted(self, text: str) -> datetime | None:
        try:
            parsed = datetime.strptime(text, self._date_format or "")  # noqa: DTZ007 - the zone follows
        except ValueError:
            return None
        if parsed.tzinfo is not None:
            return parsed
        if self._zone is None:
            raise ValueError(_NO_OFFSET)
        return self._localized(parsed)

    def _localized(self, local: datetime) -> datetime:
        """The local time with its offset, unless clocks were changed so that it occurs twice or never."""
        earlier, later = (local.replace(tzinfo=self._zone, fold=fold) for fold in (0, 1))
        if earlier.utcoffset() != later.utcoffset():
            raise ValueError(_CLOCK_CHANGE.format(self._zone))
        return earlier


def _plain_offset(offset: str) -> str:
    if offset.isalpha():
        return "Z"
    return f"{offset[:3]}:{offset[-2:] if len(offset) > len('+01') else '00'}"


def parse_timezone(text: str) -> tzinfo:
    """A time zone by its IANA name (Europe/Berlin), an offset (+01:00) or UTC. Raises ValueError."""
    if match := re.fullmatch(r"([+-])(\d{2}):?([0-5]\d)", text, re.ASCII):
        offset = timedelta(hours=int(match[2]), minutes=int(match[3]))
        return timezone(-offset if match[1] == "-" else offset)
    try:
        return ZoneInfo(text)
    except (ValueError, OSError, KeyError):  # KeyError: ZoneInfoNotFoundError
        raise ValueError("is not a time zone of this system; give a name such as Europe/Berlin, or +01:00") from None


def check_date_format(text: str) -> str:
    """A strptime format that names year, month and day. Raises ValueError for any other."""
    plain = text.replace("%%", "")
    if "%d" in plain and not _NAMES_YEAR.search(plain):  # strptime issues a warning about a day without a year
        raise ValueError(_NO_DATE)
    example = datetime(2026, 11, 23, 21, 45, 17, tzinfo=UTC)
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
    if name is None or name.replace("_", "-") in _NOT_OF_FILES:
        raise ValueError("is not an encoding of text files; give one such as windows-1252, iso-8859-1 or utf-16-le")
    return text


def parse_mapping(text: str) -> tuple[str, str]:
    """A column's name and its field from COLUMN=FIELD. Raises ValueError."""
    column, separator, field = text.rpartition("=")
    if not (separator and column.strip() and field):
        raise ValueError("is not of the form COLUMN=FIELD")
    return column.strip(), field
