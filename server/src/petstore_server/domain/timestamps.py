"""Timestamps and durations: RFC 3339 text, Unix seconds and microseconds, and what an operator types for either."""

import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from petstore_server.domain.errors import InvalidInput

MINUTE, HOUR, DAY = 60, 3_600, 86_400  # seconds

MAX_DURATION = 36_525 * DAY  # seconds that are accepted: 100 years; a longer duration is a typing error
FILE_STAMP = r"\d{8}T\d{6}Z"  # the pattern of what `file_stamp` returns

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_RFC3339 = re.compile(
    r"(\d{4}-\d{2}-\d{2})[Tt](\d{2}:\d{2}:\d{2})(\.\d+)?([Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)", re.ASCII
)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_DURATION = re.compile(r"([1-9]\d*)([smhdw])", re.ASCII)
_DURATION_SECONDS = {"s": 1, "m": MINUTE, "h": HOUR, "d": DAY, "w": 7 * DAY}
_NO_SUCH_TIME = "is not a date and time that exists; check the date, the time and the offset"
_DIGITS_TO_ZERO = bytes.maketrans(b"123456789", b"000000000")
_FIRST, LAST_SECOND = -62_135_596_800, 253_402_300_799  # 0001-01-01T00:00:00Z and 9999-12-31T23:59:59Z


def canonical_timestamp(text: str) -> str:
    """Return an RFC 3339 date-time in the form in which it is stored: in UTC, with `Z`, to the microsecond (D7).

    Raises ValueError with the reason: another form, no offset, a time that does not exist, digits that are too fine.
    """
    if are_canonical((text,)):  # the most common form, at a fraction of the cost of parsing
        return text
    return format_timestamp(parse_timestamp(text))


def are_canonical(texts: Sequence[str]) -> bool:
    """Whether `canonical_timestamp` returns each text unchanged and none has a fraction; fast for many texts."""
    joined = "".join(texts)
    try:
        shape = joined.encode().translate(_DIGITS_TO_ZERO)
        if shape != b"0000-00-00T00:00:00Z" * len(texts) or "T24" in joined:  # see parse_timestamp
            return False
        list(map(datetime.fromisoformat, texts))
    except ValueError:
        return False
    return True


def parse_timestamp(text: str) -> datetime:
    """Parse an RFC 3339 date-time with an offset; the result is aware and in UTC. Raises ValueError."""
    match = _RFC3339.fullmatch(text)
    if match is None:
        raise ValueError("is not an RFC 3339 date-time with an offset, such as 2026-11-01T10:00:00Z")
    day, time, fraction, offset = match.groups("")
    if fraction[7:].strip("0"):
        raise ValueError("is finer than a microsecond; give at most six digits after the decimal point")
    if time.startswith("24"):  # Python 3.14 reads it as midnight of the next day
        raise ValueError(_NO_SUCH_TIME)
    try:
        local = datetime.fromisoformat(f"{day}T{time}{fraction}{offset.upper()}")
        return local.astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError(_NO_SUCH_TIME) from None


def format_timestamp(timestamp: datetime) -> str:
    """Format an aware datetime as RFC 3339 in UTC with `Z`; with a fraction only if it is not zero."""
    return timestamp.astimezone(UTC).isoformat().replace("+00:00", "Z")


def microseconds(timestamp: datetime) -> int:
    """An aware datetime in Unix microseconds."""
    since = timestamp - _EPOCH
    return (since.days * DAY + since.seconds) * 1_000_000 + since.microseconds  # a division takes four times as long


@lru_cache(maxsize=4096)  # orders of one import share a timestamp
def timestamp_text(value: int) -> str:
    """Unix microseconds as RFC 3339 in UTC with `Z`. Raises OverflowError beyond the years 1 to 9999."""
    return format_timestamp(_EPOCH + timedelta(microseconds=value))


def format_unix(seconds: float | None, *, microseconds: bool = False) -> str | None:
    """Format Unix seconds as RFC 3339 in UTC, cut to whole seconds, or to `microseconds`. None and NaN give None.

    Never raises: a value beyond the years 1 to 9999 is shown as the first or the last second of that range.
    """
    if seconds is None or math.isnan(seconds):
        return None
    bounded = min(max(seconds, _FIRST), LAST_SECOND)
    shown = datetime.fromtimestamp(bounded if microseconds else math.floor(bounded), UTC)
    if shown.timestamp() > bounded:  # it was rounded up: what is read since then would not include it
        shown -= timedelta(microseconds=1)
    return format_timestamp(shown)


def format_hour(seconds: float | None) -> str | None:
    """Format the start of an hour (Unix seconds) without its seconds: 2026-11-22T11:00Z. None gives None."""
    text = format_unix(seconds)
    return text and f"{text[:16]}Z"


def file_stamp(at: float) -> str:
    """Unix seconds in the form in which names of files have them: 20261120T093000Z."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y%m%dT%H%M%SZ")


def parse_duration(text: str) -> int:
    """Parse a duration such as `90s`, `15m`, `24h`, `7d` or `2w` into seconds. Raises ValueError with the reason."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError("is not a duration such as 15m, 24h or 7d")
    digits, unit = match.groups()
    if len(digits) > 10 or int(digits) * _DURATION_SECONDS[unit] > MAX_DURATION:
        raise ValueError("is longer than 100 years; give a shorter duration")
    return int(digits) * _DURATION_SECONDS[unit]


def parse_when(text: str, now: datetime, *, past: bool = False) -> datetime:
    """Parse what an operator types for a time; the result is aware and in UTC. Raises InvalidInput.

    It is RFC 3339, a date (its first second in UTC), or a duration from `now` (before `now` if `past`).
    """
    if _DURATION.fullmatch(text):
        try:
            duration = timedelta(seconds=parse_duration(text))
            return now - duration if past else now + duration
        except ValueError as error:
            raise InvalidInput(f"'{text}' {error}.") from None
    try:
        return parse_timestamp(f"{text}T00:00:00Z" if _DATE.fullmatch(text) else text)
    except ValueError:
        raise InvalidInput(
            f"'{text}' is not a time; give a date (2027-01-01), RFC 3339 (2027-01-01T10:00:00Z) "
            "or a duration (15m, 24h, 7d)."
        ) from None
