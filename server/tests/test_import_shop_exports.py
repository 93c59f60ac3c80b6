"""CSV as shops and spreadsheets export it: what is unambiguous is imported, for the rest there are options (D7)."""

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from petstore_server.domain.errors import Choice
from petstore_server.domain.timestamps import format_timestamp
from petstore_server.imports.conversions import Integers, Timestamps, UnclearCell, boolean_cell
from petstore_server.imports.options import ReadOptions, parse_timezone
from testing.cases import for_all
from testing.import_files import read, reason_of

BERLIN = ZoneInfo("Europe/Berlin")


def test_text_that_is_not_utf_8_matters_only_in_columns_that_are_used() -> None:
    found = read(b"id,note,status\n1,M\xfcller,pending\n2,x,\xff\n", ReadOptions("csv", ignored=("Note",)))
    assert [1] == [order.id for order in found.orders]
    assert [3] == [each.line for each in found.rejects]
    assert "--encoding" in reason_of(found.rejects[0])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7", 7),
        (" -7 ", -7),
        ("1.0", 1),
        ("12,00", 12),
        ("1.234.567", 1_234_567),
        ("1,234,567", 1_234_567),
        ("1 234", 1234),
        ("1\u202f234\u202f567", 1_234_567),
        ("1'234", 1234),
        ("9007199254740992.0", 2**53),
        ("9" * 30, int("9" * 30)),
        ("1.000,00", 1000),
        ("1,234.00", 1234),
        ("-1'234'567.0", -1_234_567),
        *((text, text) for text in ("1.5", "1e3", "007", "+1", "-0", "9007199254740993.0", "1.234,567", "٣", "1_0")),
        *((text, text) for text in ("1.234,50", "1,23.00", "1.234.00,00")),
        ("12.34.56", "12.34.56"),
    ],
)
def test_unambiguous_numbers_are_read_and_other_text_stays(text: str, value: int | str) -> None:
    assert value == Integers()(text)


@pytest.mark.parametrize(
    ("text", "point", "comma"),
    [("1.000", 1, 1000), ("1,749", 1749, "1,749"), ("-12.345", "-12.345", -12345), (" 999,999 ", 999_999, "999,999")],
)
def test_a_number_that_can_be_read_in_two_ways_is_refused_with_the_option_that_settles_it(
    text: str, point: object, comma: object
) -> None:
    with pytest.raises(UnclearCell, match="can be read in two ways") as refused:
        Integers()(text)
    assert {Choice("decimal", "."), Choice("decimal", ",")} == {*refused.value.remedy.choices}
    assert (point, comma) == (Integers(".")(text), Integers(",")(text))
    assert f"if it is {text.strip().replace('.', '').replace(',', '')}" in refused.value.remedy.text


@given(st.integers(), st.sampled_from(["{}", " {} ", "{}.0"]))
def test_a_number_is_read_as_itself_or_not_at_all(number: int, form: str) -> None:
    assert Integers()(form.format(number)) in (number, form.format(number).strip())


WORDS: list[tuple[str, bool | str]] = [
    *((word, True) for word in ("WAHR", "wahr", "1", "yes", "Ja", "Y", "t", "True", "VRAI", "oui")),
    *((word, False) for word in ("FALSCH", "0", "no", "Nein", "N", "f", "FALSE", "faux")),
    *((text, text) for text in ("2", " x ")),
]


@for_all(WORDS)
def test_words_for_true_and_false_are_read_in_any_case_and_other_text_stays(case: tuple[str, bool | str]) -> None:
    text, value = case
    assert boolean_cell(text) == value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-12-01T10:00:00Z", "2026-12-01T10:00:00Z"),
        ("2026-12-01t10:00:00z", "2026-12-01T10:00:00Z"),
        ("2026-12-01 10:00:00Z", "2026-12-01T10:00:00Z"),
        ("2026-12-01 10:00 UTC", "2026-12-01T10:00:00Z"),
        ("2026/12/01 10:00:00.25 +01:00", "2026-12-01T09:00:00.250000Z"),
        ("2026-12-01T10:00+0530", "2026-12-01T04:30:00Z"),
        ("2026-12-01T10:00-05", "2026-12-01T15:00:00Z"),
        ("01.12.2026 10:00 +01:00", "2026-12-01T09:00:00Z"),
        ("1.12.2026, 9:05:07 Gmt", "2026-12-01T09:05:07Z"),
    ],
)
def test_timestamps_with_an_offset_are_read_in_any_unambiguous_form(text: str, expected: str) -> None:
    assert expected == Timestamps()(text)
    assert expected == Timestamps(BERLIN)(text)


@pytest.mark.parametrize("text", ["01.12.2026 10:00", "2026-12-01T10:00:00", "2026-12-01 10:00", "1.12.2026 10:00:00"])
def test_local_times_need_a_time_zone(text: str) -> None:
    assert "2026-12-01T09:00:00Z" == Timestamps(BERLIN)(text)
    with pytest.raises(UnclearCell, match="has no UTC offset") as refused:
        Timestamps()(text)
    assert "timezone" == refused.value.remedy.choices[0].name


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("2026-02-30 10:00Z", "exists"),
        ("30.02.2026 10:00", "exists"),
        ("2026-12-01 24:00Z", "exists"),
        ("2026-12-01 10:00:00.1234567Z", "microsecond"),
        ("2026-03-29 02:30", "Europe/Berlin"),
        ("2026-10-25 02:30", "Europe/Berlin"),
        ("0001-01-01 00:00", "outside the years 1 to 9999"),
    ],
)
def test_ambiguous_and_impossible_timestamps_are_refused(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Timestamps(BERLIN)(text)


FORMS: list[tuple[str, dict[str, str]]] = [
    ("01/11/2026", {"%d/%m/%Y": "2026-11-01", "%m/%d/%Y": "2026-01-11"}),
    ("12/12/2026", {"%d/%m/%Y": "2026-12-12", "%m/%d/%Y": "2026-12-12"}),
    ("05/14/2027 01:25 PM", {"%m/%d/%Y %I:%M %p": "2027-05-14"}),
    ("14-05-27 13:25", {"%d-%m-%y %H:%M": "2027-05-14", "%y-%m-%d %H:%M": "2014-05-27"}),
    ("2026-12-01", {"%Y-%m-%d": "2026-12-01"}),
    ("01.12.2026", {"%d.%m.%Y": "2026-12-01"}),
    ("01.12.26 10:00", {"%d.%m.%y %H:%M": "2026-12-01"}),
    ("12/1/2026 10:00:00", {"%d/%m/%Y %H:%M:%S": "2026-01-12", "%m/%d/%Y %H:%M:%S": "2026-12-01"}),
    ("Dec 1, 2026", {"%b %d, %Y": "2026-12-01"}),
    ("Nov 2, 2026 2:03:22 PM", {"%b %d, %Y %I:%M:%S %p": "2026-11-02"}),
    ("1 Dec 2026 10:00 UTC", {"%d %b %Y %H:%M %Z": "2026-12-01"}),
    ("10. Dezember 2025 10:00", {"%d. %b %Y %H:%M": "2025-12-10"}),
    ("10-Mär-2025", {"%d-%b-%Y": "2025-03-10"}),
    ("3 août 2026, 9:00:01.5 +02:00", {"%d %b %Y, %H:%M:%S.%f %z": "2026-08-03"}),
]


@for_all(FORMS)
def test_the_reason_for_another_form_names_each_format_that_fits_and_what_it_means(
    case: tuple[str, dict[str, str]],
) -> None:
    text, formats = case
    with pytest.raises(UnclearCell) as refused:
        Timestamps(BERLIN)(text)
    assert [Choice("date_format", form) for form in formats] == list(refused.value.remedy.choices)
    assert " or ".join(f"{{}} if it means {date}" for date in formats.values()) == refused.value.remedy.text
    for form, date in formats.items():
        read = datetime.fromisoformat(Timestamps(BERLIN, form)(text)).astimezone(BERLIN)
        assert date == f"{read:%Y-%m-%d}"


def test_a_date_without_an_offset_needs_its_form_and_the_zone() -> None:
    with pytest.raises(UnclearCell) as refused:
        Timestamps()("13/12/2026")
    assert (Choice("date_format", "%d/%m/%Y"), Choice("timezone", "ZONE")) == refused.value.remedy.choices


def test_a_date_that_contradicts_the_format_given_gets_another_one() -> None:
    with pytest.raises(UnclearCell, match="contradicts the date format given") as refused:
        Timestamps(BERLIN, "%d/%m/%Y")("12/13/2026")
    assert (Choice("date_format", "%m/%d/%Y"),) == refused.value.remedy.choices


@pytest.mark.parametrize(
    ("text", "problem", "step"),
    [
        ("46357.4166666667", "how a spreadsheet keeps a date", "it is 2026-12-01 10:00"),
        ("46357", "how a spreadsheet keeps a date", "it is 2026-12-01 00:00"),
        ("1764583200", "since 1970", "write it as date and time"),
        ("0000-00-00 00:00:00", "says that there is no date", "empty these cells"),
        ("01/11/2026 %Y", "is not an RFC 3339", "{} with its form"),
        ("May 2027", "is not an RFC 3339", "{} with its form"),
    ],
)
def test_what_is_not_a_date_in_text_gets_a_step_that_fits(text: str, problem: str, step: str) -> None:
    with pytest.raises(UnclearCell, match=problem) as refused:
        Timestamps(BERLIN)(text)
    assert step in refused.value.remedy.text


@pytest.mark.parametrize(
    ("date_format", "text", "expected"),
    [
        ("%d/%m/%Y %H:%M", "01/11/2026 10:00", "2026-11-01T09:00:00Z"),
        ("%m/%d/%Y %I:%M %p", "11/01/2026 10:00 PM", "2026-11-01T21:00:00Z"),
        ("%d.%m.%y", "01.11.26", "2026-10-31T23:00:00Z"),
        ("%d/%m/%Y %H:%M %z", "01/11/2026 10:00 -0500", "2026-11-01T15:00:00Z"),
        ("%d/%m/%Y", "2026-11-01T10:00:00Z", "2026-11-01T10:00:00Z"),
    ],
)
def test_a_date_format_says_what_a_timestamp_means(date_format: str, text: str, expected: str) -> None:
    assert expected == Timestamps(BERLIN, date_format)(text)


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
