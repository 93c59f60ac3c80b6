"""Moments and spans: RFC 3339 text, Unix seconds and what an operator types."""

import re
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache

from petstore_server.domain.errors import InvalidInput

_CANONICAL = re.compile(r"(\d{4}-\d{2}-\d{2})T(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\dZ", re.ASCII)
_RFC3339 = re.compile(
    r"(\d{4}-\d{2}-\d{2})[Tt](\d{2}:\d{2}:\d{2})(\.\d+)?([Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)", re.ASCII
)
_DURATION = re.compile(r"([1-9]\d{0,8})([smhdw])", re.ASCII)
_DURATION_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def canonical_timestamp(text: str) -> str:
    """Return an RFC 3339 date-time as the service writes it: in UTC, with `Z`, to the microsecond (D7).

    Raises ValueError, whose text says what is wrong, for anything else: another form, no offset, an impossible
    date, digits finer than a microsecond.
    """
    match = _CANONICAL.fullmatch(text)
    if match and _is_calendar_date(match[1]):
        return text  # the common form, without the cost of taking it apart
    return format_timestamp(parse_timestamp(text))


def parse_timestamp(text: str) -> datetime:
    """Read an RFC 3339 date-time with an offset; the result is aware and in UTC. Raises ValueError."""
    match = _RFC3339.fullmatch(text)
    if match is None:
        raise ValueError("is not an RFC 3339 date-time with an offset, such as 2026-11-01T10:00:00Z")
    day, time, fraction, offset = match.groups()
    if fraction and len(fraction) > 7 and fraction[7:].strip("0"):
        raise ValueError("is finer than a microsecond; give at most six digits of a second")
    try:
        local = datetime.fromisoformat(f"{day}T{time}{(fraction or '')[:7]}{offset.upper()}")
        return local.astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError("is not a moment that exists; check the date, the time and the offset") from None


def format_timestamp(timestamp: datetime) -> str:
    """Write an aware datetime as RFC 3339 in UTC with `Z`; a fraction only where there is one."""
    return timestamp.astimezone(UTC).isoformat().replace("+00:00", "Z")


def parse_duration(text: str) -> int:
    """Read a span such as `90s`, `15m`, `24h`, `7d` or `2w` into seconds. Raises ValueError."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError("is not a span such as 15m, 24h or 7d")
    return int(match[1]) * _DURATION_SECONDS[match[2]]


def parse_when(text: str, now: datetime, *, past: bool = False) -> datetime:
    """Read what an operator types for a moment: RFC 3339, or a span from now (back from now where `past`).

    Raises InvalidInput.
    """
    try:
        duration = timedelta(seconds=parse_duration(text))
        return now - duration if past else now + duration
    except OverflowError:
        raise InvalidInput(f"'{text}' reaches beyond the calendar; give a shorter span.") from None
    except ValueError:
        pass
    try:
        return parse_timestamp(text)
    except ValueError:
        raise InvalidInput(
            f"'{text}' is no moment; give RFC 3339 (2026-11-01T10:00:00Z) or a span (15m, 24h, 7d)."
        ) from None


@lru_cache(maxsize=16_384)  # a store's ship dates fall on few days
def _is_calendar_date(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True
