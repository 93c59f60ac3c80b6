"""More requests at the same time than the store takes: 503 at once beyond a share, and the others are served (D19)."""

import asyncio
import socket
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from itertools import pairwise
from typing import cast
from unittest.mock import Mock

import httpx2
import pytest
import uvloop

from petstore_server.api.errors import Overloaded
from petstore_server.api.gate import Concurrency
from petstore_server.domain.accounts import Plan
from petstore_server.domain.orders import Order
from petstore_server.engines.sqlite import connections
from petstore_server.server.connection import Connection
from petstore_server.server.listener import ACCEPTED_TOGETHER, PublicServer
from petstore_server.server.messages import Answer, Request
from petstore_server.server.scheduler import CONNECTIONS_PER_SHORT_TURN, CONNECTIONS_PER_TURN, MANY_WAITING
from petstore_server.server.writer import ResponseWriter
from testing.deployment import Deployment
from testing.service import UNLIMITED, Service, bearer, code, running
from testing.stores import write_locked
from testing.subprocesses import PATIENCE, until

ORDERS = "/v1/store/orders"
BEYOND = 20
MAX_CONCURRENT = 1024
MAX_CONCURRENT_PER_ACCOUNT = 256


async def test_beyond_its_share_an_account_gets_503_at_once_and_another_account_is_served(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "BUSY_SECONDS", PATIENCE)  # a busy machine may need seconds for the requests

    async with running(deployment) as service:
        many = MAX_CONCURRENT_PER_ACCOUNT + BEYOND
        await service.orders(*(Order(number) for number in range(many + 1)))
        greedy, other = [await service.key(await service.account(Plan.ENTERPRISE, UNLIMITED)) for _ in range(2)]

        def cancel(order_id: int, key: str) -> asyncio.Task[httpx2.Response]:
            return asyncio.create_task(service.client.delete(f"{ORDERS}/{order_id}", headers=bearer(key)))

        with write_locked(deployment.store):
            sent = [cancel(number, greedy) for number in range(many)]
            await until(lambda: sum(each.done() for each in sent) >= BEYOND)
            calm = cancel(many, other)
            await asyncio.sleep(0.1)
            refused = [each.result() for each in sent if each.done()]
            assert not calm.done()
        assert BEYOND == len(refused)
        for response in refused:
            assert (503, "service_unavailable") == code(response)
            assert "1" == response.headers["retry-after"]
        statuses = [response.status_code for response in await asyncio.gather(*sent, calm)]
        assert [204] * (MAX_CONCURRENT_PER_ACCOUNT + 1) == [status for status in statuses if status != 503]
        assert BEYOND == service.application.concurrency.refused
        again = await asyncio.gather(*(cancel(number, greedy) for number in range(MAX_CONCURRENT_PER_ACCOUNT)))
        assert 503 not in {response.status_code for response in again}


def fill(concurrency: Concurrency, account_id: int) -> int:
    """Enter until it is refused; return how often that succeeded."""
    for entered in range(MAX_CONCURRENT + 1):
        try:
            concurrency.enter(account_id)
        except Overloaded:
            return entered
    raise AssertionError


def test_several_greedy_accounts_leave_room_for_one_more() -> None:
    concurrency = Concurrency()
    shares = [fill(concurrency, account_id) for account_id in range(8)]
    assert [256, 256, 256, 128, 64, 32, 16, 8] == shares
    assert fill(concurrency, 8) > 0
    assert sum(shares) < MAX_CONCURRENT
    for _ in range(shares[0]):
        concurrency.leave(0)
    assert fill(concurrency, 9) > 64


def test_all_accounts_together_have_1024_requests() -> None:
    concurrency = Concurrency()
    assert 1024 == sum(fill(concurrency, account_id) for account_id in range(100))


@pytest.mark.usefixtures("each_deployment")
async def test_more_new_keys_than_connections_wait_for_their_turn(service: Service) -> None:
    """A new key is looked up before anything else waits, where a request does not run in a task yet."""
    account = await service.account(Plan.ENTERPRISE, UNLIMITED)
    keys = [await service.key(account) for _ in range(40)]
    asked = [service.client.get(ORDERS, headers=bearer(key)) for key in keys]
    assert [200] * len(keys) == [response.status_code for response in await asyncio.gather(*asked)]


class Waiting:
    """A connection as far as a server's turns concern it."""

    def __init__(self, number: int, advanced: list[int], then: Callable[[], None] = lambda: None) -> None:
        self.scheduled = False
        self._number, self._advanced, self._then = number, advanced, then

    def advance(self) -> None:
        self.scheduled = False
        self._advanced.append(self._number)
        self._then()


async def _unused(request: Request) -> Answer | None:
    raise AssertionError


@pytest.mark.parametrize(
    ("waiting", "add", "next_turn"),
    [
        pytest.param(MANY_WAITING, 1, CONNECTIONS_PER_SHORT_TURN, id="more than 64 wait"),
        pytest.param(MANY_WAITING - 1, 1, CONNECTIONS_PER_TURN, id="64 wait"),
        pytest.param(2 * MANY_WAITING, 0, CONNECTIONS_PER_TURN, id="none of the turn waits"),
    ],
)
async def test_a_turn_is_shorter_after_requests_that_join_many_waiting(waiting: int, add: int, next_turn: int) -> None:
    server, advanced = PublicServer(_unused, lambda: 0.0, 1_000), list[int]()

    def wait(number: int) -> None:
        for _ in range(number):
            server.started(Mock())

    wait(waiting)
    server.schedule(cast(Connection, Waiting(0, advanced, partial(wait, add))), None)
    for number in range(1, 3 * CONNECTIONS_PER_TURN):
        server.schedule(cast(Connection, Waiting(number, advanced)), None)
    await asyncio.sleep(0)
    assert list(range(CONNECTIONS_PER_TURN)) == advanced
    await asyncio.sleep(0)
    assert list(range(CONNECTIONS_PER_TURN + next_turn)) == advanced


async def test_responses_that_had_to_wait_are_written_before_a_turn_and_before_more_of_them_are_made() -> None:
    server, advanced, seen = PublicServer(_unused, lambda: 0.0, 1_000), list[int](), list[int]()
    held = Mock(ResponseWriter, flush=lambda: seen.extend([*advanced, -1]))
    server.schedule(cast(Connection, Waiting(1, advanced)), None)
    server.hold(held)
    await asyncio.sleep(0)
    assert ([-1], [1]) == (seen, advanced)
    for number in range(CONNECTIONS_PER_TURN + 1):
        assert 1 == seen.count(-1), number
        server.hold(held)
    assert 1 + CONNECTIONS_PER_TURN == seen.count(-1)


async def test_other_work_goes_on_between_turns_which_accounts_share_however_many_connections_they_have() -> None:
    flows = ["greedy"] * 500 + ["modest"] + ["unknown"] * 300
    server = PublicServer(_unused, lambda: 0.0, 1_000, flow_of=lambda request: flows[cast(int, request)])
    advanced, seen = list[int](), [0]
    for number in range(len(flows)):
        server.schedule(cast(Connection, Waiting(number, advanced)), cast(Request, number))
    while len(advanced) < len(flows):
        await asyncio.sleep(0)  # as long as a response of the store or of Redis has to wait
        seen.append(len(advanced))
    assert CONNECTIONS_PER_TURN >= max(after - before for before, after in pairwise(seen))
    assert sorted(advanced) == list(range(len(flows)))
    assert advanced.index(500) < CONNECTIONS_PER_TURN
    assert advanced.index(501 + 299) < 2 * 300 + CONNECTIONS_PER_TURN
    assert list(range(500)) == [number for number in advanced if flows[number] == "greedy"]


async def test_a_defect_in_one_turn_does_not_end_the_turns() -> None:
    server, advanced = PublicServer(_unused, lambda: 0.0, 1_000), list[int]()
    errors = list[object]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context["exception"]))
    server.hold(Mock(ResponseWriter, **{"flush.side_effect": OSError}))
    for number in range(2 * CONNECTIONS_PER_TURN):
        server.schedule(cast(Connection, Waiting(number, advanced)), None)
    for _ in range(5):  # turns
        await asyncio.sleep(0)
    assert [OSError] == [type(error) for error in errors]
    assert list(range(2 * CONNECTIONS_PER_TURN)) == advanced


def test_connections_that_arrive_together_are_accepted_in_few_turns() -> None:
    async def turns(connections: int) -> int:
        server, taken = PublicServer(_unused, lambda: 0.0, 1_000), 0
        with ExitStack() as stack:
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=connections))
            for _ in range(connections):
                stack.enter_context(socket.create_connection(listener.getsockname()))
            await server.start(listener)
            while len(server.connections) < connections:
                await asyncio.sleep(0)
                taken += 1
            await server.stop(0)
        return taken

    assert uvloop.run(turns(4 * ACCEPTED_TOGETHER)) <= 8
