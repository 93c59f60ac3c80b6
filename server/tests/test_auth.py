"""Which principals are kept in memory, under what, and until when (D9, D19)."""

import asyncio
import random

import pytest

from petstore_server.api import callers
from petstore_server.api.callers import Authenticator
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
