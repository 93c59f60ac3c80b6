"""The decision on a request and the numbers that it shows; strikes and bans (D12, D13, D15)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from petstore_server.domain.accounts import Limits
from petstore_server.domain.bans import BAN_MEMORY, AbuseRecord, Ban, BanPolicy, Refusal, next_ban, refuse
from petstore_server.domain.timestamps import DAY, MINUTE
from petstore_server.domain.windows import Count, Outcome, evaluate_account, evaluate_address, evaluate_ban, roll_window

TIMES = st.floats(min_value=0, max_value=4e9, allow_nan=False)
LIMITS = Limits(60, 1000)


def test_a_window_opens_with_a_whole_second_and_stays_open_until_its_end_and_a_new_one_follows() -> None:
    assert Count(1000, 0) == roll_window(Count(), MINUTE, 1000.9)
    assert Count(1000, 7) == roll_window(Count(1000, 7), MINUTE, 1059.999)
    assert Count(1060, 0) == roll_window(Count(1000, 7), MINUTE, 1060.0)


@given(start=st.integers(0, 2**32), used=st.integers(0, 10**6), seconds=st.sampled_from([MINUTE, DAY]), now=TIMES)
def test_no_client_waits_longer_than_a_window_whatever_the_clock_does(
    start: int, used: int, seconds: int, now: float
) -> None:
    window = roll_window(Count(start, used), seconds, now)
    assert window.start <= now < window.start + seconds
    assert window.used in (0, used)


def test_a_clock_that_is_set_back_keeps_the_count() -> None:
    assert Count(400, 7) == roll_window(Count(1000, 7), MINUTE, 400.5)


@pytest.mark.parametrize(
    ("minute", "day", "remaining", "shown"),
    [
        pytest.param(Count(1000, 59), Count(1000, 100), (1, 900), ("minute", 60, 1, 1060), id="least of the minute"),
        pytest.param(Count(1000, 1), Count(500, 999), (59, 1), ("day", 1000, 1, 500 + DAY), id="least of the day"),
        pytest.param(Count(1000, 55), Count(1000, 995), (5, 5), ("day", 1000, 5, 1000 + DAY), id="tie, day later"),
        pytest.param(Count(1000, 55), Count(1010 - DAY, 995), (5, 5), ("minute", 60, 5, 1060), id="tie, minute later"),
        pytest.param(Count(1000, 55), Count(1060 - DAY, 995), (5, 5), ("day", 1000, 5, 1060), id="tie and equal ends"),
        pytest.param(Count(1000, 60), Count(900, 1000), (0, 0), ("day", 1000, 0, 900 + DAY), id="both exhausted"),
        pytest.param(Count(1000, 60), Count(900, 60), (0, 940), ("minute", 60, 0, 1060), id="minute exhausted"),
        pytest.param(Count(1000, 250), Count(900, 250), (0, 750), ("minute", 60, 0, 1060), id="limits were reduced"),
    ],
)
def test_the_shown_window_has_the_least_remaining_or_resets_later(
    minute: Count, day: Count, remaining: tuple[int, int], shown: tuple[object, ...]
) -> None:
    for admitted, outcome in ((True, Outcome.ADMITTED), (False, Outcome.LIMITED)):
        decision = evaluate_account(admitted, minute, day, LIMITS, 1001.0)
        assert (outcome, shown) == (decision.outcome, decision.shown)
        assert remaining == tuple(window.remaining for window in decision.windows)


def test_an_address_has_one_window_of_sixty_requests_per_minute_of_which_never_less_than_zero_remain() -> None:
    assert ("address", 60, 59, 1060) == evaluate_address(True, Count(1000, 1), 1000.0).shown
    assert [1, 0, 0] == [evaluate_address(False, Count(1000, used), 1001.0).remaining for used in (59, 60, 61)]


@given(now=st.floats(1000, 1059.999), used=st.integers(0, 60))
def test_waiting_for_retry_after_reaches_the_reset_and_is_at_least_a_second(now: float, used: int) -> None:
    decision = evaluate_account(False, Count(1000, used), Count(1000, used), LIMITS, now)
    assert decision.retry_after >= 1
    assert now + decision.retry_after >= decision.shown.reset or decision.shown.name == "day"
    assert decision.retry_after <= DAY


def test_retry_after_is_a_second_even_when_the_window_has_just_ended() -> None:
    assert 1 == evaluate_account(False, Count(1000, 60), Count(1000, 60), LIMITS, 1060.0).retry_after
    assert 1 == evaluate_address(False, Count(1000, 60), 1060.0).retry_after


def test_a_ban_shows_the_minute_limit_zero_remaining_and_its_own_end() -> None:
    ban = Ban("key_a", 1000, 1120, 1)
    decision = evaluate_ban(ban, Count(1000, 3), Count(1000, 3), LIMITS, 1000.5)
    assert (Outcome.BANNED, 120, 1120) == (decision.outcome, decision.retry_after, decision.ban_reset)
    assert ("minute", 60, 0, 1120) == decision.shown
    assert [(57, 1060), (997, 1000 + DAY)] == [(window.remaining, window.reset) for window in decision.windows]


def test_a_ban_shows_the_end_of_an_exhausted_window_if_that_is_later() -> None:
    ban = Ban("key_a", 1000, 1120, 1)
    assert 900 + DAY == evaluate_ban(ban, Count(1000, 60), Count(900, 1000), LIMITS, 1000.5).shown.reset
    assert 1120 == evaluate_ban(ban, Count(1000, 60), Count(900, 60), LIMITS, 1000.5).shown.reset
    assert 1130 == evaluate_ban(ban, Count(1070, 60), Count(900, 60), LIMITS, 1070.5).shown.reset
    assert 1120 == evaluate_ban(ban, Count(1070, 59), Count(900, 999), LIMITS, 1070.5).shown.reset


POLICY = BanPolicy(strikes=3, seconds=120, max_seconds=3600, grace_seconds=2)
GOOD = AbuseRecord()


def refuse_at(*times: float, retry_at: float = 1e6, record: AbuseRecord = GOOD) -> tuple[AbuseRecord, list[Refusal]]:
    """The record after a refusal at each of the times, and what each led to."""
    refusals = []
    for now in times:
        refusals.append(refuse(record, now, retry_at, POLICY))
        record = refusals[-1].record
    return record, refusals


def test_refusals_within_the_grace_period_are_free_and_those_after_it_are_strikes() -> None:
    record, refusals = refuse_at(1000.0, 1000.5, 1001.999, 1002.0)
    assert [False, False, False, True] == [refusal.struck for refusal in refusals]
    assert (1002.0,) == record.strikes


def test_the_last_strike_bans_and_uses_the_strikes_up() -> None:
    record, refusals = refuse_at(1000.0, 1010.2, 1010.4, 1010.6)
    assert [False, False, False, True] == [refusal.banned for refusal in refusals]
    assert [False, True, True, True] == [refusal.struck for refusal in refusals]
    assert () == record.strikes
    assert Ban("key_a", 1010, 1130, 1) == next_ban(None, "key_a", 1010.6, POLICY)


def test_a_policy_is_that_of_the_interface_unless_it_is_set() -> None:
    assert BanPolicy(strikes=20, seconds=120, max_seconds=3600, grace_seconds=2) == BanPolicy()


def test_each_further_ban_within_a_day_doubles_up_to_the_maximum() -> None:
    lengths = []
    ban: Ban | None = None
    for number in range(8):
        ban = next_ban(ban, "key_a", 10_000.0 * number, POLICY)
        lengths.append(ban.until - ban.began)
    assert [120, 240, 480, 960, 1920, 3600, 3600, 3600] == lengths


def test_a_ban_a_day_after_the_start_of_the_last_one_is_short_again() -> None:
    earlier = Ban("key_a", 1000, 1240, 2)
    assert 3 == next_ban(earlier, "key_a", 1000 + BAN_MEMORY - 1, POLICY).level
    assert 1 == next_ban(earlier, "key_a", 1000 + BAN_MEMORY, POLICY).level


def test_a_ban_holds_until_its_end_and_not_after_the_clock_was_set_back_an_hour() -> None:
    ban = Ban("key_a", 10_000, 10_120, 1)
    assert [True, True, False, False] == [ban.holds(now) for now in (10_000.5, 10_119.9, 10_120.0, 6_400.0)]
    assert [True, False] == [ban.holds(now) for now in (9_940.0, 9_939.9)]  # clocks of hosts may differ by a minute


@given(steps=st.lists(st.floats(0, 30), max_size=60), retry=st.floats(1, 100))
def test_a_client_that_waits_for_retry_after_is_never_banned(steps: list[float], retry: float) -> None:
    record, now = GOOD, 1000.0
    for step in steps:
        now += retry + step
        record, struck, banned = refuse(record, now, now + retry, POLICY)
        assert (False, False) == (struck, banned)


@given(gaps=st.lists(st.floats(0.01, 200), min_size=1, max_size=80))
def test_a_ban_begins_exactly_when_enough_strikes_fall_within_ten_minutes(gaps: list[float]) -> None:
    now = 1000.0
    record = refuse(GOOD, now, 1e9, POLICY).record
    strikes: list[float] = []
    for gap in gaps:
        now += gap
        record, _, banned = refuse(record, now, 1e9, POLICY)
        if now - 1000.0 >= POLICY.grace_seconds:
            strikes = [at for at in strikes if at > now - 600] + [now]
        expected = len(strikes) >= POLICY.strikes
        assert expected == banned
        if expected:
            strikes = []
