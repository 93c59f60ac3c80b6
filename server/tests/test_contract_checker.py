"""The checker that holds exchanges to the contract passes what is right, and fails on each kind of departure."""

import gzip
import json
import re
from typing import Any

import httpx2
import pytest

from testing.checked_clients import checked_client, contract

Lines = list[tuple[str, str]]

LIST, ORDER, V2 = "/v1/store/orders", "/v1/store/orders/7", "/v2/store/orders"
ACCOUNT: Lines = [
    ("x-request-id", "r-1"),
    ("x-ratelimit-limit", "60"),
    ("x-ratelimit-remaining", "59"),
    ("x-ratelimit-reset", "1795172460"),
    ("ratelimit-policy", '"minute";q=60;w=60, "day";q=1000;w=86400'),
    ("ratelimit", '"minute";r=59;t=42, "day";r=999;t=51234'),
]
ADDRESS: Lines = [*ACCOUNT[:4], ("ratelimit-policy", '"address";q=60;w=60'), ("ratelimit", '"address";r=59;t=42')]
EXHAUSTED: Lines = [
    *((name, "0" if name == "x-ratelimit-remaining" else value) for name, value in ACCOUNT[:5]),
    ("ratelimit", '"minute";r=0;t=42, "day";r=940;t=51234'),
    ("retry-after", "42"),
]
LISTING: Lines = [("etag", '"abc"'), ("cache-control", "private, no-cache"), ("vary", "Accept-Encoding, Authorization")]
JSON: Lines = [("content-type", "application/json")]
ERROR: Lines = [*JSON, ("cache-control", "no-store")]
BANNED: Lines = [
    *EXHAUSTED[:5],
    ("ratelimit", '"minute";r=0;t=50, "day";r=7;t=99, "ban";r=0;t=90'),
    ("retry-after", "90"),
]
NO_KEY = ("www-authenticate", 'Bearer realm="orders"')
LOCATION, RETRY = ("location", "orders/7"), ("retry-after", "1")
BAD_KEY = ("www-authenticate", 'Bearer realm="orders", error="invalid_token"')


def error(code: str, status: int, **more: Any) -> bytes:
    return json.dumps({"code": code, "message": "Do this.", "status": status, **more}).encode()


GOOD: dict[str, tuple[str, str, int, Lines, bytes]] = {
    "list": ("GET", LIST, 200, [*ACCOUNT, *LISTING, *JSON], b'[{"id":-3},{"id":7,"petId":2,"complete":true}]'),
    "list unchanged": ("GET", LIST, 304, [*ACCOUNT, *LISTING], b""),
    "cancelled": ("DELETE", ORDER, 204, ACCOUNT, b""),
    "no such order": ("DELETE", ORDER, 404, [*ACCOUNT, *ERROR], error("order_not_found", 404)),
    "no identifier": ("DELETE", f"{LIST}/%201", 404, [*ACCOUNT, *ERROR], error("invalid_order_id", 404)),
    "shipped": ("DELETE", ORDER, 409, [*ACCOUNT, *ERROR], error("order_already_shipped", 409)),
    "no key": ("GET", LIST, 401, [*ADDRESS, *ERROR, NO_KEY], error("missing_api_key", 401)),
    "bad key": ("DELETE", ORDER, 401, [*ADDRESS, *ERROR, BAD_KEY], error("invalid_api_key", 401)),
    "over the limit": ("GET", LIST, 429, [*EXHAUSTED, *ERROR], error("rate_limit_exceeded", 429)),
    "banned": ("GET", LIST, 429, [*BANNED, *ERROR], error("api_key_banned", 429)),
    "wrong method": ("POST", LIST, 405, [*ACCOUNT, *ERROR, ("allow", "GET, HEAD")], error("method_not_allowed", 405)),
    "outage": ("DELETE", ORDER, 503, [*ADDRESS, *ERROR, ("retry-after", "1")], error("service_unavailable", 503)),
    "outside": ("GET", "/favicon.ico", 404, [("x-request-id", "r"), *ERROR], error("not_found", 404)),
    "placed already": ("POST", V2, 409, [*ACCOUNT, *ERROR, LOCATION], error("reference_in_use", 409)),
    "being placed": ("POST", V2, 409, [*ACCOUNT, *ERROR, RETRY], error("idempotency_key_in_use", 409)),
}


def fails(complaint: str, name: str, **changed: Any) -> None:
    """Check a good exchange with other parts, and expect the complaint."""
    good: dict[str, Any] = dict(zip(("method", "target", "status", "headers", "body"), GOOD[name], strict=True))
    with pytest.raises(AssertionError, match=re.escape(complaint)):
        contract().check(**good | changed)


@pytest.mark.parametrize("name", [name for name in GOOD if GOOD[name][1].startswith("/v1")])
def test_the_checker_passes_what_is_as_documented_and_fails_without_any_header(name: str) -> None:
    method, target, status, headers, body = GOOD[name]
    contract().check(method, target, status, headers, body)
    for missing, _ in headers:
        complaint = "Content-Type: None" if missing == "content-type" else f'"{missing}" is a required property'
        fails(complaint, name, headers=[line for line in headers if line[0] != missing])


@pytest.mark.parametrize(
    ("name", "header", "complaint"),
    [
        ("list", ("retry-after", "3"), "'retry-after' was unexpected"),
        ("list", ("access-control-allow-origin", "*"), "access-control-allow-origin is present"),
        ("list", ("content-length", "3"), "Content-Length: 3, and must be 46"),
        ("list", ("X-Request-Id", "r-2"), "x-request-id stands 2 times"),
        ("cancelled", ("content-length", "0"), "Content-Length is present on a 204"),
        ("cancelled", ("content-type", "application/json"), "Content-Type is present without a body"),
        ("outside", ACCOUNT[1], "x-ratelimit-limit stands on an answer outside /v1"),
        ("placed already", RETRY, "whether there is a Retry-After"),
        ("being placed", LOCATION, "whether Location leads to an order"),
    ],
)
def test_the_checker_fails_on_a_header_that_does_not_belong(name: str, header: tuple[str, str], complaint: str) -> None:
    fails(complaint, name, headers=[*GOOD[name][3], header])


@pytest.mark.parametrize(
    ("name", "header", "value"),
    [
        ("list", "content-type", "application/json; charset=utf-8"),
        ("list", "etag", 'W/"abc"'),
        ("list", "x-ratelimit-reset", "1795172460.5"),
        ("list", "x-ratelimit-remaining", "999"),
        ("list", "ratelimit", '"minute";r=61;t=4, "day";r=999;t=51234'),
        ("list", "ratelimit", '"minute";r=59;t=42, "day";r=12;t=51234'),
        ("list", "ratelimit", '"minute";r=59;t=42'),
        ("no key", *BAD_KEY),
        ("bad key", *NO_KEY),
        ("over the limit", "retry-after", "41"),
        ("banned", "ratelimit", dict(EXHAUSTED)["ratelimit"]),
        ("wrong method", "allow", "GET"),
    ],
)
def test_the_checker_fails_on_a_wrong_value(name: str, header: str, value: str) -> None:
    method, target, status, headers, _ = GOOD[name]
    changed = [(other, value if other == header else good) for other, good in headers]
    fails(f"{method} {target} answered {status}: ", name, headers=changed)


@pytest.mark.parametrize(
    ("name", "body", "complaint"),
    [
        ("list", b'[{"id":7},{"id":7}]', "the list must ascend"),
        ("list", b'[{"id":7,"status":"pending"}]', "'status' was unexpected"),
        ("list", b'[{"id":7,"quantity":1.0}]', "1.0, which is not an integer"),
        ("list", b'[{"id":7,"id":7}]', "repeats a name"),
        ("list", b'[{"id":7,"shipDate":"2026-10-07T03:51:47+00:00"}]', "does not match"),
        ("list", b'[{"id":7,"shipDate":"2026-02-30T03:51:47Z"}]', "date-time"),
        ("list", b'[{"id":7}', "not JSON"),
        ("list unchanged", b"[]", "body of 2 bytes"),
        ("shipped", error("order_not_found", 409), "order_not_found"),
        ("shipped", error("order_already_shipped", 404), "409 was expected"),
        ("shipped", error("order_already_shipped", 409, detail="x"), "'detail' was unexpected"),
        ("no such order", error("invalid_order_id", 404), "the code for '7'"),
        ("no identifier", error("order_not_found", 404), "the code for ' 1'"),
        ("outside", b'{"detail":"Not Found"}', "is not as documented"),
    ],
)
def test_the_checker_fails_on_a_wrong_body(name: str, body: bytes, complaint: str) -> None:
    fails(complaint, name, body=body)


def test_the_checker_fails_on_a_wrong_status_and_where_a_callers_windows_are_anothers() -> None:
    fails("this status is not documented here", "list", status=202)
    fails("the windows shown", "no key", headers=[*ACCOUNT, *ERROR, NO_KEY])
    fails("shows those of its account", "cancelled", headers=ADDRESS)


def test_a_checked_client_checks_the_decoded_body_and_hands_it_on() -> None:
    headers = [*ACCOUNT, *LISTING, *JSON, ("content-encoding", "gzip")]
    bodies = iter([b'[{"id":1}]', b'[{"id":2},{"id":1}]'])
    server = httpx2.MockTransport(lambda _: httpx2.Response(200, headers=headers, content=gzip.compress(next(bodies))))
    with checked_client(server) as client:
        assert [{"id": 1}] == client.get(LIST).json()
        with pytest.raises(AssertionError, match="the list must ascend"):
            client.get(LIST)
