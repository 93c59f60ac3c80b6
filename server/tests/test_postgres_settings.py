"""What a role, a database or a server of PostgreSQL has set decides nothing that a result depends on (E3)."""

import asyncio
from pathlib import Path

import pytest

from petstore_server.domain.audit import AuditFilters, AuditPosition
from petstore_server.domain.bans import Ban
from petstore_server.domain.keys import Environment
from petstore_server.domain.orders import CANCEL, Order
from petstore_server.domain.placements import Placed, Placement
from petstore_server.domain.usage import Usage
from petstore_server.domain.windows import Count
from petstore_server.store.statements import Query, Work
from testing.cli import CommandLine
from testing.engines import PostgresEngine
from testing.stores import BY, Stores, add_key, log, opened

SETTINGS = {
    "array_nulls": "off",
    "backslash_quote": "off",
    "bytea_output": "escape",
    "client_encoding": "LATIN1",
    "DateStyle": "German",
    "default_transaction_deferrable": "on",
    "default_transaction_isolation": "serializable",
    "escape_string_warning": "on",
    "extra_float_digits": "-15",
    "IntervalStyle": "sql_standard",
    "quote_all_identifiers": "on",
    "row_security": "off",
    "search_path": "nowhere",
    "standard_conforming_strings": "off",
    "TimeZone": "Asia/Kathmandu",
    "transform_null_equals": "on",
    "xmloption": "document",
}


def alter(postgres: PostgresEngine, url: str, **settings: str) -> None:
    """Set these for the role of the tests in the database of this URL."""
    with postgres.admin() as admin:
        for name, value in settings.items():
            admin.execute(f"ALTER ROLE postgres IN DATABASE \"{url.rpartition('/')[2]}\" SET {name} = '{value}'")


@pytest.fixture(name="altered")
def _altered(postgres: PostgresEngine, postgres_stores: Stores) -> Stores:
    """A database without a store, whose role has all of SETTINGS."""
    alter(postgres, postgres_stores.url, **SETTINGS)
    return postgres_stores


async def test_each_part_of_the_store_works_and_means_the_same(altered: Stores) -> None:
    async with altered.opened() as store:
        key = await add_key(store)
        at = 1_700_000_000.123456
        assert (await store.keys.principal(key.digest, Environment.PRODUCTION, 1.0)) is not None
        references = ["日本", 'it\\\'s "so", {NULL}', None, "NULL", "\\x41"]
        placing = (
            store.orders.place(Placement(1, f"key-{number}", number, 1, None, reference), BY._replace(at=at + number))
            for number, reference in enumerate(references)
        )
        placed = await asyncio.gather(*placing)
        found = [(await store.orders.find(each.order_id)).reference for each in placed]
        assert references == found
        assert None is (await store.orders.change(placed[0].order_id, CANCEL, BY)).ship_date
        await store.orders.import_batch([Order(100), Order(101, None, 1, None, True, reference="NULL")], "import:1", BY)
        await store.orders.import_batch([Order(100, 5), Order(101)], "import:2", BY)
        assert [Order(100, 5), Order(101)] == sorted(await store.orders.find_many([100, 101]))
        await store.usage.save({1: Usage(Count(60, 5), Count(0, 50))}, [Ban(key.id, 1, 2, 3)])
        entries = {entry.at for entry in await log(store) if entry.action == "order.place"}
        assert {at + number for number in range(len(references))} == entries
        await store.check()


async def test_changes_of_one_order_and_key_from_two_hosts_do_not_fail(altered: Stores) -> None:
    """Each transaction sees what was committed before its lock, though the role asks for another isolation."""
    async with altered.opened() as one, altered.opened() as other:
        await one.orders.import_batch([Order(number) for number in range(40)], "import:1", BY)
        work = [
            *(one.orders.change(number, CANCEL, BY) for number in range(40)),
            *(other.orders.place(Placement(1, f"key-{number}", 1, 1, None), BY) for number in range(40)),
        ]
        assert {Order, Placed} == {type(outcome) for outcome in await asyncio.gather(*work)}
        isolation = "SELECT current_setting('transaction_isolation')"

        def read() -> Work[object]:
            return (yield Query(isolation))

        assert [("read committed",)] == await one.engine.transaction(read)


@pytest.mark.parametrize("newest_first", [True, False])
async def test_pages_of_the_audit_log_have_each_entry_once(
    newest_first: bool, postgres: PostgresEngine, each_backend: Stores
) -> None:
    if not each_backend.is_sqlite:
        alter(postgres, each_backend.url, **SETTINGS)
    async with each_backend.opened() as store:
        await store.orders.import_batch([Order(number) for number in range(12)], "import:1", BY)
        for number in range(12):  # three times, not in their order, of which a double that lost digits is another
            await store.orders.change(number, CANCEL, BY._replace(at=1_700_000_000.123456 + number % 3))
        pages, position = list[int](), None
        for _ in range(20):
            page = await store.audit.page(AuditFilters(), 5, position, newest_first=newest_first)
            pages += [entry.id for entry in page.entries]
            if page.next is None:
                break
            position = AuditPosition(float(f"{page.next.at:.3g}"), page.next.id)
        assert sorted(set(pages)) == sorted(pages)
        assert [entry.id for entry in await log(store)] == (pages[::-1] if newest_first else pages)


async def test_a_change_of_a_setting_begins_no_history(postgres: PostgresEngine, postgres_stores: Stores) -> None:
    async with postgres_stores.opened() as one:
        before = await one.access_version()
        alter(postgres, postgres_stores.url, TimeZone="Asia/Kathmandu", DateStyle="German")
        async with postgres_stores.opened() as other:
            assert before == await other.access_version()


async def test_a_store_is_copied_whatever_the_target_has_set(altered: Stores, tmp_path: Path) -> None:
    async with opened(tmp_path / "store.db") as store:
        await add_key(store)
        by = BY._replace(at=1_700_000_000.123456)
        await store.orders.import_batch([Order(1, reference="日本")], "import:1", by)
    await asyncio.to_thread(CommandLine(tmp_path / "store.db").must, "db", "copy", "--to", altered.url)
