"""`petstore_client.testing`: the fake service behaves like the real one, and helps to find wrong tests."""

import textwrap
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Thread
from typing import Any

import httpx2
import pytest

from petstore_client import (
    AsyncClient,
    Client,
    ConfigurationError,
    KeyBannedError,
    NotFoundError,
    Order,
    Pet,
    ServerError,
    v2,
)
from petstore_client.testing import Banned, Failing, FakeClock, FakePetstore, RateLimited
from testing.client_variants import Connect

pytest_plugins = ["pytester"]


def impatient(fake: FakePetstore) -> httpx2.Response:
    """A request of a program that ignores limits."""
    with httpx2.Client(transport=fake) as http:
        return http.get(f"{fake.base_url}/store/orders", headers={"authorization": f"Bearer {fake.api_key}"})


def test_a_ban_lasts_for_all_requests(connect: Connect) -> None:
    clock = FakeClock()
    fake = FakePetstore(clock=clock)
    fake.then(Banned(30))
    with connect(fake) as petstore, pytest.raises(KeyBannedError) as caught:
        petstore.list_orders()
    assert datetime.fromtimestamp(clock.now(), UTC) + timedelta(seconds=30) == caught.value.retry_at
    clock.advance(29)
    assert "api_key_banned" == impatient(fake).json()["code"]
    clock.advance(1)
    assert 200 == impatient(fake).status_code
    assert 1 == fake.bans


def test_a_further_ban_within_a_day_lasts_twice_as_long_up_to_an_hour() -> None:
    clock = FakeClock()
    fake = FakePetstore(per_minute=1, ban_strikes=1, ban_seconds=1000, clock=clock)
    lasted = []
    for pause in (0, 0, 0, 90_000):
        clock.advance(pause)
        assert 200 == impatient(fake).status_code
        assert 429 == impatient(fake).status_code  # no strike yet
        clock.advance(3)
        banned = impatient(fake)
        assert "api_key_banned" == banned.json()["code"]
        lasted.append(int(banned.headers["retry-after"]))
        clock.advance(lasted[-1])
    assert [1000, 2000, 3600, 1000] == lasted
    with fake.client() as petstore:
        ban = petstore.v2.get_usage().key.last_ban
    assert ban is not None
    assert (ban.ended.timestamp(), 1000) == (clock.now(), (ban.ended - ban.began).total_seconds())


def program() -> list[int | None]:
    """A program that makes its client itself."""
    with Client("https://api.example.com/v1", api_key="key", max_retries=2) as petstore:
        return [order.id for order in petstore.list_orders()]


def test_installed_intercepts_clients_in_other_threads_and_with_transports_of_their_own() -> None:
    fake, other = FakePetstore([Order(id=7)]), FakePetstore([Order(id=8)])
    fake.then(RateLimited(30), Failing(503))
    found: list[list[int | None]] = []
    with fake.installed():
        thread = Thread(target=lambda: found.append(program()))
        thread.start()
        thread.join()
        for option in ({"transport": httpx2.HTTPTransport()}, {"http_client": httpx2.Client()}):
            with Client("https://api.example.com/v1", api_key="key", **option) as petstore:
                found.append([order.id for order in petstore.list_orders()])
        with other.client() as petstore:
            assert [Order(id=8)] == petstore.list_orders()
    assert ([[7]] * 3, 5) == (found, len(fake.requests))


def test_requests_of_several_threads_are_carried_out_one_after_the_other() -> None:
    fake = FakePetstore([Order(id=number) for number in range(500)])
    with fake.client() as petstore, ThreadPoolExecutor(8) as pool:
        placed = list(pool.map(lambda _: petstore.v2.place_order(pet_id=1, quantity=1).id, range(200)))
    assert [*range(500, 700)] == sorted(placed)


@pytest.mark.anyio
async def test_installed_intercepts_asynchronous_clients_without_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PETSTORE_BASE_URL", raising=False)
    fake = FakePetstore(pets=[Pet(id=1)])
    with fake.installed():
        async with AsyncClient() as petstore:
            assert [] == await petstore.list_orders()
    with pytest.raises(ConfigurationError):
        AsyncClient()


def test_unused_faults_are_reported_and_do_not_hide_the_error_of_the_program() -> None:
    fake = FakePetstore()
    fake.then(Failing(503), RateLimited(30))
    assert [Failing(503), RateLimited(30)] == fake.unused_faults
    with fake.client(max_retries=0) as petstore, pytest.raises(ServerError):
        petstore.list_orders()
    with pytest.raises(AssertionError, match=r"never used, after 1 request: RateLimited\(ret.*=30"), fake.installed():
        pass
    assert [RateLimited(30)] == fake.unused_faults
    with pytest.raises(ZeroDivisionError), fake.installed():
        raise ZeroDivisionError


def test_the_fixture_intercepts_clients_and_reports_unused_faults(pytester: pytest.Pytester, tmp_path: Path) -> None:
    pytester.makeconftest("from petstore_client.testing.pytest_plugin import fake_petstore")
    pytester.makepyfile(
        textwrap.dedent(
            """
            from petstore_client import Client, Order
            from petstore_client.testing import Failing

            def test_the_program(fake_petstore):
                fake_petstore.orders[7] = Order(id=7)
                assert [7] == [order.id for order in Client().list_orders()]

            def test_with_a_fault_too_many(fake_petstore):
                fake_petstore.then(Failing(503), Failing(503))
                Client(max_retries=4).cancel_order
            """
        )
    )
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", "--disable-plugin-autoload")
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["*faults were never used, after 0 requests: Failing(status=503*"])


def test_paths_of_other_versions_are_unknown() -> None:
    fake = FakePetstore()
    with httpx2.Client(transport=fake, headers={"authorization": f"Bearer {fake.api_key}"}) as http:
        assert "not_found" == http.get(fake.base_url.replace("/v1", "/v3") + "/store/orders").json()["code"]
    assert ("v3", "/store/orders") == (fake.requests[0].version, fake.requests[0].path)


def test_a_key_is_remembered_and_an_id_is_never_reused() -> None:
    fake = FakePetstore()
    with fake.client() as petstore:
        first, again = [petstore.v2.place_order(pet_id=1, quantity=1, idempotency_key="k") for _ in range(2)]
        del fake.orders[1]
        assert (1, 1, 2) == (first.id, again.id, petstore.v2.place_order(pet_id=1, quantity=1).id)


def test_a_key_is_remembered_for_a_day() -> None:
    clock = FakeClock()
    fake = FakePetstore(clock=clock)
    with fake.client() as petstore:
        first = petstore.v2.place_order(pet_id=1, quantity=1, idempotency_key="k")
        clock.advance(86_399)
        assert first == petstore.v2.place_order(pet_id=1, quantity=1, idempotency_key="k")
        clock.advance(1)
        again = petstore.v2.place_order(pet_id=1, quantity=2, idempotency_key="k")
        assert (first.id + 1, 2) == (again.id, again.quantity)
        assert again == petstore.v2.place_order(pet_id=1, quantity=2, idempotency_key="k")


def test_an_account_sees_all_orders_or_its_own_which_those_of_version_1_are(connect: Connect) -> None:
    mine: Any = "mine"
    with pytest.raises(ValueError, match="all, own, not 'mine'"):
        FakePetstore(sees=mine)
    now = datetime.fromtimestamp(1_800_000_000, UTC)
    others = v2.Order(id=3, status="pending", account="acme", created_at=now, updated_at=now)
    fake = FakePetstore([Order(id=1), Order(id=2), others], sees="own")
    with connect(fake) as petstore:
        assert "own" == petstore.v2.get_usage().orders
        for orders in (petstore.list_orders(), petstore.v2.list_orders().data, petstore.v2.list_changes().data):
            assert [1, 2] == [order.id for order in orders]
        with pytest.raises(NotFoundError):
            petstore.cancel_order(3)
