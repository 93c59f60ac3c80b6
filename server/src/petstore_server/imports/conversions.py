"""From text to values: booleans, integers and timestamps in the forms that shops and spreadsheets export.

Only what is unambiguous is converted. For the rest the operator gives options, and the reasons name them.
"""

import re
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, tzinfo

from petstore_server.domain.errors import Remedy, choose
from petstore_server.domain.timestamps import canonical_timestamp, format_timestamp

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
_GROUP_OR_DECIMALS = re.compile(r"-?[1-9][0-9]{0,2}[.,][0-9]{3}", re.ASCII)
_PLAIN = Remedy("write whole numbers in plain digits, such as 1749 for 1,749")
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
_ZONE = choose("timezone", "ZONE", "with that of these times, such as UTC or Europe/Berlin")
_NOT_STANDARD = "is not an RFC 3339 date-time such as 2026-11-01T10:00:00Z"
_FORMAT = choose("date_format", "%d/%m/%Y %H:%M", "if that is its form, or another one")
_CLOCK_CHANGE = "does not name one time, because clocks change then in {}; write it with its UTC offset"


def integer_cell(text: str) -> int | str:
    """A whole number of any size; the domain decides whether it fits.

    Besides plain digits: digits grouped by spaces or apostrophes, or by two or more equal points or commas, and
    decimals of one or two zeros where a floating-point number is exact. Text such as `007` is returned. Raises
    ValueError for `1.000`, which may be 1 or 1000.
    """
    text = text.strip()
    if _PLAIN_DIGITS.fullmatch(text):
        return int(text)
    if (match := _ZERO_DECIMALS.fullmatch(text)) and abs(int(match[1])) <= _EXACT_AS_FLOAT:
        return int(match[1])
    if _GROUPED.fullmatch(text):
        return int(re.sub(r"[^0-9-]", "", text))
    if _GROUP_OR_DECIMALS.fullmatch(text):
        raise UnclearCell("can be read in two ways", _PLAIN)
    return text


def boolean_cell(text: str) -> bool | str:
    """A boolean, in any case: true or false, 1 or 0, yes or no, also as spreadsheets in other languages write them."""
    return _BOOLEANS.get(text.strip().lower(), text)


class Timestamps:
    """Reads timestamps as shops export them, and writes them as the service does (D7)."""

    def __init__(self, zone: tzinfo | None = None, date_format: str | None = None) -> None:
        """`zone` is where local times belong; `date_format` is a strptime format that is tried first."""
        self._zone = zone
        self._date_format = date_format

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
        if self._date_format is not None and (parsed := _parsed(text, self._date_format)):
            return format_timestamp(parsed if parsed.tzinfo else self._localized(parsed))
        for form in _FORMS:
            if match := form.fullmatch(text):
                return self._standard(match)
        raise UnclearCell(_NOT_STANDARD, _FORMAT)

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
            raise UnclearCell("has no UTC offset", _ZONE)
        earlier, later = (local.replace(tzinfo=self._zone, fold=fold) for fold in (0, 1))
        if earlier.utcoffset() != later.utcoffset():
            raise ValueError(_CLOCK_CHANGE.format(self._zone))
        return earlier


def _plain_offset(offset: str) -> str:
    if offset.isalpha():
        return "Z"
    return f"{offset[:3]}:{offset[3:].lstrip(':') or '00'}"


def _parsed(text: str, date_format: str) -> datetime | None:
    try:
        return datetime.strptime(text, date_format)  # noqa: DTZ007 - the zone follows
    except ValueError:
        return None
