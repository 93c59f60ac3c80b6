"""Hostile variation, in a few seconds: `make torture ONLY=resources REQUESTS=1000000` shows whether memory stays."""

import pytest

from torture.groups import resources

pytestmark = pytest.mark.anyio


async def test_hostile_variation_leaves_no_descriptor_open_and_meets_no_defect() -> None:
    assert [] == (await resources.hostile(7, 400, warm=300)).problems
