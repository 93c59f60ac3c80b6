"""The support for tests of many cases names each case that fails."""

import pytest

from testing.cases import for_all


def test_each_case_that_fails_is_named() -> None:
    seen = []

    @for_all([1, 2, 3])
    def at_most_one(number: int) -> None:
        seen.append(number)
        assert number <= 1

    with pytest.raises(ExceptionGroup, match="2 of 3 cases fail") as raised:
        at_most_one()
    assert [1, 2, 3] == seen
    assert [["The case: 2"], ["The case: 3"]] == [error.__notes__[-1:] for error in raised.value.exceptions]
