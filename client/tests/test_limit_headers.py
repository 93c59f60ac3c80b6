"""The limit headers, and the waits that they imply."""

from datetime import UTC, datetime, timedelta
from email.utils import formatdate

import pytest

from petstore_client import Order, RateLimit, RateWindow
from petstore_client._limits import Window, read_limits
from petstore_client.testing import FakePetstore, RateLimited
from testing.client_variants import Connect

NOW = 1_800_000_000.0


def http_date(timestamp: float) -> str:
    return formatdate(timestamp, usegmt=True)


def pause(**headers: str) -> float:
    return read_limits({name.replace("_", "-"): value for name, value in headers.items()}, NOW).pause


def test_retry_after_in_seconds_is_the_wait() -> None:
    assert 37.0 == pause(retry_after="37")


def test_retry_after_as_a_date_is_compared_with_the_date_of_the_response() -> None:
    skewed = NOW - 86_400
    assert 90.0 == pause(retry_after=http_date(skewed + 90), date=http_date(skewed))


def test_retry_after_as_a_date_is_compared_with_this_clock_if_the_response_has_no_date() -> None:
    assert 90.0 == pause(retry_after=http_date(NOW + 90))


@pytest.mark.parametrize(
    "date",
    ["Friday, 15-Jan-27 08:01:30 GMT", "Fri Jan 15 08:01:30 2027", "Fri, 15 Jan 2027 09:01:30 +0100"],
    ids=["RFC 850", "asctime", "RFC 5322"],
)
def test_other_date_formats_are_read(date: str) -> None:
    assert 90.0 == pause(retry_after=date, date=http_date(NOW))


@pytest.mark.parametrize(
    "garbage", ["", "soon", "-5", "1.5", "1e9", "9" * 40, "٣", "30, 60", "Fri, 99 Foo 2027", "0x10", "\x00"]
)
def test_an_unreadable_retry_after_means_one_minute(garbage: str) -> None:
    assert 60.0 == pause(retry_after=garbage)


def test_a_429_without_a_time_means_one_minute() -> None:
    assert 60.0 == pause()


@pytest.mark.parametrize("early", ["0", http_date(NOW - 1000)], ids=["zero", "past"])
def test_a_time_in_the_past_means_one_second(early: str) -> None:
    assert 1.0 == pause(retry_after=early)


@pytest.mark.parametrize("early", ["0", http_date(NOW - 1000)], ids=["zero", "past"])
def test_a_retry_after_in_the_past_means_no_wait_without_a_limit(early: str) -> None:
    assert 0.0 == read_limits({"retry-after": early}, NOW).retry_after


def test_an_excessive_retry_after_is_capped_at_a_year() -> None:
    assert 366 * 86_400.0 == pause(retry_after="999999999999")


def test_the_wait_lasts_until_the_exhausted_window_resets() -> None:
    assert 42.0 == pause(retry_after="5", ratelimit='"minute";r=0;t=42, "day";r=10;t=5000')
    assert 5000.0 == pause(retry_after="5", ratelimit='"minute";r=0;t=42, "day";r=0;t=5000')
    assert 50.0 == pause(retry_after="50", ratelimit='"minute";r=0;t=42')


def test_t_replaces_a_missing_retry_after() -> None:
    assert 42.0 == pause(ratelimit='"minute";r=0;t=42, "day";r=10;t=5000')


def test_reset_replaces_both_and_is_compared_with_the_date_of_the_response() -> None:
    skewed = NOW + 7200
    limits = {"x_ratelimit_limit": "60", "x_ratelimit_remaining": "0", "x_ratelimit_reset": f"{skewed + 33:.0f}"}
    assert 33.0 == pause(**limits, date=http_date(skewed))
    assert 33.0 == pause(**limits, date=http_date(skewed), retry_after="5")


def test_a_guess_at_the_servers_clock_does_not_override_retry_after() -> None:
    limits = {"x_ratelimit_limit": "60", "x_ratelimit_remaining": "0", "x_ratelimit_reset": f"{NOW + 3600:.0f}"}
    assert 5.0 == pause(**limits, retry_after="5")
    assert 3600.0 == pause(**limits)


@pytest.mark.parametrize(("left", "wait"), [(0, 1.0), (86_400, 86_400.0)])
def test_a_reset_is_possible_now_and_in_a_day(left: int, wait: float) -> None:
    limits = {"x_ratelimit_limit": "60", "x_ratelimit_remaining": "0", "x_ratelimit_reset": f"{NOW + left:.0f}"}
    assert wait == pause(**limits, date=http_date(NOW))
    headers = {name.replace("_", "-"): value for name, value in limits.items()}
    read = read_limits({**headers, "date": http_date(NOW)}, NOW)
    assert ((Window("", 60, 0, float(left), None),), False) == (read.windows, read.of_address)


@pytest.mark.parametrize("reset", [NOW - 5, NOW + 86_401, 10**11])
def test_an_impossible_reset_is_ignored(reset: float) -> None:
    limits = {"x_ratelimit_limit": "60", "x_ratelimit_remaining": "0", "x_ratelimit_reset": f"{reset:.0f}"}
    assert 60.0 == pause(**limits, date=http_date(NOW))


@pytest.mark.parametrize("name", ["limit", "remaining", "reset"])
@pytest.mark.parametrize("broken", ["", "x", "-1"])
def test_numbers_of_which_one_is_unreadable_are_ignored(name: str, broken: str) -> None:
    limits = {f"x-ratelimit-{each}": "60" for each in ("limit", "remaining", "reset")}
    read = read_limits({**limits, f"x-ratelimit-{name}": broken}, NOW)
    assert (None, ()) == (read.shown, read.windows)


def test_both_windows_are_read() -> None:
    limits = read_limits(
        {
            "ratelimit-policy": '"minute";q=60;w=60, "day";q=1000;w=86400',
            "ratelimit": '"minute";r=59;t=42, "day";r=999;t=51234',
        },
        NOW,
    )
    assert (Window("minute", 60, 59, 42.0, 60), Window("day", 1000, 999, 51_234.0, 86_400)) == limits.windows
    assert not limits.of_address


def test_the_window_of_an_address_is_recognised() -> None:
    assert read_limits({"ratelimit": '"address";r=59;t=42'}, NOW).of_address
    assert not read_limits({}, NOW).of_address


@pytest.mark.parametrize(
    "broken", ["", "minute", '"minute"', '"minute";r=1', '"minute";r=x;t=4', '"minute";r=-1;t=4', ";;;", '"a;r=1;t=2']
)
def test_a_malformed_field_is_ignored(broken: str) -> None:
    assert () == read_limits({"ratelimit": broken}, NOW).windows


def test_parameters_of_other_drafts_are_ignored() -> None:
    limits = read_limits({"ratelimit": '"minute"; pk=:YWJj:; r=5; t=6;x="y"'}, NOW)
    assert [("minute", 5, 6.0)] == [(window.name, window.remaining, window.left) for window in limits.windows]


def test_the_client_shows_the_limits_of_the_last_response(connect: Connect) -> None:
    fake = FakePetstore([Order(id=1)], per_minute=60, per_day=1000)
    with connect(fake) as petstore:
        before = petstore.rate_limit
        assert before is None
        petstore.list_orders()
        petstore.list_orders()
        began = datetime.fromtimestamp(fake.clock.now(), UTC)
        minute, day = began + timedelta(seconds=60), began + timedelta(days=1)
        assert (
            RateLimit(
                60,
                58,
                minute,
                (RateWindow("minute", 60, 58, minute, 60), RateWindow("day", 1000, 998, day, 86_400)),
            )
            == petstore.rate_limit
        )
        fake.then(RateLimited(1))
        petstore.list_orders()
        after = petstore.rate_limit
    assert isinstance(after, RateLimit)
    assert 57 == after.remaining
