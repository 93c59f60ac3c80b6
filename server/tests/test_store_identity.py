"""The identity of a store, which separates its counters in a shared Redis from those of other stores (D12)."""

import asyncio
import shutil
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from petstore_server.domain.audit import Actor
from petstore_server.engines.sqlite.maintenance import backup, restore
from petstore_server.store import Store
from testing.engines import PostgresEngine
from testing.stores import Stores, opened, opened_at


async def identity(opening: AbstractAsyncContextManager[Store]) -> str:
    async with opening as store:
        return await store.engine.identity()


async def test_identity_and_epoch_stay_the_same_and_no_other_store_has_the_identity(each_backend: Stores) -> None:
    """They sign cursors and tokens, which any server must accept at any time."""
    async with each_backend.opened() as one, each_backend.opened() as other:
        first = await one.engine.identity(), await one.epoch()
        assert first == (await other.engine.identity(), await other.epoch())
    if not each_backend.is_sqlite:  # it is not read again
        assert first[1] == await one.epoch()
    async with each_backend.opened() as again:
        assert first == (await again.engine.identity(), await again.epoch())
    assert first[0] != await identity(each_backend.another().opened())


async def test_a_restore_keeps_the_identity_of_the_store_that_it_replaces(tmp_path: Path) -> None:
    production, staging, file = tmp_path / "production.db", tmp_path / "staging.db", tmp_path / "backup.db"
    before = [await identity(opened(production)), await identity(opened(staging))]
    backup(production, file)
    for store in (production, staging):
        restore(store, file, Actor("operator:test", 1.0))
    assert before == [await identity(opened(production)), await identity(opened(staging))]
    shutil.copyfile(production, tmp_path / "copy.db")
    assert await identity(opened(tmp_path / "copy.db")) not in before
    restore(tmp_path / "new.db", file, Actor("operator:test", 1.0))
    assert await identity(opened(tmp_path / "new.db")) not in before


def test_a_postgresql_dump_restored_into_another_database_has_another_identity(
    postgres: PostgresEngine, postgres_stores: Stores
) -> None:
    original, restored = postgres_stores.url, postgres_stores.another().url
    dump = postgres.data / "dump.sql"
    first = asyncio.run(identity(opened_at(original)))
    postgres.tool("pg_dump", "--format=plain", f"--file={dump}", original)
    postgres.tool("psql", "--quiet", f"--file={dump}", restored)
    assert first != asyncio.run(identity(opened_at(restored)))
