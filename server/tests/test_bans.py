"""Strikes and bans (D15)."""

from hypothesis import given
from hypothesis import strategies as st

from petstore_server.domain.bans import BAN_MEMORY, AbuseRecord, Ban, BanPolicy, Refusal, next_ban, refuse

POLICY = BanPolicy(strikes=3, seconds=120, max_seconds=3600, grace_seconds=2)
GOOD = AbuseRecord()


def refuse_at(*times: float, retry_at: float = 1e6, record: AbuseRecord = GOOD) -> tuple[AbuseRecord, list[Refusal]]:
    """The record after a refusal at each of the times, and what each led to."""
    refusals = []
    for now in times:
        refusals.append(refuse(record, "key_a", now, retry_at, POLICY))
        record = refusals[-1].record
    return record, refusals


def test_refusals_within_the_grace_period_are_free_and_those_after_it_are_strikes() -> None:
    record, refusals = refuse_at(1000.0, 1000.5, 1001.999, 1002.0)
    assert [False, False, False, True] == [refusal.struck for refusal in refusals]
    assert (1002.0,) == record.strikes


def test_the_last_strike_bans_and_uses_the_strikes_up() -> None:
    record, refusals = refuse_at(1000.0, 1010.2, 1010.4, 1010.6)
    assert [None, None, None, Ban("key_a", 1010, 1130, 1)] == [refusal.ban for refusal in refusals]
    assert [False, True, True, True] == [refusal.struck for refusal in refusals]
    assert ((), refusals[-1].ban) == (record.strikes, record.ban)


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
        record, struck, ban = refuse(record, "key_a", now, now + retry, POLICY)
        assert (False, None) == (struck, ban)


@given(gaps=st.lists(st.floats(0.01, 200), min_size=1, max_size=80))
def test_a_ban_begins_exactly_when_enough_strikes_fall_within_ten_minutes(gaps: list[float]) -> None:
    now = 1000.0
    record = refuse(GOOD, "key_a", now, 1e9, POLICY).record
    strikes: list[float] = []
    for gap in gaps:
        now += gap
        record, _, ban = refuse(record, "key_a", now, 1e9, POLICY)
        if now - 1000.0 >= POLICY.grace_seconds:
            strikes = [at for at in strikes if at > now - 600] + [now]
        expected = len(strikes) >= POLICY.strikes
        assert expected == (ban is not None)
        if expected:
            strikes = []
