"""Dates as they are read and written (D7)."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from petstore_server.domain.errors import InvalidInput
from petstore_server.domain.timestamps import (
    canonical_timestamp,
    format_timestamp,
    parse_duration,
    parse_timestamp,
    parse_when,
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
        ("2026-11-01T10:00:00.000Z", "2026-11-01T10:00:00Z"),
        ("2026-11-01T10:00:00.123456000Z", "2026-11-01T10:00:00.123456Z"),
        ("2024-02-29T00:00:00Z", "2024-02-29T00:00:00Z"),
        ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"),
        ("9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59.999999Z"),
    ],
)
def test_a_moment_is_written_in_one_form(text: str, canonical: str) -> None:
    assert canonical == canonical_timestamp(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2026-11-01",
        "01/11/2026",
        "2026-11-01T10:00:00",
        "2026-11-01 10:00:00Z",
        "2026-11-01T10:00Z",
        "2026-11-01T10:00:00+02",
        "2026-11-01T10:00:00+0200",
        "2026-11-01T10:00:00+24:00",
        "2026-11-01T24:00:00Z",
        "2026-11-01T10:00:60Z",
        "2026-02-29T10:00:00Z",
        "2026-13-01T10:00:00Z",
        "0000-01-01T00:00:00Z",
        "0001-01-01T00:00:00+01:00",
        "9999-12-31T23:59:59-01:00",
        "2026-11-01T10:00:00.1234567Z",
        "２026-11-01T10:00:00Z",
        "2026-11-01T10:00:00Z ",
        "2026-11-01T10:00:00Z\n",
    ],
)
def test_what_is_no_moment_is_refused_not_rounded(text: str) -> None:
    with pytest.raises(ValueError, match="is "):
        canonical_timestamp(text)


@given(st.datetimes(timezones=st.just(UTC)))
def test_what_is_written_is_read_back_to_the_microsecond(timestamp: datetime) -> None:
    assert timestamp == parse_timestamp(format_timestamp(timestamp))
    assert format_timestamp(timestamp) == canonical_timestamp(format_timestamp(timestamp))


def test_spans_count_from_now_forwards_or_back() -> None:
    assert 86_400 == parse_duration("24h")
    assert NOW + timedelta(days=7) == parse_when("7d", NOW)
    assert NOW - timedelta(minutes=15) == parse_when("15m", NOW, past=True)
    assert NOW == parse_when("2026-11-20T13:00:00+01:00", NOW)


@pytest.mark.parametrize("text", ["", "tomorrow", "7", "-7d", "0d", "7y", "999999999w", "2026-11-20"])
def test_what_is_no_when_is_refused_with_the_forms_that_are(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_when(text, NOW)
    assert repr(text)[1:-1] in caught.value.message
