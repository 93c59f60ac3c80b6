"""The checker that holds exchanges to the contract passes what is right, and fails on each kind of departure."""

import gzip
import json
import re
from typing import Any

import httpx2
import pytest

from testing.checked_clients import checked_client, contract

Lines = list[tuple[str, str]]

LIST, ORDER, PET = "/v1/store/orders", "/v1/store/orders/7", "/v1/pets/3"
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
NOTICES: Lines = [
    ("deprecation", "@1793491200"),
    ("sunset", "Wed, 01 Dec 2027 00:00:00 GMT"),
    ("link", '<../../docs>; rel="deprecation"; type="text/html", <../../docs>; rel="sunset"; type="text/html"'),
]
NO_KEY = ("www-authenticate", 'Bearer realm="orders"')
BAD_KEY = ("www-authenticate", 'Bearer realm="orders", error="invalid_token"')


def error(code: str, status: int, **more: Any) -> bytes:
    return json.dumps({"code": code, "message": "Do this.", "status": status, **more}).encode()


def check(method: str, target: str, status: int, headers: Lines, body: bytes = b"") -> None:
    contract().check(method, target, status, headers, body)


def replaced(lines: Lines, name: str, value: str) -> Lines:
    return [(n, value if n == name else v) for n, v in lines]


GOOD: dict[str, tuple[str, str, int, Lines, bytes]] = {
    "list": ("GET", LIST, 200, [*ACCOUNT, *LISTING, *JSON], b'[{"id":-3},{"id":7,"petId":2,"complete":true}]'),
    "list unchanged": ("GET", LIST, 304, [*ACCOUNT, *LISTING], b""),
    "head": ("HEAD", LIST, 200, [*ACCOUNT, *LISTING, *JSON, ("content-length", "99")], b""),
    "cancelled": ("DELETE", ORDER, 204, ACCOUNT, b""),
    "no such order": ("DELETE", ORDER, 404, [*ACCOUNT, *ERROR], error("order_not_found", 404)),
    "no identifier": ("DELETE", f"{LIST}/%201", 404, [*ACCOUNT, *ERROR], error("invalid_order_id", 404)),
    "shipped": ("DELETE", ORDER, 409, [*ACCOUNT, *ERROR], error("order_already_shipped", 409)),
    "no key": ("GET", LIST, 401, [*ADDRESS, *ERROR, NO_KEY], error("missing_api_key", 401)),
    "bad key": ("DELETE", ORDER, 401, [*ADDRESS, *ERROR, BAD_KEY], error("invalid_api_key", 401)),
    "over the limit": ("GET", LIST, 429, [*EXHAUSTED, *ERROR], error("rate_limit_exceeded", 429)),
    "wrong method": ("POST", LIST, 405, [*ACCOUNT, *ERROR, ("allow", "GET, HEAD")], error("method_not_allowed", 405)),
    "unknown path": ("GET", LIST + "/", 404, [*ACCOUNT, *ERROR], error("not_found", 404)),
    "outage": ("DELETE", ORDER, 503, [*ADDRESS, *ERROR, ("retry-after", "1")], error("service_unavailable", 503)),
    "pet": (
        *("GET", PET, 200),
        [*ACCOUNT, *JSON, ("cache-control", "private, no-cache"), ("vary", "Authorization"), *NOTICES],
        b'{"id":3,"name":"Rex"}',
    ),
    "pet without a key": ("GET", PET, 401, [*ADDRESS, *ERROR, NO_KEY], error("missing_api_key", 401)),
    "outside": ("GET", "/favicon.ico", 404, [("x-request-id", "r"), *ERROR], error("not_found", 404)),
}


def fails(complaint: str, name: str, **changed: Any) -> None:
    """Check a good exchange with other parts, and expect a complaint that matches the pattern."""
    parts: dict[str, Any] = dict(zip(("method", "target", "status", "headers", "body"), GOOD[name], strict=True))
    with pytest.raises(AssertionError, match=complaint):
        check(**{**parts, **changed})


@pytest.mark.parametrize("name", GOOD)
def test_the_checker_passes_what_is_as_documented(name: str) -> None:
    method, target, status, headers, body = GOOD[name]
    check(method, target, status, headers, body)


@pytest.mark.parametrize("name", [name for name in GOOD if GOOD[name][1].startswith("/v1")])
def test_the_checker_fails_without_any_header_and_with_a_limit_header_too_many(name: str) -> None:
    headers = GOOD[name][3]
    for header in dict(headers).keys() - {"content-encoding", "content-length"}:
        missing = f'"{header}" is a required property|Content-Type: None'
        fails(missing, name, headers=[line for line in headers if line[0] != header])
    for header, _ in ACCOUNT:
        fails(f"{header} stands 2 times", name, headers=[*headers, (header.title(), dict(headers)[header])])


@pytest.mark.parametrize(
    ("name", "header", "complaint"),
    [
        ("list", ("retry-after", "3"), "'retry-after' was unexpected"),
        ("list", ("access-control-allow-origin", "*"), "access-control-allow-origin is present"),
        ("list", ("deprecation", "@1793491200"), "'deprecation' was unexpected"),
        ("list", ("x-powered-by", "us"), "'x-powered-by' was unexpected"),
        ("list", ("content-length", "3"), "Content-Length: 3, and must be 46"),
        ("pet without a key", NOTICES[0], "'deprecation' was unexpected"),
        ("cancelled", ("content-length", "0"), "Content-Length is present on a 204"),
        ("cancelled", ("content-type", "application/json"), "Content-Type is present without a body"),
        ("outside", ACCOUNT[1], "x-ratelimit-limit stands on an answer outside /v1"),
        ("outside", ("x-request-id", "2"), "x-request-id stands 2 times"),
    ],
)
def test_the_checker_fails_on_a_header_that_does_not_belong(name: str, header: tuple[str, str], complaint: str) -> None:
    fails(re.escape(complaint), name, headers=[*GOOD[name][3], header])


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
        ("cancelled", "x-request-id", "two words"),
        ("no key", "www-authenticate", BAD_KEY[1]),
        ("bad key", "www-authenticate", NO_KEY[1]),
        ("over the limit", "retry-after", "41"),
        ("outage", "retry-after", "0"),
        ("wrong method", "allow", "GET"),
        ("pet", "sunset", "2027-12-01"),
    ],
)
def test_the_checker_fails_on_a_wrong_value(name: str, header: str, value: str) -> None:
    method, target, status, headers, _ = GOOD[name]
    fails(f"{method} {re.escape(target)} answered {status}: ", name, headers=replaced(headers, header, value))


def test_a_refused_placement_says_where_the_order_is_or_when_to_repeat_the_request() -> None:
    retry, location = ("retry-after", "1"), ("location", "orders/7")
    for code, right in (("idempotency_key_in_use", retry), ("reference_in_use", location)):
        check("POST", "/v2/store/orders", 409, [*ACCOUNT, *ERROR, right], error(code, 409))
        for wrong in ([], [retry, location], [retry if right is location else location]):
            with pytest.raises(AssertionError, match="whether"):
                check("POST", "/v2/store/orders", 409, [*ACCOUNT, *ERROR, *wrong], error(code, 409))


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
        ("cancelled", b"{}", "body of 2 bytes"),
        ("shipped", error("order_not_found", 409), "order_not_found"),
        ("shipped", error("order_already_shipped", 404), "409 was expected"),
        ("shipped", error("order_already_shipped", 409, detail="x"), "'detail' was unexpected"),
        ("shipped", b'{"code":"order_already_shipped","status":409}', "message"),
        ("no such order", error("invalid_order_id", 404), "the code for '7'"),
        ("no identifier", error("order_not_found", 404), "the code for ' 1'"),
        ("unknown path", error("order_not_found", 404), "not_found"),
        ("outside", b'{"detail":"Not Found"}', "is not as documented"),
    ],
)
def test_the_checker_fails_on_a_wrong_body(name: str, body: bytes, complaint: str) -> None:
    fails(re.escape(complaint), name, body=body)


@pytest.mark.parametrize(
    ("name", "status"),
    [("list", 202), ("list", 206), ("list", 404), ("cancelled", 200), ("cancelled", 304), ("unknown path", 405)],
)
def test_the_checker_fails_on_a_status_that_is_not_documented(name: str, status: int) -> None:
    fails("this status is not documented here", name, status=status, body=b"" if status == 304 else GOOD[name][4])


def test_the_checker_fails_on_a_redirect_outside_v1() -> None:
    with pytest.raises(AssertionError, match="one of a document's"):
        check("GET", "/docs/", 307, [("x-request-id", "r"), ("location", "/docs")])


def test_the_checker_fails_where_a_callers_windows_are_anothers() -> None:
    fails("the windows shown", "no key", headers=[*ACCOUNT, *ERROR, NO_KEY])
    fails("shows those of its account", "cancelled", headers=ADDRESS)


def test_a_banned_key_sees_its_windows_and_the_ban() -> None:
    banned = replaced([*EXHAUSTED, *ERROR], "ratelimit", '"minute";r=0;t=50, "day";r=7;t=99, "ban";r=0;t=90')
    check("GET", LIST, 429, replaced(banned, "retry-after", "90"), error("api_key_banned", 429))
    fails("whether RateLimit has the ban", "over the limit", body=error("api_key_banned", 429))


def test_a_checked_client_checks_the_decoded_body_and_hands_it_on() -> None:
    headers = [*ACCOUNT, *LISTING, *JSON, ("content-encoding", "gzip")]
    bodies = iter([b'[{"id":1}]', b'[{"id":2},{"id":1}]'])
    server = httpx2.MockTransport(lambda _: httpx2.Response(200, headers=headers, content=gzip.compress(next(bodies))))
    with checked_client(server) as client:
        assert [{"id": 1}] == client.get(LIST).json()
        with pytest.raises(AssertionError, match="the list must ascend"):
            client.get(LIST)
