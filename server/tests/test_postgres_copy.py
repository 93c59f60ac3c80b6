"""`petstore db copy`: a whole SQLite store moved to PostgreSQL and verified; nothing of it, if it is interrupted."""

import asyncio
from pathlib import Path
from typing import Any

import psycopg
import pytest

from petstore_server.domain.accounts import VisibleOrders, edit
from petstore_server.domain.bans import Ban
from petstore_server.domain.keys import revoke
from petstore_server.domain.orders import CANCEL, INT64_MAX, INT64_MIN, Order
from petstore_server.domain.pets import Pet
from petstore_server.domain.usage import Usage
from petstore_server.domain.windows import Count
from petstore_server.engines import copy
from petstore_server.engines.sqlite import connections
from petstore_server.engines.sqlite.maintenance import backup, restore
from petstore_server.store import Store
from testing.cli import CommandLine
from testing.damage import execute
from testing.stores import BY, Stores, add_key, all_orders, body, log, opened, reason, successor

ORDERS = 12_000


async def fill(path: Path) -> None:
    """Something of everything that a store holds."""
    async with opened(path) as store:
        await add_key(store, "b", "zoo")
        await add_key(store, "a", "shop")
        await store.keys.rotate("key_a", successor("c"), 9_000.0, BY)
        await store.usage.save({1: Usage(Count(60, 5), Count(0, 50))}, [Ban("key_b", 1, 2, 3)])
        await store.accounts.change("shop", edit(None, None, VisibleOrders.OWN), BY)
        await store.pets.import_batch(
            [Pet(INT64_MIN), Pet(7, 'A "pet" \\ of\x00 {all}, NULL', "ünïcode")], "import:1", BY
        )
        orders = [*(Order(number, 1, 2, None, True) for number in range(ORDERS)), Order(INT64_MAX, account="zoo")]
        orders.insert(0, Order(INT64_MIN))
        for start in range(0, len(orders), 4_000):
            await store.orders.import_batch(orders[start : start + 4_000], "import:2", BY)
        await store.orders.change(5, CANCEL, BY)
    backup(path, path.with_name("backup.db"))
    async with opened(path) as store:
        await add_key(store, "removed", "removed")
    restore(path, path.with_name("backup.db"), BY)
    async with opened(path):  # as the command does, which notes the file
        pass


async def content(store: Store) -> list[Any]:
    return [
        (await store.search.change_clock())[1:],
        await store.orders.last_identifier(),
        await store.accounts.list(),
        await store.keys.list(),
        await store.usage.all(),
        await store.usage.bans(),
        await all_orders(store),
        [await store.pets.find(pet_id) for pet_id in (INT64_MIN, 7)],
        [entry for entry in await log(store) if entry.action != "store.copy"],
        await body(store),
    ]


async def compare_and_use(source: Path, stores: Stores) -> None:
    async with opened(source) as one, stores.opened() as other:
        before = await content(one)
        assert before == await content(other)
        assert await one.orders.find(5) == await other.orders.find(5)
        await add_key(other, "d", "new")  # the numbers go on after those that were copied, and a restore removed
        assert {1: "zoo", 2: "shop", 4: "new"} == await other.accounts.names(range(9))
        await other.orders.change(6, CANCEL, BY)
        entries = await log(other)
        assert len(before[-2]) + 4 == len(entries)
        (copied,) = [entry for entry in entries if entry.action == "store.copy"]
        assert copied.actor.startswith("operator:")
        assert ("store", None) == (copied.subject, copied.before)
        assert (source.name, len(before[6])) == (copied.after["source"], copied.after["rows"]["orders"])
        assert ["key_b", "key_a", "key_c", "key_d"] == [key.id for key in await other.keys.list()]


@pytest.fixture(name="source")
def _source(tmp_path: Path) -> Path:
    path = tmp_path / "store.db"
    asyncio.run(fill(path))
    return path


def test_everything_is_copied_once_and_the_copy_can_be_used(source: Path, postgres_stores: Stores) -> None:
    petstore = CommandLine(source)
    assert f"{ORDERS + 2} orders" in petstore.must("db", "copy", "--to", postgres_stores.url).err
    asyncio.run(compare_and_use(source, postgres_stores))
    # An account sees only its own orders: 1.0.0 may not open the store.
    assert [(2, 2)] == execute(postgres_stores, "SELECT schema_version, migration FROM petstore.store")
    petstore("db", "copy", "--to", postgres_stores.url).fails(6, "The target has other data in its accounts already.")


def test_an_empty_store_is_copied_and_an_empty_file_is_not(tmp_path: Path, postgres_stores: Stores) -> None:
    copied = CommandLine(tmp_path / "store.db").must("db", "copy", "--to", postgres_stores.url, "--json")
    assert {0} == set(copied.json()["rows"].values())
    (tmp_path / "empty.db").touch()
    done = CommandLine(tmp_path / "empty.db", make=False)("db", "copy", "--to", postgres_stores.url)
    assert (1, True) == (done.code, f"The store at {tmp_path / 'empty.db'} is empty" in done.err)


@pytest.mark.parametrize("fault", ["Ctrl-C", "a lost row", "a failing last statement"])
def test_a_copy_that_is_not_completed_leaves_nothing_and_starts_over(
    source: Path, postgres_stores: Stores, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    write, execute = copy.write_rows, psycopg.AsyncConnection.execute

    async def fail(driver: Any, table: str, columns: str, rows: Any) -> None:
        await write(driver, table, columns, list(rows)[1:] if fault == "a lost row" and table == "pets" else rows)
        if table == "orders" and fault == "Ctrl-C":
            raise KeyboardInterrupt

    async def fail_at_the_end(driver: Any, statement: Any, *parameters: Any) -> Any:
        if statement == "ANALYZE" and fault == "a failing last statement":
            raise psycopg.OperationalError("no space left on device")
        return await execute(driver, statement, *parameters)

    async def content_of_target() -> list[Any]:
        async with postgres_stores.opened() as store:
            return [await store.accounts.list(), await log(store), await body(store)]

    petstore = CommandLine(source)
    monkeypatch.setattr(copy, "write_rows", fail)
    monkeypatch.setattr(psycopg.AsyncConnection, "execute", fail_at_the_end)
    done = petstore("db", "copy", "--to", postgres_stores.url)
    assert (True, fault == "a lost row") == (done.code != 0, "differs from the source in its pets" in done.err)
    monkeypatch.undo()
    assert [[], [], b"[]"] == asyncio.run(content_of_target())
    petstore.must("db", "copy", "--to", postgres_stores.url)


async def test_a_source_cannot_change_until_its_copy_is_verified(
    source: Path, postgres_stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "BUSY_SECONDS", 0.05)
    refused: list[str] = []

    is_equal = copy.is_equal

    async def verify_later(driver: Any, table: str, columns: str, rows: Any) -> bool:
        if table == "audit":  # the last one
            async with opened(source) as store:
                refused.append(await reason(store.keys.change("key_b", revoke(BY.at), BY)))
        return await is_equal(driver, table, columns, rows)

    monkeypatch.setattr(copy, "is_equal", verify_later)
    steps: list[tuple[int, int]] = []
    rows = await copy.copy_store(
        source, postgres_stores.url, BY, lambda line: None, lambda *numbers: steps.append(numbers)
    )
    total = sum(rows.values())
    assert (total, {total}) == (steps[-1][0], {all_rows for _, all_rows in steps})
    async with opened(source) as one, postgres_stores.opened() as other:
        assert await content(one) == await content(other)
    assert 1 == len(refused)
    assert "locked" in refused[0]


def test_what_cannot_be_a_target_is_refused(tmp_path: Path) -> None:
    petstore = CommandLine(tmp_path / "store.db")
    for target in (f"sqlite:///{tmp_path / 'other.db'}", "mysql://host/name"):
        assert 2 == petstore("db", "copy", "--to", target).code
