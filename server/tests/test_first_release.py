"""A store of 1.0.0: brought to this version while programs use it, with the owners of its orders, and back."""

import asyncio
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import apsw
import psycopg
import pytest

from petstore_server.domain.accounts import PLAN_LIMITS, Plan, VisibleOrders, edit
from petstore_server.domain.errors import StatementFailed
from petstore_server.domain.keys import Scope
from petstore_server.domain.orders import INT64_MAX, MAX_ASSIGNED_ID, Order
from petstore_server.domain.placements import Placement
from petstore_server.engines.postgres import opening as postgres_opening
from petstore_server.engines.schema import StoreSchema
from petstore_server.engines.sqlite import opening as sqlite_opening
from petstore_server.engines.sqlite.connections import connect_writer
from petstore_server.operations.orders import claim_orders
from petstore_server.runtime import background
from petstore_server.runtime.opening import sqlite_path
from petstore_server.store import Store
from petstore_server.store import orders as stored_orders
from testing import first_release
from testing.cli import CommandLine, Done
from testing.damage import execute
from testing.first_release import OWNERS
from testing.forked_work import migrate
from testing.stores import BY, Stores, all_orders, api_key, body, opened_file, opening, reason, records_of, refusal

ROWS = """
    SELECT id, status, pet_id, complete, ship_date, reference, record, created_at, updated_at, revision, placed,
        imported
    FROM petstore.orders ORDER BY id
"""
CLOCK = "SELECT change, at, last_order_id FROM petstore.clock"
NEW_INDEXES = {
    "own_orders_by_id",
    "own_orders_by_updated_at",
    "own_orders_by_ship_date",
    "own_orders_by_reference",
    "orders_without_owner",
    "audit_by_order_request",
    "audit_by_other_action",
}
ALL_INDEXES = NEW_INDEXES | {"audit_by_request", "audit_by_action"}


@pytest.fixture(name="old")
def _old(each_backend: Stores) -> Stores:
    first_release.make_store(each_backend)
    return each_backend


@pytest.fixture(name="old_file")
def _old_file(file_store: Stores) -> Stores:
    first_release.make_store(file_store)
    return file_store


@pytest.fixture(name="old_postgres")
def _old_postgres(postgres_stores: Stores) -> Stores:
    first_release.make_store(postgres_stores)
    return postgres_stores


async def owners(store: Store) -> dict[int, str | None]:
    return {order.id: order.account for order in await all_orders(store)}


async def claim(store: Store, after: int = 0) -> list[tuple[int, int]]:
    return [(number, last) async for number, last in claim_orders(store, time.time, after)]


def owners_shown(petstore: Callable[..., Done]) -> dict[int, str | None]:
    return {order["id"]: order.get("account") for order in petstore("orders", "export", "-").json_lines()}


def test_a_migration_keeps_all_data_and_sets_the_owners_that_the_audit_log_names(old: Stores, tmp_path: Path) -> None:
    rows, clock = execute(old, ROWS), execute(old, CLOCK)
    petstore = partial(CommandLine(tmp_path / "unused.db", make=False).must, PETSTORE_DATABASE_URL=old.url)
    done = petstore("db", "migrate")
    assert "Migrated the schema from version 1 to 2.\n" == done.out
    left = (
        "Without an owner: 1 placed order. The audit log does not name the account; "
        "import a file of the columns id and account.\n"
    )
    assert f"Owners set: 3 orders that version 1.0.0 placed.\n{left}" == done.err
    assert (rows, clock) == (execute(old, ROWS), execute(old, CLOCK))
    assert owners_shown(petstore) == OWNERS
    again = petstore("db", "migrate")
    assert (True, left) == ("nothing was changed" in again.out, again.err)
    petstore("orders", "import", "-", stdin="id,account\n4,acme\n")
    assert "" == petstore("db", "migrate").err
    assert owners_shown(petstore) == OWNERS | {4: "acme"}
    assert "sound" in petstore("db", "check").out


async def test_owners_are_set_in_batches_that_go_on_where_an_interrupted_one_ended(
    old: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_orders, "CLAIMED_TOGETHER", 2)
    async with old.opened() as store:
        assert (2, 3) == await store.orders.claim(0, BY.at)
        assert {1: None, 2: "acme", 3: "zoo", 4: None, 5: None} == await owners(store)
        assert 2 == await store.orders.count_without_owner()
        assert [(1, 5)] == await claim(store)
        assert OWNERS == await owners(store)
        assert [(0, 4)] == await claim(store)  # nothing is known of it
        assert [] == await claim(store, 4)


async def test_a_server_sets_owners_in_the_background_for_some_seconds_at_a_time(
    old: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_orders, "CLAIMED_TOGETHER", 1)
    monkeypatch.setattr(background, "_ROUND_MAX_SECONDS", 0.0)
    execute(old, "DELETE FROM petstore.orders WHERE id = 5")
    async with old.opened() as store:
        assert [2, 3, 4, 4] == [await background.claim_some(store, time.time, after) for after in (0, 2, 3, 4)]
        first_release.add_order(old, 5, "zoo")  # by a process of 1.0.0 that still runs
        assert None is (await store.orders.find(5)).account
        assert 5 == await background.claim_some(store, time.time, 4)
        assert OWNERS == await owners(store)


async def test_setting_owners_is_a_change_only_for_accounts_that_see_their_own_orders(old: Stores) -> None:
    async with old.opened() as store:
        await store.accounts.change("zoo", edit(None, None, VisibleOrders.OWN), BY)
        zoo = store.listing.of((await store.accounts.find("zoo")).id)
        acme = store.listing.of((await store.accounts.find("acme")).id)
        assert (b"", b"") == (records_of(await zoo.current()), records_of(await acme.current()))
        before, everything = execute(old, ROWS), await body(store)
        [(change, at, _)] = execute(old, CLOCK)
        assert [(3, 5)] == await claim(store)
        [(changed, changed_at, last)] = execute(old, CLOCK)
        assert (change + 1, True, 5) == (changed, changed_at > at, last)
        updated = {row[0]: row[8] for row in execute(old, ROWS)}
        assert {1: 1000, 2: 1000, 3: changed_at, 4: 1000, 5: changed_at} == updated
        assert [row[:8] + row[9:] for row in before] == [row[:8] + row[9:] for row in execute(old, ROWS)]
        assert b',{"id":3},{"id":5}' == records_of(await zoo.current())
        assert everything == await body(store)


@pytest.mark.parametrize(("scope", "changed"), [(Scope.ORDERS_MANAGE, [2, 3, 5]), (Scope.ORDERS_WRITE, [])])
async def test_setting_owners_is_a_change_if_a_key_sees_owners(old: Stores, scope: Scope, changed: list[int]) -> None:
    """A copy that it has made by following changes would lack them."""
    async with old.opened() as store:
        await store.keys.create(replace(api_key("shop"), scopes=frozenset({scope})), BY)
        assert [(3, 5)] == await claim(store)
        assert OWNERS == await owners(store)
        assert changed == [row[0] for row in execute(old, ROWS) if row[8] > 1000]


async def test_an_order_that_is_locked_gets_its_owner_later(old_postgres: Stores) -> None:
    async with old_postgres.opened() as store:
        with psycopg.connect(old_postgres.url) as other:
            other.execute("SELECT FROM petstore.orders WHERE id = 3 FOR UPDATE")
            assert [(2, 2)] == await claim(store)
            assert {**OWNERS, 3: None} == await owners(store)
        assert [(1, 4)] == await claim(store, 2)
        assert OWNERS == await owners(store)


async def test_no_owner_is_set_while_an_account_begins_to_see_its_own_orders(old_postgres: Stores) -> None:
    """Its list would lack the order until the next change."""
    async with old_postgres.opened() as store:
        with psycopg.connect(old_postgres.url) as other:
            other.execute("UPDATE petstore.accounts SET orders = 'own' WHERE name = 'zoo'")
            assert "petstore.accounts" in await reason(store.orders.claim(0, BY.at))
        assert [(3, 5)] == await claim(store)
        [(change, *_)] = execute(old_postgres, CLOCK)
        assert len(OWNERS) + 1 == change


async def test_an_owner_that_an_import_has_set_is_kept(old: Stores) -> None:
    async with old.opened() as store:
        ids = [2, 3, 5]
        execute(old, "UPDATE petstore.orders SET account_id = 1 WHERE id = 3")  # after the identifiers were read
        assert (2, 2) == await store.orders._claim(ids, BY.at)
        assert {**OWNERS, 3: "acme"} == await owners(store)


async def test_a_store_that_1_0_0_has_restored_is_not_ready(old: Stores) -> None:
    async with old.opened() as store:
        await store.check()
        execute(old, "ALTER TABLE petstore.store DROP COLUMN migration")
        with pytest.raises(StatementFailed, match="migration"):
            await store.check()


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


def test_a_store_of_1_0_0_is_backed_up_before_it_is_migrated(old_file: Stores, tmp_path: Path) -> None:
    rows, copy = execute(old_file, ROWS), tmp_path / "copy.db"
    petstore = CommandLine(sqlite_path(old_file.url), make=False)
    done = petstore.must("db", "backup", str(copy))
    assert "The backup is good but was not recorded in the store: " in done.err
    petstore("db", "check").fails(1, "Not checked: The store at ")
    with opened_file(f"sqlite:///{copy}") as copied:
        assert rows == list(copied.execute(ROWS.replace("petstore.", "")))
        assert 1 == copied.pragma("user_version")
    execute(old_file, "UPDATE petstore.orders SET record = '{}' WHERE id = 1")
    petstore("db", "backup", str(tmp_path / "other.db")).fails(1, "is not sound, so no backup was made: Order 1")


def test_the_way_back_to_1_0_0_is_a_restore_with_the_new_release(
    old_file: Stores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, backup = execute(old_file, ROWS), tmp_path / "before-upgrade.db"
    petstore = CommandLine(sqlite_path(old_file.url), make=False)
    with as_1_0_0(old_file, tmp_path, monkeypatch):
        petstore.must("db", "backup", str(backup))
    petstore.must("db", "migrate")
    petstore.must("accounts", "edit", "zoo", "--orders", "own")
    shutil.rmtree(tmp_path / "sqlite")
    with as_1_0_0(old_file, tmp_path, monkeypatch):
        petstore("db", "restore", str(backup), "--yes").fails(1, "has schema version 2, newer than the 1")
    petstore.must("db", "restore", str(backup), "--yes")
    shutil.rmtree(tmp_path / "sqlite")
    with as_1_0_0(old_file, tmp_path, monkeypatch):
        assert [] == opening(old_file.url, create=True, upgrade=True)
        assert "The store is sound." in petstore.must("db", "check").out
    assert rows == execute(old_file, ROWS)


def test_a_restored_backup_of_1_0_0_gets_its_owners(old_file: Stores, cli: CommandLine) -> None:
    done = cli.must("db", "restore", str(sqlite_path(old_file.url)), "--yes")
    assert "Owners set: 3 orders that version 1.0.0 placed." in done.err
    assert OWNERS == owners_shown(cli.must)


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
    script = (first_release.MIGRATIONS / "postgres" / "0002_owners_and_actions.sql").read_text("utf-8")
    steps = len(re.findall(r";$", script, re.MULTILINE)) + 1  # with the note of the version
    assert 20 == steps
    for statements in range(steps):
        left = statements
        with pytest.raises(KeyboardInterrupt):
            migrate(old_postgres.url)
        assert "has schema version 1, and this program needs 2" in refusal(old_postgres.url)
    left = steps
    assert (1, 2) == migrate(old_postgres.url)
    assert (2, 2) == migrate(old_postgres.url)
    assert NEW_INDEXES == {name for (name,) in execute(old_postgres, "SELECT indexname FROM pg_indexes")} & ALL_INDEXES


@pytest.mark.parametrize("imported", [MAX_ASSIGNED_ID + 1, INT64_MAX])
def test_a_store_whose_identifiers_are_above_2_53_gets_small_new_ones(old: Stores, imported: int) -> None:
    for order_id in (imported, MAX_ASSIGNED_ID + 5):
        first_release.add_order(old, order_id, owner=None)
    assert [(MAX_ASSIGNED_ID + 5,)] == execute(old, "SELECT last_order_id FROM petstore.clock")
    rows = execute(old, ROWS)
    migrate(old.url)
    assert rows == execute(old, ROWS)

    async def use() -> list[int]:
        async with old.opened() as store:
            placed = [await store.orders.place(Placement(1, key, 1, 1, None), BY) for key in ("a", "b")]
            await store.orders.import_batch([Order(MAX_ASSIGNED_ID + 9)], "import:1", BY)
            placed.append(await store.orders.place(Placement(1, "c", 1, 1, None), BY))
            return [each.order_id for each in placed]

    largest = max(OWNERS)
    assert [largest + 1, largest + 2, largest + 3] == asyncio.run(use())


@pytest.mark.parametrize(
    ("newest", "left", "next_after"), [(INT64_MAX, "id > 5", 0), (MAX_ASSIGNED_ID, "id < 5", MAX_ASSIGNED_ID)]
)
def test_a_store_with_large_identifiers_only_begins_with_1_and_a_counter_below_2_53_stays(
    old: Stores, newest: int, left: str, next_after: int
) -> None:
    first_release.add_order(old, newest, owner=None)
    execute(old, f"DELETE FROM petstore.orders WHERE NOT {left}")
    migrate(old.url)
    assert [(next_after,)] == execute(old, "SELECT last_order_id FROM petstore.clock")


@pytest.mark.parametrize("fault", ["killed", "full"])
def test_a_migration_of_a_file_that_fails_is_undone_and_can_be_repeated(
    old_file: Stores, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    rows = execute(old_file, ROWS)

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
                migrate(old_file.url)
        else:
            assert "the disk is full" in refusal(old_file.url, upgrade=True)
    assert "has schema version 1, and this program needs 2" in refusal(old_file.url)
    assert rows == execute(old_file, ROWS)
    assert (1, 2) == migrate(old_file.url)
    assert rows == execute(old_file, ROWS)


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
