"""`make mutants`: what its table names exists."""

import pytest

from torture.mutants import TABLE, files


@pytest.mark.parametrize("group", TABLE["groups"].values(), ids=list(TABLE["groups"]))
def test_a_group_of_mutants_names_sources_and_tests(group: dict[str, str]) -> None:
    sources, tests = files(group)
    assert sources
    assert tests
