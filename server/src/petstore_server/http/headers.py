"""The limit headers: what a verdict looks like on the wire (spec S7.1; D13)."""

from functools import lru_cache
from math import ceil

from petstore_server.domain.windows import Decision, Outcome
from petstore_server.http.responses import Headers


def limit_headers(decision: Decision) -> Headers:
    """X-RateLimit-* of the shown window, RateLimit and RateLimit-Policy of all; Retry-After on a refusal.

    Reset is in whole Unix seconds, Retry-After and RateLimit's `t` in whole seconds from now (delay-seconds,
    RFC 9110 §10.2.3; draft-ietf-httpapi-ratelimit-headers).
    """
    shown, now = decision.shown, decision.now
    state = ", ".join(
        [f'"{window.name}";r={window.remaining};t={max(1, ceil(window.reset - now))}' for window in decision.windows]
    )
    headers = [
        (b"x-ratelimit-limit", b"%d" % shown.limit),
        (b"x-ratelimit-remaining", b"%d" % shown.remaining),
        (b"x-ratelimit-reset", b"%d" % shown.reset),
        (b"ratelimit-policy", _policy(tuple([(w.name, w.limit, w.seconds) for w in decision.windows]))),
        (b"ratelimit", state.encode()),
    ]
    if decision.outcome is not Outcome.ADMITTED:
        headers.append((b"retry-after", b"%d" % decision.retry_after))
    return headers


@lru_cache(maxsize=1024)  # one entry for each plan, and for each enterprise account with numbers of its own
def _policy(windows: tuple[tuple[str, int, int], ...]) -> bytes:
    return ", ".join(f'"{name}";q={limit};w={seconds}' for name, limit, seconds in windows).encode()
