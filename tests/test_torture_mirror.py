"""A copy that is kept with listChanges, through restarts and a restore: a short form of `make torture ONLY=mirror`."""

import pytest

from torture.groups import mirror


@pytest.mark.anyio
async def test_a_copy_is_equal_after_restarts_and_is_begun_again_after_a_restore() -> None:
    result = await mirror.mirror(1, "sqlite", 6.0)
    assert not result.problems
    assert "1 copies" in str(result)
    assert " 1 resets" in str(result)
