"""The rate limit headers of a decision (spec S7.1; D13)."""

from functools import lru_cache

from petstore_server.domain.accounts import Limits
from petstore_server.domain.timestamps import DAY, MINUTE
from petstore_server.domain.windows import (
    ADDRESS_LIMIT,
    ADMITTED,
    AccountDecision,
    AddressDecision,
    Decision,
)


def limit_headers(decision: Decision) -> bytes:
    """Header lines: X-RateLimit-* for the shown window, RateLimit and RateLimit-Policy for all windows.

    Reset is in whole Unix seconds; RateLimit's `t` is in whole seconds from now
    (draft-ietf-httpapi-ratelimit-headers). A refusal also has Retry-After in seconds (RFC 9110 section 10.2.3).
    """
    headers = _for_account(decision) if isinstance(decision, AccountDecision) else _for_address(decision)
    if decision.outcome is ADMITTED:
        return headers
    return headers + b"retry-after: %d\r\n" % decision.retry_after


def _for_account(decision: AccountDecision) -> bytes:
    minute, minute_reset = decision.minute_remaining, decision.minute_reset
    day, day_reset = decision.day_remaining, decision.day_reset
    per_minute, per_day = decision.limits
    shown = (per_day, day, day_reset) if decision.day_shown else (per_minute, minute, minute_reset)
    second = int(decision.now)  # windows end at whole seconds, and later than now
    return _account_template(decision.limits) % (*shown, minute, minute_reset - second, day, day_reset - second)


def _for_address(decision: AddressDecision) -> bytes:
    remaining, reset = decision.remaining, decision.reset
    return _ADDRESS_TEMPLATE % (ADDRESS_LIMIT, remaining, reset, remaining, reset - int(decision.now))


def _template(*windows: tuple[str, int, int]) -> bytes:
    """The header lines of these windows (name, limit, length in seconds), with a %d for each number that changes."""
    policy = ", ".join(f'"{name}";q={limit};w={seconds}' for name, limit, seconds in windows)
    state = ", ".join(f'"{name}";r=%d;t=%d' for name, _, _ in windows)
    return (
        "x-ratelimit-limit: %d\r\nx-ratelimit-remaining: %d\r\nx-ratelimit-reset: %d\r\n"
        f"ratelimit-policy: {policy}\r\nratelimit: {state}\r\n"
    ).encode()


@lru_cache(maxsize=1024)  # one entry for each plan, and for each enterprise account with its own limits
def _account_template(limits: Limits) -> bytes:
    return _template(("minute", limits.per_minute, MINUTE), ("day", limits.per_day, DAY))


_ADDRESS_TEMPLATE = _template(("address", ADDRESS_LIMIT, MINUTE))
