"""Options of clients and of calls, and the environment: what is accepted, what is refused, and their effect."""

import functools
import json
import os
import ssl
from collections.abc import Callable
from datetime import UTC, datetime
from math import inf, nan
from typing import Any, cast

import httpx2
import pytest

from petstore_client import AsyncClient, Client, Clock, Order, Pet, ResponseEvent, __version__, errors
from petstore_client.testing import Answered, Dropped, Failing, FakePetstore, RateLimited, Raw, Serve, Slow, TimedOut
from testing.client_variants import Connect, Own, faulty

URL = "http://x.test/v1"
ORDERS = [
    Order(id=1, pet_id=2, quantity=3, ship_date=datetime(2026, 11, 20, 12, 0, tzinfo=UTC), complete=False),
    Order(id=2),
]


async def asynchronous(event: object) -> None:
    """A hook that nothing would await."""


class AsynchronousHook:
    async def __call__(self, event: object) -> None:
        """The same as an object."""


@pytest.mark.parametrize("kind", [Client, AsyncClient])
@pytest.mark.parametrize(
    "options",
    [
        *({"timeout": wrong} for wrong in (inf, nan, 1e9, 0, -1, True, httpx2.Timeout(5.0, connect=inf))),
        *({"max_retries": wrong} for wrong in (2.5, -1, True, inf)),
        *({"max_wait": wrong} for wrong in (-0.1, "75", nan)),
        {"retry_timeout": None},
        *({"deadline": wrong} for wrong in (0, -1, inf, "10")),
        *({"transport": wrong} for wrong in (object(), httpx2.HTTPTransport)),
        {"http_client": object()},
        *({"on_retry": wrong} for wrong in ("print", asynchronous)),
        {"on_rate_limit": functools.partial(asynchronous)},
        {"on_response": AsynchronousHook()},
        *(
            {"headers": {name: "1"}}
            for name in ("Authorization", "x-request-ID", "user-agent", "If-Match", "X-Bad Name")
        ),
        *({"headers": {"X-Secret": wrong}} for wrong in ("secret\r\nX-Other: 1", "sécret", 1)),
        {"headers": [("X-Name", "1")]},
        {"transport": FakePetstore(), "http_client": httpx2.Client()},
        *({"app_name": wrong} for wrong in ("", "acme\r\nX-Other: 1", "acme (sync)")),
        {"api_key": 7},
    ],
    ids=lambda options: next(iter(options)),
)
def test_an_invalid_option_is_refused_when_the_client_is_made(
    kind: Callable[..., object], options: dict[str, Any]
) -> None:
    with pytest.raises(errors.ConfigurationError, match=next(iter(options))) as caught:
        kind(URL, **{"api_key": "key", **options})
    assert "secret" not in str(caught.value)


def test_each_variant_refuses_the_transports_of_the_other() -> None:
    for kind, transport, http_client in (
        (Client, httpx2.AsyncHTTPTransport(), httpx2.AsyncClient()),
        (AsyncClient, httpx2.HTTPTransport(), httpx2.Client()),
    ):
        for option in ({"transport": transport}, {"http_client": http_client}):
            with pytest.raises(errors.ConfigurationError, match=f"of {kind.__name__} must be an httpx2."):
                kind(URL, api_key="key", **option)


def test_with_options_changes_a_copy_that_shares_the_rest(connect: Connect) -> None:
    fake = FakePetstore(ORDERS, per_minute=2)
    with connect(fake, max_retries=4) as petstore:
        impatient = petstore.with_options(max_retries=0, max_wait=0)
        assert ORDERS == impatient.list_orders()
        assert ORDERS == petstore.list_orders()
        assert "if-none-match" in fake.requests[1].headers  # the list is shared
        with pytest.raises(errors.PetstoreError, match="max_wait"):
            impatient.list_orders()  # so are the limits
        assert ORDERS == petstore.list_orders()
        fake.then(Failing(500))
        with pytest.raises(errors.PetstoreError, match="max_retries"):
            impatient.list_orders()
        impatient.close()
        with pytest.raises(errors.PetstoreError, match="closed"):
            petstore.list_orders()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"timeout": "5"}, r"an httpx2.Timeout .*this client uses httpx2, not httpx"),
        ({"headers": {"X-Request-ID": "warehouse-17"}}, "Pass request_id to with_options"),
        *(
            ({"request_id": wrong}, "request_id must be 1 to 128")  # because the service would replace it
            for wrong in ("", "two words", "x" * 129, "ключ", "of pso_live_x", "my-pso_test_x")
        ),
    ],
    ids=str,
)
def test_an_invalid_option_of_a_call_is_refused(connect: Connect, options: dict[str, Any], says: str) -> None:
    with connect(FakePetstore()) as petstore, pytest.raises(errors.ConfigurationError, match=says):
        petstore.with_options(**options)


def test_what_belongs_to_the_connections_cannot_be_changed(connect: Connect) -> None:
    with connect(FakePetstore()) as petstore:
        for name in ("base_url", "api_key", "transport", "nonsense"):
            with pytest.raises(TypeError, match=f"cannot change {name}"):
                petstore.with_options(**{name: cast(Any, None)})


def test_connect_and_read_timeouts_can_differ(connect: Connect) -> None:
    fake = FakePetstore(ORDERS)
    seen: list[Any] = []

    def record(request: httpx2.Request, _: Clock, serve: Serve) -> Raw:
        seen.append(request.extensions["timeout"])
        return serve()

    fake.then(*[Own(record)] * 3, TimedOut())
    with connect(fake, timeout=httpx2.Timeout(20, connect=3), max_retries=0) as petstore:
        petstore.list_orders()
        petstore.with_options(deadline=10).list_orders()
        petstore.with_options(timeout=None).list_orders()
        with pytest.raises(errors.APITimeoutError):
            petstore.list_orders()
    assert [(3, 20), (3, 10), (None, None)] == [(timeout["connect"], timeout["read"]) for timeout in seen]
    assert 20 == fake.clock.monotonic()


@pytest.mark.parametrize(("deadline", "wait"), [(1e300, 0), (None, 10**30)])
def test_a_socket_can_wait_as_long_as_any_deadline_and_any_wait_say(
    connect: Connect, deadline: float | None, wait: int
) -> None:
    seen: list[float | None] = []

    def note(request: httpx2.Request, clock: Clock, serve: Serve) -> Raw:
        seen.extend(request.extensions["timeout"].values())
        return serve()

    with connect(faulty([], Own(note), Own(note)), deadline=deadline, timeout=None if deadline else 30) as petstore:
        for _ in range(2):  # the first one is a probe, which is not held
            petstore.v2.list_changes(wait=wait)
    assert 8 == len(seen)
    assert [] == [timeout for timeout in seen if timeout is not None and timeout * 1000 >= 2**31]  # as poll() takes


def test_the_read_timeout_bounds_small_bodies_and_each_part_of_a_page(connect: Connect) -> None:
    fake = faulty(ORDERS, *[Slow(pause=4, size=10)] * 2, pets=[Pet(id=1, name="x" * 100)])
    with connect(fake, timeout=httpx2.Timeout(5, connect=1), max_retries=0) as petstore:
        assert 2 == len(petstore.v2.list_orders().data)
        with pytest.raises(errors.APITimeoutError):
            petstore.get_pet(1)


def test_headers_and_app_name_are_sent(connect: Connect) -> None:
    fake = FakePetstore(ORDERS)
    with connect(fake, headers={"X-Tenant": "north"}, app_name="acme-sync/1.4") as petstore:
        petstore.list_orders()
        petstore.with_options(headers={"X-Tenant": "south"}).list_orders()
    assert ["north", "south"] == [request.headers["x-tenant"] for request in fake.requests]
    assert fake.requests[0].headers["user-agent"].startswith(f"acme-sync/1.4 petstore-client/{__version__} python/")


def test_an_http_client_sends_and_stays_open() -> None:
    fake = FakePetstore(ORDERS)
    options: dict[str, Any] = {"auth": ("user", "password"), "follow_redirects": True}
    with httpx2.Client(transport=fake, headers={"X-Tenant": "north"}, **options) as http:
        with Client(fake.base_url, api_key=fake.api_key, http_client=http, clock=fake.clock) as petstore:
            assert ORDERS == petstore.list_orders()
        assert not http.is_closed
        with Client(fake.base_url, api_key=fake.api_key, http_client=http, clock=fake.clock) as petstore:
            http.close()
            with pytest.raises(errors.PetstoreError, match="closed"):
                petstore.list_orders()
    (request,) = fake.requests
    assert ("north", f"Bearer {fake.api_key}") == (request.headers["x-tenant"], request.headers["authorization"])


def test_a_record_becomes_the_json_object_of_the_api() -> None:
    as_sent = {"id": 1, "petId": 2, "quantity": 3, "shipDate": "2026-11-20T12:00:00Z", "complete": False}
    assert as_sent == ORDERS[0].to_dict()
    assert {"id": 2} == ORDERS[1].to_dict()
    assert {"id": 3, "name": "Clover"} == Pet(id=3, name="Clover").to_dict()
    assert [as_sent, {"id": 2}] == json.loads(json.dumps(ORDERS, default=Order.to_dict))


def test_a_successful_response_is_described(connect: Connect) -> None:
    fake = faulty(ORDERS, Failing(500))
    events: list[ResponseEvent] = []
    with connect(fake, on_response=events.append) as petstore:
        petstore.list_orders()
        (listed,) = events
        assert ("listOrders", 200, 2) == (listed.operation, listed.status, listed.attempts)
        assert fake.requests[1].headers["x-request-id"] == listed.request_id
        assert listed.etag
        fake.then(Dropped())
        petstore.cancel_order(1)
        assert petstore.last_response == events[-1]
        done = events[-1]
        assert ("cancelOrder", 409, None, 2) == (done.operation, done.status, done.etag, done.attempts)
        with pytest.raises(errors.APIStatusError):
            petstore.cancel_order(99)
        copy = petstore.with_options()
        copy.list_orders()
        assert done == petstore.last_response != copy.last_response
    assert 3 == len(events)


def test_an_invalid_certificate_is_not_retried(connect: Connect) -> None:
    def distrust(*_: object) -> Raw:
        raise httpx2.ConnectError("self-signed certificate") from ssl.SSLCertVerificationError()

    fake = faulty(ORDERS, *[Own(distrust)] * 5)
    with connect(fake) as petstore, pytest.raises(errors.APIConnectionError, match="certificate of") as caught:
        petstore.list_orders()
    assert (False, False, None) == (caught.value.sent, caught.value.retryable, caught.value.ended_by)
    assert "set SSL_CERT_FILE, or pass transport=..., which bypasses HTTPS_PROXY." in str(caught.value)
    assert 1 == len(fake.requests)


def test_a_full_pool_is_not_taken_for_a_service_that_cannot_be_reached(connect: Connect) -> None:
    def wait(*_: object) -> Raw:
        petstore._core.closed = len(fake.requests) == 2
        raise httpx2.PoolTimeout("")

    fake = faulty(ORDERS, *[Own(wait)] * 2)
    with connect(fake, max_retries=0) as petstore:
        with pytest.raises(errors.APITimeoutError, match="All connections of this client are in use") as caught:
            petstore.cancel_order(1)
        assert (False, False) == (caught.value.sent, caught.value.may_have_been_applied)
        with pytest.raises(errors.PetstoreError, match="This client is closed"):
            petstore.cancel_order(1)


def test_control_characters_of_the_server_are_escaped_in_str_only(connect: Connect) -> None:
    message = "No.\x1b[2J\n2026-11-21 admin logged in \x9b31m\u202e"
    fake = faulty([], Answered(409, json.dumps({"code": "x", "message": message, "status": 409}).encode()))
    with connect(fake) as petstore, pytest.raises(errors.APIStatusError) as caught:
        petstore.cancel_order(1)
    assert message == caught.value.message
    assert r"No.\x1b[2J\n2026-11-21 admin logged in \x9b31m\u202e (409 x)" == str(caught.value)


def test_a_request_id_of_the_program_is_that_of_all_attempts(connect: Connect) -> None:
    fake = FakePetstore(ORDERS)
    with connect(fake) as petstore:
        named = petstore.with_options(request_id="warehouse-17")
        fake.then(Failing(500))
        named.list_orders()
        assert named.last_response is not None
        assert "warehouse-17" == named.last_response.request_id
        with pytest.raises(errors.APIStatusError) as caught:
            named.cancel_order(99)
        assert "warehouse-17" == caught.value.request_id
        fake.then(Failing(500), RateLimited(1))
        petstore.list_orders()
        petstore.list_orders()
    *named_ids, first, second, third, other = [request.headers["x-request-id"] for request in fake.requests]
    assert ["warehouse-17"] * 3 == named_ids
    assert first.startswith("petstore-client-")
    assert first == second == third != other


VARIABLES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "ssl_cert_file", "ssl_cert_dir", "sslkeylogfile")


@pytest.fixture
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.lower() in VARIABLES:
            monkeypatch.delenv(name)
    monkeypatch.setenv("SSL_CERT_DIR", "/")  # where certificates are named, Python reads SSLKEYLOGFILE as well


@pytest.mark.usefixtures("clean_environment")
@pytest.mark.parametrize("kind", [Client, AsyncClient])
@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("ALL_PROXY", "socks5://user:secret@127.0.0.1:1", "socksio"),
        ("ALL_PROXY", "foo://user:secret@127.0.0.1:1", "http://HOST:PORT"),
        ("http_proxy", "http://user:secret@[::1", "http://HOST:PORT"),
        ("https_proxy", "http://user:secret/1@127.0.0.1:1", "http://HOST:PORT"),
        ("http_proxy", "http://user:secret\udcff@127.0.0.1:1", "http://HOST:PORT"),
        ("The proxy of the system's settings", "socks4://user:secret@127.0.0.1:1", "http://HOST:PORT"),
        ("SSL_CERT_FILE", "/nonexistent/ca.pem", "SSL_CERT_FILE=/nonexistent/ca.pem"),
        ("SSL_CERT_FILE", __file__, "certificate"),
        ("SSLKEYLOGFILE", "/nonexistent/keys", "SSLKEYLOGFILE=/nonexistent/keys"),
    ],
)
def test_an_invalid_setting_of_the_environment_is_rejected_and_named(
    monkeypatch: pytest.MonkeyPatch, kind: type[Client] | type[AsyncClient], name: str, value: str, says: str
) -> None:
    monkeypatch.setenv(name, value)
    if "system" in name:
        monkeypatch.setattr("httpx2._utils.getproxies", lambda: {"all": value})  # as on Windows and macOS
    with pytest.raises(errors.ConfigurationError, match=name) as caught:
        kind("http://127.0.0.1:1/v1", api_key="key")
    assert says in str(caught.value)
    assert "secret" not in f"{caught.value} {caught.value.__cause__}"


@pytest.mark.usefixtures("clean_environment")
@pytest.mark.parametrize(
    ("variables", "named", "options"),
    [
        ({"http_proxy": "http://user:secret@127.0.0.1:1"}, "if http_proxy applies, through that proxy", {}),
        ({"ALL_PROXY": "127.0.0.1:1"}, "if ALL_PROXY applies, through that proxy", {}),
        ({"http_proxy": "http://user:secret@proxy..test:1"}, "if http_proxy applies, through that proxy", {}),
        ({"http_proxy": ""}, None, {}),
        ({}, None, {}),
        ({"http_proxy": "http://127.0.0.1:1"}, None, {"transport": httpx2.HTTPTransport}),  # which bypasses it
    ],
    ids=repr,
)
def test_a_failed_connection_names_the_variables_that_set_a_proxy(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], named: str | None, options: dict[str, Any]
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    given = {name: make() for name, make in options.items()}
    with (
        Client("http://127.0.0.2:1/v1", api_key="key", max_retries=0, **given) as petstore,
        pytest.raises(errors.APIConnectionError, match="is the address right") as caught,
    ):
        petstore.cancel_order(1)
    message = str(caught.value)
    assert (False, False) == (caught.value.sent, caught.value.may_have_been_applied)
    assert "secret" not in message
    assert (named in message) if named else ("proxy" not in message)
