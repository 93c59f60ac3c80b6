"""Webhooks of the fake service: what `deliver` sends, and when."""

import base64
import hmac
import json
import time
from datetime import UTC, datetime
from typing import Any

import httpx2
import pytest
import standardwebhooks

from petstore_client import Client, Order, v2
from petstore_client.testing import FakeClock, FakePetstore
from testing.checked_clients import contract
from testing.client_variants import Connect

URL = "https://shop.example/orders"
SCOPES = ["orders:read", "orders:write", "orders:manage", "orders:cancel", "webhooks:manage"]


class Receiver:
    """A receiver that responds with each of these in turn, and then with 204, and keeps what it has received."""

    def __init__(self, *responses: httpx2.Response | Exception | int | None) -> None:
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

    @property
    def ids(self) -> list[str]:
        return [each["webhook-id"] for each in self.headers]


def received(*orders: Order, receiver: Receiver, **options: Any) -> FakePetstore:
    fake = FakePetstore(orders, scopes=SCOPES, **options)
    fake.receivers[URL] = receiver
    return fake


def signed_by(receiver: Receiver, secret: str, number: int = -1) -> bool:
    """Whether one of the signatures of a message is that of the secret (Standard Webhooks 1.0.0)."""
    headers, body = receiver.headers[number], receiver.bodies[number]
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    key = base64.b64decode(secret.removeprefix("whsec_"))
    expected = base64.b64encode(hmac.digest(key, signed, "sha256")).decode()
    return f"v1,{expected}" in headers["webhook-signature"].split(" ")


def only(petstore: Client) -> v2.Webhook:
    """The only webhook."""
    (found,) = petstore.v2.webhooks.list()
    return found


def test_changes_are_delivered_signed_and_in_their_order(connect: Connect) -> None:
    receiver = Receiver()
    fake = received(Order(id=1), Order(id=2), Order(id=3), receiver=receiver)
    with connect(fake) as petstore:
        created = petstore.v2.webhooks.create(URL, after="beginning")
        assert 1 == fake.deliver()
        fake.clock.sleep(7)
        petstore.v2.cancel_order(3)
        petstore.v2.put_order(1, quantity=2, account="fake")
        placed = petstore.v2.place_order(pet_id=3, quantity=1)
        fake.cancelled.add(2)
        assert 7 == fake.clock.now() - datetime.fromisoformat(receiver.messages[0]["timestamp"]).timestamp()
        fake.clock.sleep(3)
        assert 3 == petstore.v2.webhooks.get(created.id).lag
        assert (1, 0) == (fake.deliver(), fake.deliver())
        assert 0 == only(petstore).lag
        changes = [{**each.to_dict(), "account": None} for each in petstore.v2.list_orders(sort="updatedAt").data]
    changed = [(3, "cancelled"), (1, "pending"), (placed.id, "pending"), (2, "cancelled")]
    assert [[(1, "pending"), (2, "pending"), (3, "pending")], changed] == receiver.orders
    assert [True, True] == [signed_by(receiver, created.secret, number) for number in (0, 1)]
    last = receiver.messages[-1]
    assert changes == [{**each, "account": None} for each in last["data"]["orders"]]  # which have no account
    assert "account" not in receiver.bodies[-1].decode()
    assert ("orders.changed", False, changes[-1]["updatedAt"]) == (
        last["type"], last["data"]["more"], last["timestamp"],
    )  # fmt: skip
    assert str(int(fake.clock.now())) == receiver.headers[-1]["webhook-timestamp"]


def test_a_message_has_at_most_100_orders_and_20_000_bytes(connect: Connect) -> None:
    receiver = Receiver()
    fake = received(*(Order(id=number) for number in range(250)), receiver=receiver)
    with connect(fake) as petstore:
        petstore.v2.webhooks.create(URL, after="beginning")
        assert 3 == fake.deliver()
        assert [100, 100, 50] == [len(each) for each in receiver.orders]
        assert [True, True, False] == [message["data"]["more"] for message in receiver.messages]
        at = datetime(2026, 11, 20, 12, 0, 0, 123456, UTC)
        for number in range(2**60, 2**60 + 100):
            fake.orders[number] = Order(id=number, pet_id=2**62, quantity=2**62, complete=False, ship_date=at)
        assert 2 == fake.deliver()
    first, second = (message["data"]["orders"] for message in receiver.messages[3:])
    assert 100 == len(first) + len(second)
    assert sum(map(_size, first)) <= 20_000 < sum(map(_size, [*first, second[0]]))


def _size(order: object) -> int:
    return len(json.dumps(order, separators=(",", ":")))


def test_a_failed_message_is_repeated_by_the_schedule_until_it_is_received(connect: Connect) -> None:
    receiver = Receiver(500, httpx2.Response(429, headers={"retry-after": "100"}, text="later " * 50), *[302] * 5)
    fake = received(Order(id=1), receiver=receiver)
    pauses = []
    with connect(fake) as petstore:
        petstore.v2.webhooks.create(URL, after="beginning")
        fake.deliver()
        for _ in range(7):
            began = fake.clock.now()
            while not fake.deliver():
                fake.clock.sleep(5)
            pauses.append(fake.clock.now() - began)
        found = only(petstore)
    assert [5, 100, 120, 600, 1800, 3600, 3600] == pauses
    assert (1, 8) == (len(set(receiver.ids)), len(receiver.ids))
    assert 1 == len(set(receiver.bodies))
    assert [500, 429, 302, 302, 302, 302, 302, 204] == [attempt.status for attempt in found.attempts]
    assert ("later " * 50)[:200] == found.attempts[1].excerpt
    assert ("active", None, 0) == (found.state, found.failing_since, found.lag)


def test_410_ends_a_webhook_and_three_days_without_success_stop_it_until_it_is_resumed(connect: Connect) -> None:
    receiver = Receiver(*[503] * 100)
    fake = received(Order(id=1), receiver=receiver)
    with connect(fake) as petstore:
        created = petstore.v2.webhooks.create(URL, after="beginning")
        began = fake.clock.now()
        while only(petstore).state == "active":
            fake.deliver()
            fake.clock.sleep(1800)
        assert 3 * 86_400 <= fake.clock.now() - began <= 3 * 86_400 + 3600 + 1800
        assert 20 == len(only(petstore).attempts)
        fake.clock.sleep(86_400)
        assert 0 == fake.deliver()
        resumed = petstore.v2.webhooks.update(created.id, state="active")
        assert ("active", None) == (resumed.state, resumed.failing_since)
        receiver.responses = [410]
        assert (1, 0) == (fake.deliver(), fake.deliver())
        assert ("ended", 0) == (only(petstore).state, only(petstore).lag)


def test_another_url_is_tried_at_once_and_one_without_a_receiver_has_no_response(connect: Connect) -> None:
    receiver = Receiver(500)
    fake = received(Order(id=1), receiver=receiver)
    with connect(fake) as petstore:
        created = petstore.v2.webhooks.create(URL, after="beginning")
        fake.deliver()
        petstore.v2.webhooks.update(created.id, url=f"{URL}/new")
        assert 1 == fake.deliver()
        (_, attempt) = only(petstore).attempts
        assert (None, True) == (attempt.status, "receivers" in attempt.excerpt)
        fake.receivers[f"{URL}/new"] = receiver
        petstore.v2.webhooks.update(created.id, url=f"{URL}/new")
        assert 1 == fake.deliver()
    assert 2 == len(receiver.bodies)


def test_both_secrets_sign_during_the_grace_of_a_rotation(connect: Connect) -> None:
    receiver = Receiver()
    fake = received(Order(id=1), receiver=receiver)
    with connect(fake) as petstore:
        old = petstore.v2.webhooks.create(URL)
        new = petstore.v2.webhooks.rotate(old.id, grace=60)
        petstore.v2.webhooks.ping(old.id)
        assert (True, True) == (signed_by(receiver, old.secret), signed_by(receiver, new.secret))
        fake.clock.sleep(60)
        petstore.v2.webhooks.ping(old.id)
        assert (False, True) == (signed_by(receiver, old.secret), signed_by(receiver, new.secret))
        petstore.v2.webhooks.rotate(old.id, grace=0)
        petstore.v2.webhooks.ping(old.id)
        assert not signed_by(receiver, new.secret)


def test_a_ping_is_sent_while_paused_and_is_not_among_the_attempts(connect: Connect) -> None:
    receiver = Receiver(httpx2.Response(500, text="broken"), httpx2.ConnectError("refused"))
    fake = received(receiver=receiver)
    with connect(fake) as petstore:
        created = petstore.v2.webhooks.create(URL, state="paused")
        answers = [petstore.v2.webhooks.ping(created.id) for _ in range(3)]
        assert [] == only(petstore).attempts
    assert [(500, "broken"), (None, "no response: refused"), (204, "")] == [(a.status, a.excerpt) for a in answers]
    at = datetime.fromtimestamp(fake.clock.now(), UTC).isoformat().replace("+00:00", "Z")
    assert [{"type": "ping", "timestamp": at, "data": {}}] * 3 == receiver.messages
    assert 3 == len(set(receiver.ids))
    assert signed_by(receiver, created.secret)


def test_an_error_of_a_receiver_reaches_the_test_and_the_message_is_sent_again(connect: Connect) -> None:
    receiver = Receiver(ZeroDivisionError())
    fake = received(Order(id=1), receiver=receiver)
    with connect(fake) as petstore:
        petstore.v2.webhooks.create(URL, after="beginning")
        with pytest.raises(ZeroDivisionError):
            fake.deliver()
        assert [] == only(petstore).attempts
        assert 1 == fake.deliver()


def test_pauses_end_exactly_whatever_fraction_of_a_second_the_clock_has() -> None:
    for number in range(100):
        receiver, clock = Receiver(503), FakeClock(1_793_000_000 + number / 7)
        fake = received(Order(id=1), receiver=receiver, clock=clock)
        with fake.client() as petstore:
            clock.sleep(number / 3)
            created = petstore.v2.webhooks.create(URL, after="beginning")
            petstore.v2.webhooks.rotate(created.id, grace=5)
            fake.deliver()
            clock.sleep(5)
            assert 1 == fake.deliver(), number
            assert not signed_by(receiver, created.secret), number


@pytest.mark.parametrize("late", [0, 301])
def test_messages_are_verified_by_the_package_for_receivers_on_a_clock_with_the_present_time(late: int) -> None:
    clock = FakeClock(time.time() - late)
    fake = FakePetstore([Order(id=1)], scopes=SCOPES, clock=clock)
    seen: list[Any] = []
    with fake.client() as petstore:
        created = petstore.v2.webhooks.create(URL, after="beginning")
        verifier = standardwebhooks.Webhook(created.secret)

        def receive(headers: dict[str, str], body: bytes) -> int:
            try:
                seen.append(verifier.verify(body, headers))
            except standardwebhooks.WebhookVerificationError:
                return 401
            return 204

        fake.receivers[URL] = receive
        fake.deliver()
        assert [401 if late else 204] == [attempt.status for attempt in only(petstore).attempts]
    assert ([] if late else ["orders.changed"]) == [message["type"] for message in seen]


def test_a_receiver_may_call_the_service() -> None:
    fake = FakePetstore([Order(id=1), Order(id=2)], scopes=SCOPES)
    seen: list[list[int]] = []
    with fake.client() as petstore:
        created = petstore.v2.webhooks.create(URL, after="beginning")

        def receive(headers: dict[str, str], body: bytes) -> None:
            orders = json.loads(body)["data"]["orders"]
            seen.append([order["id"] for order in orders])
            if len(seen) == 1:
                petstore.v2.cancel_order(2)
            elif len(seen) == 2:
                petstore.v2.webhooks.update(created.id, after="beginning")
            else:
                petstore.v2.cancel_order(1)
                petstore.v2.webhooks.delete(created.id)

        fake.receivers[URL] = receive
        assert 3 == fake.deliver()
    assert [[1, 2], [2], [1, 2]] == seen
