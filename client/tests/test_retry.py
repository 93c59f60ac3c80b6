"""What is repeated, how long after, and how often."""

import httpx2
import pytest

from flavours import Connect
from petstore_client import (
    APIConnectionError,
    APIStatusError,
    APITimeoutError,
    AuthenticationError,
    ConflictError,
    KeyBannedError,
    NotFoundError,
    Order,
    PermissionDeniedError,
    PetstoreError,
    RateLimitError,
    RetryEvent,
    ServerError,
)
from petstore_client.clock import Clock
from petstore_client.retry import RetryBudget, backoff
from petstore_client.testing import (
    Answered,
    Banned,
    CutOff,
    Dropped,
    Failing,
    FakeClock,
    FakePetstore,
    Happening,
    RateLimited,
    TimedOut,
    Unreachable,
)
from petstore_client.testing.happenings import Raw, Serve

ORDERS = [Order(id=number, pet_id=1) for number in range(1, 4)]
TRANSIENT: list[Happening] = [
    Unreachable(),
    Dropped(),
    TimedOut(),
    CutOff(20),
    *(Failing(status) for status in (500, 502, 503, 504)),
]


def answered(status: int, code: str) -> Answered:
    return Answered(status, b'{"code":"%s","message":"No.","status":%d}' % (code.encode(), status))


@pytest.mark.parametrize("happening", TRANSIENT, ids=repr)
def test_a_passing_failure_is_repeated_until_it_has_passed(connect: Connect, happening: Happening) -> None:
    fake = FakePetstore(ORDERS)
    fake.then(happening, happening)
    with connect(fake) as petstore:
        assert ORDERS == petstore.list_orders()
    assert 3 == len(fake.requests)


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (401, "invalid_api_key", AuthenticationError),
        (403, "insufficient_scope", PermissionDeniedError),
        (404, "order_not_found", NotFoundError),
        (409, "order_already_shipped", ConflictError),
        (400, "bad_request", APIStatusError),
        (410, "gone", APIStatusError),
        (501, "", ServerError),
    ],
)
def test_a_refusal_is_never_repeated(connect: Connect, status: int, code: str, kind: type[APIStatusError]) -> None:
    fake = FakePetstore(ORDERS)
    fake.then(answered(status, code))
    with connect(fake) as petstore, pytest.raises(kind) as caught:
        petstore.cancel_order(1)
    assert (kind, code, "No.", status) == (
        type(caught.value),
        caught.value.code,
        caught.value.message,
        caught.value.status,
    )
    assert 1 == len(fake.requests)
    assert fake.requests[0].headers["x-request-id"] == caught.value.request_id


def test_attempts_are_bounded(connect: Connect) -> None:
    fake = FakePetstore(ORDERS)
    fake.then(*[Failing(500)] * 9)
    with connect(fake, max_retries=2) as petstore, pytest.raises(ServerError):
        petstore.list_orders()
    assert 3 == len(fake.requests)


def test_without_retries_the_first_failure_is_raised(connect: Connect) -> None:
    fake = FakePetstore(ORDERS)
    fake.then(RateLimited(1), Failing(500))
    with connect(fake, max_retries=0) as petstore:
        with pytest.raises(RateLimitError):
            petstore.list_orders()
        fake.clock.sleep(1)
        with pytest.raises(ServerError):
            petstore.list_orders()
    assert 2 == len(fake.requests)


def test_the_whole_time_of_failing_attempts_is_bounded(connect: Connect) -> None:
    clock = FakeClock()
    fake = FakePetstore(ORDERS, clock=clock)
    fake.then(*[TimedOut()] * 9)
    with connect(fake, max_retries=9, timeout=30.0, retry_timeout=70.0) as petstore, pytest.raises(APITimeoutError):
        petstore.list_orders()
    assert 3 == len(fake.requests)
    assert clock.monotonic() < 30.0 * 3 + 2


def test_backing_off_is_exponential_with_full_jitter() -> None:
    assert [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 20.0, 20.0] == [backoff(attempt, lambda: 1.0) for attempt in range(1, 9)]
    assert [0.0, 0.0] == [backoff(attempt, lambda: 0.0) for attempt in (1, 9)]
    assert 2.0 == backoff(4, lambda: 0.5)
    assert 20.0 == backoff(10**6, lambda: 1.0)


def test_every_attempt_waits_its_turn(connect: Connect) -> None:
    fake = FakePetstore(ORDERS)
    fake.then(*[Failing(500)] * 4)
    with connect(fake, jitter=lambda: 1.0) as petstore:
        petstore.list_orders()
    times = [request.at - fake.requests[0].at for request in fake.requests]
    assert [0.0, 0.5, 1.5, 3.5, 7.5] == pytest.approx(times)


def test_a_503_is_repeated_no_sooner_than_it_says(connect: Connect) -> None:
    fake = FakePetstore(ORDERS)
    fake.then(Failing(503, retry_after=7))
    with connect(fake, jitter=lambda: 0.0) as petstore:
        petstore.list_orders()
    assert 7.0 == pytest.approx(fake.requests[1].at - fake.requests[0].at)


def test_a_503_that_asks_for_longer_than_is_waited_is_raised(connect: Connect) -> None:
    fake = FakePetstore(ORDERS)
    fake.then(Failing(503, retry_after=76))
    with connect(fake) as petstore, pytest.raises(ServerError) as caught:
        petstore.list_orders()
    assert 76 == caught.value.retry_after
    assert 1 == len(fake.requests)


def test_a_failing_server_is_not_hammered_by_many_calls(connect: Connect) -> None:
    fake = FakePetstore(ORDERS)
    fake.then(*[Failing(500)] * 10_000)
    with connect(fake, retry_budget=20) as petstore:
        for _ in range(200):
            with pytest.raises(ServerError):
                petstore.list_orders()
    assert 200 + 20 == len(fake.requests)


def test_successes_earn_further_retries() -> None:
    budget = RetryBudget(1)
    assert budget.take(0.0)
    assert not budget.take(0.0)
    for _ in range(10):
        budget.succeeded()
    assert budget.take(0.0)
    assert not budget.take(99.0)
    assert budget.take(200.0)


def test_the_request_id_stays_over_the_attempts_and_differs_from_call_to_call(connect: Connect) -> None:
    fake = FakePetstore(ORDERS)
    fake.then(Failing(500), RateLimited(1))
    with connect(fake) as petstore:
        petstore.list_orders()
        petstore.list_orders()
    first, second, third, other = (request.headers["x-request-id"] for request in fake.requests)
    assert first == second == third != other


def test_the_hook_is_told_of_every_retry(connect: Connect) -> None:
    fake = FakePetstore(ORDERS)
    fake.then(Dropped(), Failing(503, retry_after=3), RateLimited(5))
    told: list[RetryEvent] = []
    with connect(fake, on_retry=told.append, jitter=lambda: 0.0) as petstore:
        petstore.list_orders()
    assert [1, 2, 3] == [event.attempt for event in told]
    assert [0.0, 3.0, 5.0] == pytest.approx([event.wait for event in told])
    assert [APIConnectionError, ServerError, RateLimitError] == [type(event.error) for event in told]
    assert {"listOrders"} == {event.operation for event in told}
    assert {fake.requests[0].headers["x-request-id"]} == {event.request_id for event in told}


def test_a_hook_that_fails_costs_no_call_its_result(connect: Connect) -> None:
    def broken(event: object) -> None:
        raise RuntimeError("broken hook")

    fake = FakePetstore(ORDERS)
    fake.then(Dropped(applied=True), RateLimited(1))
    with connect(fake, on_retry=broken, on_rate_limit=broken) as petstore:
        petstore.cancel_order(1)
    assert {1} == fake.cancelled


def test_a_ban_is_never_repeated(connect: Connect) -> None:
    fake = FakePetstore(ORDERS)
    fake.then(Banned(10))
    with connect(fake) as petstore, pytest.raises(KeyBannedError):
        petstore.list_orders()
    assert 1 == len(fake.requests)


def test_an_error_body_that_breaks_off_leaves_the_status(connect: Connect) -> None:
    fake = FakePetstore(ORDERS)

    class Broken(Failing):
        def happen(self, request: httpx2.Request, clock: Clock, serve: Serve) -> Raw:
            return super().happen(request, clock, serve)._replace(cut=True)

    fake.then(Broken(500), Broken(500))
    with connect(fake, max_retries=1) as petstore, pytest.raises(ServerError) as caught:
        petstore.list_orders()
    assert 500 == caught.value.status


def test_a_connection_that_cannot_be_made_says_that_nothing_was_sent(connect: Connect) -> None:
    fake = FakePetstore(ORDERS)
    fake.then(*[Unreachable()] * 9)
    with connect(fake) as petstore, pytest.raises(APIConnectionError) as caught:
        petstore.cancel_order(1)
    assert not caught.value.sent
    assert not caught.value.may_have_been_applied
    assert isinstance(caught.value.__cause__, httpx2.ConnectError)


def test_every_error_is_a_petstore_error(connect: Connect) -> None:
    happenings: list[Happening] = [*TRANSIENT, RateLimited(999), Banned(), answered(401, "invalid_api_key")]
    for happening in happenings:
        fake = FakePetstore(ORDERS)
        fake.then(*[happening] * 9)
        with connect(fake) as petstore, pytest.raises(PetstoreError):
            petstore.list_orders()
