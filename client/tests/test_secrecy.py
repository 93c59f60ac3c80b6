"""The key is never shown, and only documented data leaves the program."""

import copy
import logging
import pickle
import traceback
from typing import Any

import httpx2
import pytest

from petstore_client import AsyncClient, Client, ConfigurationError, Order, PetstoreError, __version__
from petstore_client.testing import FakePetstore
from petstore_client.testing.faults import (
    Answered,
    Banned,
    Dropped,
    Failing,
    Fault,
    RateLimited,
    Raw,
    TimedOut,
    Unreachable,
)
from testing.client_variants import Connect, Own, faulty

KEY = "pso_live_TOPSECRET0123456789abcdefghij"
ECHO = b'{"code":"invalid_api_key","message":"The key %s is wrong.","status":401}' % KEY.encode()
CODE = b'{"code":"%s","message":"The key is wrong.","status":401}' % KEY.encode()


def broken(*_: object) -> Raw:
    """Break the connection for a response whose status line has the key: httpx2 quotes it."""
    raise httpx2.RemoteProtocolError(f"illegal status line: bytearray(b'Authorization: Bearer {KEY}')")


@pytest.mark.parametrize(
    "fault",
    [
        *(Unreachable(), Dropped(), TimedOut(), Failing(500), RateLimited(999), Banned()),
        Answered(308, headers={"location": f"https://elsewhere.test/?key={KEY}"}),
        *(Answered(status, ECHO) for status in (401, 404, 200)),
        Answered(200, b"[1]"),
        *(Answered(status, CODE) for status in (401, 409, 429, 500)),
        *(Answered(status, b"", {"content-type": f"{KEY}/html", "x-request-id": KEY}) for status in (200, 500)),
        Answered(200, b"", {"x-request-id": f"petstore-client-{KEY}"}),
        Own(broken),
    ],
    ids=lambda fault: type(fault).__name__,
)
def test_the_key_is_in_no_log_and_no_traceback(
    connect: Connect, fault: Fault, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    fake = faulty([Order(id=1)], *[fault] * 5)
    with connect(fake, api_key=KEY, max_retries=1) as petstore, pytest.raises(PetstoreError) as caught:
        petstore.cancel_order(1)
    echoed = isinstance(fault, Own) or "TOP" in repr(fault)
    seen = traceback.TracebackException.from_exception(caught.value, capture_locals=not echoed)
    lines = [
        line for line in "".join(seen.format()).splitlines() if "KEY = " not in line
    ]  # the source lines of this module
    assert not [line for line in lines if "TOPSECRET" in line]
    assert "TOPSECRET" not in repr(vars(caught.value))
    assert "TOPSECRET" not in caplog.text
    assert "cancelOrder" in caplog.text


@pytest.mark.parametrize(
    "wrong", [{"base_url": "x"}, {"base_url": "x", "api_key": None}, {"max_wait": -1}, {"api_key": f"{KEY}\n"}]
)
def test_the_key_is_in_no_traceback_of_a_client_that_cannot_be_made(
    wrong: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PETSTORE_API_KEY", KEY)
    with pytest.raises(ConfigurationError) as caught:
        Client(**{"base_url": "http://x.test/v1", "api_key": KEY, **wrong})
    frames = traceback.TracebackException.from_exception(caught.value, capture_locals=True).stack[1:]
    assert "TOPSECRET" not in repr([frame.locals for frame in frames])


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_a_client_does_not_show_its_key_and_cannot_be_pickled_or_copied(kind: type[Client | AsyncClient]) -> None:
    client = kind("http://x.test/v1", api_key=KEY)
    parts = vars(client).values()
    for shown in (client, *parts, *(vars(part) for part in parts if hasattr(part, "__dict__"))):
        assert "TOPSECRET" not in f"{shown!r} {shown}"
    for way in (pickle.dumps, copy.deepcopy):
        with pytest.raises(TypeError, match="cannot be"):
            way(client)


def test_no_more_than_the_documented_headers_are_sent(connect: Connect) -> None:
    fake = FakePetstore([Order(id=1)])
    with connect(fake) as petstore:
        petstore.cancel_order(1)
    headers = fake.requests[0].headers
    names = ["accept", "accept-encoding", "authorization", "connection", "host", "user-agent", "x-request-id"]
    assert names == sorted(headers)
    assert headers["user-agent"].startswith(f"petstore-client/{__version__} python/3.")
    assert (f"Bearer {fake.api_key}", "gzip") == (headers["authorization"], headers["accept-encoding"])


def test_cookies_are_not_kept(connect: Connect) -> None:
    fake = FakePetstore([Order(id=1)])
    fake.then(Answered(200, b"[]", {"content-type": "application/json", "set-cookie": "track=me; Path=/"}))
    with connect(fake) as petstore:
        petstore.list_orders()
        petstore.list_orders()
    assert "cookie" not in fake.requests[1].headers


def test_nothing_is_logged_by_default(connect: Connect, capfd: pytest.CaptureFixture[str]) -> None:
    fake = faulty([Order(id=1)], Failing(500))
    with connect(fake) as petstore:
        petstore.list_orders()
    assert ("", "") == capfd.readouterr()
