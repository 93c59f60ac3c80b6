"""Small rules of the domain: places of pages, ranges, notes, fields for the audit log, sessions."""

import hashlib
from dataclasses import replace

import pytest

from petstore_server.domain.accounts import Account, Limits, Plan
from petstore_server.domain.audit import Transition, unless_changed, version
from petstore_server.domain.bans import Ban
from petstore_server.domain.errors import (
    ChangedMeanwhile,
    InvalidField,
    InvalidInput,
    StoreUnusable,
    replacing_remedy,
)
from petstore_server.domain.imports import id_ranges
from petstore_server.domain.keys import DEFAULT_SCOPES, ApiKey, Environment
from petstore_server.domain.lists import NumberedPage, clamp_page
from petstore_server.domain.pets import pet_from_fields
from petstore_server.domain.sessions import TOKEN_BYTES, Session, token_digest
from petstore_server.domain.texts import check_note
from petstore_server.domain.timestamps import are_canonical, file_stamp
from petstore_server.domain.usage import UsageCounts
from petstore_server.domain.windows import AccountDecision, Count, Outcome, evaluate_address


@pytest.mark.parametrize(
    ("total", "number", "place"),
    [
        (0, 1, (1, 1)),
        (0, 5, (1, 1)),
        (10, 1, (1, 1)),
        (11, 2, (2, 2)),
        (11, 9, (2, 2)),
        (25, 0, (1, 3)),
        (25, 2, (2, 3)),
    ],
)
def test_a_page_beyond_the_last_is_the_last(total: int, number: int, place: tuple[int, int]) -> None:
    assert place == clamp_page(total, 10, number)
    assert (1, 1) == NumberedPage[int]([], 0)[2:]


@pytest.mark.parametrize(
    ("ids", "ranges"),
    [
        ([], []),
        ([5], [[5, 5]]),
        ([3, 1, 2], [[1, 3]]),
        ([1, 3], [[1, 1], [3, 3]]),
        ([9, 1, 2, 5, 8], [[1, 2], [5, 5], [8, 9]]),
    ],
)
def test_identifiers_are_ascending_ranges(ids: list[int], ranges: list[list[int]]) -> None:
    assert ranges == id_ranges(ids)


def test_a_note_is_one_line_of_200_characters() -> None:
    assert ["", "x" * 200] == [check_note(text) for text in ("", "x" * 200)]
    for text in ("x" * 201, "two\nlines", "\x1b[2J"):
        with pytest.raises(InvalidInput):
            check_note(text)


def test_a_value_in_an_error_has_at_most_60_characters() -> None:
    assert f"name '{'x' * 60}' is wrong." == str(InvalidField("name", "is wrong", "x" * 60))
    assert f"name '{'x' * 60}…' is wrong." == str(InvalidField("name", "is wrong", "x" * 61))


def test_the_audit_log_names_what_can_change() -> None:
    account = Account(1, "acme", Plan.FREE, Limits(60, 1000), 5.0)
    assert account.fields() == {
        "plan": "free",
        "per_minute": 60,
        "per_day": 1000,
        "suspended_at": None,
        "closed_at": None,
        "contact": "",
        "note": "",
    }
    key = ApiKey("key_1", "acme", b"", Environment.PRODUCTION, DEFAULT_SCOPES, "", 5.0, ban=Ban("key_1", 10, 20, 1))
    assert {"began": 10, "until": 20, "level": 1} == key.fields()["ban"]


def test_an_operator_changes_only_what_they_saw() -> None:
    seen = Account(1, "acme", Plan.FREE, Limits(60, 1000), 5.0)
    changed = replace(seen, note="changed")
    close = Transition[Account]("account.close", lambda account: replace(account, closed_at=9.0))
    change = unless_changed(close, version(seen))
    assert ("account.close", replace(seen, closed_at=9.0)) == (change.action, change.apply(seen))
    with pytest.raises(ChangedMeanwhile):
        change.apply(changed)
    assert [True, False] == [change.is_allowed(each) for each in (seen, changed)]
    assert unless_changed(close, None).is_allowed(changed)


def test_the_remedy_of_an_unusable_store_is_that_of_its_caller() -> None:
    with pytest.raises(StoreUnusable) as caught, replacing_remedy("make room"):
        raise StoreUnusable("full", "wait")
    assert ("full", "full make room") == (caught.value.problem, str(caught.value))
    assert "full" == str(StoreUnusable("full"))


def test_a_session_is_extended_once_a_minute() -> None:
    session = Session("operator:ada", 100_000.0)
    assert [False, True] == [session.needs_extension(100_000 - 12 * 3600 + seconds) for seconds in (60, 60.5)]


def test_a_token_has_160_bits_and_any_text_has_a_digest() -> None:
    assert 160 <= 8 * TOKEN_BYTES
    assert token_digest("a\udc80") == hashlib.sha256(b"a\xed\xb2\x80").digest()


@pytest.mark.parametrize("text", ["2026-11-20T23:59:59Z", "1987-06-05T04:32:10Z"])
def test_timestamps_in_the_stored_form_need_no_parsing(text: str) -> None:
    assert are_canonical([text, text])
    assert not are_canonical([text, text.replace("Z", "+")])


@pytest.mark.parametrize("text", ["2026-02-30T10:00:00Z", "2026-11-20T24:00:00Z", "2026-11-20T10:60:00Z", "\udc80"])
def test_times_that_do_not_exist_are_not_in_the_stored_form(text: str) -> None:
    assert are_canonical(["2026-11-20T10:00:00Z", text]) is False


def test_the_kinds_of_refusals_add_up() -> None:
    assert 7 == UsageCounts(100, refused_minute=1, refused_day=2, refused_banned=4, cancelled=8).refused


def test_a_stamp_in_the_name_of_a_file() -> None:
    assert "20270115T080000Z" == file_stamp(1_800_000_000.5)


@pytest.mark.parametrize("name", ["name", "tag"])
def test_the_texts_of_a_pet_are_text(name: str) -> None:
    with pytest.raises(InvalidField, match="is not text"):
        pet_from_fields({"id": 1, name: 5})


def test_a_pet_needs_an_identifier() -> None:
    with pytest.raises(InvalidField) as caught:
        pet_from_fields({"name": "Rex"})
    assert ("id", "is missing; every pet needs one") == (caught.value.field, caught.value.problem)


def test_of_windows_with_equal_ends_and_rest_the_day_is_shown() -> None:
    assert AccountDecision(Outcome.ADMITTED, Limits(60, 60), 5, 100, 5, 100, 40.0).day_shown


def test_nothing_remains_of_an_address_that_is_over_its_limit() -> None:
    assert [0, 0, 1] == [evaluate_address(False, Count(0, used), 1.0).remaining for used in (61, 60, 59)]
