"""`client.v2.webhooks`: the calls, which of them are repeated, secrets, and what the fake service delivers when."""

import base64
import copy
import hmac
import json
import logging
import pickle
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from typing import Any, NamedTuple

import httpx2
import pytest
import standardwebhooks

from petstore_client import Client, Order, errors, v2
from petstore_client.testing import (
    Answered,
    Dropped,
    Failing,
    FakeClock,
    FakePetstore,
    Fault,
    RateLimited,
    TimedOut,
    Unreachable,
)
from petstore_client.testing.faults import CutOff
from testing.checked_clients import contract
from testing.client_variants import Connect, Silent

URL = "https://shop.example/orders"
SCOPES = ["orders:read", "orders:cancel", "webhooks:manage"]


def fake_with(*faults: Fault, **options: Any) -> FakePetstore:
    """A fake service whose key manages webhooks, and whose receiver accepts everything."""
    fake = FakePetstore([Order(id=1)], **{"scopes": SCOPES, **options})
    fake.receivers[URL] = lambda headers, body: 204
    fake.then(*faults)
    return fake


def test_a_webhook_is_created_changed_and_deleted(connect: Connect) -> None:
    fake = fake_with()
    with connect(fake) as petstore:
        webhooks = petstore.v2.webhooks
        created = webhooks.create(URL, statuses="cancelled", state="paused", after="beginning")
        assert (URL, ["cancelled"], "paused", [], None) == (
            created.url, created.statuses, created.state, created.attempts, created.failing_since,
        )  # fmt: skip
        assert fake.clock.now() == created.created_at.timestamp()
        resumed = webhooks.update(created.id, state="active", statuses=None)
        assert ("active", None) == (resumed.state, resumed.statuses)
        assert resumed == webhooks.get(created.id)
        attempt = webhooks.ping(created.id)
        assert (204, "", fake.clock.now()) == (attempt.status, attempt.excerpt, attempt.at.timestamp())
        rotated = webhooks.rotate(created.id, grace=3600)
        assert created.secret != rotated.secret
        other = webhooks.create("https://shop.example/other", statuses=["shipped", "pending"])
        assert ["pending", "shipped"] == other.statuses
        assert [created.id, other.id] == [each.id for each in webhooks.list()]
        webhooks.delete(created.id)
        assert [other.id] == [each.id for each in webhooks.list()]
    bodies = [json.loads(request.body) for request in fake.requests if request.body]
    assert [
        {"url": URL, "statuses": ["cancelled"], "state": "paused", "after": "beginning"},
        {"statuses": None, "state": "active"},
        {"grace": 3600},
        {"url": "https://shop.example/other", "statuses": ["shipped", "pending"], "state": "active", "after": "now"},
    ] == bodies
    paths = [f"{request.method} {request.path.replace(created.id, 'ID')}" for request in fake.requests]
    assert [
        "POST /webhooks", "PATCH /webhooks/ID", "GET /webhooks/ID", "POST /webhooks/ID/ping",
        "POST /webhooks/ID/rotate", "POST /webhooks", "GET /webhooks", "DELETE /webhooks/ID", "GET /webhooks",
    ] == paths  # fmt: skip


def test_a_secret_is_shown_once_and_never_in_a_representation(connect: Connect) -> None:
    with connect(fake_with()) as petstore:
        created = petstore.v2.webhooks.create(URL)
        rotated = petstore.v2.webhooks.rotate(created.id)
        assert not hasattr(petstore.v2.webhooks.get(created.id), "secret")
    for revealed in (created, rotated, copy.copy(created), pickle.loads(pickle.dumps(created))):
        assert revealed.secret.startswith("whsec_")
        assert revealed.secret not in f"{revealed!r} {revealed} {[revealed]!r} {list(revealed.__rich_repr__())}"
        assert "secret='***'" in repr(revealed)
        assert revealed.secret == revealed.to_dict()["secret"]


def test_a_secret_is_in_no_log_and_no_error(connect: Connect, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    fake = fake_with()
    shown: list[str] = []
    with connect(fake, on_response=lambda event: shown.append(repr(event))) as petstore:
        created = petstore.v2.webhooks.create(URL)
        fake.then(Answered(201, json.dumps({**created.to_dict(), "lag": "much"}).encode()))
        with pytest.raises(errors.InvalidResponseError) as caught:
            petstore.v2.webhooks.create(URL)
    text = "".join(traceback.format_exception(caught.value)) + repr(vars(caught.value)) + "".join(shown)
    assert created.secret not in f"{text} {caplog.text}"
    assert "createWebhook" in caplog.text


CALLS: dict[str, Callable[[Client, str], object]] = {
    "create": lambda api, _: api.v2.webhooks.create("https://shop.example/other"),
    "ping": lambda api, webhook_id: api.v2.webhooks.ping(webhook_id),
    "rotate": lambda api, webhook_id: api.v2.webhooks.rotate(webhook_id),
    "update": lambda api, webhook_id: api.v2.webhooks.update(webhook_id, state="paused"),
    "delete": lambda api, webhook_id: api.v2.webhooks.delete(webhook_id),
}
ONCE = "create", "ping", "rotate"


LOST: list[Fault] = [
    *(Dropped(applied=True), Dropped(applied=False), TimedOut(applied=True), Failing(500, applied=True)),
    *(Failing(503, retry_after=1), CutOff(10)),
]


def webhook_of(petstore: Client) -> str:
    return petstore.v2.webhooks.create(URL).id


@pytest.mark.parametrize("name", ONCE)
@pytest.mark.parametrize("fault", LOST, ids=repr)
def test_what_is_not_idempotent_is_not_repeated_after_a_lost_response(
    connect: Connect, name: str, fault: Fault
) -> None:
    fake = fake_with()
    with connect(fake) as petstore:
        webhook_id = webhook_of(petstore)
        fake.then(fault)
        with pytest.raises(errors.PetstoreError) as caught:
            CALLS[name](petstore, webhook_id)
    assert caught.value.may_have_been_applied
    assert any("may have been" in note for note in caught.value.__notes__)
    assert 2 == len(fake.requests)


@pytest.mark.parametrize("name", [*ONCE, "update", "delete"])
def test_an_interrupted_call_notes_that_it_may_have_been_applied(name: str) -> None:
    fake = fake_with()
    with fake.client() as petstore:
        webhook_id = webhook_of(petstore)
    with fake.client(transport=Silent(fake)) as petstore, pytest.raises(KeyboardInterrupt) as caught:
        CALLS[name](petstore, webhook_id)
    assert any("may have been" in note for note in caught.value.__notes__)


@pytest.mark.parametrize("name", ONCE)
def test_what_the_service_has_not_carried_out_is_repeated(connect: Connect, name: str) -> None:
    fake = fake_with()
    with connect(fake) as petstore:
        webhook_id = webhook_of(petstore)
        fake.then(Unreachable(), RateLimited(5), Unreachable(), RateLimited(1))
        CALLS[name](petstore, webhook_id)
    fake.assert_faults_used()
    assert 6 == len(fake.requests)  # of which the first created the webhook


@pytest.mark.parametrize("before", [[], [RateLimited(5)], [Unreachable()]], ids=repr)
def test_a_webhook_that_another_client_deleted_is_not_found(connect: Connect, before: list[Fault]) -> None:
    fake = fake_with()
    with connect(fake) as petstore:
        webhook_id = webhook_of(petstore)
        petstore.v2.webhooks.delete(webhook_id)
        fake.then(*before)
        with pytest.raises(errors.NotFoundError, match="webhook_not_found") as caught:
            petstore.v2.webhooks.delete(webhook_id)
    assert not caught.value.may_have_been_applied


def test_fields_and_states_of_a_later_service_are_read(connect: Connect) -> None:
    attempt = {"at": "2026-11-21T15:30:00Z", "milliseconds": 15_000, "excerpt": "no response"}
    known = {"id": "wh_1", "url": URL, "state": "resting", "createdAt": "2026-11-21T15:30:00Z", "lag": 2**40}
    sent = json.dumps({**known, "more": [1], "attempts": [{**attempt, "more": 1}]}).encode()
    with connect(fake_with(Answered(200, sent))) as petstore:
        found = petstore.v2.webhooks.get("wh_1")
    assert ("resting", 2**40, None, None) == (found.state, found.lag, found.statuses, found.attempts[0].status)
    assert {**known, "attempts": [attempt]} == found.to_dict()


Response = httpx2.Response | Exception | int | None


class Receiver:
    """A receiver that responds with each of these in turn, and then with 204, and keeps what it has received."""

    def __init__(self, *responses: Response) -> None:
        self.responses = list(responses)
        self.headers: list[dict[str, str]] = []
        self.bodies: list[bytes] = []

    def __call__(self, headers: dict[str, str], body: bytes) -> httpx2.Response | int | None:
        contract().versions["v2"].check_message(headers, body)
        self.headers.append(headers)
        self.bodies.append(body)
        response = self.responses.pop(0) if self.responses else None
        if isinstance(response, Exception):
            raise response
        return response

    @property
    def messages(self) -> list[Any]:
        return [json.loads(body) for body in self.bodies]

    @property
    def orders(self) -> list[list[tuple[int, str]]]:
        """The orders of each message, with their statuses."""
        return [[(each["id"], each["status"]) for each in message["data"]["orders"]] for message in self.messages]


class Delivering(NamedTuple):
    """A fake service with a webhook, its client, and the receiver of the messages."""

    fake: FakePetstore
    petstore: Client
    receiver: Receiver
    created: v2.RevealedWebhook

    def webhook(self) -> v2.Webhook:
        return self.petstore.v2.webhooks.get(self.created.id)

    def signed_by(self, secret: str, number: int = -1) -> bool:
        """Whether one of the signatures of a message is that of the secret (Standard Webhooks 1.0.0)."""
        headers, body = self.receiver.headers[number], self.receiver.bodies[number]
        signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
        key = base64.b64decode(secret.removeprefix("whsec_"))
        expected = base64.b64encode(hmac.digest(key, signed, "sha256")).decode()
        return f"v1,{expected}" in headers["webhook-signature"].split(" ")


@contextmanager
def delivering(*responses: Response, orders: int = 1, clock: FakeClock | None = None) -> Iterator[Delivering]:
    """A webhook that has delivered nothing yet, whose receiver gives these responses."""
    fake = FakePetstore([Order(id=number) for number in range(1, orders + 1)], scopes=SCOPES, clock=clock)
    fake.receivers[URL] = receiver = Receiver(*responses)
    with fake.client() as petstore:
        yield Delivering(fake, petstore, receiver, petstore.v2.webhooks.create(URL, after="beginning"))


def test_changes_are_delivered_signed_with_their_times() -> None:
    with delivering(orders=2) as found:
        fake, receiver = found.fake, found.receiver
        assert (1, 0) == (fake.deliver(), fake.deliver())
        fake.clock.sleep(7)
        found.petstore.v2.cancel_order(2)
        fake.clock.sleep(3)
        assert 3 == found.webhook().lag
        fake.deliver()
        assert 0 == found.webhook().lag
        assert [[(1, "pending"), (2, "pending")], [(2, "cancelled")]] == receiver.orders
        assert [True, True] == [found.signed_by(found.created.secret, number) for number in (0, 1)]
        first, last = receiver.messages
        assert "orders.changed" == last["type"]
        assert [found.petstore.v2.get_order(2).to_dict()] == last["data"]["orders"]
        assert last["timestamp"] == last["data"]["orders"][0]["updatedAt"] > first["timestamp"]
        assert str(int(fake.clock.now())) == receiver.headers[-1]["webhook-timestamp"]


def test_a_message_has_at_most_100_orders() -> None:
    with delivering(orders=250) as found:
        assert 3 == found.fake.deliver()
        assert [100, 100, 50] == [len(each) for each in found.receiver.orders]
        assert [True, True, False] == [message["data"]["more"] for message in found.receiver.messages]


def test_a_failed_message_is_repeated_by_the_schedule_until_it_is_received() -> None:
    long = httpx2.Response(429, headers={"retry-after": "100"}, text="later " * 50)
    pauses = []
    with delivering(500, long, *[302] * 5) as found:
        found.fake.deliver()
        for _ in range(7):
            began = found.fake.clock.now()
            while not found.fake.deliver():
                found.fake.clock.sleep(5)
            pauses.append(found.fake.clock.now() - began)
        webhook = found.webhook()
    assert [5, 100, 120, 600, 1800, 3600, 3600] == pauses
    assert (1, 8) == (len({each["webhook-id"] for each in found.receiver.headers}), len(found.receiver.headers))
    assert [500, 429, 302, 302, 302, 302, 302, 204] == [attempt.status for attempt in webhook.attempts]
    assert ("later " * 50)[:200] == webhook.attempts[1].excerpt
    assert ("active", None, 0) == (webhook.state, webhook.failing_since, webhook.lag)


@pytest.mark.parametrize(
    ("retry_after", "pause"),
    [("Thu, 01 Jan 1970 00:00:50 GMT", 40), ("Thu, 01 Jan 1970 00:00:00 GMT", 5), ("soon", 5), ("9" * 400, 3600)],
)
def test_a_receiver_may_ask_for_a_pause_by_a_date(retry_after: str, pause: int) -> None:
    clock = FakeClock(10)
    with delivering(httpx2.Response(503, headers={"retry-after": retry_after}), clock=clock) as found:
        found.fake.deliver()
        clock.sleep(pause - 1)
        assert 0 == found.fake.deliver()
        clock.sleep(1)
        assert 1 == found.fake.deliver()


def test_statuses_that_are_set_during_an_attempt_skip_no_order_before_it() -> None:
    with delivering(orders=2) as found:
        webhooks, fake = found.petstore.v2.webhooks, found.fake
        fake.deliver()
        fake.cancelled.add(2)
        webhooks.update(found.created.id, statuses="cancelled", after="beginning")

        def change(headers: dict[str, str], body: bytes) -> None:
            fake.receivers[URL] = found.receiver
            webhooks.update(found.created.id, statuses="pending")

        fake.receivers[URL] = change
        fake.deliver()
        assert [(1, "pending")] == found.receiver.orders[-1]


@pytest.mark.parametrize("status", [500, 410])
def test_a_failure_at_a_url_that_was_replaced_meanwhile_does_not_count(status: int) -> None:
    other = "https://shop.example/other"
    with delivering() as found:
        webhooks, fake = found.petstore.v2.webhooks, found.fake

        def change(headers: dict[str, str], body: bytes) -> int:
            webhooks.update(found.created.id, url=other)
            return status

        fake.receivers |= {URL: change, other: found.receiver}
        assert 2 == fake.deliver()
        webhook = found.webhook()
    assert ("active", None) == (webhook.state, webhook.failing_since)
    assert [status, 204] == [attempt.status for attempt in webhook.attempts]


@pytest.mark.parametrize("after", ["now", "beginning"])
def test_a_replay_skips_no_reset(after: str) -> None:
    with delivering() as found:
        found.fake.deliver()
        found.fake.restore()
        found.petstore.v2.webhooks.update(found.created.id, after=after)
        found.fake.deliver()
        kinds = [message["type"] for message in found.receiver.messages]
    assert ["orders.changed", "orders.reset", "orders.changed"] == kinds


def test_a_failure_ends_once_its_order_needs_not_be_sent_any_more() -> None:
    with delivering(503, 503) as found:
        webhooks, fake = found.petstore.v2.webhooks, found.fake
        webhooks.update(found.created.id, statuses="pending")
        fake.deliver()
        fake.cancelled.add(1)
        fake.clock.sleep(4)
        assert (0, True) == (fake.deliver(), found.webhook().failing_since is not None)
        fake.clock.sleep(1)
        assert (0, None) == (fake.deliver(), found.webhook().failing_since)
        fake.clock.sleep(4 * 86_400)
        fake.orders[2] = Order(id=2)
        assert 1 == fake.deliver()
        fake.clock.sleep(5)
        assert ("active", 1) == (found.webhook().state, fake.deliver())


def test_three_days_without_success_stop_a_webhook_until_it_is_resumed() -> None:
    with delivering(*[503] * 100) as found:
        clock, began = found.fake.clock, found.fake.clock.now()
        while found.webhook().state == "active" and clock.now() < began + 4 * 86_400:
            found.fake.deliver()
            clock.sleep(1800)
        assert 3 * 86_400 <= clock.now() - began <= 3 * 86_400 + 3600 + 1800
        assert 20 == len(found.webhook().attempts)
        clock.sleep(86_400)
        assert 0 == found.fake.deliver()
        resumed = found.petstore.v2.webhooks.update(found.created.id, state="active")
        assert ("active", None) == (resumed.state, resumed.failing_since)
        assert 1 == found.fake.deliver()


def test_a_url_without_a_receiver_has_no_response() -> None:
    with delivering() as found:
        found.fake.receivers.clear()
        assert 1 == found.fake.deliver()
        (attempt,) = found.webhook().attempts
    assert (None, True) == (attempt.status, "receivers" in attempt.excerpt)


def test_both_secrets_sign_during_the_grace_of_a_rotation() -> None:
    with delivering() as found:
        webhooks, old = found.petstore.v2.webhooks, found.created
        new = webhooks.rotate(old.id, grace=60)
        webhooks.ping(old.id)
        assert (True, True) == (found.signed_by(old.secret), found.signed_by(new.secret))
        found.fake.clock.sleep(60)
        webhooks.ping(old.id)
        assert (False, True) == (found.signed_by(old.secret), found.signed_by(new.secret))
        webhooks.rotate(old.id, grace=0)
        webhooks.ping(old.id)
        assert not found.signed_by(new.secret)


def test_a_ping_is_sent_while_paused_and_is_not_among_the_attempts() -> None:
    with delivering(httpx2.Response(500, text="broken"), httpx2.ConnectError("refused")) as found:
        found.petstore.v2.webhooks.update(found.created.id, state="paused")
        answers = [found.petstore.v2.webhooks.ping(found.created.id) for _ in range(3)]
        assert [] == found.webhook().attempts
        assert found.signed_by(found.created.secret)
    assert [(500, "broken"), (None, "no response: refused"), (204, "")] == [(a.status, a.excerpt) for a in answers]
    at = datetime.fromtimestamp(found.fake.clock.now(), UTC).isoformat().replace("+00:00", "Z")
    assert [{"type": "ping", "timestamp": at, "data": {}}] * 3 == found.receiver.messages


def test_an_error_of_a_receiver_reaches_the_test_and_the_message_is_sent_again() -> None:
    with delivering(ZeroDivisionError()) as found:
        with pytest.raises(ZeroDivisionError):
            found.fake.deliver()
        assert [] == found.webhook().attempts
        assert 1 == found.fake.deliver()


def test_pauses_end_exactly_whatever_fraction_of_a_second_the_clock_has() -> None:
    for number in range(100):
        clock = FakeClock(1_793_000_000 + number / 7)
        with delivering(503, clock=clock) as found:
            found.petstore.v2.webhooks.rotate(found.created.id, grace=5)
            found.fake.deliver()
            clock.sleep(5)
            assert 1 == found.fake.deliver(), number
            assert not found.signed_by(found.created.secret), number


def test_times_of_webhooks_are_whole_seconds_as_those_of_the_service() -> None:
    with delivering(204, 503, clock=FakeClock(1_793_000_000.75)) as found:
        ping = found.petstore.v2.webhooks.ping(found.created.id)
        found.fake.deliver()
        shown = found.webhook()
        assert shown.failing_since is not None
        times = [found.created.created_at, shown.created_at, shown.failing_since, shown.attempts[0].at, ping.at]
    assert [1_793_000_000.0] * 5 == [time.timestamp() for time in times]


@pytest.mark.parametrize("late", [0, 301])
def test_messages_are_verified_by_the_package_for_receivers_on_a_clock_with_the_present_time(late: int) -> None:
    with delivering(clock=FakeClock(time.time() - late)) as found:
        found.fake.deliver()
    verifier = standardwebhooks.Webhook(found.created.secret)
    with pytest.raises(standardwebhooks.WebhookVerificationError) if late else nullcontext():
        assert found.receiver.messages[0] == verifier.verify(found.receiver.bodies[0], found.receiver.headers[0])


def test_a_receiver_may_call_the_service() -> None:
    seen: list[list[int]] = []
    with delivering(orders=2) as found:
        webhooks, webhook_id = found.petstore.v2.webhooks, found.created.id

        def receive(headers: dict[str, str], body: bytes) -> None:
            orders = json.loads(body)["data"]["orders"]
            seen.append([order["id"] for order in orders])
            if len(seen) == 1:
                found.petstore.v2.cancel_order(2)
            elif len(seen) == 2:
                webhooks.update(webhook_id, after="beginning")
            else:
                webhooks.delete(webhook_id)

        found.fake.receivers[URL] = receive
        assert 3 == found.fake.deliver()
    assert [[1, 2], [2], [1, 2]] == seen
