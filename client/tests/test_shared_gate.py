"""The gate: nothing is sent early, a probe goes first, and all clients with the same key share it."""

import asyncio
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from email.utils import formatdate
from itertools import pairwise

import httpx2
import pytest

from petstore_client import (
    AuthenticationError,
    ConflictError,
    KeyBannedError,
    NotFoundError,
    Order,
    RateLimitError,
    RateLimitEvent,
    ServerError,
)
from petstore_client._gate import Gate, Place, gate_for
from petstore_client._limits import Limits, Window
from petstore_client.testing import (
    Answered,
    Banned,
    Dropped,
    Failing,
    FakeClock,
    FakePetstore,
    RateLimited,
    Unreachable,
)
from support.variants import Connect

ORDERS = [Order(id=1)]
MINUTE = {"ratelimit-policy": '"minute";q=60;w=60'}


def limits(*windows: Window, pause: float = 60.0) -> Limits:
    return Limits(windows, pause, None, False, None)


def minute(remaining: int, left: float) -> Window:
    return Window("minute", 60, remaining, left, 60)


def opened(remaining: int = 60, left: float = 60.0, now: float = 0.0) -> Gate:
    """A gate whose probe got this response."""
    gate = Gate(lambda: 1.0)
    probe = gate.enter(now)
    gate.record_response(probe, now, limits(minute(remaining, left)), False)
    return gate


def test_the_first_request_is_a_probe() -> None:
    gate = Gate(lambda: 1.0)
    first, second = gate.enter(0.0), gate.enter(0.0)
    assert (Place.PASSED, Place.WAITING) == (first.place, second.place)
    gate.record_response(first, 0.1, limits(minute(59, 60.0)), False)
    assert Place.PASSED is second.place


def test_without_known_limits_a_lost_probe_releases_the_others() -> None:
    gate = Gate(lambda: 1.0)
    first, *others = [gate.enter(0.0) for _ in range(5)]
    gate.leave(first, 1.0)
    assert [Place.PASSED] * 4 == [ticket.place for ticket in others]


def test_no_more_requests_are_in_flight_than_the_window_has_left() -> None:
    gate = opened(remaining=3)
    tickets = [gate.enter(1.0) for _ in range(5)]
    assert [Place.PASSED] * 3 + [Place.WAITING] * 2 == [ticket.place for ticket in tickets]
    for remaining, ticket in zip((2, 1, 0), tickets[:3], strict=True):
        gate.record_response(ticket, 1.5, limits(minute(remaining, 59.0)), False)
    assert [(Place.HELD, 60.0)] * 2 == [(ticket.place, ticket.until) for ticket in tickets[3:]]


def test_after_an_exhausted_window_a_probe_goes_first() -> None:
    gate = opened(remaining=0, left=60.0)
    assert (Place.HELD, 60.0) == (gate.enter(59.9).place, gate.enter(59.9).until)
    probe, second, third = (gate.enter(60.0) for _ in range(3))
    assert [Place.PASSED, Place.WAITING, Place.WAITING] == [ticket.place for ticket in (probe, second, third)]
    gate.record_response(probe, 60.5, limits(minute(59, 60.0)), False)
    assert [Place.PASSED, Place.PASSED] == [ticket.place for ticket in (second, third)]


def test_a_refused_probe_closes_the_gate_for_longer() -> None:
    gate = opened()
    for refusal, (now, until) in enumerate([(0.0, 10.0), (10.0, 22.0), (22.0, 36.0), (36.0, 54.0)]):
        ticket = gate.enter(now)
        waiting = gate.enter(now) if refusal else None
        gate.record_response(ticket, now, limits(pause=10.0), True)
        assert until - now == gate.held_for(now)
        assert waiting is None or (Place.HELD, until) == (waiting.place, waiting.until)
    last = gate.enter(54.0)
    gate.record_response(last, 54.0, limits(), False)
    refused_anew = gate.enter(55.0)
    gate.record_response(refused_anew, 55.0, limits(pause=10.0), True)
    assert 10.0 == gate.held_for(55.0)


def test_requests_in_flight_when_the_gate_closes_count_as_one_refusal() -> None:
    gate = opened()
    tickets = [gate.enter(1.0) for _ in range(20)]
    for ticket in tickets:
        gate.record_response(ticket, 1.5, limits(pause=10.0), True)
    assert 10.0 == gate.held_for(1.5)
    late = gate.enter(11.5)
    gate.record_response(late, 11.5, limits(pause=10.0), True)
    assert 12.0 == gate.held_for(11.5)


def test_a_late_success_does_not_open_the_gate() -> None:
    gate = opened()
    refused, late = gate.enter(1.0), gate.enter(1.0)
    gate.record_response(refused, 1.5, limits(pause=30.0), True)
    gate.record_response(late, 2.0, limits(minute(58, 58.0)), False)
    assert 29.5 == gate.held_for(2.0)
    assert [Place.PASSED, Place.WAITING] == [gate.enter(31.5).place for _ in range(2)]


def test_after_a_limit_a_lost_probe_is_followed_by_another_probe() -> None:
    gate = opened(remaining=0)
    first, second, third = (gate.enter(60.0) for _ in range(3))
    gate.leave(first, 61.0)
    assert [Place.PASSED, Place.WAITING] == [second.place, third.place]


def test_a_response_out_of_order_does_not_increase_the_remaining_requests() -> None:
    gate = opened(remaining=5)
    first, second = gate.enter(1.0), gate.enter(1.0)
    gate.record_response(second, 1.2, limits(minute(1, 59.0)), False)
    gate.record_response(first, 1.4, limits(minute(2, 59.0)), False)
    assert [Place.PASSED, Place.WAITING] == [gate.enter(2.0).place for _ in range(2)]


def test_a_new_window_has_its_whole_limit_until_a_response_says_otherwise() -> None:
    gate = opened(remaining=10, left=60.0)
    tickets = [gate.enter(60.0) for _ in range(61)]
    assert 60 == sum(ticket.place is Place.PASSED for ticket in tickets)
    gate.record_response(tickets[0], 60.1, limits(minute(2, 60.0)), False)
    for ticket in tickets[1:60]:
        gate.leave(ticket, 60.2)
    assert Place.PASSED is tickets[60].place
    assert [Place.PASSED, Place.WAITING] == [gate.enter(60.3).place for _ in range(2)]


def test_the_end_of_a_window_is_never_estimated_too_early() -> None:
    gate = opened(remaining=5, left=60.0)
    slow = gate.enter(10.0)
    gate.record_response(
        slow, 40.0, limits(minute(0, 50.0)), False
    )  # decided between 10 and 40, so it ends between 59 and 90
    assert (Place.HELD, 60.0) == (gate.enter(40.0).place, gate.enter(40.0).until)


def test_lost_requests_count_as_charged() -> None:
    gate = opened(remaining=2)
    gate.leave(gate.enter(1.0), 2.0, charged=True)
    assert [Place.PASSED, Place.WAITING] == [gate.enter(3.0).place for _ in range(2)]


def test_requests_that_other_processes_may_have_used_are_left_to_them() -> None:
    gate = opened(remaining=60)
    for now, remaining in ((1.0, 54), (2.0, 49), (3.0, 44)):  # others take four or five a second
        gate.record_response(gate.enter(now), now, limits(minute(remaining, 60.0 - now)), False)
    assert Place.PASSED is gate.enter(6.0).place
    assert (Place.HELD, 60.0) == (gate.enter(9.0).place, gate.enter(9.0).until)
    assert [Place.PASSED, Place.WAITING] == [gate.enter(60.0).place for _ in range(2)]


def test_usage_before_this_process_started_is_not_attributed_to_others() -> None:
    gate = Gate(lambda: 1.0)
    for number, now in enumerate((0.0, 10.0, 20.0, 30.0, 40.0)):
        ticket = gate.enter(now)
        assert Place.PASSED is ticket.place
        gate.record_response(ticket, now, limits(minute(4 - number, 50.0 - now)), False)


def test_in_a_long_window_other_processes_cause_no_wait() -> None:
    gate = Gate(lambda: 1.0)
    for now, remaining in ((0.0, 900), (600.0, 500), (1200.0, 100), (86_000.0, 50)):
        ticket = gate.enter(now)
        assert Place.PASSED is ticket.place
        gate.record_response(ticket, now, limits(Window("day", 1000, remaining, 86_400 - now, 86_400)), False)


def test_a_ticket_that_gives_up_makes_room() -> None:
    gate = Gate(lambda: 1.0)
    first, second, third = (gate.enter(0.0) for _ in range(3))
    assert gate.give_up(second)
    gate.record_response(first, 0.1, limits(minute(1, 60.0)), False)
    assert [Place.LEFT, Place.PASSED] == [second.place, third.place]
    assert not gate.give_up(third)


def test_nothing_is_sent_before_retry_after_has_elapsed(connect: Connect) -> None:
    fake = FakePetstore(ORDERS)
    fake.then(RateLimited(30))
    with connect(fake) as petstore:
        petstore.list_orders()
    assert 30.0 == pytest.approx(fake.requests[1].at - fake.requests[0].at)
    assert 0 == fake.early


def test_repeated_429s_add_backoff_to_the_wait(connect: Connect) -> None:
    fake = FakePetstore(ORDERS)
    fake.then(RateLimited(10), RateLimited(10), RateLimited(10))
    gate_for(fake.base_url, fake.api_key, fake.clock).jitter = lambda: 1.0
    with connect(fake) as petstore:
        petstore.list_orders()
    times = [request.at - fake.requests[0].at for request in fake.requests]
    assert [0.0, 10.0, 22.0, 36.0] == pytest.approx(times)
    assert 0 == fake.early


def test_a_wait_longer_than_max_wait_fails_immediately_and_later_calls_send_nothing(connect: Connect) -> None:
    clock = FakeClock()
    fake = FakePetstore(ORDERS, clock=clock)
    fake.then(RateLimited(76))
    retry_at = datetime.fromtimestamp(clock.now() + 76, UTC)
    with connect(fake) as petstore:
        for sent in (True, False, False):
            with pytest.raises(RateLimitError) as caught:
                petstore.list_orders()
            assert (retry_at, sent, 429) == (caught.value.retry_at, caught.value.sent, caught.value.status)
        assert (1, 0.0) == (len(fake.requests), clock.slept)
        clock.advance(1)
        assert ORDERS == petstore.list_orders()
    assert 76.0 == pytest.approx(clock.monotonic())
    assert 0 == fake.early


def test_a_call_waits_for_the_next_minute_by_default(connect: Connect) -> None:
    fake = FakePetstore(ORDERS, per_minute=5)
    with connect(fake) as petstore:
        for _ in range(12):
            petstore.list_orders()
    assert 12 == len(fake.requests)  # none was refused
    assert 120.0 <= fake.requests[-1].at - fake.requests[0].at < 122.0


def test_an_exhausted_day_fails_immediately(connect: Connect) -> None:
    clock = FakeClock()
    fake = FakePetstore(ORDERS, per_minute=60, per_day=3, clock=clock)
    with connect(fake) as petstore:
        for _ in range(3):
            petstore.list_orders()
        with pytest.raises(RateLimitError) as caught:
            petstore.list_orders()
    assert not caught.value.sent
    assert clock.now() + 86_399 <= caught.value.retry_at.timestamp() <= clock.now() + 86_401
    assert 3 == len(fake.requests)


def test_max_wait_can_allow_waiting_for_a_day(connect: Connect) -> None:
    fake = FakePetstore(ORDERS, per_minute=60, per_day=3)
    with connect(fake, max_wait=90_000) as petstore:
        for _ in range(4):
            petstore.list_orders()
    assert 86_400 <= fake.requests[-1].at - fake.requests[0].at < 86_402


def test_a_ban_is_raised_immediately_until_it_ends(connect: Connect) -> None:
    clock = FakeClock()
    fake = FakePetstore(ORDERS, clock=clock)
    fake.then(Banned(20))
    retry_at = datetime.fromtimestamp(clock.now() + 20, UTC)
    with connect(fake) as petstore:
        for sent in (True, False):
            with pytest.raises(KeyBannedError) as caught:
                petstore.list_orders()
            assert (retry_at, sent) == (caught.value.retry_at, caught.value.sent)
        assert (1, 0.0) == (len(fake.requests), clock.slept)
        clock.advance(20)
        assert ORDERS == petstore.list_orders()


def test_clients_with_the_same_key_share_a_gate(connect: Connect) -> None:
    fake = FakePetstore(ORDERS)
    fake.then(RateLimited(500))
    with connect(fake) as one, connect(fake) as another, connect(fake, api_key="other") as stranger:
        with pytest.raises(RateLimitError):
            one.list_orders()
        with pytest.raises(RateLimitError):
            another.list_orders()
        assert 1 == len(fake.requests)
        with pytest.raises(AuthenticationError):
            stranger.list_orders()
    with connect(fake) as successor, pytest.raises(RateLimitError):
        successor.list_orders()
    assert 2 == len(fake.requests)


def test_a_response_about_an_address_does_not_affect_the_gate(connect: Connect) -> None:
    fake = FakePetstore(ORDERS)
    of_address = {"ratelimit": '"address";r=0;t=60', "content-type": "application/json"}
    fake.then(Answered(401, b'{"code":"invalid_api_key","message":"No.","status":401}', of_address))
    with connect(fake) as petstore:
        with pytest.raises(AuthenticationError):
            petstore.list_orders()
        assert ORDERS == petstore.list_orders()
        fake.then(RateLimited(40, of_address))
        assert ORDERS == petstore.list_orders()
    times = [request.at - fake.requests[0].at for request in fake.requests]
    assert [0.0, 0.0, 0.0, 60.0] == pytest.approx(times)
    assert 0.0 == gate_for(fake.base_url, fake.api_key, fake.clock).held_for(fake.clock.monotonic())


@pytest.mark.parametrize(("status", "kind"), [(404, NotFoundError), (409, ConflictError)])
def test_a_refusal_that_describes_the_account_updates_the_gate(
    connect: Connect, status: int, kind: type[Exception]
) -> None:
    fake = FakePetstore(ORDERS)
    spent = {"ratelimit": '"minute";r=0;t=60', "content-type": "application/json"}
    fake.then(Answered(status, b'{"code":"x","message":"No.","status":%d}' % status, spent))
    with connect(fake) as petstore:
        with pytest.raises(kind):
            petstore.cancel_order(1)
        petstore.cancel_order(1)
    assert 60.0 == pytest.approx(fake.requests[1].at - fake.requests[0].at)


def test_a_5xx_does_not_affect_the_gate(connect: Connect) -> None:
    fake = FakePetstore(ORDERS)
    fake.then(Answered(501, b"", {"ratelimit": '"minute";r=0;t=60'}))
    with connect(fake) as petstore:
        with pytest.raises(ServerError):
            petstore.list_orders()
        petstore.list_orders()
    assert 0.0 == fake.requests[1].at - fake.requests[0].at


class Skewed:
    """A host whose clock is wrong."""

    def __init__(self, clock: FakeClock, by: float) -> None:
        self._clock = clock
        self._by = by

    def now(self) -> float:
        return self._clock.now() + self._by

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def sleep(self, seconds: float) -> None:
        self._clock.sleep(seconds)

    async def sleep_async(self, seconds: float) -> None:
        await self._clock.sleep_async(seconds)


@pytest.mark.parametrize("by", [-7200.0, 7200.0])
def test_the_clock_of_this_host_does_not_matter(connect: Connect, by: float) -> None:
    clock = FakeClock()
    fake = FakePetstore(ORDERS, clock=clock, per_minute=2)
    in_date = formatdate(clock.now() + 80, usegmt=True)
    reset = {"x-ratelimit-limit": "2", "x-ratelimit-remaining": "0", "x-ratelimit-reset": f"{clock.now() + 120:.0f}"}
    with connect(fake, clock=Skewed(clock, by), max_retries=5) as petstore:
        petstore.list_orders()
        petstore.list_orders()
        fake.then(RateLimited(in_date), RateLimited(None, reset))
        petstore.list_orders()
    times = [request.at - fake.requests[0].at for request in fake.requests]
    assert [0.0, 0.0, 60.0, 80.0, 120.0] == pytest.approx(times, abs=2.5)
    assert times == sorted(times)
    assert times[3] >= 80.0
    assert times[4] >= 120.0


def test_the_hook_receives_every_limit(connect: Connect) -> None:
    fake = FakePetstore(ORDERS, per_minute=1)
    fake.then(RateLimited(30))
    seen: list[RateLimitEvent] = []
    with connect(fake, on_rate_limit=seen.append) as petstore:
        petstore.list_orders()
        petstore.list_orders()
        fake.then(RateLimited(500))
        fake.clock.sleep(60)
        with pytest.raises(RateLimitError):
            petstore.list_orders()
    assert [30.0, 60.0, 500.0] == pytest.approx([event.wait for event in seen])
    assert [(True, True), (False, True), (True, False)] == [(event.refused, event.waits) for event in seen]
    assert {"listOrders"} == {event.operation for event in seen}


def test_the_hook_receives_the_429_that_ends_a_call(connect: Connect) -> None:
    fake = FakePetstore(ORDERS)
    fake.then(RateLimited(5), Banned(9))
    seen: list[RateLimitEvent] = []
    with connect(fake, max_retries=0, on_rate_limit=seen.append) as petstore:
        with pytest.raises(RateLimitError):
            petstore.list_orders()
        fake.clock.sleep(5)
        with pytest.raises(KeyBannedError):
            petstore.list_orders()
    assert [(True, False), (True, False)] == [(event.refused, event.waits) for event in seen]


def test_max_wait_may_be_infinite() -> None:
    fake = FakePetstore(ORDERS)
    release = threading.Event()

    class Held(httpx2.BaseTransport):
        def handle_request(self, request: httpx2.Request) -> httpx2.Response:
            assert release.wait(10)
            return fake.handle_request(request)

    with fake.client(transport=Held(), max_wait=float("inf"), timeout=None) as client, ThreadPoolExecutor() as pool:
        calls = [pool.submit(client.list_orders) for _ in range(3)]
        release.set()
        assert [ORDERS] * 3 == [call.result(10) for call in calls]


def test_pacing_spreads_the_requests_over_the_minute(connect: Connect) -> None:
    fake = FakePetstore(ORDERS, per_minute=60)
    with connect(fake, pacing="minute") as petstore:
        for _ in range(121):
            petstore.list_orders()
    times = [request.at for request in fake.requests]
    gaps = [after - before for before, after in pairwise(times)]
    assert 121 == len(times)
    assert 119 <= times[-1] - times[0] <= 125
    assert max(gaps[2:]) < 3.0


def test_pacing_spreads_the_requests_over_the_day(connect: Connect) -> None:
    fake = FakePetstore(ORDERS, per_minute=60, per_day=100)
    with connect(fake, pacing="day") as petstore:
        for _ in range(100):
            petstore.list_orders()
    times = [request.at for request in fake.requests]
    assert 100 == len(times)
    assert 0.95 * 86_400 <= times[-1] - times[0] <= 86_400


@pytest.mark.anyio
async def test_threads_and_tasks_share_a_gate() -> None:
    fake = FakePetstore(ORDERS)
    release = threading.Event()
    sent: list[str] = []

    class Holding(httpx2.BaseTransport, httpx2.AsyncBaseTransport):
        """Blocks requests until `release` is set."""

        def handle_request(self, request: httpx2.Request) -> httpx2.Response:
            sent.append("thread")
            assert release.wait(10)
            return fake.handle_request(request)

        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            sent.append("task")
            return await fake.handle_async_request(request)

    with fake.client(transport=Holding()) as client, ThreadPoolExecutor() as pool:
        blocked = pool.submit(client.list_orders)
        while not sent:
            pass
        async with fake.async_client(transport=Holding()) as asynchronous:
            calls = [asyncio.create_task(asynchronous.list_orders()) for _ in range(3)]
            await asyncio.sleep(0.05)
            assert ["thread"] == sent
            release.set()
            assert [ORDERS] * 3 == await asyncio.gather(*calls)
        assert ORDERS == blocked.result(10)
    assert ["thread", "task", "task", "task"] == sent


@pytest.mark.anyio
async def test_a_cancelled_task_lets_the_next_one_pass() -> None:
    fake = FakePetstore(ORDERS)
    stuck = asyncio.Event()

    class Stuck(httpx2.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            stuck.set()
            await asyncio.Event().wait()
            raise AssertionError

    async with fake.async_client(transport=Stuck()) as held, fake.async_client() as free:
        probe = asyncio.create_task(held.list_orders())
        await stuck.wait()
        waiting = asyncio.create_task(free.list_orders())
        queued = asyncio.create_task(free.list_orders())
        await asyncio.sleep(0)
        queued.cancel()
        probe.cancel()
        assert ORDERS == await waiting


class Silent(httpx2.BaseTransport, httpx2.AsyncBaseTransport):
    """Delivers requests to a fake service, and loses the responses: a thread is interrupted, a task waits forever."""

    def __init__(self, fake: FakePetstore) -> None:
        self._fake = fake

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        self._fake.handle_request(request)
        raise KeyboardInterrupt

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        await self._fake.handle_async_request(request)
        await asyncio.Event().wait()
        raise AssertionError


def interrupt(fake: FakePetstore) -> None:
    """Send a request with a blocking client, and interrupt it before the response arrives."""
    with fake.client(transport=Silent(fake)) as petstore, pytest.raises(KeyboardInterrupt):
        petstore.list_orders()


def time_out(fake: FakePetstore) -> None:
    """Send a request in a task that is cancelled after a second."""

    async def main() -> None:
        async with fake.async_client(transport=Silent(fake)) as petstore:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(petstore.list_orders(), 1)

    assert isinstance(fake.clock, FakeClock)
    fake.clock.run(main())


def close_coroutine(fake: FakePetstore) -> None:
    """Send a request in a coroutine that is closed before the response arrives."""

    async def main() -> None:
        async with fake.async_client(transport=Silent(fake)) as petstore:
            call = petstore.list_orders()
            call.send(None)
            call.close()

    asyncio.run(main())


@pytest.mark.parametrize("cancel", [interrupt, time_out, close_coroutine])
def test_a_request_that_is_cancelled_in_flight_counts_as_charged(
    connect: Connect, cancel: Callable[[FakePetstore], None]
) -> None:
    fake = FakePetstore(ORDERS, per_minute=2)
    limits_met: list[RateLimitEvent] = []
    with connect(fake, on_rate_limit=limits_met.append) as petstore:
        petstore.list_orders()
        cancel(fake)
        assert 2 == len(fake.requests)
        petstore.list_orders()
    assert [False] == [event.refused for event in limits_met]  # the gate held the third request, the server did not
    assert 60.0 == pytest.approx(fake.requests[2].at - fake.requests[0].at)


def test_an_abandoned_iteration_lets_the_next_call_pass(connect: Connect) -> None:
    fake = FakePetstore([Order(id=number) for number in range(5)], per_minute=2)
    with connect(fake) as petstore:
        iteration: Iterator[Order] = petstore.iter_orders()
        assert Order(id=0) == next(iteration)
        del iteration
        assert 5 == len(petstore.list_orders())


def test_a_lost_probe_after_a_429_does_not_release_all_calls(connect: Connect) -> None:
    fake = FakePetstore(ORDERS)
    fake.then(RateLimited(10), Dropped(), Unreachable(), Failing(500))
    with connect(fake, jitter=lambda: 0.0) as petstore:
        assert ORDERS == petstore.list_orders()
    gate = gate_for(fake.base_url, fake.api_key, fake.clock)
    assert 0.0 == gate.held_for(fake.clock.monotonic())
    assert 0 == fake.early


def test_a_program_with_many_keys_keeps_few_gates() -> None:
    clock = FakeClock()
    before = gate_for("http://many.test/v1", "held", clock)
    before.ban(1000.0)
    gates = [weakref.ref(gate_for("http://many.test/v1", f"key {number}", clock)) for number in range(3000)]
    assert before is gate_for("http://many.test/v1", "held", clock)
    assert sum(gate() is not None for gate in gates) <= 1001
