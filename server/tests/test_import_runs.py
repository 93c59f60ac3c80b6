"""An import as a whole: what it says of a store whose history changes while it runs."""

import asyncio
import io
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from petstore_server.domain.audit import Actor
from petstore_server.domain.imports import id_ranges
from petstore_server.domain.orders import Import, Order
from petstore_server.formats.kinds import ReadOptions
from petstore_server.formats.reading import Source
from petstore_server.formats.rejects import Rejects
from petstore_server.operations.imports import ORDERS, FileImport
from petstore_server.runtime import engines
from petstore_server.store import Store
from support.open_stores import BY, SqlitePlaces, Stores


class Held:
    """The orders of a store, whose imports wait."""

    def __init__(self, store: Store) -> None:
        self._orders = store.orders
        self.begun, self.may_go_on = asyncio.Event(), asyncio.Event()

    async def find_many(self, ids: Sequence[int]) -> list[Order]:
        return await self._orders.find_many(ids)

    async def import_batch(self, orders: Sequence[Order], import_id: str, actor: Actor, /) -> list[Import]:
        self.begun.set()
        await self.may_go_on.wait()
        return await self._orders.import_batch(orders, import_id, actor)


@pytest.mark.anyio
@pytest.mark.parametrize("restores", [False, True])
async def test_an_import_during_which_the_store_was_restored_says_so(tmp_path: Path, restores: bool) -> None:
    stores = Stores(SqlitePlaces(tmp_path))
    async with stores.opened() as store:
        engines.backup_store(stores.url, tmp_path / "backup", lambda *_: None)
        held = Held(store)
        subject = ORDERS._replace(records=lambda _: held)
        run = FileImport(subject, Source(io.BytesIO(b'{"id":2}'), "-", None), ReadOptions(), Rejects())
        running = asyncio.create_task(run.run(store, BY))
        await held.begun.wait()
        if restores:
            engines.restore_store(stores.url, tmp_path / "backup", BY)
        held.may_go_on.set()
        await running
        assert restores is run.history_changed


@given(st.sets(st.integers(-50, 50) | st.integers(-(2**63), 2**63 - 1)))
def test_ranges_contain_exactly_the_identifiers(ids: set[int]) -> None:
    ranges = id_ranges(ids)
    assert sorted(ids) == [order_id for first, last in ranges for order_id in range(first, last + 1)]
    assert all(one[1] + 1 < following[0] for one, following in pairwise(ranges))
