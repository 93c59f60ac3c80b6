"""Names and limits of accounts (D10, D11)."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

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
from petstore_server.domain.errors import AccountClosed, InvalidInput
from petstore_server.domain.transitions import Transition

ACTIVE = Account(1, "acme", Plan.FREE, PLAN_LIMITS[Plan.FREE], 5.0)
SUSPENDED = replace(ACTIVE, suspended_at=6.0)
CLOSED = replace(ACTIVE, suspended_at=7.0, closed_at=7.0)
PRO = Plan.PRO, PLAN_LIMITS[Plan.PRO]
OF_PRO = dict(zip(("plan", "limits"), PRO, strict=True))


@pytest.mark.parametrize(
    ("change", "action", "changed"),
    [
        (suspend(9.0), "suspend", ({"suspended_at": 9.0}, {}, {})),
        (RESUME, "resume", ({}, {"suspended_at": None}, None)),
        (close(9.0), "close", ({"suspended_at": 9.0, "closed_at": 9.0}, {"closed_at": 9.0}, {})),
        (edit(None, None), "edit", ({}, {}, {})),
        (edit("c", "n"), "edit", [{"contact": "c", "note": "n"}] * 3),
        (set_plan(*PRO), "set_plan", (OF_PRO, OF_PRO, None)),
    ],
)
def test_what_a_change_makes_of_an_active_a_suspended_and_a_closed_account(
    change: Transition[Account], action: str, changed: Sequence[dict[str, Any] | None]
) -> None:
    assert f"account.{action}" == change.action
    for account, fields in zip((ACTIVE, SUSPENDED, CLOSED), changed, strict=True):
        with nullcontext() if fields is not None else pytest.raises(AccountClosed):
            assert replace(account, **(fields or {})) == change.apply(account)
    assert ["active", "suspended", "closed"] == [each.state for each in (ACTIVE, SUSPENDED, CLOSED)]


@pytest.mark.parametrize(
    "name",
    [
        "acme ",
        " acme",
        "",
        "-acme",
        "a" * 101,
        "acme\n",
        "a\u0301cme",
        "ok \u0430cme",
        "\u03b1cme",
        "ac\u200bme",
        "ac\u034fme",
        "ac\ufe0fme",
        "acme \u3164",
    ],
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
