"""The forms of dates in files: in which formats of strptime a text can be read, and what it then means."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import permutations

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
_WORD = re.compile(r"([^\W\d_]{3,})\.?")
_UTC = re.compile(r"(UTC|GMT|Z)$", re.ASCII)

_NUMBERS = re.compile(r"(\d{4}|\d{1,2})([-/.])\d{1,2}\2(\d{4}|\d{1,2})(?!\d)", re.ASCII)
_NAMED = re.compile(r"\d{1,2}(\. |[. /-])[^\W\d_]{3,}\.?([ /-]|, )(\d{4}|\d{2})(?!\d)")
_NAMED_FIRST = re.compile(r"[^\W\d_]{3,}\.? \d{1,2}(,? )\d{4}(?!\d)")
_DAY = re.compile(r"(?<!\d)\d{1,2}(?!\d)", re.ASCII)
_TIME = re.compile(
    r"(?P<begin>T| |, )\d{1,2}:\d{2}(?P<second>:\d{2}(?P<fraction>\.\d{1,6})?)?"
    r"(?P<half> ?[AP]M)?(?P<gap> ?)(?P<offset>UTC|GMT|Z|[+-]\d{2}:?\d{2})?",
    re.ASCII | re.IGNORECASE,
)


def parsed(text: str, date_format: str) -> datetime | None:
    """The time in this format, None if the text does not have it. Month names of seven languages are read."""
    for written, read in ((text, date_format), (_in_english(text), date_format.replace("%B", "%b"))):
        try:
            found = datetime.strptime(written, read)  # noqa: DTZ007 - the zone follows
        except ValueError:
            continue
        return found.replace(tzinfo=UTC) if "%Z" in date_format and _UTC.search(text) else found
    return None


def formats_of(text: str) -> dict[str, datetime]:
    """The formats in which the text is a date, with what it then means: none, one, or several."""
    read = ((date_format, parsed(text, date_format)) for date_format in _candidates(text))
    return {date_format: time for date_format, time in read if time is not None}


def is_no_day(text: str) -> bool:
    """Whether the text has the form of a date, but is none in any order: 31.02.2026."""
    match = next(filter(None, (form.match(text) for form in (_NUMBERS, _NAMED, _NAMED_FIRST))), None)
    if match is None or not (match.end() == len(text) or _TIME.fullmatch(text[match.end() :])):
        return False
    date = match[0]
    if match.re is _NUMBERS:
        year = "%Y" if max(map(len, date.split(match[2]))) == 4 else "%y"
        return not any(parsed(date, match[2].join(order)) for order in permutations(("%d", "%m", year)))
    another_day = _DAY.sub("1", date, count=1)
    return not formats_of(date) and bool(formats_of(another_day))


def _in_english(text: str) -> str:
    return _WORD.sub(_english_month, text)


def _english_month(match: re.Match[str]) -> str:
    word = match[1].casefold()
    return next((_MONTHS[word[:length]] for length in (4, 3) if word[:length] in _MONTHS), match[0])


def _candidates(text: str) -> Iterator[str]:
    if match := _NUMBERS.match(text):
        first, separator, last = match.groups()
        if len(first) == 4:
            orders = ["Ymd"]
        elif separator == ".":
            orders = ["dmY" if len(last) == 4 else "dmy"]
        else:
            orders = ["dmY", "mdY"] if len(last) == 4 else ["dmy", "mdy", "ymd"]
        dates = [separator.join(f"%{part}" for part in order) for order in orders]
    elif match := _NAMED.match(text):
        before, after, year = match.groups()
        dates = [f"%d{before}%b{after}%Y"] if len(year) == 4 else [f"%d{before}%b{after}%y", f"%y{before}%b{after}%d"]
    elif match := _NAMED_FIRST.match(text):
        dates = [f"%b %d{match[1]}%Y"]
    else:
        return
    end = text[match.end() :]
    if not end:
        yield from dates
    elif time := _TIME.fullmatch(end):
        form = time["begin"] + ("%I:%M" if time["half"] else "%H:%M")
        form += ":%S" * bool(time["second"]) + ".%f" * bool(time["fraction"])
        form += f"{' ' * time['half'].startswith(' ')}%p" if time["half"] else ""
        form += time["gap"] + ("" if not time["offset"] else "%Z" if time["offset"].isalpha() else "%z")
        yield from (date + form for date in dates)
