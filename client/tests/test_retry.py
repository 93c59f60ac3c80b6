"""Which failures are retried, when, and how often."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import httpx2
import pytest

from petstore_client import Clock, Order, RetryEvent, errors
from petstore_client.testing import Answered, Dropped, Failing, FakePetstore, RateLimited
from petstore_client.testing.faults import Unreachable
from testing.client_variants import Connect, Own, faulty

ORDERS = [Order(id=number, pet_id=1) for number in range(1, 4)]


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
    with connect(fake, max_retries=max_retries) as petstore:
        petstore.cancel_order(1)
    fake.then(*[Unreachable()] * 99)
    with connect(fake, max_retries=max_retries, retry_timeout=50) as petstore:
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
