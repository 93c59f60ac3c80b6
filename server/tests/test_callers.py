"""Who calls: which principals are kept and until when; the address of a client, as it is counted (D9, D14, D19)."""

import asyncio
import ipaddress
import random

import pytest

from petstore_server.api import callers
from petstore_server.api.callers import Authenticator, ClientAddress
from petstore_server.domain.accounts import Limits, Plan
from petstore_server.domain.errors import InvalidApiKey
from petstore_server.domain.keys import DEFAULT_SCOPES, Environment, Principal, digest, new_key
from petstore_server.server.messages import Request
from testing.clock import Clock

PRINCIPAL = Principal("key_1", 1, "acme", Plan.FREE, Limits(60, 1000), DEFAULT_SCOPES)
SOURCE = random.Random(3)
TRUSTED_SECONDS = 60.0  # D19


class Keys:
    """Stands for the store: every key is valid unless `revoked`. While it is not `open`, look-ups wait."""

    def __init__(self) -> None:
        self.looked_up: list[bytes] = []
        self.revoked = False
        self.open = asyncio.Event()
        self.open.set()

    async def principal(self, digest: bytes, environment: Environment, now: float) -> Principal | None:
        found = None if self.revoked else PRINCIPAL
        self.looked_up.append(digest)
        await self.open.wait()
        return found


def make(keys: Keys, clock: Clock | None = None) -> Authenticator:
    return Authenticator(keys, Environment.PRODUCTION, clock or Clock())  # type: ignore[arg-type]  # one method is used


def a_key() -> str:
    return new_key(Environment.PRODUCTION, SOURCE.randrange)


def header(key: str, scheme: str = "Bearer ") -> bytes:
    return f"{scheme}{key}".encode()


async def test_a_key_is_kept_once_however_the_header_spells_it() -> None:
    keys, key = Keys(), a_key()
    authenticator = make(keys)
    for scheme in ("Bearer ", "bearer ", "BEARER  ", "Bearer" + " " * 20_000, "Bearer \t"):
        value = header(key, scheme)
        assert PRINCIPAL == (authenticator.known(value) or await authenticator.identify(value))
    assert [digest(key)] == keys.looked_up


async def test_what_is_not_a_key_is_not_looked_up() -> None:
    keys, key = Keys(), a_key()
    authenticator = make(keys)
    for text in (key[:-1], key + "x", f"{key}, {key}", key[:-1] + "-", "x" * 30_000, "\xe9" * len(key)):
        value = f"Bearer {text}".encode("latin-1")
        assert authenticator.known(value) is None
        with pytest.raises(InvalidApiKey):
            await authenticator.identify(value)
    assert [] == keys.looked_up


async def test_a_look_up_under_way_during_a_revocation_is_not_kept() -> None:
    keys, key = Keys(), a_key()
    authenticator = make(keys)
    keys.open.clear()
    looking_up = asyncio.create_task(authenticator.identify(header(key)))
    await asyncio.sleep(0)
    assert [digest(key)] == keys.looked_up
    keys.revoked = True
    authenticator.confirm(changed=True)
    keys.open.set()
    assert PRINCIPAL == await looking_up  # the request came before the revocation
    assert authenticator.known(header(key)) is None
    with pytest.raises(InvalidApiKey):
        await authenticator.identify(header(key))


@pytest.mark.parametrize("step", [TRUSTED_SECONDS + 1, -TRUSTED_SECONDS - 1])
async def test_a_principal_is_trusted_for_a_minute_without_an_answer_of_the_store(step: float) -> None:
    keys, key, clock = Keys(), a_key(), Clock()
    authenticator = make(keys, clock)
    await authenticator.identify(header(key))
    for seconds in (0.0, TRUSTED_SECONDS, -TRUSTED_SECONDS):
        clock.now += seconds
        assert PRINCIPAL == authenticator.known(header(key))
    clock.now += step
    assert authenticator.known(header(key)) is None
    authenticator.confirm(changed=False)
    assert PRINCIPAL == authenticator.known(header(key))


async def test_principals_are_bounded_and_the_oldest_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callers, "MAX_PRINCIPALS", 3)
    authenticator, keys = make(Keys()), [a_key() for _ in range(5)]
    for key in keys:
        await authenticator.identify(header(key))
    assert [False] * 2 + [True] * 3 == [authenticator.known(header(key)) is not None for key in keys]


async def test_the_account_of_a_request_is_that_of_a_key_that_was_accepted() -> None:
    authenticator, key = make(Keys()), a_key()
    request = Request("GET", b"/", b"", {b"authorization": header(key)}, None)
    assert authenticator.account_of(request) is None
    await authenticator.identify(header(key))
    assert authenticator.account_of(request) == PRINCIPAL.account_id


PROXIES = [ipaddress.ip_network("10.0.0.0/8"), ipaddress.ip_network("2001:db8::/32")]


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        (None, "unknown"),
        ("", "unknown"),
        ("nonsense", "unknown"),
        ("192.0.2.1", "192.0.2.1"),
        ("192.0.2.1:80", "192.0.2.1"),
        ('"192.0.2.1" ', "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("fe80::1:2:3:4%eth0", "fe80::/64"),
        ("2001:db7:1:2:3:4:5:6", "2001:db7:1:2::/64"),
        ("[2001:db7:1:2:3:4:5:6]:80", "2001:db7:1:2::/64"),
        ("[2001:db7::1", "2001:db7::/64"),
        ("fe80::1%" + "z" * 56, "fe80::/64"),  # 64 characters
        ("fe80::1%" + "z" * 57, "unknown"),
    ],
)
def test_an_address_is_counted_however_it_is_written_ipv6_by_its_64(peer: str | None, address: str) -> None:
    assert address == ClientAddress([], "X-Forwarded-For")(peer, {})


@pytest.mark.parametrize(
    ("line", "address"),
    [
        (b"192.0.2.1", "192.0.2.1"),
        (b"192.0.2.9, 192.0.2.1, 10.0.0.2", "192.0.2.1"),
        (b"192.0.2.1,10.0.0.3 , 10.0.0.2,", "192.0.2.1"),
        *[(b"192.0.2.1, %b, 10.0.0.2" % hop, "10.0.0.2") for hop in (b"nonsense", b"_hidden", b"1.2.3", b"9" * 5000)],
        *[(b"192.0.2.1, %b, 10.0.0.2" % hop, "10.0.0.2") for hop in (b"[x]", b"fe80::1%" + b"x" * 100)],
        (b"192.0.2.1, , 10.0.0.2", "192.0.2.1"),
        (b"10.0.0.3, 10.0.0.2", "10.0.0.3"),
        (b"192.0.2.1" + b", 10.0.0.2" * 31, "192.0.2.1"),
        (b"192.0.2.1, 10.0.0.3" + b", 10.0.0.2" * 31, "10.0.0.3"),
        (b"192.0.2.1" + b"," * 31, "192.0.2.1"),
        (b"192.0.2.1" + b"," * 32, "10.0.0.1"),
        (b"192.0.2.1, [2001:db8::1]:443", "192.0.2.1"),
        (b"", "10.0.0.1"),
    ],
)
def test_the_last_address_that_is_not_a_trusted_proxy_is_the_clients(line: bytes, address: str) -> None:
    headers = {b"x-forwarded-for": line, b"forwarded": b"for=198.51.100.1"}
    assert address == ClientAddress(PROXIES, "X-Forwarded-For")("10.0.0.1", headers)
    assert "192.0.2.7" == ClientAddress(PROXIES, "X-Forwarded-For")("192.0.2.7", headers)
    assert "10.0.0.1" == ClientAddress([], "X-Forwarded-For")("10.0.0.1", headers)
    assert "10.0.0.1" == ClientAddress(PROXIES, "X-Forwarded-For")("10.0.0.1", {})


@pytest.mark.parametrize(
    ("line", "address"),
    [
        (b"for=192.0.2.1", "192.0.2.1"),
        (b'proto=https; For = 192.0.2.1;by=10.0.0.1, for="10.0.0.2:80"', "192.0.2.1"),
        (b"for=192.0.2.1, by=10.0.0.2", "10.0.0.1"),
        (b"for=192.0.2.1, for=_hidden, for=10.0.0.2", "10.0.0.2"),
        (b'for="[2001:db7:1:2::3]:80"', "2001:db7:1:2::/64"),
        (b"for=192.0.2.1" + b", for=10.0.0.2" * 31, "192.0.2.1"),
        (b"for=192.0.2.1, for=10.0.0.3" + b", for=10.0.0.2" * 31, "10.0.0.3"),
        (b"for=192.0.2.1, " + b"proto=https;" * 8 + b"for=10.0.0.2", "192.0.2.1"),
        (b"for=192.0.2.1, " + b"proto=https;" * 9 + b"for=10.0.0.2", "10.0.0.1"),
    ],
)
def test_forwarded_names_each_hop_with_for(line: bytes, address: str) -> None:
    headers = {b"forwarded": line, b"x-forwarded-for": b"198.51.100.1"}
    assert address == ClientAddress(PROXIES, "Forwarded")("10.0.0.1", headers)
