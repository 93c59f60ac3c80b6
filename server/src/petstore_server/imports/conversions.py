"""From text to values: booleans, integers and timestamps in the forms that shops and spreadsheets export.

Only what is unambiguous is converted. For the rest the operator gives options, and the reasons name them.
"""

import re
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta, tzinfo

from petstore_server.domain.remedies import Choice, Remedy, choose
from petstore_server.domain.timestamps import canonical_timestamp, format_timestamp
from petstore_server.imports.date_forms import formats_of, is_no_day, parsed

Cell = Callable[[str], object]
"""Converts the text of a cell. Returns text that it cannot convert as it is, or raises ValueError with the problem."""


class UnclearCell(ValueError):
    """The text of a cell cannot be read without a choice; the text completes a sentence about it."""

    def __init__(self, problem: str, remedy: Remedy) -> None:
        super().__init__(problem)
        self.remedy = remedy


_PLAIN_DIGITS = re.compile(r"0|-?[1-9][0-9]{0,99}", re.ASCII)
_ZERO_DECIMALS = re.compile(r"(0|-?[1-9][0-9]{0,15})[.,]0{1,2}", re.ASCII)
_GROUPED = re.compile(
    r"-?[1-9][0-9]{0,2}(?:([ \u00a0\u202f'\u2019])[0-9]{3}(?:\1[0-9]{3}){0,32}|([.,])[0-9]{3}(?:\2[0-9]{3}){1,32})"
)
_GROUPED_WITH_DECIMALS = re.compile(
    r"(-?[1-9][0-9]{0,2}(?:([ \u00a0\u202f'\u2019.,])[0-9]{3})(?:\2[0-9]{3}){0,4})(?!\2)[.,]0{1,2}"
)
_GROUP_OR_DECIMALS = re.compile(r"(-?[1-9][0-9]{0,2})([.,])([0-9]{3})", re.ASCII)
_SHORTENED = re.compile(r"-?[0-9][.,][0-9]+E\+[0-9]+", re.ASCII | re.IGNORECASE)
_AS_TEXT = Remedy("export the file again, and keep spreadsheet programs from changing the column: format it as text")
_OTHER = {".": ",", ",": "."}
_EXACT_AS_FLOAT = 2**53

_TRUE = "true 1 yes y t wahr ja vrai oui verdadero sí si verdadeiro sim vero sì waar"
_FALSE = "false 0 no n f falsch nein faux non falso não nao onwaar nee"
_BOOLEANS = {**dict.fromkeys(_TRUE.split(), True), **dict.fromkeys(_FALSE.split(), False)}

_TIME = (
    r"(?:T|,?\s+)(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2})(?P<fraction>\.\d+)?)?"
    r"\s?(?P<offset>Z|UTC|GMT|[+-]\d{2}(?::?\d{2})?)?"
)
_FORMS = [
    re.compile(date + _TIME, re.ASCII | re.IGNORECASE)
    for date in (
        r"(?P<year>\d{4})([-/.])(?P<month>\d{2})\2(?P<day>\d{2})",
        r"(?P<day>\d{1,2})\.(?P<month>\d{1,2})\.(?P<year>\d{4})",
    )
]
"""The forms in which a date has one meaning."""
_NOT_STANDARD = "is not an RFC 3339 date-time such as 2026-11-01T10:00:00Z"
_ANY_ZONE = Choice("timezone", "ZONE")
_AS_DATE = Remedy("write it as date and time, such as 2026-11-01T10:00:00Z")
_NO_DATE = re.compile(r"0000[-/.]00[-/.]00.*", re.ASCII)
_SERIAL = re.compile(r"([1-9][0-9]{4})(?:[.,]([0-9]+))?", re.ASCII)
_SECONDS = re.compile(r"[0-9]{10}(?:[0-9]{3})?", re.ASCII)
_SERIAL_ZERO = datetime(1899, 12, 30, tzinfo=UTC)  # day 0 of spreadsheets
_CLOCK_CHANGE = "does not name one time, because clocks change then in {}"
_ZONE_NAME = re.compile(r":\d{2}(?:\.\d+)?\s?(?:[AP]M)?\s?\(?(?!UTC|GMT)([A-Z]{3,5})\)?$", re.ASCII)  # such as EST
_WITH_OFFSET = Remedy("write it with its UTC offset")


class Integers:
    """Reads whole numbers as shops and spreadsheets write them."""

    def __init__(self, decimal: str | None = None) -> None:
        """`decimal` is the decimal mark of the file, `.` or `,`, if it is known."""
        self._decimal = decimal

    def __call__(self, text: str) -> int | str:
        """A whole number of any size; the domain decides whether it fits.

        Besides plain digits: digits grouped by spaces or apostrophes, or by equal points or commas if that has one
        meaning, and decimals of one or two zeros where a floating-point number is exact. Text such as `007` is
        returned. Raises UnclearCell for `1.000`, which may be 1 or 1000.
        """
        text = text.strip()
        if _PLAIN_DIGITS.fullmatch(text):
            return int(text)
        if (match := _ZERO_DECIMALS.fullmatch(text)) and abs(int(match[1])) <= _EXACT_AS_FLOAT:
            return int(match[1])
        if match := _GROUP_OR_DECIMALS.fullmatch(text):
            return self._group_or_decimals(match)
        if _GROUPED.fullmatch(text):
            return _digits(text)
        if match := _GROUPED_WITH_DECIMALS.fullmatch(text):
            return _digits(match[1])
        if _SHORTENED.fullmatch(text):
            raise UnclearCell("was shortened by a spreadsheet program, which has lost its digits", _AS_TEXT)
        return text

    def _group_or_decimals(self, match: re.Match[str]) -> int | str:
        whole, mark, digits = match.groups()
        if self._decimal is None:
            decimals = f"{whole}.{digits}" if digits.strip("0") else whole
            then = f"{{}} if it is {whole}{digits} or {{}} if it is {decimals}"
            # The first choice makes thousands, so that cells with a point and cells with a comma are counted apart.
            choices = Choice("decimal", _OTHER[mark]), Choice("decimal", mark)
            raise UnclearCell("can be read in two ways", Remedy(then, choices))
        if mark != self._decimal:
            return int(whole + digits)
        return match[0] if digits.strip("0") else int(whole)


def _digits(text: str) -> int:
    return int(re.sub(r"[^0-9-]", "", text))


def boolean_cell(text: str) -> bool | str:
    """A boolean, in any case: true or false, 1 or 0, yes or no, also as spreadsheets in other languages write them."""
    return _BOOLEANS.get(text.strip().lower(), text)


class Timestamps:
    """Reads timestamps as shops export them, and writes them as the service does (D7)."""

    def __init__(self, zone: tzinfo | None = None, date_format: str | None = None) -> None:
        """`zone` is where local times belong; `date_format` is a strptime format that is tried first."""
        self._zone = zone
        self._date_format = date_format
        self.in_utc = False  # whether the file is an export of the service, in which a time without an offset is in UTC

    def __call__(self, text: str) -> str:
        """RFC 3339 in UTC with `Z`. Raises ValueError, whose text completes a sentence about the value."""
        text = text.strip()
        with suppress(ValueError):
            return canonical_timestamp(text)
        try:
            return self._convert(text)
        except OverflowError:
            raise ValueError("is outside the years 1 to 9999") from None

    def _convert(self, text: str) -> str:
        if self._date_format is not None and (found := parsed(text, self._date_format)):
            return format_timestamp(found if found.tzinfo else self._localized(found))
        for form in _FORMS:
            if (match := form.fullmatch(text)) and not _NO_DATE.fullmatch(text):
                return self._standard(match)
        raise self._unclear(text)

    def _standard(self, match: re.Match[str]) -> str:
        text = "{year}-{month:0>2}-{day:0>2}T{hour:0>2}:{minute}".format(**match.groupdict())
        text += f":{match['second'] or '00'}{match['fraction'] or ''}"
        if match["offset"]:
            return canonical_timestamp(text + _plain_offset(match["offset"]))
        in_utc = canonical_timestamp(text + "Z")  # the problems that it would have with any offset
        return format_timestamp(self._localized(datetime.fromisoformat(in_utc[:-1])))

    def _localized(self, local: datetime) -> datetime:
        """The local time with its offset, unless clocks were changed so that it occurs twice or never."""
        if self._zone is None:
            raise UnclearCell("has no UTC offset", self._zone_remedy(f"{local:%Y-%m-%d %H:%M} UTC"))
        earlier, later = (local.replace(tzinfo=self._zone, fold=fold) for fold in (0, 1))
        if earlier.utcoffset() != later.utcoffset():
            raise UnclearCell(_CLOCK_CHANGE.format(self._zone), _WITH_OFFSET)
        return earlier

    def _zone_remedy(self, meaning: str) -> Remedy:
        if self.in_utc:
            meaning = "an export of this service"
        text = f"{{}} if it is {meaning}, or else {{}} with the zone of the shop, such as Europe/Berlin"
        return Remedy(text, (Choice("timezone", "UTC"), Choice("timezone", "ZONE")))

    def _unclear(self, text: str) -> ValueError:
        """The error for a text that is none of the forms with one meaning."""
        if match := _ZONE_NAME.search(text):
            problem = "has the name of a time zone, and only UTC offsets are read"
            return UnclearCell(problem, Remedy(f"write the offset instead of {match[1]}, such as -05:00"))
        formats = {form: time for form, time in formats_of(text).items() if form != self._date_format}
        if not formats:
            return _not_a_date(text)
        if self._date_format is not None:
            problem = "contradicts the date format given"
        else:
            problem = "can be read in several ways" if len(formats) > 1 else _NOT_STANDARD
        then = " or ".join(f"{{}} if it means {time:%Y-%m-%d}" for time in formats.values())
        choices = tuple(Choice("date_format", form) for form in formats)
        if self._zone is None and any(time.tzinfo is None for time in formats.values()):
            return UnclearCell(problem, Remedy(f"{then}, and {{}} with the zone of the shop", (*choices, _ANY_ZONE)))
        return UnclearCell(problem, Remedy(then, choices))


def _not_a_date(text: str) -> UnclearCell:
    if _NO_DATE.fullmatch(text):
        return UnclearCell("says that there is no date", Remedy("empty these cells"))
    if match := _SERIAL.fullmatch(text):
        days = timedelta(float(f"{match[1]}.{match[2] or 0}"))
        time = _SERIAL_ZERO + timedelta(seconds=round(days.total_seconds()))
        remedy = Remedy(f"format the column as date and time before you save the file: it is {time:%Y-%m-%d %H:%M}")
        return UnclearCell("is how a spreadsheet keeps a date", remedy)
    if _SECONDS.fullmatch(text):
        return UnclearCell("seems to be the time since 1970 in seconds or milliseconds", _AS_DATE)
    if is_no_day(text):
        return UnclearCell("is not a day of the calendar", Remedy("correct the date in the file"))
    return UnclearCell(_NOT_STANDARD, choose("date_format", "FORMAT", "with its form, such as %d.%m.%Y %H:%M"))


def _plain_offset(offset: str) -> str:
    if offset.isalpha():
        return "Z"
    return f"{offset[:3]}:{offset[3:].lstrip(':') or '00'}"
