"""A store of 1.0.0: brought to this version while programs use it, and back."""

import asyncio
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import apsw
import psycopg
import pytest

from petstore_server.domain.accounts import PLAN_LIMITS, Plan, VisibleOrders, edit
from petstore_server.engines.postgres import opening as postgres_opening
from petstore_server.engines.schema import StoreSchema
from petstore_server.engines.sqlite import opening as sqlite_opening
from petstore_server.engines.sqlite.connections import connect_writer
from testing import first_release
from testing.damage import execute
from testing.forked_work import migrate
from testing.stores import BY, SqlitePlaces, Stores, opening, refusal

pytestmark = pytest.mark.anyio

ROWS = """
    SELECT id, status, pet_id, complete, ship_date, reference, record, created_at, updated_at, revision, placed,
        imported
    FROM petstore.orders ORDER BY id
"""


@pytest.fixture(name="sqlite_stores")
def _sqlite_stores(tmp_path: Path) -> Stores:
    return Stores(SqlitePlaces(tmp_path))


@pytest.fixture(name="old")
def _old(each_backend: Stores) -> Stores:
    first_release.make_store(each_backend)
    return each_backend


@pytest.fixture(name="old_postgres")
def _old_postgres(postgres_stores: Stores) -> Stores:
    first_release.make_store(postgres_stores)
    return postgres_stores


@contextmanager
def as_1_0_0(stores: Stores, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let this program know the first migration only."""
    engine, module = ("sqlite", sqlite_opening) if stores.is_sqlite else ("postgres", postgres_opening)
    (folder / engine).mkdir()
    shutil.copy(first_release.MIGRATIONS / engine / "0001_store.sql", folder / engine)
    with monkeypatch.context() as patched:
        patched.setattr(module, "SCHEMA", StoreSchema(str(folder / engine)))
        yield


@pytest.mark.parametrize("how", ["create", "edit"])
def test_1_0_0_starts_on_a_migrated_store_until_an_account_sees_only_its_own_orders(
    old: Stores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    migrate(old.url)

    async def use(orders: VisibleOrders) -> None:
        async with old.opened() as store:
            if how == "create":
                await store.accounts.create(f"new-{orders}", Plan.FREE, PLAN_LIMITS[Plan.FREE], BY, orders=orders)
            else:
                await store.accounts.change("zoo", edit(None, f"a note {orders}", orders), BY)

    asyncio.run(use(VisibleOrders.ALL))
    with as_1_0_0(old, tmp_path, monkeypatch):
        assert [] == opening(old.url, create=True, upgrade=True)
        assert (2, 2) == migrate(old.url)
    asyncio.run(use(VisibleOrders.OWN))
    shutil.rmtree(tmp_path / ("sqlite" if old.is_sqlite else "postgres"))
    with as_1_0_0(old, tmp_path, monkeypatch):
        assert "has schema version 2, newer than the 1 that this program knows" in refusal(old.url, upgrade=True)
    assert [] == opening(old.url)


def test_a_migration_that_ends_before_any_statement_goes_on(
    old_postgres: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, left = postgres_opening._migrate_further, 0

    async def ending(*arguments: Any) -> None:
        nonlocal left
        if left == 0:
            raise KeyboardInterrupt
        left -= 1
        await step(*arguments)

    monkeypatch.setattr(postgres_opening, "_migrate_further", ending)
    for statements in range(9):  # with the note of the version
        left = statements
        with pytest.raises(KeyboardInterrupt):
            migrate(old_postgres.url)
        assert "has schema version 1, and this program needs 2" in refusal(old_postgres.url)
    left = 9
    assert (1, 2) == migrate(old_postgres.url)
    assert (2, 2) == migrate(old_postgres.url)
    indexes = (
        "SELECT count(*) FROM pg_indexes WHERE indexname LIKE 'own_orders_%' OR indexname = 'orders_without_owner'"
    )
    assert [(5,)] == execute(old_postgres, indexes.replace("%", "%%"))


@pytest.mark.parametrize("fault", ["killed", "full"])
def test_a_migration_of_a_file_that_fails_is_undone_and_can_be_repeated(
    sqlite_stores: Stores, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    first_release.make_store(sqlite_stores)
    rows = execute(sqlite_stores, ROWS)

    def failing(*arguments: Any) -> apsw.Connection:
        connection = connect_writer(*arguments)
        if fault == "full":
            connection.pragma("max_page_count", 1)  # which SQLite takes for the pages that there are
        else:
            connection.create_scalar_function("fail", Mock(side_effect=KeyboardInterrupt))
        return connection

    missing = StoreSchema.missing
    with monkeypatch.context() as patched:
        patched.setattr(sqlite_opening, "connect_writer", failing)
        if fault == "killed":
            patched.setattr(StoreSchema, "missing", lambda *of: [f"{sql}; SELECT fail()" for sql in missing(*of)])
            with pytest.raises(KeyboardInterrupt):
                migrate(sqlite_stores.url)
        else:
            assert "the disk is full" in refusal(sqlite_stores.url, upgrade=True)
    assert "has schema version 1, and this program needs 2" in refusal(sqlite_stores.url)
    assert rows == execute(sqlite_stores, ROWS)
    assert (1, 2) == migrate(sqlite_stores.url)
    assert rows == execute(sqlite_stores, ROWS)


async def test_requests_go_on_while_a_migration_waits_for_an_export(
    old_postgres: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind a statement that waited for long, every request would wait."""
    monkeypatch.setattr(postgres_opening, "_MIGRATION_PAUSE", 0.0)
    attempts, waiting, version = 0, asyncio.Event(), postgres_opening.schema_version

    async def count(*arguments: Any) -> int:
        nonlocal attempts
        attempts += 1
        if attempts == 7:  # it looks twice before the first statement, which waits for nothing
            waiting.set()
        return await version(*arguments)

    monkeypatch.setattr(postgres_opening, "schema_version", count)
    with psycopg.connect(old_postgres.url) as export:
        export.execute("SELECT FROM petstore.orders")
        migrating = asyncio.create_task(postgres_opening.migrate(old_postgres.url))
        await waiting.wait()
        assert not migrating.done()
        with psycopg.connect(old_postgres.url) as request:
            request.execute("SET lock_timeout TO '1000ms'")
            request.execute("UPDATE petstore.orders SET status = 'cancelled' WHERE id = 2")
    assert (1, 2) == await migrating


def test_a_migration_that_waits_too_long_says_why(old_postgres: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_opening, "_MIGRATION_SECONDS", 0.0)
    with psycopg.connect(old_postgres.url) as export:
        export.execute("SELECT FROM petstore.orders")
        message = refusal(old_postgres.url, upgrade=True)
    assert "another program keeps a table or rows of PostgreSQL locked" in message
    assert (1, 2) == migrate(old_postgres.url)
