"""Names and limits of accounts (D10, D11)."""

import pytest

from petstore_server.domain.accounts import Plan, check_account_name, plan_limits
from petstore_server.domain.errors import InvalidInput


@pytest.mark.parametrize("name", ["acme ", " acme", "", "-acme", "a" * 101, "acme\n", "ácme"])
def test_a_name_that_looks_like_another_or_like_an_option_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput):
        check_account_name(name)


@pytest.mark.parametrize("limits", [(0, 50), (51, 50), (-1, -1), (1, 1_000_000_001)])
def test_limits_of_an_enterprise_account_are_at_least_one_and_at_most_a_billion(limits: tuple[int, int]) -> None:
    assert plan_limits(Plan.ENTERPRISE, 1, 1_000_000_000) == (1, 1_000_000_000)
    with pytest.raises(InvalidInput):
        plan_limits(Plan.ENTERPRISE, *limits)
