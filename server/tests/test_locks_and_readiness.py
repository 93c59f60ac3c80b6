"""Readiness agrees with what partners get while another program keeps a part of the store from the service (D19)."""

import asyncio
import itertools
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psycopg
import pytest

from petstore_server import deadlines
from petstore_server import store as store_module
from petstore_server.domain.accounts import Plan
from petstore_server.domain.keys import DEFAULT_SCOPES, Scope
from petstore_server.domain.lists import Filters, PageQuery, Sort
from petstore_server.domain.orders import CANCEL, Order
from petstore_server.domain.placements import Placement
from petstore_server.runtime.background import run_tasks
from petstore_server.store import Store
from testing.cli import CommandLine
from testing.deployment import Deployment
from testing.engines import PostgresEngine
from testing.service import UNLIMITED, Service, bearer, running
from testing.stores import BY, Stores, add_key, reason, write_locked
from testing.subprocesses import PATIENCE, PATIENT, busy, within

MODES = ("SHARE", "SHARE ROW EXCLUSIVE", "EXCLUSIVE", "ACCESS EXCLUSIVE")
PLACED = {"petId": 1, "quantity": 1}
MAIN = ("list", "page", "get", "changes", "cancel", "place")
"""The operations without which the service is not ready."""
_ORDERS = range(1, 61)  # each is cancelled once; a longer list takes longer to compare with the contract
_LIMIT = PageQuery(Filters(), Sort(), 5)
USES: tuple[Callable[[Store], Awaitable[object]], ...] = (
    lambda store: store.orders.change(1, CANCEL, BY),
    lambda store: store.orders.place(Placement(1, "key", 1, 1, None), BY),
    lambda store: store.orders.import_batch([Order(7)], "import:2", BY),
    lambda store: store.orders.last_identifier(),
    lambda store: store.listing.current(),
    lambda store: store.search.change_clock(),
    lambda store: store.search.page(_LIMIT),
    lambda store: store.access_version(),
    lambda store: store.audit.record_backup("backup", BY),
    lambda store: store.audit.last_backup(),
    lambda store: store.check(),
    add_key,
    lambda store: store.engine.damage.save(None),
)
"""What reads or writes the tables that have one row."""

ACTIVE = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"


@pytest.fixture(name="unhurried")
def _unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A statement waits for a lock briefly, and for a busy processor as long as that takes."""
    monkeypatch.setattr(store_module, "_PROBED_SECONDS", 0.0)
    monkeypatch.setattr(deadlines, "TIMEOUTS", PATIENT._replace(lock=0.2))


Calls = dict[str, Callable[[], Awaitable[int]]]
"""Operations by name; each returns the status of a response."""


def calls_of(service: Service, known: str, unknown: str) -> Calls:
    """Those of a partner whose key is known, and one of a partner whose key is not."""
    orders, keys = iter(_ORDERS), itertools.count(1)

    async def ask(
        method: str, path: str, key: str = known, header: Mapping[str, str] = MappingProxyType({}), **more: Any
    ) -> int:
        return (await service.client.request(method, path, headers=bearer(key, **header), **more)).status_code

    return {
        "list": partial(ask, "GET", "/v1/store/orders"),
        "page": partial(ask, "GET", "/v2/store/orders?limit=2"),
        "get": partial(ask, "GET", "/v2/store/orders/1"),
        "changes": partial(ask, "GET", "/v2/store/changes?limit=2"),
        "cancel": lambda: ask("DELETE", f"/v1/store/orders/{next(orders)}"),
        "place": lambda: ask("POST", "/v2/store/orders", header={"Idempotency-Key": f"{next(keys)}"}, json=PLACED),
        "usage": partial(ask, "GET", "/v2/usage"),
        "pet": partial(ask, "GET", "/v1/pets/1"),
        "new key": partial(ask, "GET", "/v2/store/orders/1", unknown),
    }


async def failing(calls: Calls) -> list[str]:
    """The operations that get 503, and get it again: one that only met another one succeeds then."""

    async def fails(call: Callable[[], Awaitable[int]]) -> bool:
        return await call() == 503 and await call() == 503

    return list(itertools.compress(calls, await asyncio.gather(*map(fails, calls.values()))))


@asynccontextmanager
async def serving_partners(settings: dict[str, str]) -> AsyncIterator[tuple[Service, Calls]]:
    """The service with its background tasks, and the calls of its partners, whose requests were served before."""
    async with running(Deployment(Path("unused"), settings)) as service:
        account = await service.account(Plan.ENTERPRISE, UNLIMITED)
        scopes = DEFAULT_SCOPES | {Scope.ORDERS_WRITE}
        known, unknown = await service.key(account, scopes=scopes), await service.key(account)
        await service.orders(*map(Order, _ORDERS))
        await service.background_round()  # learns of the keys
        tasks = asyncio.create_task(run_tasks(service.application.background))
        try:
            yield service, calls_of(service, known, unknown)
        finally:
            tasks.cancel()
            with suppress(asyncio.CancelledError):
                await tasks


async def difference(service: Service, calls: Calls, name: str) -> str:
    """How readiness differs from what partners get while `name` is kept from the service; empty if it does not."""
    failed = await failing(calls)
    ready, detail = await service.application.readiness()
    shown = f"{failed}: {ready} {detail}"
    if ready == any(call in MAIN for call in failed) or (ready and failed and detail["status"] != "degraded"):
        return shown
    return f"the cause is not named: {shown}" if failed and name not in detail["reason"] else ""


async def differences(
    settings: dict[str, str], hidden: Mapping[str, tuple[str, Callable[[], AbstractContextManager[object]]]]
) -> dict[str, str]:
    """What `difference` finds for each of several things that are kept from the service, with the name of its table."""
    found = {}
    async with serving_partners(settings) as (service, calls):
        for label, (name, hide) in hidden.items():
            service.application.authenticator.confirm(changed=True)  # forgets all keys
            await calls["list"]()
            with hide():
                found[label] = await difference(service, calls, name)
    return {label: text for label, text in found.items() if text}


@contextmanager
def holding(url: str, statement: str) -> Iterator[None]:
    """Another program is in a transaction that has executed the statement."""
    with psycopg.connect(url) as other:
        other.execute(statement.encode())
        yield
        other.rollback()


def tables(url: str) -> list[str]:
    """All tables of the store."""
    with psycopg.connect(url) as database:
        names = "SELECT relname FROM pg_class WHERE relnamespace = 'petstore'::regnamespace AND relkind = 'r'"
        return sorted(name for (name,) in database.execute(names))


@pytest.mark.parametrize("mode", MODES)
async def test_readiness_agrees_with_what_partners_get_while_a_table_is_locked(
    mode: str, scaled_out: dict[str, str]
) -> None:
    url = scaled_out["PETSTORE_DATABASE_URL"]
    locks = {
        table: (table, partial(holding, url, f"LOCK TABLE petstore.{table} IN {mode} MODE")) for table in tables(url)
    }
    assert {} == await differences(scaled_out, locks)


@pytest.mark.parametrize("table", ["accounts", "api_use", "usage_history", "webhooks"])
async def test_what_reads_much_waits_for_a_lock_no_longer_than_a_request_does(
    table: str, postgres_stores: Stores
) -> None:
    """Otherwise metrics come too late for Prometheus, a worker does not respond, and deliveries look stalled."""
    async with postgres_stores.opened() as store:
        reads: dict[str, Callable[[], Awaitable[object]]] = {
            "accounts": store.accounts.list,
            "api_use": partial(store.usage.users, 0.0),
            "usage_history": partial(store.usage.totals, 0, 1),
            "webhooks": store.webhooks.summary,
        }
        with holding(postgres_stores.url, f"LOCK TABLE petstore.{table} IN ACCESS EXCLUSIVE MODE"):
            began = time.monotonic()
            assert f"locked: petstore.{table}" in await reason(reads[table]())
            assert time.monotonic() - began < 2.0 + busy()


async def test_readiness_agrees_with_what_partners_get_while_a_row_is_locked(scaled_out: dict[str, str]) -> None:
    url = scaled_out["PETSTORE_DATABASE_URL"]
    locks = {
        table: (table, partial(holding, url, f"SELECT 1 FROM petstore.{table} FOR UPDATE"))
        for table in ("clock", "store", "accounts", "keys")
    }
    assert {} == await differences(scaled_out, locks)


async def test_readiness_agrees_with_what_partners_get_while_a_privilege_is_missing(
    scaled_out: dict[str, str], postgres: PostgresEngine
) -> None:
    url, user = scaled_out["PETSTORE_DATABASE_URL"], f"service_{os.getpid()}"
    own = {**scaled_out, "PETSTORE_DATABASE_URL": url.replace("//postgres@", f"//{user}@")}

    @contextmanager
    def revoked(privilege: str, table: str) -> Iterator[None]:
        admin.execute(f"REVOKE {privilege} ON petstore.{table} FROM {user}".encode())
        yield
        admin.execute(f"GRANT {privilege} ON petstore.{table} TO {user}".encode())

    with postgres.admin(url.rpartition("/")[2]) as admin:
        admin.execute(f"CREATE ROLE {user} LOGIN; GRANT USAGE ON SCHEMA petstore TO {user}".encode())
        everything = f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA petstore TO {user}"
        admin.execute(everything.encode())
        try:
            privileges = {
                f"{privilege} {table}": (table, partial(revoked, privilege, table))
                for table in ("orders", "audit", "idempotency_keys", "clock", "keys", "accounts", "pets", "bans")
                for privilege in ("SELECT", "INSERT", "UPDATE")
            }
            assert {} == await differences(own, privileges)
        finally:
            admin.execute(f"DROP OWNED BY {user}; DROP ROLE {user}".encode())


async def test_a_probe_changes_nothing_and_leaves_no_row_behind(scaled_out: dict[str, str]) -> None:
    versions = "SELECT clock.*, clock.ctid, store.*, store.ctid FROM petstore.clock, petstore.store"
    async with running(Deployment(Path("unused"), scaled_out)) as service:
        with psycopg.connect(scaled_out["PETSTORE_DATABASE_URL"], autocommit=True) as database:
            before = database.execute(versions).fetchall()
            for _ in range(5):
                assert (True, {"status": "ok"}) == await service.application.readiness()
            assert before == database.execute(versions).fetchall()


async def test_a_store_that_can_be_changed_is_probed_once_a_second_at_most(
    postgres_stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "_PROBED_SECONDS", PATIENCE)
    async with postgres_stores.opened() as store:
        asked: list[str] = []
        query = store.engine.query

        async def noted(sql: str, *others: Any) -> Any:
            asked.append(sql)
            return await query(sql, *others)

        monkeypatch.setattr(store.engine, "query", noted)
        for _ in range(3):
            await store.check()
    assert 1 == asked.count(store.engine.dialect.probe)


async def test_a_statement_on_a_table_of_one_row_reads_it_by_its_key(postgres_stores: Stores) -> None:
    """A table that has grown while another program held a snapshot is not read in full by each request."""
    url = postgres_stores.url
    scans = "SELECT sum(seq_scan) FROM pg_stat_user_tables WHERE relname IN ('clock', 'store')"
    async with postgres_stores.opened() as store:
        await store.orders.import_batch([Order(1), Order(2)], "import:1", BY)
    with psycopg.connect(url) as snapshot, psycopg.connect(url, autocommit=True) as database:
        snapshot.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        snapshot.execute("SELECT 1 FROM petstore.orders")
        for statement in ("clock SET change = change + 1", "store SET heartbeat = heartbeat + 1"):
            grow = f"FOR i IN 1..4000 LOOP UPDATE petstore.{statement} WHERE one = 1; END LOOP"
            database.execute(f"DO $$ BEGIN {grow}; END $$".encode())
    with psycopg.connect(url, autocommit=True) as database:
        within(PATIENCE, lambda: database.execute(ACTIVE).fetchall() == [(0,)])
        before = database.execute(scans).fetchall()
        async with postgres_stores.opened() as store:
            for use in USES:
                await use(store)
        within(PATIENCE, lambda: database.execute(ACTIVE).fetchall() == [(0,)])  # what they counted is reported then
        assert before == database.execute(scans).fetchall()


@pytest.mark.parametrize("table", ["clock", "health", "usage", "keys"])
def test_an_operator_can_sign_in_while_a_table_is_locked_that_this_does_not_need(
    table: str, cli: CommandLine, scaled_out: dict[str, str]
) -> None:
    with holding(scaled_out["PETSTORE_DATABASE_URL"], f"LOCK TABLE petstore.{table} IN ACCESS EXCLUSIVE MODE"):
        assert "/console/sign-in?token=" in cli.must("console", **scaled_out).out


@pytest.mark.parametrize("table", ["audit", "console_sessions", "store"])
def test_a_command_names_the_table_that_is_locked(table: str, cli: CommandLine, scaled_out: dict[str, str]) -> None:
    with holding(scaled_out["PETSTORE_DATABASE_URL"], f"LOCK TABLE petstore.{table} IN ACCESS EXCLUSIVE MODE"):
        refused = cli("console", **scaled_out)
    assert (1, True) == (refused.code, f"locked: petstore.{table}" in refused.err)


async def test_another_program_that_keeps_the_file_locked_is_the_reported_reason(tmp_path: Path) -> None:
    async with running(Deployment(tmp_path / "store.db")) as service:
        assert (True, {"status": "ok"}) == await service.application.readiness()
        with write_locked(tmp_path / "store.db"):
            ready, detail = await service.application.readiness()
        assert (False, True) == (ready, "another program keeps it locked" in detail["reason"])
