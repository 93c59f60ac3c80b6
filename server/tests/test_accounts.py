"""Names and limits of accounts (D10, D11)."""

from dataclasses import replace

import pytest

from petstore_server.domain.accounts import (
    PLAN_LIMITS,
    RESUME,
    Account,
    Plan,
    check_account_name,
    close,
    edit,
    plan_limits,
    set_plan,
    suspend,
)
from petstore_server.domain.audit import Transition
from petstore_server.domain.errors import AccountClosed, InvalidInput

ACTIVE = Account(1, "acme", Plan.FREE, PLAN_LIMITS[Plan.FREE], 5.0)
SUSPENDED = replace(ACTIVE, suspended_at=6.0)
CLOSED = replace(ACTIVE, suspended_at=7.0, closed_at=7.0)
PRO = set_plan(Plan.PRO, PLAN_LIMITS[Plan.PRO])


@pytest.mark.parametrize(
    ("change", "action", "outcomes"),
    [
        (suspend(6.0), "suspend", (SUSPENDED, SUSPENDED, CLOSED)),
        (suspend(9.0), "suspend", (replace(ACTIVE, suspended_at=9.0), SUSPENDED, CLOSED)),
        (RESUME, "resume", (ACTIVE, ACTIVE, None)),
        (close(7.0), "close", (CLOSED, replace(SUSPENDED, closed_at=7.0), CLOSED)),
        (
            close(9.0),
            "close",
            (replace(CLOSED, suspended_at=9.0, closed_at=9.0), replace(SUSPENDED, closed_at=9.0), CLOSED),
        ),
        (edit(None, None), "edit", (ACTIVE, SUSPENDED, CLOSED)),
        (edit("", "n"), "edit", tuple(replace(each, note="n") for each in (ACTIVE, SUSPENDED, CLOSED))),
        (edit("c", None), "edit", tuple(replace(each, contact="c") for each in (ACTIVE, SUSPENDED, CLOSED))),
        (
            PRO,
            "set_plan",
            (*(replace(each, plan=Plan.PRO, limits=PLAN_LIMITS[Plan.PRO]) for each in (ACTIVE, SUSPENDED)), None),
        ),
    ],
)
def test_what_a_change_makes_of_an_active_a_suspended_and_a_closed_account(
    change: Transition[Account], action: str, outcomes: tuple[Account | None, ...]
) -> None:
    assert f"account.{action}" == change.action
    for account, outcome in zip((ACTIVE, SUSPENDED, CLOSED), outcomes, strict=True):
        if outcome is None:
            with pytest.raises(AccountClosed):
                change.apply(account)
        else:
            assert outcome == change.apply(account)
    assert ["active", "suspended", "closed"] == [each.state for each in (ACTIVE, SUSPENDED, CLOSED)]


@pytest.mark.parametrize(
    "name",
    ["acme ", " acme", "", "-acme", "a" * 101, "acme\n", "a\u0301cme", "ok \u0430cme", "\u03b1cme", "ac\u200bme"],
)
def test_a_name_that_looks_like_another_or_like_an_option_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput):
        check_account_name(name)


@pytest.mark.parametrize("name", ["Müller & Söhne", "O'Hara", "3 Zoo", "Зоомагазин", "हिन्दी", "ペット 2", "a" * 100])
def test_names_of_all_scripts_are_accepted(name: str) -> None:
    assert name == check_account_name(name)


@pytest.mark.parametrize(
    ("name", "char"), [("a/b", "'/'"), ("Zoo; Ltd", "';'"), ("a\x00b", "'U+0000'"), ("a\nb", "'U+000A'")]
)
def test_the_character_that_is_not_allowed_is_named(name: str, char: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_account_name(name)
    assert f"it has the character {char}" in caught.value.message


@pytest.mark.parametrize("limits", [(0, 50), (51, 50), (-1, -1), (1, 1_000_000_001), (None, 5), (5, None)])
def test_limits_of_an_enterprise_account_are_at_least_one_and_at_most_a_billion(
    limits: tuple[int | None, int | None],
) -> None:
    for allowed in ((1, 1_000_000_000), (5, 5)):
        assert allowed == plan_limits(Plan.ENTERPRISE, *allowed)
    with pytest.raises(InvalidInput):
        plan_limits(Plan.ENTERPRISE, *limits)
    for fixed in ((60, None), (None, 1000)):
        with pytest.raises(InvalidInput, match="fixed limits"):
            plan_limits(Plan.FREE, *fixed)
