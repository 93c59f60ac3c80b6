"""The rules of webhooks: pauses between attempts, the end of attempts, signatures, identifiers of messages (D24)."""

import base64
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from petstore_server.domain.errors import WebhookEnded
from petstore_server.domain.lists import Position
from petstore_server.domain.orders import INT64_MAX, Status
from petstore_server.domain.timestamps import DAY, HOUR
from petstore_server.domain.tokens import history_of
from petstore_server.domain.webhooks import (
    MAX_ATTEMPTS,
    MAX_PAUSE,
    Attempt,
    Message,
    SigningSecrets,
    Webhook,
    WebhookState,
    _signature,
    attempted,
    edit,
    message_id,
    rotate,
)
from testing.webhook_messages import Received

WEBHOOK = Webhook("wh_one", 1, "zoo", "https://shop.example/?key=1", 1_000.0, history="a", position=Position(5, 7))
MESSAGE = Message("msg_one", b"{}", "b", Position(9, INT64_MAX), more=False)
SIGNING = SigningSecrets("the text from which all secrets are derived")
FAILED = Attempt(2_000.0, 500, 250, "")
FRACTIONS = st.floats(0, 1)


def failed(webhook: Webhook, at: float, status: int | None = 500, retry_after: float | None = None) -> Webhook:
    return attempted(webhook, MESSAGE, webhook, Attempt(at, status, 0, ""), retry_after, 0.0)


@given(st.integers(0, 100), st.none() | st.floats(0, 10 * DAY), FRACTIONS, st.integers(0, 15_000))
def test_a_pause_is_that_of_the_schedule_or_of_retry_after_whichever_is_longer(
    failures: int, retry_after: float | None, spread: float, milliseconds: int
) -> None:
    webhook = replace(WEBHOOK, failures=failures, failing_since=1_990.0)
    after = attempted(webhook, MESSAGE, webhook, FAILED._replace(milliseconds=milliseconds), retry_after, spread)
    pause = after.next_at - FAILED.at - milliseconds / 1_000
    scheduled = [5, 30, 120, 600, 1_800, 3_600][min(failures, 5)]
    asked = min(retry_after or 0, HOUR)
    assert pause >= max(scheduled, asked) - 1e-6
    assert pause == pytest.approx(max(scheduled, asked) * (1 + spread / 5))
    assert after.next_at - FAILED.at < MAX_PAUSE
    assert (failures + 1, 1_990.0, WEBHOOK.position) == (after.failures, after.failing_since, after.position)


@given(st.lists(st.tuples(FRACTIONS, st.none() | st.floats(0, DAY)), min_size=100, max_size=100))
def test_a_webhook_is_stopped_by_the_first_attempt_after_three_days_without_a_success(
    each: list[tuple[float, float | None]],
) -> None:
    webhook, at, times = WEBHOOK, 10_000.0, []
    for spread, retry_after in each:
        times.append(at)
        webhook = attempted(webhook, MESSAGE, webhook, Attempt(at, None, 0, ""), retry_after, spread)
        if webhook.state is WebhookState.STOPPED:
            break
        assert webhook.next_at > at
        at = webhook.next_at
    assert times[-2] - times[0] < 3 * DAY <= times[-1] - times[0] < 3 * DAY + 1.2 * HOUR
    assert 60 < len(times) < 80


def test_failures_begin_at_the_latest_now_where_the_clock_was_set_back() -> None:
    webhook = replace(WEBHOOK, failures=1, failing_since=FAILED.at + 365 * DAY)
    assert FAILED.at == attempted(webhook, MESSAGE, webhook, FAILED, None, 0.0).failing_since


def test_a_success_moves_the_position_and_ends_the_failures() -> None:
    webhook = replace(WEBHOOK, failures=3, failing_since=1_500.0, next_at=1_900.0)
    after = attempted(webhook, MESSAGE, webhook, FAILED._replace(status=299), 60.0, 1.0)
    assert (0, None, 0.0, FAILED.at) == (after.failures, after.failing_since, after.next_at, after.delivered_at)
    assert (MESSAGE.history, MESSAGE.position) == (after.history, after.position)


@pytest.mark.parametrize("status", [None, 100, 199, 300, 302, 400, 404, 409, 429, 500, 503, 599])
def test_any_other_status_than_2xx_is_a_failure(status: int | None) -> None:
    after = failed(WEBHOOK, 2_000.0, status)
    assert (1, 2_000.0, WebhookState.ACTIVE) == (after.failures, after.failing_since, after.state)
    assert (WEBHOOK.history, WEBHOOK.position) == (after.history, after.position)


def test_gone_ends_a_webhook_in_any_state_and_only_at_its_present_address() -> None:
    for state in (WebhookState.ACTIVE, WebhookState.PAUSED):
        assert WebhookState.ENDED is failed(replace(WEBHOOK, state=state), 2_000.0, 410).state
    other = replace(WEBHOOK, url="https://other.example/")
    after = attempted(other, MESSAGE, WEBHOOK, FAILED._replace(status=410), None, 0.0)
    assert replace(other, attempts=after.attempts) == after


def test_a_webhook_that_is_paused_meanwhile_is_not_stopped() -> None:
    paused = replace(WEBHOOK, state=WebhookState.PAUSED, failing_since=2_000.0)
    assert WebhookState.PAUSED is failed(paused, 2_000.0 + 4 * DAY).state


def test_a_position_that_was_set_meanwhile_stays() -> None:
    stored = edit(start=("c", Position(1, 1))).apply(WEBHOOK)
    after = attempted(stored, MESSAGE, WEBHOOK, FAILED._replace(status=204), None, 0.0)
    assert ("c", Position(1, 1), 1) == (after.history, after.position, after.replay)


def test_a_position_stays_whose_statuses_were_changed_meanwhile() -> None:
    stored = edit(statuses=(Status.PENDING,)).apply(WEBHOOK)
    after = attempted(stored, MESSAGE, WEBHOOK, FAILED._replace(status=204), None, 0.0)
    assert (WEBHOOK.history, WEBHOOK.position) == (after.history, after.position)


def test_the_last_attempts_are_kept() -> None:
    webhook = WEBHOOK
    for number in range(MAX_ATTEMPTS + 5):
        webhook = failed(webhook, float(number))
    assert [float(number) for number in range(5, MAX_ATTEMPTS + 5)] == [each.at for each in webhook.attempts]


FAILING = replace(WEBHOOK, failures=4, failing_since=1_500.0, next_at=9_000.0)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"url": "https://b.example/"}, {"url": "https://b.example/", "failures": 0, "next_at": 0.0}),
        ({"statuses": (Status.CANCELLED,)}, {"statuses": (Status.CANCELLED,), "failures": 0, "next_at": 0.0}),
        ({"statuses": ()}, {"failures": 0, "next_at": 0.0}),
        (
            {"start": ("c", Position(1, 2))},
            {"history": "c", "position": Position(1, 2), "replay": 1, "failures": 0, "next_at": 0.0},
        ),
        (
            {"state": WebhookState.PAUSED},
            {"state": WebhookState.PAUSED, "failures": 0, "failing_since": None, "next_at": 0.0},
        ),
        ({"state": WebhookState.ACTIVE}, {"next_at": 0.0}),
        ({}, {}),
    ],
)
def test_an_edit_changes_what_is_given_and_ends_the_pause(changes: dict[str, Any], expected: dict[str, Any]) -> None:
    assert replace(FAILING, **expected) == edit(**changes).apply(FAILING)


def test_resuming_ends_a_stop_with_its_failures() -> None:
    resumed = edit(state=WebhookState.ACTIVE).apply(replace(FAILING, state=WebhookState.STOPPED))
    assert replace(FAILING, failures=0, failing_since=None, next_at=0.0) == resumed


@pytest.mark.parametrize("transition", [edit(state=WebhookState.ACTIVE), edit(), rotate(0.0)])
def test_an_ended_webhook_cannot_be_changed(transition: Any) -> None:
    with pytest.raises(WebhookEnded):
        transition.apply(replace(WEBHOOK, state=WebhookState.ENDED))


@given(st.binary(max_size=300), st.integers(1, 2**33), st.integers(1, 50), st.floats(-10, 10))
def test_a_message_is_signed_with_the_secret_that_was_shown_and_in_the_grace_with_the_one_before(
    body: bytes, now: int, generation: int, grace: float
) -> None:
    before = replace(WEBHOOK, generation=generation)
    after = rotate(now + grace).apply(before)
    for webhook, is_signed_by_before in ((before, True), (after, now + grace > now)):
        headers = {"webhook-id": "msg_1", "webhook-timestamp": str(now)}
        headers["webhook-signature"] = SIGNING.sign(webhook, "msg_1", body, now)
        message = Received("/", headers, body)
        assert message.is_signed(SIGNING.shown(webhook))
        assert is_signed_by_before is message.is_signed(SIGNING.shown(before))


def test_a_signature_is_that_of_the_examples_of_the_specification() -> None:
    secret = base64.b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    signed = b'msg_p5jXN8AQM9LWM0D4loKWxJek.1614265330.{"test": 2432232314}'
    assert "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=" == _signature(secret, signed)


def test_secrets_differ_by_webhook_generation_and_text() -> None:
    others = [replace(WEBHOOK, id="wh_two"), replace(WEBHOOK, generation=2), WEBHOOK]
    signings = [SIGNING, SIGNING, SigningSecrets("another text from which all secrets are derived")]
    shown = {signing.shown(webhook) for signing, webhook in zip(signings, others, strict=True)}
    assert 4 == len(shown | {SIGNING.shown(WEBHOOK)})
    assert SIGNING.digest != signings[2].digest
    assert SIGNING.shown(WEBHOOK) == SIGNING.shown(replace(WEBHOOK, url="https://b.example/", replay=3))


def test_the_identifier_of_a_message_differs_with_all_that_it_derives_from_and_nothing_else() -> None:
    history, position = history_of("epoch", None), Position(9, 1)
    given = (WEBHOOK, history, position, b"{}")
    changed: list[tuple[Webhook, str, Position, bytes]] = [
        (replace(WEBHOOK, id="wh_two"), history, position, b"{}"),
        (replace(WEBHOOK, replay=1), history, position, b"{}"),
        (WEBHOOK, history_of("other", None), position, b"{}"),
        (WEBHOOK, history_of("epoch", 1), position, b"{}"),
        (WEBHOOK, history, Position(9, 2), b"{}"),
        (WEBHOOK, history, Position(8, 1), b"{}"),
        (WEBHOOK, history, position, b"{ }"),
    ]
    assert len(changed) + 1 == len({message_id(*each) for each in [given, *changed]})
    same = replace(WEBHOOK, url="https://b.example/", generation=4, attempts=(FAILED,), failures=1)
    assert message_id(*given) == message_id(same, *given[1:])
