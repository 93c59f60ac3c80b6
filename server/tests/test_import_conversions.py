"""From text to values: what is read means one thing, and an option that a reason names means what it says (D7)."""

import re
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from petstore_server.domain.timestamps import format_timestamp
from petstore_server.imports.conversions import UnclearCell, integer_cell
from petstore_server.imports.options import parse_timezone
from petstore_server.imports.timestamps import Timestamps
from testing.cases import for_all

BERLIN = ZoneInfo("Europe/Berlin")


@given(st.integers(), st.sampled_from(["{}", " {} ", "{}.0"]))
def test_a_number_is_read_as_itself_or_not_at_all(number: int, form: str) -> None:
    assert integer_cell(form.format(number)) in (number, form.format(number).strip())


FORMS = """01/11/2026; 12/12/2026; 05/14/2027 01:25 PM; 14-05-27 13:25; 2026-12-01; 01.12.2026; 01.12.26 10:00
12/1/2026 10:00:00; Dec 1, 2026; Nov 2, 2026 2:03:22 PM; 1 Dec 2026 10:00 UTC; 10. Dezember 2025 10:00; 10-Mär-2025
3 août 2026, 9:00:01.5 +02:00"""


@for_all(re.split("; |\n", FORMS))
def test_each_format_that_a_reason_names_reads_the_date_that_it_is_said_to_mean(text: str) -> None:
    with pytest.raises(UnclearCell) as refused:
        Timestamps(BERLIN)(text)
    dates = re.findall(r"{} if it means (\S+)", refused.value.remedy.text)
    for choice, date in zip(refused.value.remedy.choices, dates, strict=True):
        read = datetime.fromisoformat(Timestamps(BERLIN, choice.value)(text)).astimezone(BERLIN)
        assert date == f"{read:%Y-%m-%d}"


def test_no_name_of_a_zone_is_read_but_utc_whatever_zone_the_host_has(monkeypatch: pytest.MonkeyPatch) -> None:
    forms = "%d.%m.%Y %H:%M {}", "%d.%m.%Y {} %H:%M", "%d.%m.%Y %%{} %H:%M"
    try:
        for host in ("Europe/Berlin", "UTC"):
            monkeypatch.setenv("TZ", host)
            time.tzset()
            for form in forms:
                read = Timestamps(ZoneInfo("America/New_York"), form.format("%Z"))
                cell = form.replace("%%", "%").replace("%d.%m.%Y", "01.12.2026").replace("%H:%M", "10:00")
                assert ["2026-12-01T10:00:00Z"] * 3 == [read(cell.format(zone)) for zone in ("UTC", "GMT", "utc")]
                with pytest.raises(UnclearCell):
                    read(cell.format("CET"))
    finally:
        monkeypatch.undo()
        time.tzset()


@given(
    st.datetimes(datetime(1, 1, 3), datetime(9999, 12, 29)),  # noqa: DTZ001 - the offset follows
    st.integers(-14 * 60 + 1, 14 * 60 - 1).map(lambda minutes: timedelta(minutes=minutes)),
)
def test_every_form_of_a_time_means_the_same(local: datetime, offset: timedelta) -> None:
    sign, minutes = "-" if offset < timedelta() else "+", abs(offset) // timedelta(minutes=1)
    suffix = f"{sign}{minutes // 60:02d}:{minutes % 60:02d}"
    expected = format_timestamp((local - offset).replace(tzinfo=UTC))
    for separator in "T", " ":
        dotted = f"{local.day:02d}.{local.month:02d}.{local.year:04d}{separator}{local:%H:%M:%S.%f}"
        for form in local.isoformat(separator), dotted:
            assert expected == Timestamps()(form + suffix)
            assert expected == Timestamps(parse_timezone(suffix))(form)


@given(st.text(alphabet="0123456789-/.:TZ +,", max_size=30))
def test_any_text_is_a_timestamp_or_a_reason(text: str) -> None:
    with suppress(ValueError):
        found = Timestamps(BERLIN)(text)
        assert found == Timestamps()(found)
