"""From text to timestamps, in the forms that shops and spreadsheets export: only what has one meaning is converted."""

import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import permutations

from petstore_server.domain.remedies import Choice, Remedy, choose
from petstore_server.domain.timestamps import canonical_timestamp, format_timestamp
from petstore_server.imports.conversions import UnclearCell

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
NO_DATE = re.compile(r"0000[-/.]00[-/.]00.*", re.ASCII)
_SERIAL = re.compile(r"([1-9][0-9]{4})(?:[.,]([0-9]+))?", re.ASCII)
_SECONDS = re.compile(r"[0-9]{10}(?:[0-9]{3})?", re.ASCII)
_SERIAL_ZERO = datetime(1899, 12, 30, tzinfo=UTC)  # day 0 of spreadsheets
_CLOCK_CHANGE = "does not name one time, because clocks change then in {}"
_ZONE_NAME = re.compile(r":\d{2}(?:\.\d+)?\s?(?:[AP]M)?\s?\(?(?!UTC|GMT)([A-Z]{3,5})\)?$", re.ASCII)  # such as EST

_OF_MONTHS = {  # how names begin: in English, German, French, Spanish, Italian, Dutch and Portuguese
    "Jan": "jan ene gen",
    "Feb": "feb fév fev",
    "Mar": "mar mär mrz maa mrt",
    "Apr": "apr avr abr",
    "May": "may mai mei mag",
    "Jun": "jun juin giu",
    "Jul": "jul juil lug",
    "Aug": "aug aoû aou ago",
    "Sep": "sep set",
    "Oct": "oct okt ott out",
    "Nov": "nov",
    "Dec": "dec dez déc dic",
}
_MONTHS = {begin: month for month, begins in _OF_MONTHS.items() for begin in begins.split()}
_MONTH = re.compile(r"([^\W\d_]{3,})\.?")
_ZONE = re.compile(r"(?<!%)((?:%%)*)%Z", re.ASCII)  # in a date format

_NUMERIC_DATE = re.compile(r"(\d{4}|\d{1,2})([-/.])\d{1,2}\2(\d{4}|\d{1,2})(?!\d)", re.ASCII)
_DAY_FIRST = re.compile(r"\d{1,2}(\. |[. /-])[^\W\d_]{3,}\.?([ /-]|, )(\d{4}|\d{2})(?!\d)")
_MONTH_FIRST = re.compile(r"[^\W\d_]{3,}\.? \d{1,2}(,? )\d{4}(?!\d)")
_DAY = re.compile(r"(?<!\d)\d{1,2}(?!\d)", re.ASCII)
_CLOCK_TIME = re.compile(
    r"(?P<begin>T| |, )\d{1,2}:\d{2}(?P<second>:\d{2}(?P<fraction>\.\d{1,6})?)?"
    r"(?P<half> ?[AP]M)?(?P<gap> ?)(?P<offset>UTC|GMT|Z|[+-]\d{2}:?\d{2})?",
    re.ASCII | re.IGNORECASE,
)


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
        if self._date_format is not None and (found := _parsed(text, self._date_format)):
            return format_timestamp(found if found.tzinfo else self._localized(found))
        for form in _FORMS:
            if (match := form.fullmatch(text)) and not NO_DATE.fullmatch(text):
                return self._standard(match)
        raise self._unclear(text)

    def _standard(self, match: re.Match[str]) -> str:
        text = "{year}-{month:0>2}-{day:0>2}T{hour:0>2}:{minute}".format(**match.groupdict())
        text += f":{match['second'] or '00'}{match['fraction'] or ''}"
        if offset := match["offset"]:
            offset = "Z" if offset.isalpha() else f"{offset[:3]}:{offset[3:].lstrip(':') or '00'}"
            return canonical_timestamp(text + offset)
        in_utc = canonical_timestamp(text + "Z")  # the problems that it would have with any offset
        return format_timestamp(self._localized(datetime.fromisoformat(in_utc[:-1])))

    def _localized(self, local: datetime) -> datetime:
        """The local time with its offset, unless clocks were changed so that it occurs twice or never."""
        if self._zone is None:
            meaning = "an export of this service" if self.in_utc else f"{local:%Y-%m-%d %H:%M} UTC"
            remedy = f"{{}} if it is {meaning}, or else {{}} with the zone of the shop, such as Europe/Berlin"
            choices = Choice("timezone", "UTC"), Choice("timezone", "ZONE")
            raise UnclearCell("has no UTC offset", Remedy(remedy, choices))
        earlier, later = (local.replace(tzinfo=self._zone, fold=fold) for fold in (0, 1))
        if earlier.utcoffset() != later.utcoffset():
            raise UnclearCell(_CLOCK_CHANGE.format(self._zone), Remedy("write it with its UTC offset"))
        return earlier

    def _unclear(self, text: str) -> ValueError:
        """The error for a text that is none of the forms with one meaning."""
        if match := _ZONE_NAME.search(text):
            problem = "has the name of a time zone, and only UTC offsets are read"
            return UnclearCell(problem, Remedy(f"write the offset instead of {match[1]}, such as -05:00"))
        formats = {form: time for form, time in _formats_of(text).items() if form != self._date_format}
        if not formats:
            return _not_a_date(text)
        if self._date_format is not None:
            problem = "contradicts the date format given"
        else:
            problem = "can be read in several ways" if len(formats) > 1 else _NOT_STANDARD
        then = " or ".join(f"{{}} if it means {time:%Y-%m-%d}" for time in formats.values())
        choices = tuple(Choice("date_format", form) for form in formats)
        if self._zone is None and any(time.tzinfo is None for time in formats.values()):
            choices += (Choice("timezone", "ZONE"),)
            then += ", and {} with the zone of the shop"
        return UnclearCell(problem, Remedy(then, choices))


def no_date() -> UnclearCell:
    """The error for a cell with NO_DATE."""
    return UnclearCell("says that there is no date", Remedy("empty these cells"))


def _not_a_date(text: str) -> UnclearCell:
    if NO_DATE.fullmatch(text):
        return no_date()
    if not text:
        return UnclearCell("is empty", Remedy("give null, or leave the field out"))
    if match := _SERIAL.fullmatch(text):
        days = timedelta(float(f"{match[1]}.{match[2] or 0}"))
        time = _SERIAL_ZERO + timedelta(seconds=round(days.total_seconds()))
        remedy = Remedy(f"format the column as date and time before you save the file: it is {time:%Y-%m-%d %H:%M}")
        return UnclearCell("is how a spreadsheet keeps a date", remedy)
    if _SECONDS.fullmatch(text):
        remedy = Remedy("write it as date and time, such as 2026-11-01T10:00:00Z")
        return UnclearCell("seems to be the time since 1970 in seconds or milliseconds", remedy)
    if _is_no_day(text):
        return UnclearCell("is not a day of the calendar", Remedy("correct the date in the file"))
    return UnclearCell(_NOT_STANDARD, choose("date_format", "FORMAT", "with its form, such as %d.%m.%Y %H:%M"))


def _parsed(text: str, date_format: str) -> datetime | None:
    """The time in this format, None if the text does not have it. Month names of seven languages are read.

    For %Z only UTC and GMT are read: strptime also takes the names of the zone that this host has.
    """
    is_zoned = _ZONE.search(date_format) is not None
    for zone in ("UTC", "GMT") if is_zoned else ("",):
        form = _ZONE.sub(rf"\g<1>{zone}", date_format)
        for written, read in ((text, form), (_MONTH.sub(_english_month, text), form.replace("%B", "%b"))):
            try:
                found = datetime.strptime(written, read)  # noqa: DTZ007 - the zone follows
            except ValueError:
                continue
            return found.replace(tzinfo=UTC) if is_zoned and found.tzinfo is None else found
    return None


def _formats_of(text: str) -> dict[str, datetime]:
    """The formats in which the text is a date, with what it then means: none, one, or several."""
    read = ((date_format, _parsed(text, date_format)) for date_format in _candidate_formats(text))
    return {date_format: time for date_format, time in read if time is not None}


def _is_no_day(text: str) -> bool:
    """Whether the text has the form of a date, but is none in any order: 31.02.2026."""
    match = next(filter(None, (form.match(text) for form in (_NUMERIC_DATE, _DAY_FIRST, _MONTH_FIRST))), None)
    if match is None or not (match.end() == len(text) or _CLOCK_TIME.fullmatch(text[match.end() :])):
        return False
    date = match[0]
    if match.re is _NUMERIC_DATE:
        year = "%Y" if max(map(len, date.split(match[2]))) == 4 else "%y"
        return not any(_parsed(date, match[2].join(order)) for order in permutations(("%d", "%m", year)))
    another_day = _DAY.sub("1", date, count=1)
    return not _formats_of(date) and bool(_formats_of(another_day))


def _english_month(match: re.Match[str]) -> str:
    word = match[1].casefold()
    return next((_MONTHS[word[:length]] for length in (4, 3) if word[:length] in _MONTHS), match[0])


def _candidate_formats(text: str) -> Iterator[str]:
    if match := _NUMERIC_DATE.match(text):
        first, separator, last = match.groups()
        if len(first) == 4:
            orders = ["Ymd"]
        elif separator == ".":
            orders = ["dmY" if len(last) == 4 else "dmy"]
        else:
            orders = ["dmY", "mdY"] if len(last) == 4 else ["dmy", "mdy", "ymd"]
        dates = [separator.join(f"%{part}" for part in order) for order in orders]
    elif match := _DAY_FIRST.match(text):
        before, after, year = match.groups()
        dates = [f"%d{before}%b{after}%Y"] if len(year) == 4 else [f"%d{before}%b{after}%y", f"%y{before}%b{after}%d"]
    elif match := _MONTH_FIRST.match(text):
        dates = [f"%b %d{match[1]}%Y"]
    else:
        return
    end = text[match.end() :]
    if not end:
        yield from dates
    elif time := _CLOCK_TIME.fullmatch(end):
        form = time["begin"] + ("%I:%M" if time["half"] else "%H:%M")
        form += ":%S" * bool(time["second"]) + ".%f" * bool(time["fraction"])
        form += f"{' ' * time['half'].startswith(' ')}%p" if time["half"] else ""
        form += time["gap"] + ("" if not time["offset"] else "%Z" if time["offset"].isalpha() else "%z")
        yield from (date + form for date in dates)
