"""Timestamps and durations: parsing, formatting and their bounds (D7)."""

import math
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from petstore_server.domain.errors import InvalidInput
from petstore_server.domain.timestamps import (
    MAX_DURATION,
    canonical_timestamp,
    format_timestamp,
    format_unix,
    microseconds,
    parse_duration,
    parse_timestamp,
    parse_when,
    timestamp_text,
)

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("2026-11-01T10:00:00Z", "2026-11-01T10:00:00Z"),
        ("2026-11-01t10:00:00z", "2026-11-01T10:00:00Z"),
        ("2026-11-01T10:00:00+02:00", "2026-11-01T08:00:00Z"),
        ("2026-11-01T10:00:00-00:00", "2026-11-01T10:00:00Z"),
        ("2026-11-01T10:00:00.5Z", "2026-11-01T10:00:00.500000Z"),
        ("2026-11-01T10:00:00.123456000Z", "2026-11-01T10:00:00.123456Z"),
        ("2024-02-29T00:00:00Z", "2024-02-29T00:00:00Z"),
        ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"),
        ("9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59.999999Z"),
    ],
)
def test_a_timestamp_has_one_canonical_form(text: str, canonical: str) -> None:
    assert canonical == canonical_timestamp(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2026-11-01",
        "2026-11-01T10:00:00",
        "2026-11-01 10:00:00Z",
        "2026-11-01T10:00Z",
        "2026-11-01T10:00:00+0200",
        "2026-11-01T10:00:00+24:00",
        "2026-11-01T24:00:00Z",
        "2026-11-01T10:00:60Z",
        "\udc80",
        "2026-02-29T10:00:00Z",
        "0000-01-01T00:00:00Z",
        "0001-01-01T00:00:00+01:00",
        "9999-12-31T23:59:59-01:00",
        "2026-11-01T10:00:00.1234567Z",
        "２026-11-01T10:00:00Z",
        "2026-11-01T10:00:00Z\n",
    ],
)
def test_an_invalid_timestamp_is_rejected_not_rounded(text: str) -> None:
    with pytest.raises(ValueError, match="is "):
        canonical_timestamp(text)


@given(st.datetimes(timezones=st.just(UTC)))
def test_a_formatted_timestamp_parses_to_the_same_microsecond(timestamp: datetime) -> None:
    assert timestamp == parse_timestamp(format_timestamp(timestamp))
    assert format_timestamp(timestamp) == canonical_timestamp(format_timestamp(timestamp))


@given(st.datetimes(timezones=st.just(UTC)))
def test_unix_microseconds_are_exact_also_before_1970(timestamp: datetime) -> None:
    assert timestamp_text(microseconds(timestamp)) == format_timestamp(timestamp)


def test_durations_count_from_now_forwards_or_backwards_and_a_date_is_its_first_second_in_utc() -> None:
    assert 86_400 == parse_duration("24h")
    assert NOW + timedelta(days=7) == parse_when("7d", NOW)
    assert NOW - timedelta(minutes=15) == parse_when("15m", NOW, past=True)
    assert NOW == parse_when("2026-11-20T13:00:00+01:00", NOW)
    for past in (False, True):
        assert datetime(2027, 1, 1, tzinfo=UTC) == parse_when("2027-01-01", NOW, past=past)


@pytest.mark.parametrize(
    "text",
    ["", "tomorrow", "7", "-7d", "0d", "7y", "2026-02-30", "2026-11-20T10:00:00", "999999999w", "9" * 5_000 + "s"],
)
@pytest.mark.parametrize("past", [False, True])
def test_an_invalid_time_is_rejected_with_the_accepted_forms(text: str, past: bool) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_when(text, NOW, past=past)
    assert text in caught.value.message
    assert "duration" in caught.value.message


def test_a_duration_is_at_most_100_years() -> None:
    assert 36_525 * 86_400 == MAX_DURATION == parse_duration("36525d") == parse_duration(f"{MAX_DURATION}s")
    for text in (f"{MAX_DURATION + 1}s", "36526d", "5300w", "999999999w"):
        with pytest.raises(ValueError, match="longer than 100 years"):
            parse_duration(text)


@given(st.floats(), st.booleans())
def test_any_stored_number_is_formatted(seconds: float, microseconds: bool) -> None:
    text = format_unix(seconds, microseconds=microseconds)
    assert (text is None) == math.isnan(seconds)
    if text is not None:
        assert text == canonical_timestamp(text)


@pytest.mark.parametrize(
    ("seconds", "text", "with_microseconds"),
    [
        (None, None, None),
        (1.0, "1970-01-01T00:00:01Z", "1970-01-01T00:00:01Z"),
        (1.5, "1970-01-01T00:00:01Z", "1970-01-01T00:00:01.500000Z"),
        (1.0000019, "1970-01-01T00:00:01Z", "1970-01-01T00:00:01.000001Z"),
        (-0.5, "1969-12-31T23:59:59Z", "1969-12-31T23:59:59.500000Z"),
        (6.05e14, "9999-12-31T23:59:59Z", "9999-12-31T23:59:59Z"),
        (-1e300, "0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"),
    ],
)
def test_times_beyond_the_calendar_are_shown_as_its_first_or_last_second(
    seconds: float | None, text: str, with_microseconds: str
) -> None:
    assert text == format_unix(seconds)
    assert with_microseconds == format_unix(seconds, microseconds=True)
