"""The headers of rate limits (spec S7.1; D13), and of the deprecated operation (spec S8.3; D16)."""

from datetime import datetime
from email.utils import format_datetime
from functools import lru_cache

from petstore_server.domain.accounts import Limits
from petstore_server.domain.timestamps import DAY, MINUTE
from petstore_server.domain.windows import ADDRESS_LIMIT, ADMITTED, AccountDecision, Decision


def limit_headers(decision: Decision) -> bytes:
    """Header lines: X-RateLimit-* for the shown window, RateLimit and RateLimit-Policy for all windows.

    Reset is in whole Unix seconds; RateLimit's `t` is in whole seconds from now
    (draft-ietf-httpapi-ratelimit-headers). A refusal also has Retry-After in seconds (RFC 9110 section 10.2.3).
    """
    second = int(decision.now)  # windows end at whole seconds, and later than now
    if isinstance(decision, AccountDecision):
        minute, minute_reset = decision.minute_remaining, decision.minute_reset
        day, day_reset = decision.day_remaining, decision.day_reset
        day_shown = decision.day_shown
        shown, reset = (day, day_reset) if day_shown else (minute, minute_reset)
        if decision.ban_reset:
            shown, reset = decision.shown[2:]
        template = _account_template(decision.limits, day_shown)
        headers = template % (shown, reset, minute, minute_reset - second, day, day_reset - second)
        if decision.ban_reset:
            headers = b'%s, "ban";r=0;t=%d\r\n' % (headers[: -len(b"\r\n")], decision.ban_reset - second)
    else:
        remaining, reset = decision.remaining, decision.reset
        headers = _ADDRESS_TEMPLATE % (remaining, reset, remaining, reset - second)
    if decision.outcome is ADMITTED:
        return headers
    return headers + b"Retry-After: %d\r\n" % decision.retry_after


def _template(*windows: tuple[str, int, int], shown: int = 0) -> bytes:
    """The header lines of these windows (name, limit, length in seconds), with a %d for each number that changes."""
    policy = ", ".join(f'"{name}";q={limit};w={seconds}' for name, limit, seconds in windows)
    state = ", ".join(f'"{name}";r=%d;t=%d' for name, _, _ in windows)
    return (
        f"X-RateLimit-Limit: {windows[shown][1]}\r\nX-RateLimit-Remaining: %d\r\nX-RateLimit-Reset: %d\r\n"
        f"RateLimit-Policy: {policy}\r\nRateLimit: {state}\r\n"
    ).encode()


@lru_cache(maxsize=1024)  # two entries for each plan, and for each enterprise account with its own limits
def _account_template(limits: Limits, day_shown: bool) -> bytes:
    return _template(("minute", limits.per_minute, MINUTE), ("day", limits.per_day, DAY), shown=day_shown)


_ADDRESS_TEMPLATE = _template(("address", ADDRESS_LIMIT, MINUTE))


def deprecation_dates(deprecated_at: datetime, sunset: datetime) -> tuple[str, str]:
    """The values of the headers Deprecation (RFC 9745) and Sunset (RFC 8594)."""
    return f"@{int(deprecated_at.timestamp())}", format_datetime(sunset, usegmt=True)


def deprecation_notices(deprecated_at: datetime, sunset: datetime) -> bytes:
    """Header lines: Deprecation, Sunset, and links to what explains both, relative to `/v1/pets/{petId}`."""
    deprecation, sunset_date = deprecation_dates(deprecated_at, sunset)
    link = '<../../docs>; rel="deprecation"; type="text/html", <../../docs>; rel="sunset"; type="text/html"'
    return f"Deprecation: {deprecation}\r\nSunset: {sunset_date}\r\nLink: {link}\r\n".encode()
