"""The gate and the known windows by themselves: each decision with its exact times."""

import gc

import pytest

from petstore_client import _gate
from petstore_client._gate import Gate, Place, Ticket, gate_for
from petstore_client._limits import KnownWindows, Limits, Window
from petstore_client.testing import FakeClock

DAY = Window("day", 1000, 500, 80_000.0, 86_400)


def minute(remaining: int, left: float = 60.0, limit: int | None = 60, seconds: int | None = 60) -> Window:
    return Window("minute", limit, remaining, left, seconds)


def described(*windows: Window, pause: float = 60.0) -> Limits:
    return Limits(windows, pause, None, False, None)


def respond(gate: Gate, ticket: Ticket, now: float, *windows: Window) -> None:
    gate.record_response(ticket, now, described(*windows), False, lambda: 1.0)


def refuse(gate: Gate, ticket: Ticket, now: float, pause: float = 10.0) -> None:
    gate.record_response(ticket, now, described(pause=pause), True, lambda: 1.0)


def places(*tickets: Ticket) -> list[str]:
    return [ticket.place.name for ticket in tickets]


def opened(remaining: int = 60, limit: int = 60) -> Gate:
    """A gate whose probe has had its response at 0."""
    gate = Gate()
    respond(gate, gate.enter(0.0), 0.0, minute(remaining, limit=limit))
    return gate


def test_the_first_request_precedes_all_others_and_its_response_lets_as_many_pass_as_remain() -> None:
    gate = Gate()
    probe, *others = [gate.enter(0.0) for _ in range(4)]
    assert ["PASSED", "WAITING", "WAITING", "WAITING"] == places(probe, *others)
    notified: list[int] = []
    for number, ticket in enumerate((probe, *others)):
        gate.when_decided(ticket, lambda number=number: notified.append(number))  # type: ignore[misc]
    assert [0] == notified
    respond(gate, probe, 1.0, minute(2))
    assert ["LEFT", "PASSED", "PASSED", "WAITING"] == places(probe, *others)
    assert ([0, 1, 2], 1.0) == (notified, others[0].sent_at)
    respond(gate, others[0], 2.0, minute(2, 59.0))
    assert (["PASSED"], [0, 1, 2, 3]) == (places(others[2]), notified)


def test_the_response_to_another_request_does_not_prove_the_gate() -> None:
    gate = opened()
    refused, other = gate.enter(1.0), gate.enter(1.0)
    refuse(gate, refused, 2.0)
    probe = gate.enter(12.0)
    respond(gate, other, 12.5, minute(40, 50.0))
    waiting = gate.enter(12.5)
    assert ["PASSED", "WAITING"] == places(probe, waiting)
    gate.leave(probe, 13.0)
    assert ["PASSED", "WAITING"] == places(waiting, gate.enter(13.0))


def test_a_refusal_holds_all_until_its_pause_has_passed_and_then_one_goes_first() -> None:
    gate = opened()
    refuse(gate, gate.enter(5.0), 5.0, 10.0)
    held = [gate.enter(14.9) for _ in range(2)]
    assert [("HELD", 15.0, False)] * 2 == [(each.place.name, each.until, each.banned) for each in held]
    assert (5.0, 0.0) == (gate.held_for(10.0), gate.held_for(15.0))
    for ticket in reversed(held):
        gate.enter_again(ticket, 15.0)
    assert ["WAITING", "PASSED"] == places(*held)  # the last one asked first
    respond(gate, held[1], 15.5, minute(50, 45.0))
    assert gate.held_for(15.5) == 0.0


def test_a_response_to_the_probe_does_not_prove_a_gate_that_is_held_again() -> None:
    gate = Gate()
    probe = gate.enter(0.0)
    gate.ban(30.0)  # by a response that another thread has read
    respond(gate, probe, 1.0, minute(50))
    assert ["PASSED", "WAITING"] == places(gate.enter(30.0), gate.enter(30.0))


def test_tickets_that_wait_again_keep_their_order() -> None:
    gate = opened()
    refuse(gate, gate.enter(5.0), 5.0, 10.0)
    held = [gate.enter(6.0) for _ in range(3)]
    probe = gate.enter(15.0)
    for ticket in reversed(held):
        gate.enter_again(ticket, 15.0)
    assert ["PASSED", "WAITING", "WAITING", "WAITING"] == places(probe, *held)
    decided: list[int] = []
    for ticket in held:
        gate.when_decided(ticket, lambda number=ticket.number: decided.append(number))  # type: ignore[misc]
    respond(gate, probe, 80.0, minute(50, 45.0))
    assert [ticket.number for ticket in held] == decided


def test_each_further_refusal_in_a_row_adds_twice_as_much_up_to_ten_minutes() -> None:
    gate, now, waits = Gate(), 0.0, []
    for _ in range(13):
        refuse(gate, gate.enter(now), now, 10.0)
        waits.append(gate.held_for(now) - 10.0)
        now += gate.held_for(now)
    assert [0, 2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600, 600] == pytest.approx(waits)
    respond(gate, gate.enter(now), now)
    refuse(gate, gate.enter(now), now, 10.0)
    assert pytest.approx(10.0) == gate.held_for(now)


def test_refusals_and_successes_that_were_in_flight_when_the_gate_closed_are_not_counted() -> None:
    gate = opened()
    first, second, third = [gate.enter(1.0) for _ in range(3)]
    refuse(gate, first, 2.0)
    refuse(gate, second, 3.0)
    respond(gate, third, 4.0, minute(0, 20.0))
    assert pytest.approx(20.0) == gate.held_for(4.0)  # the later of 13 and 24
    refuse(gate, gate.enter(24.0), 24.0)
    assert pytest.approx(12.0) == gate.held_for(24.0)  # the second in a row


def test_an_earlier_end_does_not_shorten_a_wait_or_a_ban() -> None:
    gate = opened()
    gate.ban(100.0)
    gate.ban(50.0)
    banned = gate.enter(60.0)
    assert (Place.HELD, 100.0, True) == (banned.place, banned.until, banned.banned)
    one = opened()
    tickets = [one.enter(1.0) for _ in range(2)]
    refuse(one, tickets[0], 1.0, 50.0)
    refuse(one, tickets[1], 1.0, 20.0)
    assert 50.0 == one.held_for(1.0)


def test_only_a_wait_before_the_end_of_the_ban_is_for_the_ban() -> None:
    gate = opened()
    ticket = gate.enter(1.0)
    gate.ban(30.0)
    refuse(gate, ticket, 2.0, 98.0)
    assert [(True, 100.0), (False, 100.0)] == [
        (each.banned, each.until) for each in (gate.enter(29.9), gate.enter(30.0))
    ]
    again = gate.enter(29.0)
    gate.enter_again(again, 31.0)
    assert not again.banned


def test_who_gives_up_is_never_decided_and_who_was_decided_cannot_give_up() -> None:
    gate = Gate()
    probe, first, second = [gate.enter(0.0) for _ in range(3)]
    assert (False, True, False) == (gate.give_up(probe), gate.give_up(first), gate.give_up(first))
    respond(gate, probe, 1.0, minute(1))
    assert ["LEFT", "LEFT", "PASSED"] == places(probe, first, second)
    gate.leave(waiting := gate.enter(1.0), 1.0)
    respond(gate, second, 2.0, minute(1))
    assert ["LEFT", "LEFT"] == places(second, waiting)


def test_a_probe_that_is_lost_opens_the_gate_only_where_no_limit_was_met() -> None:
    gate = Gate()
    gate.leave(gate.enter(0.0), 1.0)
    assert ["PASSED", "PASSED"] == places(gate.enter(1.0), gate.enter(1.0))
    limited = opened()
    refuse(limited, limited.enter(1.0), 1.0)
    limited.leave(limited.enter(11.0), 12.0)
    assert ["PASSED", "WAITING"] == places(limited.enter(12.0), limited.enter(12.0))


def spaced(patience: float = float("inf"), remaining: int = 50) -> tuple[Gate, list[Ticket]]:
    """A gate behind an exhausted window of 60 requests in 60 s that ended at 60, its probe answered; four more ask."""
    gate = opened(remaining=0)
    assert Place.HELD is gate.enter(0.0).place
    respond(gate, gate.enter(60.0), 60.25, minute(remaining))
    return gate, [gate.enter(60.25, patience) for _ in range(4)]


def test_after_an_exhausted_window_requests_are_spaced_over_the_next_one() -> None:
    gate, tickets = spaced()
    assert [("SPACED", 61.0), ("SPACED", 62.0), ("SPACED", 63.0), ("SPACED", 64.0)] == [
        (ticket.place.name, ticket.until) for ticket in tickets
    ]
    gate.enter_again(tickets[0], 61.0)
    assert (Place.PASSED, 61.0) == (tickets[0].place, tickets[0].sent_at)
    late = gate.enter(119.5)
    assert Place.PASSED is late.place  # the slots until then were left to others
    assert [(Place.SPACED, 120.0, False)] == [(each.place, each.until, each.has_slot) for each in [gate.enter(119.75)]]
    assert ["PASSED", "PASSED"] == places(gate.enter(120.0), gate.enter(120.0))


def test_a_call_that_waits_until_the_spacing_ends_has_no_slot() -> None:
    gate, _ = spaced()
    tickets = [gate.enter(60.25) for _ in range(56)]
    assert [(118.0, True), (119.0, True), (120.0, False)] == [(each.until, each.has_slot) for each in tickets[-3:]]


def test_a_ticket_is_not_spaced_by_more_than_its_patience() -> None:
    _, tickets = spaced(patience=1.75)
    assert ["SPACED", "SPACED", "PASSED", "PASSED"] == places(*tickets)


def test_a_slot_is_lost_when_a_limit_holds_its_ticket() -> None:
    gate, tickets = spaced()
    gate.enter_again(tickets[0], 61.0)
    refuse(gate, tickets[0], 61.0, 10.0)
    gate.enter_again(tickets[1], 62.0)
    assert (Place.HELD, 71.0, False) == (tickets[1].place, tickets[1].until, tickets[1].has_slot)


def test_the_gate_of_a_key_is_shared() -> None:
    clock, other = FakeClock(), FakeClock()
    gate = gate_for("https://a", "key", clock)
    assert gate is gate_for("https://a", "key", clock)
    others = [
        gate_for("https://b", "key", clock),
        gate_for("https://a", "k", clock),
        gate_for("https://a", "key", other),
    ]
    assert 4 == len({id(each) for each in (gate, *others)})
    assert not any("key" in str(name) for name in _gate._gates)


def test_a_clock_that_cannot_be_hashed_has_a_gate() -> None:
    class Unhashable(FakeClock):
        __hash__ = None  # type: ignore[assignment]

    assert gate_for("https://a", "key", Unhashable()) is not gate_for("https://a", "key", Unhashable())


def test_the_gates_in_use_and_the_last_thousand_others_are_kept() -> None:
    clock = FakeClock()
    in_use = gate_for("https://a", "in use", clock)
    for key in ("in use", "oldest", "newer"):
        gate_for("https://a", key, clock).ban(60.0)
    for number in range(999):
        gate_for("https://a", f"key {number}", clock)
    gc.collect()
    kept = [gate_for("https://a", key, clock) for key in ("in use", "newer", "oldest")]
    assert (in_use, [60.0, 60.0, 0.0]) == (kept[0], [gate.held_for(0.0) for gate in kept])


def known(*windows: Window, sent: float = 0.0, now: float = 0.0) -> KnownWindows:
    made = KnownWindows()
    for window in windows:
        made.learn(window, sent, now)
    return made


def test_windows_that_have_ended_have_their_whole_limit_or_are_unknown() -> None:
    one = known(minute(0), DAY._replace(remaining=0, limit=None))
    one.renew(59.9)
    assert 80_000.0 == one.opens(59.9, 0)
    one.renew(60.0)
    assert not one.allow(0)
    one.renew(80_000.0)
    assert (80_000.0, True, False) == (one.opens(80_000.0, 0), one.allow(59), one.allow(60))


def test_a_lost_request_uses_what_remains_and_never_more() -> None:
    one = known(minute(2))
    one.count(lost=False)
    assert one.allow(1)
    for _ in range(3):
        one.count(lost=True)
    assert not one.allow(0)
    one.learn(minute(0, 59.0), 1.0, 1.0)
    assert 60.0 == one.opens(1.0, 0)


@pytest.mark.parametrize(
    ("remaining", "own", "in_flight", "at", "spent"),
    [
        (40, 0, 0, 20.0, True),  # others used 20 in 10 s; at twice that rate 40 are used up in another 10 s
        (40, 0, 0, 19.9, False),
        (40, 19, 0, 59.0, False),  # one request of others in 10 s
        (40, 20, 0, 59.0, False),
        (40, 0, 20, 59.0, False),
        (40, 10, 0, 30.0, True),
        (40, 10, 0, 29.9, False),
        (1, 58, 0, 15.0, True),  # one request of others in 10 s, and one is left
        (1, 59, 0, 59.0, False),
        (1, 0, 0, 11.0, False),  # a response is fresh for a second
        (1, 0, 0, 11.1, True),
    ],
)
def test_what_others_may_have_spent_is_not_used(
    remaining: int, own: int, in_flight: int, at: float, spent: bool
) -> None:
    one = known(minute(60))
    for _ in range(own):
        one.count(lost=False)
    one.learn(minute(remaining, 50.0), 10.0, 10.0)
    assert (60.0 if spent else at) == one.opens(at, in_flight)


@pytest.mark.parametrize(("at", "spent"), [(14.9, False), (15.0, True)])
def test_the_rate_of_others_is_measured_from_the_first_response_of_the_window(at: float, spent: bool) -> None:
    one = known(minute(60, 55.0), sent=5.0, now=5.0)
    one.learn(minute(40, 50.0), 10.0, 10.0)
    assert spent is (one.opens(at, 0) > at)


@pytest.mark.parametrize(("seconds", "short"), [(600, True), (601, False), (None, False)])
def test_only_in_short_windows_others_are_allowed_for(seconds: int | None, short: bool) -> None:
    one = known(minute(60, 600.0, seconds=seconds))
    one.learn(minute(1, 590.0, seconds=seconds), 10.0, 10.0)
    assert short is (one.opens(500.0, 0) > 500.0)


def test_requests_are_spaced_as_the_shortest_window_allows_and_by_a_second_at_most() -> None:
    assert (60, 0.5) == known(DAY, minute(1, limit=120)).spacing
    assert (60, 1.0) == known(minute(1, limit=5)).spacing
    assert (86_400, 1.0) == known(DAY, minute(1, limit=None)).spacing
    assert (0, 0.0) == known().spacing
