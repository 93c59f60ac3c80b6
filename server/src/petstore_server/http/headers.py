"""The rate limit headers of a decision (spec S7.1; D13)."""

from functools import lru_cache
from math import ceil

from petstore_server.domain.windows import Decision, Outcome


def limit_headers(decision: Decision) -> bytes:
    """Header lines: X-RateLimit-* for the shown window, RateLimit and RateLimit-Policy for all windows.

    Reset is in whole Unix seconds; RateLimit's `t` is in whole seconds from now
    (draft-ietf-httpapi-ratelimit-headers). A refusal also has Retry-After in seconds (RFC 9110 section 10.2.3).
    """
    shown, now, windows = decision.shown, decision.now, decision.windows
    figures = [shown.limit, shown.remaining, shown.reset]
    for window in windows:
        figures += (window.remaining, max(1, ceil(window.reset - now)))
    headers = _template(tuple([(window.name, window.limit, window.seconds) for window in windows])) % tuple(figures)
    if decision.outcome is Outcome.ADMITTED:
        return headers
    return headers + b"retry-after: %d\r\n" % decision.retry_after


@lru_cache(maxsize=1024)  # one entry for each plan, and for each enterprise account with limits of its own
def _template(windows: tuple[tuple[str, int, int], ...]) -> bytes:
    """The header lines of these windows (name, limit, length in seconds), with a %d for each figure that changes."""
    policy = ", ".join(f'"{name}";q={limit};w={seconds}' for name, limit, seconds in windows)
    state = ", ".join(f'"{name}";r=%d;t=%d' for name, _, _ in windows)
    return (
        "x-ratelimit-limit: %d\r\nx-ratelimit-remaining: %d\r\nx-ratelimit-reset: %d\r\n"
        f"ratelimit-policy: {policy}\r\nratelimit: {state}\r\n"
    ).encode()
