"""`client.v2.webhooks`: the calls, which of them are repeated, and secrets."""

import copy
import json
import logging
import pickle
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from petstore_client import Client, Order, errors
from petstore_client.testing import Answered, Dropped, Failing, FakePetstore, Fault, RateLimited, TimedOut, Unreachable
from petstore_client.testing.faults import CutOff
from testing.client_variants import Connect, Silent

URL = "https://shop.example/orders"
SCOPES = ["orders:read", "webhooks:manage"]


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
