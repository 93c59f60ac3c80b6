"""The contract's rules between the parts of an answer, which no schema can say.

Which window the limit headers show (D13), whose windows they are (D14), which code goes with which identifier (D4).
"""

import re
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, NamedTuple, NoReturn
from urllib.parse import unquote

Headers = dict[str, str]
"""By their names in lower case."""

WRITTEN_TIMESTAMP = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{6})?Z$"
"""The form of a timestamp in a response.

The contract has it in words only: `date-time` becomes a type in generated code, which has no pattern.
"""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_POLICY = re.compile(r'"([a-z]+)";q=([0-9]+);w=([0-9]+)')
_STATE = re.compile(r'"([a-z]+)";r=([0-9]+);t=([0-9]+)')
_PLAIN_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,18}", re.ASCII)


class Window(NamedTuple):
    """A window as RateLimit and RateLimit-Policy state it; `resets_in` is in seconds."""

    name: str
    limit: int
    remaining: int
    resets_in: int


def check_limits(status: int, code: str | None, headers: Headers) -> None:
    """X-RateLimit shows one of the windows: the one with the least remaining, of two the later to reset (D13)."""
    windows = windows_in(headers)
    ban = next((window for window in windows if window.name == "ban"), None)
    windows = [window for window in windows if window is not ban]
    limit, remaining = int(headers["x-ratelimit-limit"]), int(headers["x-ratelimit-remaining"])
    least = min(window.remaining for window in windows)
    last = max(window.resets_in for window in windows if window.remaining == least)
    candidates = [window for window in windows if (window.remaining, window.resets_in) == (least, last)]
    for window in windows:
        if window.remaining > window.limit:
            fail(f"more is left in the window {window.name} ({window.remaining}) than it holds ({window.limit})")
    if ban is not None:
        last = max(window.resets_in for window in [ban, *windows] if not window.remaining)
        same((limit, remaining), (windows[0].limit, 0), "what a banned key sees")
    elif (limit, remaining) not in [(window.limit, window.remaining) for window in candidates]:
        fail(f"X-RateLimit shows limit {limit}, remaining {remaining}; the window to show is {candidates}")
    _check_whose(status, code, [window.name for window in windows])
    if code == "api_key_banned":
        same(ban is not None, True, "whether RateLimit has the ban")
    if status == 429:
        same(remaining, 0, "X-RateLimit-Remaining")
        same(int(headers["retry-after"]), last, "Retry-After")


def _check_whose(status: int, code: str | None, names: list[str]) -> None:
    """The account's windows go to callers with a valid key, the address's to others (D14); an outage may hide which."""
    account = names == ["minute", "day"]
    if status == 401:
        same(names, ["address"], "the windows shown")
    elif (status not in (429, 500, 503) or code == "api_key_banned") and not account:
        fail(f"the windows are {names}; a valid key's answer shows those of its account")


def windows_in(headers: Headers) -> list[Window]:
    """The windows that the headers of a response state; a ban is one of them."""
    policies = _POLICY.findall(headers["ratelimit-policy"])
    states = _STATE.findall(headers["ratelimit"])
    if [state[0] for state in states[2:]] == ["ban"]:
        policies.append(("ban", "0", "0"))
    same([state[0] for state in states], [policy[0] for policy in policies], "the windows in RateLimit")
    return [
        Window(name, int(limit), int(remaining), int(resets_in))
        for (name, limit, _), (_, remaining, resets_in) in zip(policies, states, strict=True)
    ]


def check_code(code: str | None, segments: list[str], headers: Headers) -> None:
    """An identifier that could name an order is 'not found', any other 'invalid' (D4); only a key sent is so (D9)."""
    if code in ("missing_api_key", "invalid_api_key"):
        sent = "error=" in headers["www-authenticate"]
        same(sent, code == "invalid_api_key", "whether WWW-Authenticate names an error")
    if code in ("order_not_found", "invalid_order_id"):
        text = segments[3]  # /v1/store/orders/{orderId}
        could_name_one = bool(_PLAIN_INTEGER.fullmatch(text)) and -(2**63) <= int(text) < 2**63
        same(code, "order_not_found" if could_name_one else "invalid_order_id", f"the code for {text!r}")
    if code in ("idempotency_key_in_use", "reference_in_use"):
        same("location" in headers, code == "reference_in_use", "whether Location leads to an order")
        same("retry-after" in headers, code == "idempotency_key_in_use", "whether there is a Retry-After")


def check_page(target: str, page: dict[str, Any], headers: Headers) -> None:
    """A page is in the requested order, no longer than its limit, and its Link is the request with the next cursor."""
    query = [tuple(pair.split("=", 1)) for pair in target.partition("?")[2].split("&") if pair]
    asked = {name: unquote(value) for name, value in query}
    if len(page["data"]) > int(asked.get("limit", "100")):
        fail(f"the page has {len(page['data'])} orders, more than its limit")
    sort = "updatedAt" if "next" in page else asked.get("sort", "id")
    places = [_place(order, sort) for order in page["data"]]
    for before, after in pairwise(places):
        if before >= after:
            fail(f"the order at {after} follows that at {before}")
    cursor = page.get("nextCursor")
    if cursor is None:
        same(headers.get("link"), None, "Link on the last page")
        return
    kept = "".join(f"{name}={value}&" for name, value in query if unquote(name) != "cursor")
    same(headers.get("link"), f'<orders?{kept}cursor={cursor}>; rel="next"', "Link")


def _place(order: dict[str, Any], sort: str) -> tuple[bool, int, int]:
    """Where the order stands in the list, for comparison; orders without the value come last."""
    sign, field = (-1, sort[1:]) if sort.startswith("-") else (1, sort)
    value = order.get(field)
    if isinstance(value, str):
        value = (datetime.fromisoformat(value) - _EPOCH) // timedelta(microseconds=1)
    return value is None, sign * (value or 0), sign * order["id"]


def same(actual: Any, expected: Any, what: str) -> None:
    """Raise AssertionError, naming both, unless they are equal."""
    if actual != expected:
        fail(f"{what}: {actual!r}, and must be {expected!r}")


def fail(message: str) -> NoReturn:
    raise AssertionError(message)
