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


def shown(left: float) -> dict[str, str]:
    """The minute is exhausted, and ends this many seconds after NOW."""
    return {"x-ratelimit-limit": "60", "x-ratelimit-remaining": "0", "x-ratelimit-reset": f"{NOW + left:.0f}"}


DATED = {"date": http_date(NOW)}
SKEWED = {"date": http_date(NOW + 7200)}
BOTH = '"minute";r=0;t=42, "day";r=10;t=5000'


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, 60.0),  # a 429 without a time
        *[({"retry-after": text}, 60.0) for text in ("", "soon", "-5", "1.5", "1e9", "9" * 40)],  # unreadable
        *[({"retry-after": text}, 60.0) for text in ("٣", "30, 60", "Fri, 99 Foo 2027", "0x10", "\x00")],
        ({"retry-after": "37"}, 37.0),
        ({"retry-after": http_date(NOW - 86_310), "date": http_date(NOW - 86_400)}, 90.0),
        ({"retry-after": http_date(NOW + 90)}, 90.0),  # without a Date, this host's clock is used
        ({"retry-after": "Friday, 15-Jan-27 08:01:30 GMT", **DATED}, 90.0),  # RFC 850
        ({"retry-after": "Fri Jan 15 08:01:30 2027", **DATED}, 90.0),  # asctime
        ({"retry-after": "Fri, 15 Jan 2027 09:01:30 +0100", **DATED}, 90.0),  # RFC 5322
        ({"retry-after": "0"}, 1.0),
        ({"retry-after": http_date(NOW - 1000)}, 1.0),
        ({"retry-after": "999999999999"}, 366 * 86_400.0),
        ({"retry-after": "5", "ratelimit": BOTH}, 42.0),  # the exhausted window that resets last
        ({"retry-after": "5", "ratelimit": '"minute";r=0;t=42, "day";r=0;t=5000'}, 5000.0),
        ({"retry-after": "50", "ratelimit": '"minute";r=0;t=42'}, 50.0),
        ({"ratelimit": BOTH}, 42.0),
        ({**shown(7233), **SKEWED}, 33.0),  # by the clock of the response
        ({**shown(7233), **SKEWED, "retry-after": "5"}, 33.0),
        ({**shown(3600), "retry-after": "5"}, 5.0),  # a guess at the server's clock does not override Retry-After
        ({**shown(3600)}, 3600.0),
        ({**shown(0), **DATED}, 1.0),
        ({**shown(86_400), **DATED}, 86_400.0),
        *[({**shown(left), **DATED}, 60.0) for left in (-5, 86_401, 10**11)],  # not possible
    ],
    ids=str,
)
def test_the_wait_that_headers_imply(headers: dict[str, str], seconds: float) -> None:
    assert seconds == read_limits(headers, NOW).pause


@pytest.mark.parametrize("early", ["0", http_date(NOW - 1000)], ids=["zero", "past"])
def test_a_retry_after_in_the_past_means_no_wait_without_a_limit(early: str) -> None:
    assert 0.0 == read_limits({"retry-after": early}, NOW).retry_after


@pytest.mark.parametrize("left", [0, 86_400])
def test_a_reset_is_possible_now_and_in_a_day(left: int) -> None:
    read = read_limits({**shown(left), **DATED}, NOW)
    assert ((Window("", 60, 0, float(left), None),), False) == (read.windows, read.of_address)


@pytest.mark.parametrize("name", ["limit", "remaining", "reset"])
@pytest.mark.parametrize("broken", ["", "x", "-1"])
def test_numbers_of_which_one_is_unreadable_are_ignored(name: str, broken: str) -> None:
    limits = {f"x-ratelimit-{each}": "60" for each in ("limit", "remaining", "reset")}
    read = read_limits({**limits, f"x-ratelimit-{name}": broken}, NOW)
    assert (None, ()) == (read.shown, read.windows)


MINUTE, DAY = Window("minute", 60, 59, 42.0, 60), Window("day", 1000, 999, 51_234.0, 86_400)


@pytest.mark.parametrize(
    ("field", "windows"),
    [
        ('"minute";r=59;t=42, "day";r=999;t=51234', (MINUTE, DAY)),
        ('"minute"; pk=:YWJj:; r=59; t=42;x="y"', (MINUTE,)),  # as other drafts write it
        ('"address";r=59;t=42', (Window("address", None, 59, 42.0, None),)),
        *((broken, ()) for broken in ("", "minute", '"minute"', '"minute";r=1', ";;;", '"a;r=1;t=2')),
        *((broken, ()) for broken in ('"minute";r=x;t=4', '"minute";r=-1;t=4')),
    ],
    ids=str,
)
def test_windows_are_read_and_what_is_malformed_is_ignored(field: str, windows: tuple[Window, ...]) -> None:
    read = read_limits({"ratelimit-policy": '"minute";q=60;w=60, "day";q=1000;w=86400', "ratelimit": field}, NOW)
    assert (windows, "address" in field) == (read.windows, read.of_address)


def test_the_client_shows_the_limits_of_the_last_response(connect: Connect) -> None:
    fake = FakePetstore([Order(id=1)], per_minute=60, per_day=1000)
    with connect(fake) as petstore:
        before = petstore.rate_limit
        assert before is None
        petstore.list_orders()
        petstore.list_orders()
        began = datetime.fromtimestamp(fake.clock.now(), UTC)
        minute, day = began + timedelta(seconds=60), began + timedelta(days=1)
        windows = RateWindow("minute", 60, 58, minute, 60), RateWindow("day", 1000, 998, day, 86_400)
        assert RateLimit(60, 58, minute, windows) == petstore.rate_limit
        fake.then(RateLimited(1))
        petstore.list_orders()
        after = petstore.rate_limit
    assert isinstance(after, RateLimit)
    assert 57 == after.remaining
