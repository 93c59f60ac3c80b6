"""Processes that create one store together, in a short form of `make torture ONLY=creation`."""

import pytest

from torture.groups import creation


@pytest.mark.anyio
async def test_no_process_is_refused_a_store_that_others_create() -> None:
    result = await creation.creation(1, 20)
    assert not result.problems
    assert "20 rounds of 8 processes, 20 stores created" in str(result)
