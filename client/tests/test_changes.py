"""Changes of `client.v2`: nothing twice, nothing skipped, gentle to the service, ended by the program."""

import asyncio
import itertools
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any

import pytest

from petstore_client import AsyncClient, Client, Order, errors, v2
from petstore_client.testing import CutOff, Dropped, Failing, FakeClock, FakePetstore, NotHeld
from petstore_client.testing.faults import RateLimited, TimedOut, Unreachable
from testing.client_variants import Connect

ORDERS = [Order(id=number, pet_id=1) for number in range(1, 6)]


class Eventful(FakeClock):
    """A clock that calls functions when their time has come."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[tuple[float, Any]] = []

    def advance(self, seconds: float) -> None:
        super().advance(seconds)
        while self.events and self.monotonic() >= self.events[0][0]:
            self.events.pop(0)[1]()


def ids(page: Any) -> list[int]:
    return [order.id for order in page.data]


def queries(fake: FakePetstore) -> list[str]:
    return [request.query for request in fake.requests]


def test_every_order_comes_once_and_then_every_change(connect: Connect) -> None:
    clock = Eventful()
    fake = FakePetstore(ORDERS, clock=clock)
    clock.events = [(45.0, lambda: fake.cancelled.add(3)), (100.0, lambda: fake.shipped.update({1, 2}))]
    with connect(fake) as petstore:
        pages = petstore.v2.follow_changes(limit=2)
        found = [next(pages) for _ in range(5)]
        assert [[1, 2], [3, 4], [5], [3], [1, 2]] == [ids(page) for page in found]
        assert [True, True, False, False, False] == [page.more for page in found]
        assert "cancelled" == found[3].data[0].status
        assert 100 <= clock.monotonic() < 101
        again = petstore.v2.follow_changes(after=found[3].next)
        assert [1, 2] == ids(next(again))
    # 3 pages, 45 seconds in two requests that were held for 30, 55 in two more, and one after a stored token
    assert 3 + 2 + 2 + 1 == len(fake.requests)


def test_one_page_of_changes_is_one_request_and_empty_if_nothing_has_changed(connect: Connect) -> None:
    fake = FakePetstore(ORDERS)
    with connect(fake) as petstore:
        first = petstore.v2.list_changes(limit=3)
        assert ([1, 2, 3], True) == (ids(first), first.more)
        second = petstore.v2.list_changes(after=first.next)
        assert ([4, 5], False) == (ids(second), second.more)
        empty = petstore.v2.list_changes(after=second.next)
        assert ([], False) == (empty.data, empty.more)
        fake.cancelled.add(2)
        assert [2] == ids(petstore.v2.list_changes(after=empty.next))
        assert [] == petstore.v2.list_changes(after="now").data
    assert 5 == len(fake.requests)
    assert 0 == fake.clock.monotonic()


def test_one_request_for_changes_is_held_for_as_long_as_the_call_says(connect: Connect) -> None:
    clock = Eventful()
    fake = FakePetstore(ORDERS, clock=clock)
    with connect(fake) as petstore:
        token = petstore.v2.list_changes(wait=20).next  # the first request of a client is not held
        assert [] == petstore.v2.list_changes(after=token, wait=20).data
        assert 20 == clock.monotonic()
        clock.events = [(25.0, lambda: fake.cancelled.add(3))]
        assert [3] == ids(petstore.v2.list_changes(after=token, wait=20))
        assert 25 == clock.monotonic()
        assert [] == petstore.v2.list_changes(after="now", wait=20).data
    assert ["limit=1000", "wait=20", "wait=20", "after=now"] == [query.split("&")[-1] for query in queries(fake)]


def test_a_request_for_changes_from_now_on_is_never_held_so_that_a_lost_response_loses_no_change(
    connect: Connect,
) -> None:
    clock = Eventful()
    fake = FakePetstore(ORDERS, clock=clock)
    clock.events = [(10.0, lambda: fake.cancelled.add(4))]
    with connect(fake) as petstore:
        petstore.v2.get_order(1)  # so that the next request could be held
        fake.then(Dropped())
        assert [4] == ids(next(petstore.v2.follow_changes(after="now", wait=20)))
    first, second, third = queries(fake)[1:]
    assert first == second
    assert ("after=now" in first, "wait" in first, "wait=20" in third) == (True, False, True)


@pytest.mark.parametrize("fault", [Unreachable(), Dropped(), TimedOut(), Failing(503), CutOff(30), RateLimited(3)])
def test_a_failure_is_repeated_with_the_same_token(connect: Connect, fault: Any) -> None:
    fake = FakePetstore(ORDERS)
    with connect(fake) as petstore:
        pages = petstore.v2.follow_changes(limit=2)
        assert [1, 2] == ids(next(pages))
        fake.then(fault, fault)
        assert [3, 4] == ids(next(pages))
        assert [5] == ids(next(pages))


def test_a_response_that_was_not_held_is_followed_by_the_wait_that_it_asks_for(connect: Connect) -> None:
    clock = Eventful()
    fake = FakePetstore(ORDERS[:1], clock=clock)
    with connect(fake) as petstore:
        pages = petstore.v2.follow_changes()
        first = next(pages)
        fake.then(NotHeld(7), NotHeld(2))
        clock.events = [(9.5, lambda: fake.cancelled.add(1))]
        assert [1] == ids(next(pages))
    assert first.data
    at = [request.at - fake.requests[0].at for request in fake.requests]
    assert [7, 2] == [round(after - before, 3) for before, after in itertools.pairwise(at)][1:3]


@pytest.mark.parametrize(("wait", "deadline", "requests"), [(0, 75, 61), (30, 75, 3), (-5, 75, 61), (30, 1.5, 61)])
def test_nothing_is_asked_in_a_tight_loop(connect: Connect, wait: int, deadline: float, requests: int) -> None:
    clock = Eventful()
    fake = FakePetstore(per_minute=100, clock=clock)
    clock.events = [(60.0, lambda: fake.orders.update({1: Order(id=1)}))]
    with connect(fake, deadline=deadline) as petstore:
        assert [1] == ids(next(petstore.v2.follow_changes(wait=wait)))
    assert requests <= len(fake.requests) <= requests + 1
    assert (f"wait={wait}" in queries(fake)[1]) is (wait != 0 and deadline > 2)


def test_after_a_restore_the_token_is_refused(connect: Connect) -> None:
    fake = FakePetstore(ORDERS)
    with connect(fake) as petstore:
        pages = petstore.v2.follow_changes()
        token = next(pages).next
        fake.restore()
        with pytest.raises(errors.ChangesResetError, match="again") as caught:
            next(pages)
        assert (410, "changes_reset") == (caught.value.status, caught.value.code)
        with pytest.raises(errors.ChangesResetError):
            next(petstore.v2.follow_changes(after=token))
        assert [1, 2, 3, 4, 5] == ids(next(petstore.v2.follow_changes()))


def test_the_client_waits_for_longer_than_the_server_holds(connect: Connect) -> None:
    fake = FakePetstore(ORDERS)
    seen = []
    handle = fake.handle_request

    def observed(request: Any) -> Any:
        seen.append((request.url.params.get("wait"), request.extensions["timeout"]["read"]))
        return handle(request)

    fake.handle_request = observed  # type: ignore[method-assign]
    for timeout in (2.0, None):
        with fake.client(timeout=timeout) as petstore, closing(petstore.v2.follow_changes(limit=4)) as pages:
            next(pages)
            next(pages)
    with fake.client(deadline=10) as petstore, closing(petstore.v2.follow_changes(limit=4)) as pages:
        next(pages)
        next(pages)
    assert [(None, 2.0), ("30", 32.0), ("30", None), ("30", None), ("5", 10.0), ("5", 10.0)] == seen


def test_the_limits_in_a_response_that_was_held_are_those_of_its_date(connect: Connect) -> None:
    fake = FakePetstore(ORDERS, per_minute=60)
    with connect(fake) as petstore:
        page = petstore.v2.list_changes()
        petstore.v2.list_changes(after=page.next, wait=30)
        assert 30 == fake.clock.monotonic()
        limit = petstore.rate_limit
    assert limit is not None
    assert limit.reset == limit.windows[0].reset


def test_closing_the_client_ends_the_iteration(connect: Connect) -> None:
    fake = FakePetstore(ORDERS)
    with connect(fake) as petstore:
        pages = petstore.v2.follow_changes(limit=3)
        assert [1, 2, 3] == ids(next(pages))
        petstore.close()
        assert [] == list(pages)
        with pytest.raises(errors.PetstoreError, match="closed"):
            next(petstore.v2.follow_changes())


@contextmanager
def silent_server(first: bytes) -> Iterator[tuple[str, threading.Event]]:
    """A server that answers the first request and holds the second; yields its base URL, and whether it came."""
    held = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(first)
                connection.recv(65536)
                held.set()
                connection.recv(1)  # until the client ends the connection

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1", held
        thread.join(10)


PAGE = b'{"data":[],"next":"t","more":false}'
FIRST = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(PAGE), PAGE)


async def follow(petstore: Client | AsyncClient) -> list[v2.Changes]:
    if isinstance(petstore, Client):
        return await asyncio.to_thread(lambda: list(petstore.v2.follow_changes()))
    return [page async for page in petstore.v2.follow_changes()]


@pytest.mark.parametrize("kind", [Client, AsyncClient])
async def test_closing_the_client_ends_a_held_request(kind: type[Client | AsyncClient]) -> None:
    with silent_server(FIRST) as (url, held):
        petstore = kind(url, api_key="key", timeout=60)
        following = asyncio.create_task(follow(petstore))
        assert await asyncio.to_thread(held.wait, 10)
        await petstore.close() if isinstance(petstore, AsyncClient) else petstore.close()
        assert [] == await asyncio.wait_for(following, 10)


def test_closing_the_client_from_another_thread_ends_a_call_that_waits_for_its_response() -> None:
    with silent_server(FIRST.replace(b"200 OK", b"204 No Content").partition(b"Content-Type")[0] + b"\r\n") as served:
        url, held = served
        petstore = Client(url, api_key="key", timeout=60)
        with ThreadPoolExecutor() as pool:
            petstore.cancel_order(1)
            call = pool.submit(petstore.cancel_order, 2)
            assert held.wait(60)
            petstore.close()
            with pytest.raises(errors.PetstoreError, match="closed") as caught:
                call.result(10)
    assert caught.value.may_have_been_applied


def test_a_connection_that_is_made_while_the_client_is_closed_is_sent_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    connect = socket.create_connection

    def closed_meanwhile(*arguments: Any, **options: Any) -> socket.socket:
        petstore.close()
        return connect(*arguments, **options)

    monkeypatch.setattr(socket, "create_connection", closed_meanwhile)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        petstore = Client(f"http://127.0.0.1:{listener.getsockname()[1]}/v1", api_key="key", timeout=2)
        with pytest.raises(errors.PetstoreError, match="closed"):
            petstore.list_orders()
        connection, _ = listener.accept()
        with connection:
            assert b"" == connection.recv(1)
