"""Small rules of the domain: places of pages, ranges, changes of what was seen, sessions, errors."""

import ast
import hashlib
import re
from dataclasses import replace
from enum import Enum
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import petstore_server
from petstore_server.api import errors as api
from petstore_server.domain import errors
from petstore_server.domain.accounts import Account, Limits, Plan
from petstore_server.domain.errors import (
    ChangedMeanwhile,
    DomainError,
    InvalidField,
    ServiceUnavailable,
    StoreUnusable,
    Unreachable,
    replacing_remedy,
)
from petstore_server.domain.imports import ImportOutcome, id_ranges
from petstore_server.domain.keys import Environment, KeyState
from petstore_server.domain.lists import NumberedPage, clamp_page
from petstore_server.domain.roles import Role, role_of
from petstore_server.domain.sessions import FORM_LIFETIME, LINK_LIFETIME, TOKEN_BYTES, Session, token_digest
from petstore_server.domain.texts import in_words
from petstore_server.domain.timestamps import FILE_STAMP, are_canonical, file_stamp, format_hour
from petstore_server.domain.transitions import Transition, unless_changed, version
from petstore_server.domain.usage import Granularity
from petstore_server.domain.windows import Outcome


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


@example(set())
@example({1, 2, 3})
@example({9, 1, 2, 5, 8, -1, 0})
@given(st.sets(st.integers(-50, 50) | st.integers(-(2**63), 2**63 - 1)))
def test_ranges_contain_exactly_the_identifiers(ids: set[int]) -> None:
    ranges = id_ranges(ids)
    assert sorted(ids) == [order_id for first, last in ranges for order_id in range(first, last + 1)]
    assert all(one[1] + 1 < following[0] for one, following in pairwise(ranges))


def test_a_value_in_an_error_has_at_most_60_characters() -> None:
    assert f"name '{'x' * 60}' is wrong." == str(InvalidField("name", "is wrong", "x" * 60))
    assert f"name '{'x' * 60}…' is wrong." == str(InvalidField("name", "is wrong", "x" * 61))


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
    assert not unless_changed(close, "plan:x:y z").is_allowed(seen)
    limits = {"plan": "free", "orders": "all", "per_minute": 60, "per_day": 1000}
    assert {**limits, "suspended_at": None, "closed_at": None, "contact": "", "note": ""} == seen.fields()


def test_the_remedy_of_an_unusable_store_is_that_of_its_caller() -> None:
    with pytest.raises(StoreUnusable) as caught, replacing_remedy("make room"):
        raise StoreUnusable("full", "wait")
    assert ("full", "full make room") == (caught.value.problem, str(caught.value))
    assert "full" == str(StoreUnusable("full"))


def test_a_role_may_do_what_lower_ones_may() -> None:
    allowed = {role: [needed for needed in Role if role.allows(needed)] for role in Role}
    assert {Role.VIEWER: [*Role][:1], Role.OPERATOR: [*Role][:2], Role.ADMIN: [*Role]} == allowed


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        ({"pets-admins", "pets-ops"}, Role.ADMIN),
        ({"pets-ops"}, Role.OPERATOR),
        ({"Pets-Ops"}, None),
        ({"pets-op", "*", ""}, None),
        (set(), None),
    ],
)
def test_the_highest_role_of_the_groups_holds_and_names_match_exactly(groups: set[str], expected: Role | None) -> None:
    roles = [("operator", "pets-ops"), ("admin", "pets-admins"), ("viewer", "pets-ops")]
    assert expected == role_of(groups, roles)
    assert (expected or Role.VIEWER) == role_of(groups, [*roles, ("viewer", None)]), "everybody has the role of *"
    assert Role.VIEWER == role_of(groups, [])


def test_a_session_is_extended_once_a_minute() -> None:
    session = Session("session_1", "operator:ada", Role.ADMIN, None, 100_000.0)
    assert (300, 366 * 86_400, "ada") == (LINK_LIFETIME, FORM_LIFETIME, session.operator)
    assert [False, True] == [session.needs_extension(100_000 - 12 * 3600 + seconds) for seconds in (60, 60.5)]


def test_a_token_has_160_bits_and_any_text_has_a_digest() -> None:
    assert 160 <= 8 * TOKEN_BYTES
    assert token_digest("a\udc80") == hashlib.sha256(b"a\xed\xb2\x80").digest()


@pytest.mark.parametrize("text", ["2026-11-20T23:59:59Z", "1987-06-05T04:32:10Z"])
def test_timestamps_in_the_stored_form_need_no_parsing(text: str) -> None:
    assert are_canonical([text, text])
    assert not are_canonical([text, text.replace("Z", "+")])


def test_a_stamp_in_the_name_of_a_file_and_the_start_of_an_hour() -> None:
    assert "20270115T080000Z" == file_stamp(1_800_000_000.5)
    assert re.fullmatch(FILE_STAMP, "20270115T080000Z")
    assert ("2027-01-15T08:00Z", None) == (format_hour(1_800_000_000.5), format_hour(None))


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (
            ImportOutcome,
            (
                "created, unchanged, replaced, rejected, protected, other owner, unknown account, reference in use, "
                "other placed order, reserved identifier, repeated, missing, correctable, taken, ambiguous reference"
            ),
        ),
        (KeyState, "active, expiring, suspended, expired, revoked"),
        (Outcome, "admitted, limited, banned"),
        (Plan, "free, pro, business, enterprise"),
        (Environment, "production, staging"),
        (Granularity, "hour, day"),
    ],
)
def test_what_users_read_of_states_and_kinds_stays_the_same(kind: type[Enum], values: str) -> None:
    assert values.split(", ") == [each.value for each in kind]


def test_a_store_that_is_not_available_explains_itself_to_operators_only() -> None:
    error = ServiceUnavailable("the disk is full")
    assert ("the disk is full", "The disk is full.") == (error.reason, error.explanation)
    assert "The service is temporarily unavailable; retry after the seconds in Retry-After." == str(error)


def test_what_cannot_be_reached_is_unavailable_with_a_remedy() -> None:
    error = Unreachable("Redis cannot be used", "refused", "Start it.")
    assert "refused" == error.reason
    assert "Redis cannot be used (refused). Start it." == error.explanation
    assert str(error) == str(ServiceUnavailable("anything"))


def test_the_code_of_an_error_is_its_name_or_that_of_its_base() -> None:
    for kind in vars(errors).values():
        if isinstance(kind, type) and issubclass(kind, DomainError) and "code" in vars(kind):
            name = in_words(kind.__name__).strip().replace(" ", "_")
            assert kind.code == ("internal_error" if kind is DomainError else name)


def test_every_error_is_made_with_as_many_values_as_its_message_has_places() -> None:
    places = {
        name: kind.message.count("{}")
        for name, kind in (vars(errors) | vars(api)).items()
        if isinstance(kind, type) and issubclass(kind, DomainError) and kind.__init__ is DomainError.__init__
    }
    made = []
    for path in Path(petstore_server.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                made.append((node.func.id, len(node.args)))
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Name):
                made.append((node.exc.id, 0))
    found = [(name, values) for name, values in made if name in places]
    assert len(found) > 60
    assert [] == [(name, values) for name, values in found if values != places[name]]
