"""Strikes and bans (D15)."""

from hypothesis import given
from hypothesis import strategies as st

from petstore_server.domain.bans import BAN_MEMORY, AbuseRecord, Ban, BanPolicy, next_ban, refuse

POLICY = BanPolicy(strikes=3, seconds=120, max_seconds=3600, grace_seconds=2)


def refuse_at(record: AbuseRecord, *moments: float, retry_at: float = 1_000_000.0) -> list[Ban | None]:
    return [refuse(record, "key_a", now, retry_at, POLICY) for now in moments]


def test_the_first_refusal_is_no_strike() -> None:
    record = AbuseRecord()
    assert [None] == refuse_at(record, 1000.0)
    assert () == record.strikes


def test_refusals_within_the_grace_are_free_and_those_after_it_strikes() -> None:
    record = AbuseRecord()
    refuse_at(record, 1000.0, 1000.5, 1001.999, 1002.0)
    assert (1002.0,) == record.strikes


def test_a_refusal_after_retry_after_begins_a_new_series() -> None:
    record = AbuseRecord()
    refuse_at(record, 1000.0, retry_at=1060.0)
    refuse_at(record, 1060.0, retry_at=1120.0)
    assert () == record.strikes
    assert (1060.0, 1120.0) == (record.refused_at, record.retry_at)


def test_the_last_strike_bans_and_uses_the_strikes_up() -> None:
    record = AbuseRecord()
    first, *rest = refuse_at(record, 1000.0, 1010.2, 1010.4, 1010.6)
    assert [None, None, Ban("key_a", 1010, 1130, 1)] == rest
    assert first is None
    assert () == record.strikes


def test_strikes_older_than_ten_minutes_do_not_count() -> None:
    record = AbuseRecord()
    assert [None] * 4 == refuse_at(record, 1000.0, 1010.0, 1020.0, 1610.0)
    assert (1020.0, 1610.0) == record.strikes


def test_each_further_ban_within_a_day_doubles_up_to_the_longest() -> None:
    lengths = []
    ban: Ban | None = None
    for number in range(8):
        ban = next_ban(ban, "key_a", 10_000.0 * number, POLICY)
        lengths.append(ban.until - ban.began)
    assert [120, 240, 480, 960, 1920, 3600, 3600, 3600] == lengths


def test_a_ban_a_day_after_the_last_one_began_is_short_again() -> None:
    earlier = Ban("key_a", 1000, 1240, 2)
    assert 3 == next_ban(earlier, "key_a", 1000 + BAN_MEMORY - 1, POLICY).level
    assert 1 == next_ban(earlier, "key_a", 1000 + BAN_MEMORY, POLICY).level


def test_a_ban_holds_until_its_end_and_not_after_the_clock_was_set_back_an_hour() -> None:
    ban = Ban("key_a", 10_000, 10_120, 1)
    assert [True, True, False, False] == [ban.holds(now) for now in (10_000.5, 10_119.9, 10_120.0, 6_400.0)]


@given(steps=st.lists(st.floats(0, 30), max_size=60), retry=st.floats(1, 100))
def test_a_client_that_waits_for_retry_after_is_never_banned(steps: list[float], retry: float) -> None:
    record, now = AbuseRecord(), 1000.0
    for step in steps:
        now += retry + step
        assert refuse(record, "key_a", now, now + retry, POLICY) is None
    assert () == record.strikes


@given(gaps=st.lists(st.floats(0.01, 200), min_size=1, max_size=80))
def test_a_ban_comes_exactly_when_enough_strikes_fall_within_ten_minutes(gaps: list[float]) -> None:
    record, now = AbuseRecord(), 1000.0
    refuse(record, "key_a", now, 1e9, POLICY)
    strikes: list[float] = []
    for gap in gaps:
        now += gap
        ban = refuse(record, "key_a", now, 1e9, POLICY)
        if now - 1000.0 >= POLICY.grace_seconds:
            strikes = [at for at in strikes if at > now - 600] + [now]
        expected = len(strikes) >= POLICY.strikes
        assert expected == (ban is not None)
        if expected:
            strikes = []
