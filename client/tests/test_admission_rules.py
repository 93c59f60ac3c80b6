"""The rules of one call at the gate, without a service: which waits it accepts, and which responses it passes on."""

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from petstore_client._admission import Admission, Observed, Session
from petstore_client._effects import Queue, Sleep
from petstore_client._gate import Gate, Place
from petstore_client._http import Reply, Target
from petstore_client._limits import Limits, Window
from petstore_client._options import Options
from petstore_client._types import RateLimitEvent, Secret
from petstore_client.errors import KeyBannedError, RateLimitError
from petstore_client.testing import FakeClock

BASE_URL, KEY = "https://petstore.example/v1", "pso_live_secret"
BANNED = b'{"code": "api_key_banned", "message": "pso_live_secret is banned", "status": 429}'
OPTIONS: dict[str, Any] = {
    **dict.fromkeys(("base_url", "api_key", "transport", "http_client", "deadline", "headers", "app_name")),
    **dict.fromkeys(("on_retry", "on_response")), "jitter": lambda: 1.0,
    "timeout": 10.0, "max_retries": 2, "max_wait": 75.0, "retry_timeout": 50.0, "conditional": True,
}  # fmt: skip


def limits(*windows: Window, pause: float = 60.0, of_address: bool = False) -> Limits:
    return Limits(windows, pause, None, of_address, None)


def minute(remaining: int) -> Window:
    return Window("minute", 60, remaining, 60.0, 60)


class Call:
    """A call at a gate. Time passes only while it waits: a queue ends after its whole time, unless `meanwhile` is set.

    The clock starts at 100 seconds.
    """

    def __init__(self, gate: Gate | None = None, **options: Any) -> None:
        self.gate = gate or Gate()
        self.clock = FakeClock()
        self.clock.advance(100.0)
        self.events: list[RateLimitEvent] = []
        self.meanwhile: Callable[[], object] | None = None
        made = Options(**{**OPTIONS, "clock": self.clock, "on_rate_limit": self.events.append, **options})
        session = Session(Target(BASE_URL, Secret(KEY)), made, self.gate, Observed(), lambda: None)
        self.admission = Admission(session, "list_orders", "req_1")

    def enter(self) -> list[float]:
        """Enter the gate; return the waits in seconds."""
        waits = []
        for effect in self.admission.enter():
            assert isinstance(effect, Sleep | Queue)
            waits.append(effect.seconds)
            if isinstance(effect, Queue) and self.meanwhile is not None:
                self.meanwhile()
            else:
                self.clock.advance(effect.seconds)
        return waits

    def respond(self, status: int, described: Limits) -> bool:
        return self.admission.record_response(Reply(status, {}, ""), described, self.clock.monotonic())

    def time_in(self, seconds: float) -> datetime:
        return datetime.fromtimestamp(self.clock.now() + seconds, UTC)

    def refusal(self, body: bytes = b"", pause: float = 20.0, of_address: bool = False) -> RateLimitError:
        """Send, and get a 429."""
        self.enter()
        moved = self.respond(429, limits(pause=pause, of_address=of_address))
        assert moved is not of_address
        return self.admission.refusal(body, pause, self.clock.monotonic(), moved)


def held(seconds: float) -> Gate:
    """A gate that is closed for this long from 100 seconds on."""
    gate = Gate()
    gate.record_response(gate.enter(100.0), 100.0, limits(pause=seconds), True, lambda: 1.0)
    return gate


def left(gate: Gate, now: float = 100.0) -> int:
    """How many of three requests may be sent at once."""
    return sum(gate.enter(now).place.name == "PASSED" for _ in range(3))


def test_only_responses_that_the_account_was_charged_for_describe_its_windows() -> None:
    described = set()
    for status in range(200, 600):
        call = Call()
        assert [] == call.enter()
        if call.respond(status, limits(minute(0))):
            described.add(status)
        assert (status in described) is (call.gate.held_for(100.0) > 0.0)
    assert {*range(200, 300), 304, 400, 403, 404, 409, 410, 412, 415, 422, 429} == described


@pytest.mark.parametrize(("status", "charged"), [(401, False), (499, False), (500, True), (503, True)])
def test_a_response_that_does_not_describe_the_windows_is_charged_if_the_server_failed(
    status: int, charged: bool
) -> None:
    call = Call()
    call.enter()
    call.respond(200, limits(minute(2)))
    call.enter()
    call.respond(status, limits())
    assert (1 if charged else 2) == left(call.gate)


@pytest.mark.parametrize("charged", [True, False])
def test_a_call_that_leaves_is_charged_only_on_demand_and_once(charged: bool) -> None:
    call = Call()
    call.admission.leave()  # before it entered
    call.enter()
    call.respond(200, limits(minute(2)))
    call.enter()
    call.admission.leave(**({"charged": True} if charged else {}))
    call.admission.leave(charged=True)
    assert (1 if charged else 2) == left(call.gate)


@pytest.mark.parametrize(
    ("wait", "options", "ended_by"),
    [
        (75.0, {}, None),
        (75.5, {}, "max_wait"),
        (0.001, {"max_wait": 0}, "max_wait"),
        (0.5, {"max_wait": 0}, "max_wait"),
        (30.0, {"deadline": 30.0}, "deadline"),
        (30.0, {"deadline": 30.5}, None),
        (80.0, {"deadline": 30.0}, "max_wait"),
    ],
)
def test_a_call_accepts_the_wait_for_a_limit_that_its_options_allow(
    wait: float, options: dict[str, Any], ended_by: str | None
) -> None:
    call = Call(held(wait), **options)
    until = call.time_in(wait)
    if ended_by is None:
        assert ([wait], wait) == (call.enter(), call.admission.waited)
    else:
        with pytest.raises(
            RateLimitError, match=rf"used up; nothing was sent\. Retry at .*\+00:00, or .*{ended_by}"
        ) as caught:
            call.enter()
        found = caught.value
        assert ("rate_limit_exceeded", 429, until, False, ended_by) == (
            *(found.code, found.status, found.retry_at, found.sent, found.ended_by),
        )
    (event,) = call.events
    assert ("list_orders", until, False, "req_1") == (event.operation, event.retry_at, event.refused, event.request_id)
    assert event.waits is (ended_by is None)
    assert pytest.approx(wait) == event.wait


def test_a_sleep_that_ended_a_little_early_is_not_another_wait() -> None:
    call = Call(held(0.0009), max_wait=0)
    assert [0.0009] == pytest.approx(call.enter())
    assert [] == call.events


@pytest.mark.parametrize(
    ("options", "patience", "ended_by"),
    [
        ({"max_wait": 5.0}, 20.0, "max_wait"),
        ({"max_wait": 30.0}, 30.0, "max_wait"),
        ({"max_wait": 5.0, "timeout": None}, 120.0, "max_wait"),
        ({"max_wait": 1e9}, 86_400.0, "max_wait"),
        ({"deadline": 0.5}, 0.5, "deadline"),
        ({"deadline": 75.0}, 75.0, "deadline"),
        ({"deadline": 75.5}, 75.0, "max_wait"),
    ],
)
def test_a_call_waits_for_the_requests_before_it_no_longer_than_its_options_allow(
    options: dict[str, Any], patience: float, ended_by: str
) -> None:
    gate = Gate()
    gate.enter(0.0)
    call = Call(gate, **options)
    with pytest.raises(RateLimitError, match=f"no response in time; nothing was sent.*{ended_by}") as caught:
        call.enter()
    assert pytest.approx(100.0 + patience) == call.clock.monotonic()
    assert (ended_by, call.time_in(0.0), False) == (caught.value.ended_by, caught.value.retry_at, caught.value.sent)
    assert [] == call.events  # no limit imposed it


def test_a_call_waits_for_a_request_that_is_held_only_until_a_window_ends() -> None:
    gate = Gate()
    gate.record_response(gate.enter(100.0), 100.0, limits(minute(1)), False, lambda: 1.0)
    gate.enter(100.0)  # leaves nothing before its response
    assert [60.0] == Call(gate, timeout=None).enter()


def test_a_call_whose_request_was_not_sent_keeps_its_turn() -> None:
    gate = Gate()
    gate.record_response(gate.enter(100.0), 100.0, limits(minute(1)), False, lambda: 1.0)
    call = Call(gate)
    call.enter()
    first, second = [gate.enter(100.0) for _ in range(2)]
    call.admission.leave_unsent()  # the first one passes
    call.meanwhile = lambda: gate.leave(first, 100.0)
    assert ([60.0], Place.WAITING) == (call.enter(), second.place)


def test_a_call_whose_turn_comes_at_its_deadline_is_not_sent() -> None:
    call = Call(deadline=30.0)
    probe = call.gate.enter(100.0)

    def respond() -> None:
        call.clock.advance(30.0)
        call.gate.record_response(probe, 130.0, limits(minute(9)), False, lambda: 1.0)

    call.meanwhile = respond
    with pytest.raises(RateLimitError, match="too long for its turn") as caught:
        call.enter()
    assert ("deadline", call.time_in(0.0), False) == (caught.value.ended_by, caught.value.retry_at, caught.value.sent)
    assert 30.0 == call.admission.waited


@pytest.mark.parametrize(
    ("options", "waits"),
    [({"deadline": 0.5}, []), ({"max_wait": 0.5}, []), ({"deadline": 2.0}, [0.75]), ({}, [0.75])],
)
def test_a_call_is_not_spaced_beyond_its_patience(options: dict[str, Any], waits: list[float]) -> None:
    gate = Gate()
    gate.record_response(gate.enter(40.0), 40.0, limits(minute(0)), False, lambda: 1.0)
    gate.enter(40.0)  # finds the window exhausted
    gate.record_response(gate.enter(100.0), 100.0, limits(minute(50)), False, lambda: 1.0)
    call = Call(gate, **options)
    call.clock.advance(0.25)
    assert (waits, []) == (call.enter(), call.events)


def test_a_ban_of_the_key_is_not_waited_for() -> None:
    call = Call()
    call.gate.ban(130.0)
    with pytest.raises(KeyBannedError, match=r"banned until 2027-01-15T08:02:10\+00:00 because requests") as caught:
        call.enter()
    found = caught.value
    assert ("api_key_banned", 429, call.time_in(30.0), False) == (found.code, found.status, found.retry_at, found.sent)


def test_the_error_of_a_429_says_when_the_gate_reopens() -> None:
    call = Call()
    error = call.refusal(b'{"code": "rate_limit_exceeded", "message": "Slow down.", "status": 429}')
    assert ("rate_limit_exceeded", "Slow down. Retry at 2027-01-15T08:02:00+00:00.") == (error.code, error.message)
    assert (429, call.time_in(20.0), True) == (error.status, error.retry_at, error.sent)
    assert (20.0, 20.0) == (call.admission.wait_after(error), call.admission.waited)
    (event,) = call.events
    assert ("list_orders", 20.0, call.time_in(20.0)) == (event.operation, event.wait, event.retry_at)
    assert (True, True, "req_1") == (event.refused, event.waits, event.request_id)
    second = call.refusal()  # after the wait, which adds two seconds
    assert ("", call.time_in(22.0)) == (second.code, second.retry_at)
    assert second.message.startswith(f"{BASE_URL} responded 429. Retry at 2027-01-15T08:0")
    assert type(second) is RateLimitError
    assert pytest.approx(22.0) == call.admission.wait_after(second)
    assert pytest.approx(20.0 + 20.0 + 22.0) == call.admission.waited  # the one at the gate as well


def test_a_429_about_the_address_imposes_only_its_own_wait() -> None:
    call = Call()
    error = call.refusal(of_address=True)
    assert (call.time_in(20.0), 20.0) == (error.retry_at, call.admission.wait_after(error))
    assert 0.0 == call.gate.held_for(100.0)


@pytest.mark.parametrize(("options", "ended_by"), [({"max_wait": 19.5}, "max_wait"), ({"deadline": 20.0}, "deadline")])
def test_a_429_whose_wait_the_options_forbid_ends_the_call(options: dict[str, Any], ended_by: str) -> None:
    call = Call(**options)
    error = call.refusal()
    with pytest.raises(RateLimitError) as caught:
        call.admission.wait_after(error)
    assert (error, ended_by, 0.0) == (caught.value, error.ended_by, call.admission.waited)
    assert [(True, False)] == [(event.refused, event.waits) for event in call.events]


def test_a_429_for_a_ban_closes_the_gate_and_ends_the_call_whatever_its_options() -> None:
    call = Call(max_wait=1.0)
    error = call.refusal(BANNED, pause=300.0, of_address=True)
    assert isinstance(error, KeyBannedError)
    assert ("api_key_banned", call.time_in(300.0)) == (error.code, error.retry_at)
    assert KEY not in error.message
    with pytest.raises(KeyBannedError):
        call.admission.wait_after(error)
    assert (None, [(True, False)]) == (error.ended_by, [(event.refused, event.waits) for event in call.events])
    ticket = call.gate.enter(100.0)
    assert (400.0, True) == (ticket.until, ticket.banned)


def test_waits_are_logged_and_so_is_a_faulty_hook(caplog: pytest.LogCaptureFixture) -> None:
    def hook(_: RateLimitEvent) -> None:
        raise KeyError("hook")

    with caplog.at_level(logging.INFO, "petstore_client"):
        assert [30.0] == Call(held(30.0), on_rate_limit=hook).enter()
        assert [5.0] == Call(held(5.0)).enter()
    assert [
        ("petstore_client", logging.WARNING, "list_orders: a limit imposes a wait of 30.0 s (request req_1)"),
        ("petstore_client", logging.ERROR, "A hook failed (request req_1)"),
        ("petstore_client", logging.INFO, "list_orders: a limit imposes a wait of 5.0 s (request req_1)"),
    ] == caplog.record_tuples
    assert caplog.records[1].exc_info
    assert [30.0] == Call(held(30.0), on_rate_limit=None).enter()
