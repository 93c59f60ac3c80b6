"""Transactions next to others: what one waits for, what one that fails leaves, and what is never done twice."""

import asyncio
import re
import threading
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

from petstore_server.deadlines import Timeouts
from petstore_server.domain.accounts import suspend
from petstore_server.domain.bans import Ban
from petstore_server.domain.errors import (
    AccountClosed,
    KeyNotUsable,
    ServiceUnavailable,
    SessionNotFound,
    StatementFailed,
)
from petstore_server.domain.orders import CANCEL, UNASSIGNED, Order
from petstore_server.domain.webhooks import Webhook, WebhookState
from petstore_server.engines.postgres.dialect import find_keys
from petstore_server.engines.postgres.engine import PostgresEngine
from petstore_server.engines.postgres.options import BRIEFLY, transactions
from petstore_server.engines.sqlite import engine, serial
from petstore_server.engines.sqlite.engine import SqliteEngine
from petstore_server.store import Store
from petstore_server.store.engine import Engine, Part, bulk_transaction, snapshot, transaction
from petstore_server.store.statements import Execute, Query, Row, Work
from testing.stores import BY, Stores, add_key, all_orders, api_key, log, opened_file, successor
from testing.subprocesses import PATIENCE

NOW = 10_000.0
INSERT_SECOND_KEY = """
    INSERT INTO petstore.keys (id, account_id, digest, environment, scopes, note, created_at, rotated_from)
    SELECT 'key_two', account_id, %s, environment, scopes, note, %s, %s FROM petstore.keys
"""


@asynccontextmanager
async def engine_of(stores: Stores) -> AsyncIterator[Engine]:
    """The engine of an existing store, as another process has it."""
    async with stores.opened():
        pass
    path = Path(stores.url.removeprefix("sqlite:///"))
    opened: Engine = SqliteEngine(path) if stores.is_sqlite else PostgresEngine(stores.url)
    try:
        yield opened
    finally:
        await opened.close()


@pytest.fixture(name="other")
async def _other(postgres_stores: Stores, postgres_store: Store) -> AsyncIterator[psycopg.AsyncConnection]:
    """Another program's connection to a store in PostgreSQL, in which the account zoo has the key key_one."""
    await add_key(postgres_store)
    async with await psycopg.AsyncConnection.connect(postgres_stores.url) as other:
        yield other


async def commit_before(other: psycopg.AsyncConnection, work: Awaitable[object], last: str = "SELECT 1") -> None:
    """Begin work, commit what another program has changed when the work waits for that, and end the work.

    `last` is what the other program does before it commits.
    """
    sql = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    task = asyncio.ensure_future(work)
    async with await psycopg.AsyncConnection.connect(other.info.dsn, autocommit=True) as connection:
        async with asyncio.timeout(PATIENCE):
            while await (await connection.execute(sql)).fetchone() is None:
                assert not task.done(), "it did not wait"
                await asyncio.sleep(0.01)
    await other.execute(last.encode())
    await other.commit()
    await task


async def test_a_transaction_on_the_writers_thread_ends_while_the_event_loop_is_busy(file_store: Stores) -> None:
    """Another program that waits for the lock of the file must not wait for the event loop of the service."""
    began, busy = threading.Event(), threading.Event()

    def work() -> Work[None]:
        yield Execute("UPDATE petstore.clock SET last_order_id = 7")
        began.set()
        busy.wait()

    async with file_store.opened() as store:
        task = asyncio.ensure_future(store.engine.transaction(work))
        await asyncio.to_thread(began.wait)
        busy.set()
        with opened_file(file_store.url) as other:  # on the event loop, which does nothing else meanwhile
            other.set_busy_timeout(5_000)
            other.execute("BEGIN IMMEDIATE")
            assert 7 == other.execute("SELECT last_order_id FROM clock").get
        await task


async def test_a_change_of_an_account_keeps_one_that_was_under_way(
    postgres_store: Store, other: psycopg.AsyncConnection
) -> None:
    await other.execute("UPDATE petstore.accounts SET contact = 'a@example.com' WHERE name = 'zoo'")
    await commit_before(other, postgres_store.accounts.change("zoo", suspend(NOW), BY))
    account = await postgres_store.accounts.find("zoo")
    assert ("a@example.com", NOW) == (account.contact, account.suspended_at)


async def test_no_key_is_rotated_that_is_being_revoked_or_created_where_an_account_closes(
    postgres_store: Store, other: psycopg.AsyncConnection
) -> None:
    keys = postgres_store.keys
    await other.execute("UPDATE petstore.keys SET revoked_at = 5")
    with pytest.raises(KeyNotUsable):
        await commit_before(other, keys.rotate("key_one", successor("two"), NOW, BY))
    await other.execute("UPDATE petstore.accounts SET closed_at = 5 WHERE name = 'zoo'")
    with pytest.raises(AccountClosed):
        await commit_before(other, keys.create(api_key("two"), BY))
    assert ["key_one"] == [each.id for each in await keys.list()]


async def test_a_key_that_is_being_created_is_revoked_when_its_account_closes(
    postgres_store: Store, other: psycopg.AsyncConnection
) -> None:
    await other.execute("SELECT 1 FROM petstore.accounts FOR SHARE")
    await other.execute(INSERT_SECOND_KEY, (api_key("two").digest, NOW, None))
    await commit_before(other, postgres_store.accounts.close_account("zoo", BY))
    assert [BY.at] * 2 == [key.revoked_at for key in await postgres_store.keys.list("zoo")]


@pytest.fixture(name="webhook")
async def _webhook(postgres_store: Store, other: psycopg.AsyncConnection) -> Webhook:
    """A webhook of the account zoo that is not stored yet."""
    return Webhook("wh_one", (await postgres_store.accounts.find("zoo")).id, "zoo", "https://shop.example/", NOW)


async def test_a_new_webhook_waits_for_its_account_without_keeping_changes_of_access_waiting(
    postgres_store: Store, other: psycopg.AsyncConnection, webhook: Webhook
) -> None:
    await other.execute("UPDATE petstore.accounts SET note = 'new' WHERE name = 'zoo'")
    free = "SELECT 1 FROM petstore.store FOR UPDATE NOWAIT"
    await commit_before(other, postgres_store.webhooks.create(webhook, "digest", BY), free)
    assert [webhook.id] == [each.id for each in await postgres_store.webhooks.of_account()]


async def test_a_change_of_a_webhook_under_way_is_kept_when_all_secrets_are_replaced(
    postgres_store: Store, other: psycopg.AsyncConnection, webhook: Webhook
) -> None:
    await postgres_store.webhooks.create(webhook, "digest", BY)
    await other.execute("UPDATE petstore.webhooks SET state = 'paused'")
    await commit_before(other, postgres_store.webhooks.rotate_all("another", BY))
    found = await postgres_store.webhooks.find(webhook.id)
    assert (WebhookState.PAUSED, 2) == (found.state, found.generation)


async def test_all_sessions_end_also_one_of_a_sign_in_under_way_and_each_is_ended_once(
    postgres_store: Store, other: psycopg.AsyncConnection
) -> None:
    sessions = postgres_store.sessions
    await sessions.create_link("link", BY)
    await other.execute("DELETE FROM petstore.console_sessions")
    await other.execute(
        "INSERT INTO petstore.console_sessions (digest, kind, actor, role, began_at, expires_at)"
        " VALUES (sha256('one'), 'session', 'operator:ada', 'admin', %s, %s)",
        (BY.at, BY.at + 60),
    )
    await commit_before(other, sessions.end_all(BY))
    assert [] == await sessions.list(BY.at)
    await sessions.create_link("link", BY)
    await sessions.sign_in("link", "token", BY.at)
    [session] = await sessions.list(BY.at)
    await other.execute("DELETE FROM petstore.console_sessions")
    with pytest.raises(SessionNotFound):
        await commit_before(other, sessions.end_one(session.id, BY))
    assert "console.end_session" not in [entry.action for entry in await log(postgres_store)]


@pytest.mark.parametrize("order_id", [1, UNASSIGNED])
async def test_an_import_waits_for_another_one_of_the_same_references(
    order_id: int, postgres_store: Store, other: psycopg.AsyncConnection
) -> None:
    orders, order = postgres_store.orders, Order(order_id, 7, reference="A", account="zoo")
    lock = find_keys([], [((await postgres_store.accounts.find("zoo")).id, "A")], NOW)
    statements: Any = next(lock)
    for query in statements:
        await other.execute(query.sql, query.parameters)
    await commit_before(other, orders.import_batch([order], "import-1", BY, by_reference=order_id == UNASSIGNED))
    assert [order._replace(id=1)] == await all_orders(postgres_store)


async def test_postgresql_looks_for_a_deadlock_before_a_wait_ends(postgres_stores: Stores) -> None:
    async with engine_of(postgres_stores) as opened:
        sql = "SELECT boot_val::integer FROM pg_settings WHERE name = 'deadlock_timeout'"
        [(looks_after,)] = await opened.query(sql)
    limits = re.findall("'(?:lock|statement)_timeout', '([0-9]+)'", transactions(Timeouts()).write.begin + BRIEFLY)
    for_lock, for_statement, for_lock_briefly = map(int, limits)
    assert looks_after < for_lock == for_lock_briefly < for_statement


async def test_changes_of_keys_and_accounts_do_not_wait_for_the_foreign_keys_of_usage(
    postgres_store: Store, other: psycopg.AsyncConnection
) -> None:
    await other.execute("SELECT 1 FROM petstore.accounts, petstore.keys FOR KEY SHARE")
    await postgres_store.keys.rotate("key_one", successor("two"), NOW, BY)
    await postgres_store.accounts.change("zoo", suspend(NOW), BY)
    await postgres_store.accounts.close_account("zoo", BY)


async def test_a_ban_reaches_the_successor_of_a_rotation_under_way(
    postgres_store: Store, other: psycopg.AsyncConnection
) -> None:
    usage = postgres_store.usage
    await usage.save({}, [Ban("key_one", 1, 2, 1)])  # an earlier ban: saving the next needs no new row
    await other.execute("SELECT 1 FROM petstore.keys FOR UPDATE")
    await other.execute(INSERT_SECOND_KEY, (api_key("two").digest, NOW, "key_one"))
    await commit_before(other, usage.save({}, [Ban("key_one", int(NOW), int(NOW) + 60, 1)]))
    assert {"key_one", "key_two"} == {ban.key_id for ban in await usage.bans() if ban.holds(NOW)}


async def test_what_a_failed_transaction_wrote_is_undone_without_its_neighbours(each_backend: Stores) -> None:
    def write(pet_id: int, error: Exception | None) -> Work[int]:
        yield Execute("INSERT INTO petstore.pets (id, record) VALUES (%s, %s)", (pet_id, "{}"))
        [(found,)] = yield Query("SELECT count(*) FROM petstore.pets WHERE id = %s", (pet_id,))
        if error is not None:
            raise error
        return int(found)

    def refused() -> Work[int]:
        yield from write(4, None)
        yield Execute("INSERT INTO petstore.pets (id, record) VALUES (4, '{}')")  # which is there already
        return 0

    async with engine_of(each_backend) as opened:
        outcomes = await asyncio.gather(
            opened.transaction(lambda: write(1, None)),
            opened.transaction(lambda: write(2, ZeroDivisionError())),
            opened.transaction(lambda: write(3, None)),
            opened.transaction(refused),
            opened.transaction(lambda: write(5, None)),
            return_exceptions=True,
        )
        assert [int, ZeroDivisionError, int] == [type(outcome) for outcome in outcomes[:3]]
        assert isinstance(outcomes[3], StatementFailed)
        assert [(1,), (3,), (5,)] == await opened.query("SELECT id FROM petstore.pets ORDER BY id")


@pytest.mark.parametrize(
    "error", [ServiceUnavailable("a secret is another one"), OSError("no space")], ids=["unavailable", "defect"]
)
async def test_what_a_transaction_raises_is_for_its_caller_only(error: Exception, store: Store) -> None:
    def work() -> Work[None]:
        yield Execute("INSERT INTO petstore.pets (id, record) VALUES (1, '{}')")
        raise error

    orders = range(200)  # more than two commits, for the second of which others wait
    await store.orders.import_batch([Order(number) for number in orders], "import", BY)
    cancels = [store.orders.change(number, CANCEL, BY) for number in orders]
    outcomes = await asyncio.gather(store.engine.transaction(work), *cancels, return_exceptions=True)
    assert [type(error), *[Order] * 200] == [type(outcome) for outcome in outcomes]
    for bulk in (False, True):
        with pytest.raises(type(error)) as raised:
            await store.engine.transaction(work, bulk=bulk)
        assert error is raised.value
    assert [] == await store.engine.query("SELECT id FROM petstore.pets")


async def test_a_commit_whose_response_was_lost_is_not_repeated(postgres_stores: Stores) -> None:
    """The commit itself ends the connection; a sequence counts the attempts, which no rollback takes back."""
    async with (
        engine_of(postgres_stores) as opened,
        await psycopg.AsyncConnection.connect(postgres_stores.url) as other,
    ):
        await other.execute("""
            CREATE SEQUENCE attempts;
            CREATE FUNCTION end_connection() RETURNS trigger LANGUAGE plpgsql AS
                'BEGIN PERFORM nextval(''attempts''), pg_terminate_backend(pg_backend_pid()); RETURN NULL; END';
            CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON petstore.pets DEFERRABLE INITIALLY DEFERRED
                FOR EACH ROW EXECUTE FUNCTION end_connection();
        """)
        await other.commit()

        def write() -> Work[None]:
            yield Execute("INSERT INTO petstore.pets (id, record) VALUES (1, '{}')")

        with pytest.raises(ServiceUnavailable):
            await opened.transaction(write)
        attempts = await (await other.execute("SELECT last_value, is_called FROM attempts")).fetchone()
    assert (1, True) == attempts


async def test_each_kind_of_method_has_its_kind_of_transaction(postgres_stores: Stores) -> None:
    """PostgreSQL ends a change with which its process does not go on."""
    names = ("transaction_read_only", "transaction_isolation", "idle_in_transaction_session_timeout", "lock_timeout")

    def settings(_: Part) -> Work[Row]:
        [row] = yield Query(f"SELECT {','.join(['current_setting(%s)'] * len(names))}", names)
        return tuple(row)

    class Settings(Part):
        change, change_many, read = transaction(settings), bulk_transaction(settings), snapshot(settings)

    async with engine_of(postgres_stores) as opened:
        shown = Settings(opened)
        change, change_many, read = await shown.change(), await shown.change_many(), await shown.read()
    assert ("off", "read committed", "5s") == change[:3] == change_many[:3]
    assert ("on", "repeatable read", "0") == read[:3]
    assert [False, True, False] == [found[3] == "29800ms" for found in (change, change_many, read)]


def test_postgresql_ends_a_statement_before_its_connection_is_broken() -> None:
    read = transactions(Timeouts(lock=0.5, statement=2.0, total=3.0)).read
    assert (2.0, 3.0) == (read.statement, read.total)
    assert read.begin.startswith(
        "SELECT set_config('lock_timeout', '500', true), set_config('statement_timeout', '1900', true),"
        " set_config('extra_float_digits', '1', true), set_config('array_nulls', 'on', true),"
        " set_config('transform_null_equals', 'off', true)"
    )


async def test_others_can_write_between_two_bulk_transactions(
    file_store: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "BULK_GAP_SECONDS", 0.2)

    def nothing() -> Work[None]:
        yield Query("SELECT 1")

    async with engine_of(file_store) as opened:
        await opened.transaction(nothing, bulk=True)
        ended = time.monotonic()
        await opened.transaction(nothing, bulk=True)
        assert time.monotonic() - ended > 0.19


def test_an_idempotency_key_is_looked_up_after_it_was_locked() -> None:
    """A request that looked first would not see the order that another host commits before the lock is taken."""
    statements = next(find_keys([(1, "one")], [], NOW))
    assert [True, False] == ["lock" in str(statement) for statement in statements]


async def test_a_snapshot_that_is_cancelled_while_it_begins_ends_its_connection_afterwards(
    file_store: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = threading.Event()

    def take_long(*_: object) -> None:
        begun.set()
        time.sleep(0.2)

    class Slow(apsw.Connection):
        """A connection on which BEGIN takes long."""

        def execute(self, statements: str, *rest: Any, **options: Any) -> apsw.Cursor:
            return super().execute("SELECT take_long()" if statements == "BEGIN" else statements, *rest, **options)

    def connect(path: Path) -> apsw.Connection:
        connection = Slow(str(path))
        connection.create_scalar_function("take_long", take_long)
        return connection

    async def read(opened: Engine) -> None:
        async with opened.snapshot():
            raise AssertionError("it has begun")

    async with engine_of(file_store) as opened:
        monkeypatch.setattr(serial, "connect_reader", connect)
        reading = asyncio.create_task(read(opened))
        assert await asyncio.to_thread(begun.wait, PATIENCE)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
