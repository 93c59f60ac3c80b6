"""Invalid arguments and responses: each raises a typed error that says what to do."""

import pickle
import re
import zlib

import pytest

from petstore_client import Client, Order, Pet, errors
from petstore_client.testing import Answered, Failing, FakePetstore
from testing.client_variants import Connect, faulty

JSON = {"content-type": "application/json"}
HTML = Answered(200, b"<html><body>Log in</body></html>", {"content-type": "text/html; charset=utf-8"})


@pytest.mark.parametrize(
    ("base_url", "says"),
    [
        *((f"https://api.example.com{end}", "https://api.example.com/v1?") for end in ("", "/")),
        ("https://api.example.com/v2/", "did you mean https://api.example.com/v1?"),
        ("https://api.example.com/v1/store", "must end with the version"),
        *((f"{begin}/v1", "must look like") for begin in ("api.example.com", "ftp://api.example.com", "https://")),
        *((f"https://api.example.com{end}/v1", "must look like") for end in (":0x1", ":99999", "\n")),
        *((f"https://{label}.com/v1", "must look like") for label in ("exa mple", "api..example", "a" * 64)),
        ("https://user:secret@api.example.com/v1", "must not contain a user"),
        *((f"https://api.example.com/v1{end}", "must not contain") for end in ("?key=secret", "#top")),
    ],
)
def test_an_invalid_base_url_is_rejected(base_url: str, says: str) -> None:
    with pytest.raises(errors.ConfigurationError, match=re.escape(says)) as caught:
        Client(base_url, api_key="key")
    assert "secret" not in str(caught.value)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("given", "used"),
    [
        *((url, "https://api.test/v1") for url in ("https://api.test/v1", "https://API.test/v1/")),
        ("https://api.test:443/v1", "https://api.test/v1"),
        ("http://127.0.0.1:8080/v1", "http://127.0.0.1:8080/v1"),
        ("https://[::1]:8/v1/", "https://[::1]:8/v1"),
        ("https://x.test/petstore/v1", "https://x.test/petstore/v1"),
    ],
)
def test_spellings_of_one_address_are_normalised(given: str, used: str) -> None:
    assert f"<Client {used}>" == repr(Client(given, api_key="key"))


@pytest.mark.parametrize(
    ("key", "says"),
    [
        *((key, "space or a line break around it") for key in ("pso_live_secret\n", " pso_live_secret")),
        *((key, "characters that keys do not") for key in ("pso_live\r\nX-Evil: secret", "pso_live_secrët", "\n")),
        *((key, "characters that keys do not have") for key in ("pso live secret", "secret\x00")),
    ],
)
def test_an_invalid_key_is_rejected_and_not_shown(key: str, says: str) -> None:
    with pytest.raises(errors.ConfigurationError, match=re.escape(says)) as caught:
        Client("http://x.test/v1", api_key=key)
    assert "secr" not in str(caught.value)


def test_base_url_and_key_come_from_the_environment_if_they_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PETSTORE_BASE_URL", raising=False)
    monkeypatch.delenv("PETSTORE_API_KEY", raising=False)
    with pytest.raises(errors.ConfigurationError, match="PETSTORE_BASE_URL"):
        Client(api_key="key")
    with pytest.raises(errors.ConfigurationError, match="PETSTORE_API_KEY"):
        Client("http://x.test/v1")
    fake = FakePetstore([Order(id=1)])
    monkeypatch.setenv("PETSTORE_BASE_URL", fake.base_url)
    monkeypatch.setenv("PETSTORE_API_KEY", fake.api_key)
    with Client(None, api_key=None, transport=fake) as petstore:
        assert [Order(id=1)] == petstore.list_orders()
    with pytest.raises(errors.ConfigurationError, match="base_url is empty"):
        Client("")
    with pytest.raises(errors.ConfigurationError, match="api_key is empty"):
        Client(api_key="")
    with Client(transport=fake, api_key="other") as petstore, pytest.raises(errors.AuthenticationError):
        petstore.list_orders()


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (HTML, "text/html instead of JSON"),
        (Answered(200, b"[]", {}), "no content type instead of JSON"),
        (Answered(200, b'{"orders":[]}', JSON), "not a list of orders"),
        (Answered(200, b"", JSON), "incomplete"),
        (Answered(204), "responded 204"),
        (Answered(206, b"[]", JSON), "responded 206"),
        (Answered(304), "responded 304"),
        (Answered(200, zlib.compress(b"[]"), {**JSON, "content-encoding": "deflate"}), "deflate"),
        (Answered(404, b"<html>not found</html>", {"content-type": "text/html"}), "is the base URL right?"),
    ],
    ids=repr,
)
def test_a_response_that_does_not_follow_the_api_is_rejected(connect: Connect, fault: Answered, says: str) -> None:
    fake = faulty([Order(id=1)], *[fault] * 9)
    with connect(fake, max_retries=0) as petstore:
        with pytest.raises(errors.InvalidResponseError, match=re.escape(says)) as caught:
            petstore.list_orders()
        assert caught.value.status in (200, 204, 206, 304, 404)
        with pytest.raises(errors.InvalidResponseError, match=re.escape(says)):
            next(petstore.iter_orders())


def test_a_front_may_repeat_the_content_type(connect: Connect) -> None:
    fake = faulty([], *[Answered(200, b"[]", {"content-type": "application/json, application/json; x=1"})] * 2)
    with connect(fake) as petstore:
        assert [] == petstore.list_orders()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_never_followed_nor_reported_as_a_success(connect: Connect, status: int) -> None:
    fake = faulty([Order(id=1)], Answered(status, b"", {"location": "https://elsewhere.test/v1/store/orders/1"}))
    says = r"https://elsewhere\.test/v1/store/orders/1.*does not follow redirects"
    with connect(fake) as petstore, pytest.raises(errors.InvalidResponseError, match=says):
        petstore.cancel_order(1)
    assert (["/store/orders/1"], None) == ([request.path for request in fake.requests], petstore.last_response)


def note(depth: int) -> bytes:
    """A field that no record has. Since Python 3.14 only the size of the stack bounds how deep JSON may be."""
    return b'"note":' + b"[" * depth + b"]" * depth


DEEP = b'{"code":"x",' + note(30_000) + b"}"


@pytest.mark.parametrize(
    "body", [b"<html>no</html>", b"", b'{"code":1}', b'{"code":"x"}', b"[]", b"\xff", DEEP], ids=len
)
def test_a_refusal_without_the_error_record_shows_its_status_and_address(connect: Connect, body: bytes) -> None:
    fake = FakePetstore([Order(id=1)])
    with connect(fake, max_retries=0, max_wait=0) as petstore:
        for status in (401, 403, 409, 418, 500, 502, 503, 429):
            fake.then(Answered(status, body, {"content-type": "text/html; charset=utf-8"}))
            with pytest.raises(errors.APIStatusError) as caught:
                petstore.list_orders()
            assert (status, "") == (caught.value.status, caught.value.code)
            assert caught.value.message.startswith(f"{fake.base_url} responded {status}")
            assert 429 == status or "(text/html)" in caught.value.message


@pytest.mark.parametrize("more", [b"", b',{"id":2}'], ids=["last", "first"])
def test_an_order_that_is_nested_too_deeply_is_rejected(connect: Connect, more: bytes) -> None:
    fake = faulty([], *[Answered(200, b'[{"id":1,' + note(400_000) + b"}" + more + b"]", JSON)] * 2)
    with connect(fake) as petstore:
        with pytest.raises(errors.InvalidResponseError, match="not an order"):
            petstore.list_orders()
        with pytest.raises(errors.InvalidResponseError, match="not an order"):
            list(petstore.iter_orders())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_record_that_is_nested_deeply_is_rejected_or_read(connect: Connect) -> None:
    fake = faulty([], *[Answered(200, b'{"id":1,' + note(30_000) + b"}", JSON)] * 2)
    with connect(fake) as petstore:
        with pytest.raises(errors.InvalidResponseError, match="not a valid order: "):
            petstore.v2.get_order(1)
        try:
            outcome = str(petstore.get_pet(1))
        except errors.InvalidResponseError as error:
            outcome = str(error)
    assert str(Pet(id=1)) == outcome or "not a valid pet" in outcome


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_sunset_out_of_range_is_ignored(connect: Connect) -> None:
    fake = faulty([], Answered(200, b'{"id":1}', {**JSON, "sunset": f"Mon, 01 Jan {10**20} 00:00:00 GMT"}))
    with connect(fake) as petstore:
        assert Pet(id=1) == petstore.get_pet(1)


def test_every_error_survives_pickling() -> None:
    fake = faulty([], Failing(500), Answered(308))
    made: list[errors.PetstoreError] = [
        errors.RateLimitError("a", "b"),
        errors.KeyBannedError("a", "b"),
        errors.ServerError("a", "b", 503, 5.0),
        errors.NotFoundError("a", "b", 404),
        errors.APIConnectionError("a", False),
        errors.InvalidResponseError("a", 200, True),
        errors.ConfigurationError("a"),
    ]
    with fake.client(max_retries=0) as petstore:
        for _ in range(2):
            try:
                petstore.cancel_order(1)
            except errors.PetstoreError as error:
                made.append(error)
    for each in made:
        again = pickle.loads(pickle.dumps(each))
        assert (type(each), str(each), vars(each)) == (type(again), str(again), vars(again))
    assert made[-2].may_have_been_applied  # after the 500


@pytest.mark.parametrize("use", ["list_orders", "close"])
def test_without_an_event_loop_of_asyncio_the_asynchronous_client_says_so(use: str) -> None:
    petstore = FakePetstore([Order(id=1)]).async_client()
    call = getattr(petstore, use)()
    with pytest.raises(errors.PetstoreError, match=r"needs a running event loop of asyncio.*trio"):
        call.send(None)  # as an event loop of trio does
