"""The decision on a request, and the numbers that it shows (D12, D13)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from petstore_server.domain.accounts import Limits
from petstore_server.domain.bans import Ban
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
