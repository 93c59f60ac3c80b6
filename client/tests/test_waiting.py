"""Waits and retries: what is repeated and when, how long a call waits, and what ends a wait: options, closing."""

import asyncio
import signal
import socket
import sys
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import pairwise
from types import FrameType
from typing import Any

import httpx2
import pytest

from petstore_client import APIConnectionError, APITimeoutError, Order, PetstoreError, RetryEvent, ServerError, errors
from petstore_client._types import SYSTEM_CLOCK, Clock
from petstore_client.testing import (
    Answered,
    Dropped,
    Failing,
    FakeClock,
    FakePetstore,
    Fault,
    RateLimited,
    Slow,
    TimedOut,
    Unreachable,
)
from petstore_client.testing.faults import Raw, Serve
from testing.client_variants import Connect, Held, Own, faulty

ORDERS = [Order(id=number) for number in range(500)]


@pytest.mark.parametrize(
    ("options", "fault", "ended_by"),
    [
        *(({"max_retries": most}, Failing(500), "max_retries") for most in (2, 0)),
        ({"max_retries": 9, "retry_timeout": 50}, TimedOut(), "retry_timeout"),
        ({"max_retries": 9, "deadline": 50}, TimedOut(), "deadline"),
        ({"max_retries": 9, "deadline": 5}, Failing(503, retry_after=3), "deadline"),
        ({"max_retries": 9, "deadline": 50}, RateLimited(20), "deadline"),
        ({"max_wait": 5}, Failing(503, retry_after=10), "max_wait"),
    ],
    ids=str,
)
def test_the_error_names_the_option_that_ended_the_call(
    connect: Connect, options: dict[str, Any], fault: Fault, ended_by: str
) -> None:
    fake = faulty(ORDERS, *[fault] * 9)
    with connect(fake, **options) as petstore, pytest.raises(PetstoreError, match=ended_by) as caught:
        petstore.list_orders()
    assert ended_by == caught.value.ended_by
    assert fake.clock.monotonic() <= options.get("deadline", 300)


def test_a_deadline_bounds_a_slow_body(connect: Connect) -> None:
    fake = faulty(ORDERS, Slow(pause=2, size=100))
    with connect(fake, timeout=30, deadline=10) as petstore, pytest.raises(APITimeoutError) as caught:
        petstore.list_orders()
    assert "deadline" == caught.value.ended_by
    assert 10 <= fake.clock.monotonic() <= 12


class Busy(FakeClock):
    """The clock of a program that is slow: time passes whenever it looks at the clock."""

    def monotonic(self) -> float:
        self.advance(0.25)
        return super().monotonic()


@pytest.mark.parametrize("deadline", [0.25, 0.5, 0.75, 1.0, 1.25, 1.5])
def test_a_deadline_that_ends_just_before_a_request_is_sent_leaves_a_valid_timeout(
    connect: Connect, deadline: float
) -> None:
    timeouts: list[float] = []

    def record(request: httpx2.Request, _: Clock, serve: Serve) -> Raw:
        timeouts.extend(request.extensions["timeout"].values())
        return serve()

    fake = faulty(ORDERS, Own(record), clock=Busy())
    with connect(fake, deadline=deadline) as petstore, suppress(PetstoreError):
        petstore.list_orders()
    assert all(timeout > 0 for timeout in timeouts)  # a socket raises ValueError for less


def test_a_deadline_of_an_iteration_ends_with_its_first_order(connect: Connect) -> None:
    fake = faulty(ORDERS, Slow(pause=2, size=1000))
    with connect(fake, timeout=30, deadline=10) as petstore:
        assert ORDERS == list(petstore.iter_orders())
    assert fake.clock.monotonic() > 10


def test_closing_wakes_a_call_that_waits_for_a_limit() -> None:
    fake = faulty(ORDERS, Dropped(), RateLimited(60), clock=SYSTEM_CLOCK)
    waiting = threading.Event()
    petstore = fake.client(on_rate_limit=lambda _: waiting.set(), jitter=lambda: 0.0)
    with ThreadPoolExecutor() as pool:
        call = pool.submit(petstore.cancel_order, 1)
        assert waiting.wait(60)
        petstore.close()
        with pytest.raises(PetstoreError, match="closed") as caught:
            call.result(10)
    assert caught.value.may_have_been_applied  # the first response was lost


def test_closing_wakes_a_call_that_waits_for_another_one() -> None:
    fake = FakePetstore(ORDERS, clock=SYSTEM_CLOCK)
    transport = Held(fake)
    with fake.client(transport=transport) as first, ThreadPoolExecutor() as pool:
        running = pool.submit(first.list_orders)
        assert transport.sent.wait(60)
        second = fake.client()
        waiting = pool.submit(second.list_orders)
        while not waiting.running():
            pass
        second.close()
        with pytest.raises(PetstoreError, match="closed"):
            waiting.result(10)
        transport.release.set()
        assert ORDERS == running.result(10)


def test_a_client_can_be_closed_while_another_thread_connects() -> None:
    class Stream:
        read = write = get_extra_info = staticmethod(lambda *_: unconnected)

    def connect(frame: FrameType, *_: object) -> Any:
        if "weakref" in frame.f_code.co_filename:  # the connections are listed, and another thread may run
            streams.append(Stream())
            petstore._core.trace("connection.connect_tcp.complete", {"return_value": streams[-1]})
        return connect

    streams: list[Stream] = []
    with socket.socket() as unconnected, FakePetstore().client() as petstore:
        before = sys.gettrace()
        sys.settrace(connect)
        try:
            petstore.close()
        finally:
            sys.settrace(before)
    assert streams


@pytest.mark.anyio
async def test_closing_wakes_tasks_that_wait() -> None:
    fake = faulty(ORDERS, RateLimited(60), clock=SYSTEM_CLOCK)
    waiting = asyncio.Semaphore(0)
    petstore = fake.async_client(on_rate_limit=lambda _: waiting.release())
    calls = [asyncio.create_task(petstore.list_orders()) for _ in range(5)]
    for _ in calls:
        await waiting.acquire()
    await petstore.close()
    for error in await asyncio.gather(*calls, return_exceptions=True):
        assert isinstance(error, PetstoreError)
        assert "closed" in str(error)


def test_a_closed_client_cannot_be_used(connect: Connect) -> None:
    fake = FakePetstore(ORDERS)
    with connect(fake) as petstore:
        petstore.list_orders()
        petstore.close()
        cancel, iterate = partial(petstore.cancel_order, 1), lambda: next(petstore.iter_orders())
        for use in (petstore.list_orders, iterate, cancel):
            with pytest.raises(PetstoreError, match="closed"):
                use()
        petstore.close()
    assert 1 == len(fake.requests)


def test_an_iteration_of_a_closed_client_ends_with_an_error(connect: Connect) -> None:
    fake = faulty(ORDERS, Slow(pause=0, size=100))
    with connect(fake) as petstore:
        iteration = petstore.iter_orders()
        next(iteration)
        petstore.close()
        with pytest.raises(PetstoreError, match="closed"):
            list(iteration)


def test_a_second_event_loop_is_refused() -> None:
    fake = FakePetstore(ORDERS)
    petstore = fake.async_client()
    assert ORDERS == asyncio.run(petstore.list_orders())
    with pytest.raises(PetstoreError, match="another event loop"):
        asyncio.run(petstore.list_orders())
    asyncio.run(petstore.close())
    with pytest.raises(PetstoreError, match="closed"):
        asyncio.run(petstore.list_orders())


def closed_while_in_flight(fake: FakePetstore) -> Future[None]:
    """A cancel whose client is closed after its request has been sent and before its response arrives."""
    transport = Held(fake)
    petstore = fake.client(transport=transport)
    with ThreadPoolExecutor() as pool:
        call = pool.submit(petstore.cancel_order, 1)
        assert transport.sent.wait(60)
        petstore.close()
        transport.release.set()
    return call


def test_a_request_in_flight_when_the_client_is_closed_gets_the_response_that_its_transport_receives() -> None:
    fake = FakePetstore(ORDERS)
    closed_while_in_flight(fake).result()
    assert {1} == fake.cancelled


def test_a_failure_after_closing_is_not_retried() -> None:
    fake = faulty(ORDERS, Dropped(applied=True))
    with pytest.raises(PetstoreError, match="closed") as caught:
        closed_while_in_flight(fake).result()
    assert caught.value.may_have_been_applied
    assert not isinstance(caught.value, APIConnectionError | ServerError)


def test_a_signal_that_does_not_interrupt_the_wait_is_handled_soon() -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    def send() -> None:  # to this thread: the handler runs on the main one, whose wait goes on
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)

    fake = FakePetstore(ORDERS, per_minute=1, clock=SYSTEM_CLOCK)
    timer = threading.Timer(0.1, send)
    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with fake.client(clock=SYSTEM_CLOCK) as petstore:
            petstore.list_orders()
            timer.start()
            began = time.monotonic()
            with pytest.raises(KeyboardInterrupt):
                petstore.list_orders()
            assert time.monotonic() - began < 30
    finally:
        timer.join()
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (401, "invalid_api_key", errors.AuthenticationError),
        (403, "insufficient_scope", errors.PermissionDeniedError),
        (404, "order_not_found", errors.NotFoundError),
        (409, "order_already_shipped", errors.ConflictError),
        (400, "bad_request", errors.APIStatusError),
        (410, "gone", errors.APIStatusError),
        (501, "", errors.ServerError),
    ],
)
def test_a_refusal_is_never_retried(
    connect: Connect, status: int, code: str, kind: type[errors.APIStatusError]
) -> None:
    fake = faulty(ORDERS, Answered(status, b'{"code":"%s","message":"No.","status":%d}' % (code.encode(), status)))
    with connect(fake) as petstore, pytest.raises(kind) as caught:
        petstore.cancel_order(1)
    found = caught.value
    assert (kind, code, "No.", status) == (type(found), found.code, found.message, found.status)
    assert [found.request_id] == [request.headers["x-request-id"] for request in fake.requests]


def test_waiting_for_a_limit_uses_up_no_retries(connect: Connect) -> None:
    fake = faulty(ORDERS, RateLimited(1), Failing(500), *[RateLimited(1)] * 5, Failing(500), RateLimited(1))
    with connect(fake, max_retries=2, jitter=lambda: 0.0) as petstore:
        assert ORDERS == petstore.list_orders()
    assert 10 == len(fake.requests)


@pytest.mark.parametrize("jitter", [0.0, 0.5, 1.0])
def test_backoff_is_exponential_with_full_jitter(connect: Connect, jitter: float) -> None:
    fake = faulty(ORDERS, *[Failing(500)] * 8)
    with connect(fake, jitter=lambda: jitter, max_retries=8) as petstore:
        petstore.list_orders()
    waits = [second.at - first.at for first, second in pairwise(fake.requests)]
    assert [jitter * bound for bound in (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 20.0, 20.0)] == pytest.approx(waits)


class Unread(httpx2.SyncByteStream, httpx2.AsyncByteStream):
    """A body that records when it is closed."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.closed_at: list[float] = []

    def close(self) -> None:
        self.closed_at.append(self.clock.now())

    async def aclose(self) -> None:
        self.close()


def test_the_response_of_a_failed_attempt_is_closed_before_the_wait(connect: Connect) -> None:
    fake = FakePetstore(ORDERS)
    body = Unread(fake.clock)
    first = httpx2.Response(200, headers={"x-request-id": "petstore-client-of-another"}, stream=body)
    responses = iter([lambda _: first, fake.handle_request])
    began = fake.clock.now()
    transport = httpx2.MockTransport(lambda request: next(responses)(request))
    with connect(fake, transport=transport, jitter=lambda: 1.0) as petstore:
        assert ORDERS == petstore.list_orders()
    assert [began] == body.closed_at
    assert [began + 0.5] == [request.at for request in fake.requests]


def test_the_hook_receives_every_retry_and_a_faulty_hook_does_not_affect_the_call(connect: Connect) -> None:
    fake = faulty(ORDERS, Dropped(), Failing(503, retry_after=3), RateLimited(5))
    seen: list[RetryEvent] = []

    def hook(event: Any) -> None:
        if isinstance(event, RetryEvent):
            seen.append(event)
        raise RuntimeError("a faulty hook")

    hooks = {"on_retry": hook, "on_rate_limit": hook, "on_response": hook}
    with connect(fake, **hooks, jitter=lambda: 0.0) as petstore:
        assert ORDERS == petstore.list_orders()
    assert [1, 2, 3] == [event.attempt for event in seen]
    assert [0.0, 3.0, 5.0] == pytest.approx([event.wait for event in seen])
    assert [0.0, 3.0, 5.0] == pytest.approx([after.at - before.at for before, after in pairwise(fake.requests)])
    assert [errors.APIConnectionError, errors.ServerError, errors.RateLimitError] == [
        type(event.error) for event in seen
    ]
    assert {"listOrders"} == {event.operation for event in seen}
    assert {fake.requests[0].headers["x-request-id"]} == {event.request_id for event in seen}


def test_a_truncated_error_body_keeps_the_status(connect: Connect) -> None:
    broken = Own(lambda *sent: replace(Failing(500).apply(*sent), cut=True))
    fake = faulty(ORDERS, broken, broken)
    with connect(fake, max_retries=1) as petstore, pytest.raises(errors.ServerError) as caught:
        petstore.list_orders()
    assert 500 == caught.value.status


@pytest.mark.parametrize("max_retries", [1, 4])
def test_a_service_that_cannot_be_reached_is_tried_until_retry_timeout(connect: Connect, max_retries: int) -> None:
    fake = faulty(ORDERS, *[Unreachable()] * 12)
    with connect(fake, max_retries=max_retries, jitter=lambda: 0.5) as petstore:
        petstore.cancel_order(1)
    fake.then(*[Unreachable()] * 99)
    with connect(fake, max_retries=max_retries, retry_timeout=50, jitter=lambda: 0.5) as petstore:
        began = fake.clock.monotonic()
        with pytest.raises(errors.APIConnectionError) as caught:
            petstore.cancel_order(2)
        assert "retry_timeout" == caught.value.ended_by
        assert 20 < fake.clock.monotonic() - began <= 50


def test_connections_that_fail_do_not_use_up_the_retries_of_other_failures(connect: Connect) -> None:
    fake = faulty(ORDERS, *[Unreachable()] * 5, Failing(500), *[Unreachable()] * 5, Failing(500), Failing(500))
    with connect(fake, max_retries=2) as petstore, pytest.raises(errors.ServerError) as caught:
        petstore.list_orders()
    assert ("max_retries", 13) == (caught.value.ended_by, len(fake.requests))
