"""Finding, creating and migrating the store in PostgreSQL; every failure is one sentence that says what to do."""

import asyncio
from pathlib import Path
from queue import Empty
from typing import Any

import pytest

from petstore_server.domain.errors import StoreUnusable
from petstore_server.domain.orders import Order
from petstore_server.engines.postgres import check, migrate, open_store
from petstore_server.engines.postgres import opening as opening_module
from petstore_server.engines.postgres.opening import SCHEMA
from petstore_server.engines.schema import StoreSchema
from petstore_server.runtime.installation import require_driver
from petstore_server.settings import SettingsError
from testing.cli import CommandLine
from testing.engines import PostgresEngine
from testing.preloaded import forking
from testing.stores import BY, Stores
from testing.subprocesses import PATIENCE, free_port

pytestmark = pytest.mark.anyio


def silent(line: str) -> None:
    """Ignore the announcement."""


def opening(url: str, *, create: bool = False, upgrade: bool = False) -> list[str]:
    """Open and close the store; return what was announced."""
    lines: list[str] = []

    async def run() -> None:
        await (await open_store(url, lines.append, create=create, upgrade=upgrade)).close()

    asyncio.run(run())
    return lines


def refusal(url: str, *, create: bool = False, upgrade: bool = False) -> str:
    """The one line with which opening is refused."""
    with pytest.raises(StoreUnusable) as caught:
        opening(url, create=create, upgrade=upgrade)
    assert "\n" not in caught.value.message
    return caught.value.message


def name_of(stores: Stores) -> str:
    return stores.url.rpartition("/")[2]


def test_a_missing_store_is_created_and_announced_once(postgres_stores: Stores) -> None:
    assert opening(postgres_stores.url, create=True) == [
        f"Created a new store in the database {name_of(postgres_stores)} on 127.0.0.1."
    ]
    assert opening(postgres_stores.url, create=True, upgrade=True) == []


def test_a_missing_store_is_not_made_by_those_who_only_read(postgres_stores: Stores, postgres: PostgresEngine) -> None:
    message = refusal(postgres_stores.url, upgrade=False)
    assert f"There is no store in the database {name_of(postgres_stores)}" in message
    with postgres.admin(name_of(postgres_stores)) as admin:
        assert [(None,)] == admin.execute("SELECT to_regnamespace('petstore')").fetchall()


def test_migrating_again_changes_nothing(postgres_stores: Stores) -> None:
    assert asyncio.run(migrate(postgres_stores.url, silent)) == (0, SCHEMA.latest)
    assert asyncio.run(migrate(postgres_stores.url, silent)) == (SCHEMA.latest, SCHEMA.latest)


def test_a_store_of_an_earlier_build_is_refused_and_not_touched(
    postgres_stores: Stores, postgres: PostgresEngine
) -> None:
    with postgres.admin(name_of(postgres_stores)) as admin:
        admin.execute("CREATE SCHEMA petstore")
        admin.execute("CREATE TABLE petstore.store (one integer, schema_version integer)")
        admin.execute("INSERT INTO petstore.store VALUES (1, 9)")
        for message in (
            refusal(postgres_stores.url, create=True, upgrade=True),
            refusal(postgres_stores.url),
        ):
            assert "before 1.0.0" in message
            assert "Export its orders with that build" in message
        assert [(1, 9)] == admin.execute("SELECT * FROM petstore.store").fetchall()
        assert [("store",)] == admin.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'petstore'").fetchall()


def test_no_program_sees_a_store_between_two_migrations(
    postgres_stores: Stores, postgres: PostgresEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = tmp_path / "0002_broken.sql"
    second.write_text("SELECT * FROM missing")
    schema = StoreSchema("postgres")
    monkeypatch.setitem(schema._files, 2, second)
    monkeypatch.setattr(opening_module, "SCHEMA", schema)
    refusal(postgres_stores.url, create=True)
    with postgres.admin(name_of(postgres_stores)) as admin:
        assert [(None,)] == admin.execute("SELECT to_regnamespace('petstore')").fetchall()
        second.write_text("CREATE TABLE petstore.added (one integer)")
        assert asyncio.run(migrate(postgres_stores.url, silent))[0] == 0
        assert [(2,)] == admin.execute("SELECT schema_version FROM petstore.store").fetchall()


def test_a_store_of_a_newer_program_is_refused(postgres_stores: Stores, postgres: PostgresEngine) -> None:
    opening(postgres_stores.url, create=True)
    with postgres.admin(name_of(postgres_stores)) as admin:
        admin.execute("UPDATE petstore.store SET schema_version = %s", (SCHEMA.latest + 1,))
    message = refusal(postgres_stores.url, create=True, upgrade=True)
    assert f"version {SCHEMA.latest + 1}" in message
    assert "update" in message


def test_what_cannot_be_reached_is_named_without_the_password(postgres: PostgresEngine) -> None:
    message = refusal("postgresql://postgres:secret@127.0.0.1:1/store", create=True)
    assert "refused" in message
    assert "secret" not in message
    message = refusal(postgres.url("nowhere"), create=True)
    assert 'database "nowhere" does not exist' in message
    assert "malformed host name" in refusal("postgresql://postgres:secret@host..example/store", create=True)


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("sslmod=require", "has an unknown parameter, sslmod."),
        ("sslmode=require&pasword=SECRET", "has an unknown parameter, pasword."),
        ("sslmode=require&SECRET=x", "is not a URL that PostgreSQL accepts."),
        ("password=SECRET&w0rd", "is not a URL that PostgreSQL accepts."),
        ("password=SECRET&word", "is not a URL that PostgreSQL accepts."),
        ("SECRET", "is not a URL that PostgreSQL accepts."),
        ("password=SECRET=x", "is not a URL that PostgreSQL accepts."),
    ],
)
def test_a_url_that_libpq_does_not_accept_is_a_bad_setting(query: str, problem: str, tmp_path: Path) -> None:
    petstore, url = CommandLine(tmp_path / "unused.db"), f"postgresql://u:SECRET@127.0.0.1:1/db?{query}"
    for command in (("accounts", "list"), ("db", "migrate"), ("db", "check"), ("keys", "list")):
        done = petstore(*command, PETSTORE_DATABASE_URL=url)
        assert (2, f"petstore: PETSTORE_DATABASE_URL {problem}\n") == (done.code, done.err)
    done = petstore("doctor", PETSTORE_DATABASE_URL=url, PETSTORE_REDIS_URL="redis://127.0.0.1:1/0")
    assert problem in " ".join(done.out.split())
    assert "SECRET" not in done.out + done.err
    petstore.must("db", "migrate")
    done = petstore("db", "copy", "--to", url)
    assert (2, f"petstore: --to {problem}\n") == (done.code, done.err)


def test_a_user_without_rights_is_refused_with_the_reason(postgres_stores: Stores, postgres: PostgresEngine) -> None:
    with postgres.admin() as admin:
        admin.execute("CREATE ROLE clerk LOGIN")
    try:
        message = refusal(postgres_stores.url.replace("postgres@", "clerk@"), create=True)
        assert "privilege" in message
    finally:
        with postgres.admin() as admin:
            admin.execute("DROP ROLE clerk")


def _migrate_at_once(url: str, begin: Any, reports: Any) -> None:
    begin.wait()
    try:
        reports.put((asyncio.run(migrate(url, reports.put)), None))
    except StoreUnusable as error:
        reports.put((None, error.message))


def test_hosts_that_start_together_migrate_once(postgres_stores: Stores) -> None:
    begin, reports = forking().Barrier(4), forking().Queue()
    processes = [
        forking().Process(target=_migrate_at_once, args=(postgres_stores.url, begin, reports)) for _ in range(4)
    ]
    for process in processes:
        process.start()
    heard = [reports.get(timeout=PATIENCE) for _ in range(5)]
    for process in processes:
        process.join()
    with pytest.raises(Empty):
        reports.get(timeout=0.05)
    assert 1 == sum(isinstance(one, str) for one in heard)
    results = [one for one in heard if isinstance(one, tuple)]
    assert [((0, SCHEMA.latest), None)] == [one for one in results if one[0][0] == 0]
    assert [(SCHEMA.latest, None)] * 4 == [(versions[1], error) for versions, error in results]


_RECORD = '{"id":1,"petId":9223372036854775807,"quantity":3,"shipDate":"2026-11-01T00:00:00Z","complete":true}'


async def test_orders_can_be_looked_at_with_an_sql_shell(postgres_stores: Stores, postgres: PostgresEngine) -> None:
    async with postgres_stores.opened() as store:
        await store.orders.import_batch([Order(1, 2**63 - 1, 3, "2026-11-01T00:00:00Z", True), Order(2)], "i", BY)
    with postgres.admin(name_of(postgres_stores)) as admin:
        columns = "id, status, pet_id, complete, ship_date, placed, record"
        assert admin.execute(f"SELECT {columns} FROM petstore.orders ORDER BY id").fetchall() == [
            (1, "pending", 2**63 - 1, 1, 1793491200000000, 0, _RECORD),
            (2, "pending", None, 0, None, 0, '{"id":2}'),
        ]


def test_a_check_names_the_orders_that_are_not_as_the_service_writes_them(
    postgres_stores: Stores, postgres: PostgresEngine
) -> None:
    async def run() -> None:
        async with postgres_stores.opened() as store:
            await store.orders.import_batch([Order(number) for number in range(3)], "i", BY)

    asyncio.run(run())
    assert asyncio.run(check(postgres_stores.url)) == []
    with postgres.admin(name_of(postgres_stores)) as admin:
        admin.execute("""UPDATE petstore.orders SET record = '{"id": 1}' WHERE id = 1""")
        admin.execute("""UPDATE petstore.orders SET record = '{"id":7}' WHERE id = 2""")
    assert asyncio.run(check(postgres_stores.url)) == [
        "Order 1 has a record in another form than the service writes.",
        "Order 2 has a record that names order 7.",
    ]


def test_the_command_line_works_on_it(postgres_stores: Stores, tmp_path: Path) -> None:
    petstore = CommandLine(tmp_path / "unused.db")
    url = {"PETSTORE_DATABASE_URL": postgres_stores.url}
    assert 1 == petstore("accounts", "list", **url).code
    assert {"before": 0, "after": SCHEMA.latest} == petstore.must("db", "migrate", "--json", **url).json()
    petstore.must("accounts", "create", "acme", "--plan", "free", **url)
    key = petstore.must("keys", "create", "acme", "--json", **url).json()
    assert key["id"] == petstore.must("keys", "list", "--json", **url).json()[0]["id"]
    rows = "".join(f'{{"id":{number}}}\n' for number in range(10))
    petstore.must("orders", "import", "-", "--format", "jsonl", stdin=rows, **url)
    petstore.must("orders", "ship", "1", "2", **url)
    exported = petstore.must("orders", "export", "-", "--format", "jsonl", **url).json_lines()
    assert ["shipped", "shipped"] == [order["status"] for order in exported[1:3]]
    assert petstore.must("db", "check", "--json", **url).json()["sound"]
    assert 5 <= len(petstore.must("audit", "--json", **url).json_lines())
    for command in (("db", "backup", str(tmp_path / "b.db")), ("db", "restore", str(tmp_path), "--yes")):
        done = petstore(*command, **url)
        assert 2 == done.code
    assert not (tmp_path / "unused.db").exists()
    done = petstore("db", "backup", str(tmp_path / "b.db"), **url)
    assert "pg_dump" in done.err


def test_without_the_driver_the_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(SettingsError, match=r"requirements/scale-out\.lock"):
        require_driver("postgresql://host/db")


def test_each_host_of_the_url_is_named_with_its_own_cause(postgres_stores: Stores, postgres: PostgresEngine) -> None:
    """The last one is a standby that is down: a line with its cause only would hide the first one's, which matters."""
    ports = f"{postgres.port},{free_port()},{free_port()}"
    hosts = "127.0.0.1,127.0.0.2,no-host.invalid"
    message = refusal(f"postgresql://stranger@{hosts}/{name_of(postgres_stores)}?port={ports}")
    assert '127.0.0.1: FATAL:  role "stranger" does not exist; 127.0.0.2: Connection refused' in message
    assert "failed to resolve host 'no-host.invalid'" in message
