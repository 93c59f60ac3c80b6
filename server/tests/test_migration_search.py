"""The migration to the search index: existing orders are found, and the previous release may go on writing."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

import petstore_server.storage
from petstore_server.domain.orders import Order, Status
from petstore_server.domain.search import Filters, Query, Sort, SortField
from petstore_server.ports import Store
from support.open_stores import SqlitePlaces, Stores

pytestmark = pytest.mark.anyio

MIGRATIONS = Path(petstore_server.storage.__file__).parent / "migrations"


class PreviousRelease:
    """Writes orders as the release before the search index does."""

    def __init__(self, each_backend: Stores) -> None:
        self._url = each_backend.url
        self._sqlite = each_backend.is_sqlite

    def create(self) -> None:
        """Make a store of the first schema version."""
        if self._sqlite:
            script = (MIGRATIONS / "sqlite" / "0001_store.sql").read_text()
            self.run([("PRAGMA journal_mode = wal", ()), (script, ()), ("PRAGMA user_version = 1", ())])
        else:
            self.run([((MIGRATIONS / "postgres" / "0001_store.sql").read_text(), ())])

    def insert(self, *orders: Order) -> None:
        if self._sqlite:
            insert = "INSERT INTO orders (id, status, revision, record) VALUES (?, ?, 1, ?)"
        else:
            insert = "INSERT INTO petstore.orders (id, status, record) VALUES (%s, %s, %s)"
        self.run([(insert, (order.id, str(order.status), order.record())) for order in orders])

    def cancel(self, order_id: int) -> None:
        table, mark = ("orders", "?") if self._sqlite else ("petstore.orders", "%s")
        self.run([(f"UPDATE {table} SET status = 'cancelled' WHERE id = {mark}", (order_id,))])

    def run(self, statements: Sequence[tuple[str, tuple[Any, ...]]]) -> None:
        if self._sqlite:
            connection = apsw.Connection(self._url.removeprefix("sqlite:///"))
            for text, values in statements:
                connection.execute(text, values)
            connection.close()
            return
        with psycopg.connect(self._url) as other:
            for text, values in statements:
                other.execute(text.encode(), values or None)


async def pending_of_pet(store: Store, pet_id: int) -> list[str]:
    filters = Filters(frozenset([Status.PENDING]), pet_id)
    page = await store.search.page(Query(filters, Sort(SortField.SHIP_DATE)))
    return [tracked.record for tracked in page.orders]


async def test_orders_of_an_older_store_are_found_and_have_no_creation_time(each_backend: Stores) -> None:
    older = PreviousRelease(each_backend)
    older.create()
    orders = [
        Order(1, 7, 1, "2026-11-01T10:00:00.5Z", True),
        Order(2, 7, 1, "2026-11-01T10:00:00Z", False),
        Order(3, 8),
        Order(4, 7, status=Status.SHIPPED),
    ]
    older.insert(*orders)
    async with each_backend.opened() as store:
        assert [orders[1].record(), orders[0].record()] == await pending_of_pet(store, 7)
        found = await store.search.find(1)
        assert found.created_at is None
        assert found.updated_at == (await store.search.find(4)).updated_at


async def test_changes_that_the_previous_release_makes_are_found_at_once(each_backend: Stores) -> None:
    older = PreviousRelease(each_backend)
    older.create()
    older.insert(Order(1, 7), Order(2, 7))
    async with each_backend.opened() as store:
        before = await store.search.find(1)
        older.cancel(1)
        older.insert(Order(3, 7))
        for _ in range(2):  # the second time from the index
            assert ['{"id":2,"petId":7}', '{"id":3,"petId":7}'] == await pending_of_pet(store, 7)
            after = await store.search.find(1)
            assert (Status.CANCELLED, None) == (after.status, after.created_at)
            assert after.updated_at > before.updated_at
            assert (await store.search.find(3)).created_at is not None
            while await store.search.update_index():
                pass


async def test_a_damaged_record_does_not_stop_the_index(each_backend: Stores) -> None:
    older = PreviousRelease(each_backend)
    older.create()
    older.insert(Order(1, 7))
    async with each_backend.opened() as store:
        text = "UPDATE orders SET record = 'damaged' WHERE id = 1"
        older.run([(text if each_backend.is_sqlite else text.replace("orders", "petstore.orders"), ())])
        older.insert(Order(2, 7))
        while await store.search.update_index():
            pass
        assert ['{"id":2,"petId":7}'] == await pending_of_pet(store, 7)


async def test_a_store_of_the_previous_release_still_refuses_an_unknown_status(each_backend: Stores) -> None:
    older = PreviousRelease(each_backend)
    older.create()
    older.insert(Order(1, 7))
    table = "orders" if each_backend.is_sqlite else "petstore.orders"
    async with each_backend.opened():
        for status in ("shipped", "cancelled", "pending"):
            older.run([(f"UPDATE {table} SET status = '{status}'", ())])
        for status in ("'lost'", "NULL"):
            with pytest.raises((apsw.ConstraintError, psycopg.IntegrityError)):
                older.run([(f"UPDATE {table} SET status = {status}", ())])


async def test_an_older_sqlite_store_gets_the_cheaper_check_of_a_status(tmp_path: Path) -> None:
    """SQLite builds a table for `status IN (…)` with each row that it checks."""
    stores = Stores(SqlitePlaces(tmp_path))
    older = PreviousRelease(stores)
    older.create()
    async with stores.opened():
        connection = apsw.Connection(stores.url.removeprefix("sqlite:///"))
        [(table,)] = connection.execute("SELECT sql FROM sqlite_schema WHERE name = 'orders'").fetchall()
        connection.close()
    assert "CHECK (status = 'pending' OR status = 'shipped' OR status = 'cancelled')" in str(table)
