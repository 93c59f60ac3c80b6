"""PostgreSQL as it is deployed: Debian's 15, over TLS, and behind pgbouncer in transaction mode."""

import asyncio
import os
import socket
import subprocess
import time
from collections.abc import Awaitable, Iterator
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

from petstore_server.domain.errors import OrderAlreadyCancelled, ServiceUnavailable
from petstore_server.domain.keys import Environment
from petstore_server.domain.lists import Filters, PageQuery, Sort, SortField
from petstore_server.domain.orders import CANCEL, Order, Status
from petstore_server.domain.pets import Pet
from petstore_server.domain.placements import Placement
from petstore_server.engines.postgres import check, migrate
from petstore_server.engines.postgres.opening import SCHEMA
from testing import needs
from testing.documents import ROOT, block
from testing.engines import PostgresEngine, running_engine
from testing.nginx_front import make_certificate
from testing.postgres_programs import SERVER_USER
from testing.search_model import SORTS
from testing.stores import BY, PostgresPlaces, add_key, body, log, opened_at, refusal, seconds_to_recovery
from testing.subprocesses import PATIENCE, busy, free_port

pytestmark = pytest.mark.system

PROGRAMS = Path("/usr/lib/postgresql/15/bin")
_POOLER = """
[databases]
* = host=127.0.0.1 port={server}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {users}
pool_mode = transaction
default_pool_size = 4
server_login_retry = 1
server_reset_query =
"""

_QUERIES = [
    PageQuery(Filters(), Sort()),
    PageQuery(Filters(complete=False), Sort(SortField.UPDATED_AT, descending=True)),
    PageQuery(Filters(frozenset({Status.CANCELLED}), pet_id=1), Sort(SortField.SHIP_DATE)),
]


@pytest.fixture(name="certificate", scope="module")
def _certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    make_certificate(folder)
    return folder / "fullchain.pem"


@pytest.fixture(name="debian", scope="module")
def _debian(certificate: Path) -> Iterator[PostgresEngine]:
    """Debian's PostgreSQL 15, which accepts TLS."""
    engine = PostgresEngine(PROGRAMS, {"ssl": "on", "ssl_cert_file": "cert", "ssl_key_file": "key"})
    try:
        engine.keep(certificate, "cert")
        engine.keep(certificate.with_name("privkey.pem"), "key")
        engine.start()
        yield engine
    finally:
        engine.remove()


@pytest.fixture(name="places")
def _places(debian: PostgresEngine, unhurried: None) -> PostgresPlaces:
    """Databases that stay until the server ends: the pooler keeps connections to them."""
    return PostgresPlaces(debian)


@pytest.fixture(name="pooler")
def _pooler(debian: PostgresEngine, tmp_path: Path) -> Iterator[int]:
    """The port of a pgbouncer that gives each transaction one of four connections."""
    program = needs.program("pgbouncer")
    port = free_port()
    folder = debian.folder / f"pooler-{port}"
    folder.mkdir()
    (folder / "users").write_text('"postgres" ""\n')
    (folder / "settings").write_text(_POOLER.format(server=debian.port, port=port, users=folder / "users"))
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen([program, folder / "settings"], stderr=log, user=SERVER_USER, group=SERVER_USER)
    for _ in range(200):
        with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            break
        time.sleep(0.02)
    yield port
    process.terminate()
    process.wait(timeout=PATIENCE)


async def _work_through(url: str) -> None:
    """Two hosts use one store in every way at once."""
    async with opened_at(url) as one, opened_at(url) as other:
        orders = [Order(number, 1, 1, "2026-11-01T00:00:00Z", False) for number in range(4_000)]
        await one.orders.import_batch(orders, "import:1", BY)
        key = await add_key(one)
        asked = [store.keys.principal(key.digest, Environment.PRODUCTION, 1.0) for store in [one, other] * 50]
        assert all(await asyncio.gather(*asked))
        await other.pets.import_batch([Pet(1, "Ada")], "import:2", BY)
        responses = await asyncio.gather(
            *(store.orders.change(number, CANCEL, BY) for number in range(200) for store in (one, other)),
            *(store.listing.current() for store in (one, other) for _ in range(20)),
            *(store.search.page(query) for store in (one, other) for query in _QUERIES),
            *(one.orders.place(Placement(1, f"one-{number}", 1, 1, None), BY) for number in range(10)),
            *(other.orders.place(Placement(1, f"other-{number}", 1, 1, None), BY) for number in range(10)),
            *(store.orders.find(number) for store in (one, other) for number in range(20)),
            return_exceptions=True,
        )
        for kind in (Order, OrderAlreadyCancelled):
            assert 200 == sum(isinstance(response, kind) for response in responses[:400])
        assert not any(isinstance(response, Exception) for response in responses[400:])
        for number in range(5_000, 5_050):
            await one.orders.import_batch([Order(number)], "import:3", BY)
            assert f'{{"id":{number}}}'.encode() in await body(other)
        assert 4_070 == sum([len(batch) async for batch in other.orders.scan(batch_size=500)])
        assert 200 == [entry.action for entry in await log(one)].count("order.cancel")
        await asyncio.gather(one.check(), other.check(), one.access_version(), other.access_version())
    psycopg.connect(url, autocommit=True).execute("CREATE EXTENSION amcheck").connection.close()
    assert ([], True) == await check(url)


def test_debians_postgresql_carries_a_store(places: PostgresPlaces) -> None:
    asyncio.run(_work_through(places.new()))


def test_a_pooler_in_transaction_mode_may_stand_before_it(places: PostgresPlaces, pooler: int) -> None:
    direct = places.new()
    name = direct.rpartition("/")[2]
    asyncio.run(_work_through(f"postgresql://postgres@127.0.0.1:{pooler}/{name}"))
    assert len(places.connections()) <= 4


def test_behind_a_pooler_the_service_recovers_as_quickly_as_without(
    debian: PostgresEngine, places: PostgresPlaces, pooler: int
) -> None:
    name = places.new().rpartition("/")[2]

    async def run() -> float:
        async with opened_at(f"postgresql://postgres@127.0.0.1:{pooler}/{name}") as store:
            await asyncio.to_thread(debian.stop)
            for _ in range(4):  # the pooler finds that it cannot connect
                with pytest.raises(ServiceUnavailable):
                    await store.check()
            await asyncio.to_thread(debian.start)
            return await seconds_to_recovery(store)

    assert asyncio.run(run()) < 5 + busy()


def test_no_statement_of_a_page_is_compiled_though_jit_is_on() -> None:
    """Debian's PostgreSQL compiles expensive statements, which takes longer than to run those of a page."""
    logged = {"session_preload_libraries": "auto_explain", "auto_explain.log_min_duration": "0"}
    filters = [
        Filters(),
        Filters(pet_id=1),
        Filters(complete=False),
        Filters(frozenset({Status.PENDING, Status.SHIPPED})),
        Filters(frozenset({Status.CANCELLED}), pet_id=1),
    ]
    queries = [PageQuery(each, sort) for each in filters for sort in SORTS]

    async def pages(engine: PostgresEngine) -> list[float]:
        async with opened_at(engine.url("postgres")) as store:
            orders = [Order(number, number % 50, 1, "2026-11-01T00:00:00Z", False) for number in range(4_000)]
            await store.orders.import_batch(orders, "import:1", BY)
            return await asyncio.gather(*(_seconds(store.search.page(query)) for query in queries))

    with running_engine(PROGRAMS, {**logged, "auto_explain.log_analyze": "on"}) as engine:
        with engine.admin() as admin:
            assert [("on", True)] == admin.execute("SELECT current_setting('jit'), pg_jit_available()").fetchall()
        seconds = asyncio.run(pages(engine))
        log = (engine.folder / "log").read_text()
        with engine.admin() as admin:  # what a compiled statement looks like in the log
            admin.execute("SET jit_above_cost = 0")
            admin.execute("SELECT count(*) FROM petstore.orders")
        assert "JIT:" in (engine.folder / "log").read_text()[len(log) :]
    assert len(seconds) >= 24  # at the same time
    assert max(seconds) < 1 + busy()
    assert log.count("Query Text:") > len(seconds)
    assert "JIT:" not in log


async def _seconds(work: Awaitable[object]) -> float:
    begun = time.perf_counter()
    await work
    return time.perf_counter() - begun


def test_the_parameters_of_tls_are_taken_from_the_url(
    places: PostgresPlaces, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = places.new()
    trusted = f"{url}?sslmode=verify-full&sslrootcert={certificate}"

    async def run() -> None:
        async with opened_at(trusted) as store:
            await store.orders.import_batch([Order(1)], "import:1", BY)
            with psycopg.connect(url, autocommit=True) as looker:
                name = url.rpartition("/")[2]
                found = looker.execute(
                    "SELECT count(*) FILTER (WHERE NOT ssl), count(*)"
                    " FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)"
                    " WHERE datname = %s AND application_name = 'petstore'",
                    (name,),
                ).fetchall()
            assert 0 == found[0][0]
            assert 1 <= found[0][1]

    asyncio.run(run())
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))  # as the image sets it
    asyncio.run(check(f"{url}?sslrootcert=system"))
    assert refusal(f"{url}?sslmode=verify-full&sslrootcert={certificate.parent / 'missing'}", create=True, upgrade=True)


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
def test_a_store_of_the_first_release_leaves_a_database_in_another_encoding(encoding: str, tmp_path: Path) -> None:
    """By the commands of the document, with what another program has written to it."""
    document = ROOT / "docs" / "operating.md"
    commands, statements = block(document, "encoding", "sh"), block(document, "bytes", "sql")
    with running_engine(PROGRAMS) as engine:
        with engine.admin() as admin:
            admin.execute("CREATE ROLE petstore LOGIN")
            admin.execute(
                f"CREATE DATABASE petstore_old OWNER petstore TEMPLATE template0 ENCODING '{encoding}' LOCALE 'C'"
            )
        with engine.admin("petstore_old") as old:
            old.execute(SCHEMA.missing(0)[0].encode())
            add = "INSERT INTO petstore.orders SELECT %s, 'pending', NULL, 0, NULL, 1, 1, 1, 0, %s, NULL, %s"
            old.execute(add, (6, "Käse", '{"id":6}'))
            old.execute(add, (7, "Käse", '{"id":7}'))
            if encoding == "SQL_ASCII":
                latin1 = "UPDATE petstore.orders SET reference = convert_from('\\x4be47365', 'SQL_ASCII') WHERE id = 7"
                old.execute(latin1.encode())
        environment = {**os.environ, "PGHOST": "127.0.0.1", "PGPORT": str(engine.port), "PGUSER": "postgres"}

        def shell(script: str) -> subprocess.CompletedProcess[str]:
            command = ["sh", "-euc", script]
            return subprocess.run(
                command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=PATIENCE
            )

        if encoding == "SQL_ASCII":
            failed = shell(commands)
            assert (1, True, True) == (failed.returncode, "invalid byte" in failed.stderr, '"orders"' in failed.stderr)
            (tmp_path / "statements.sql").write_text(statements)
            assert "order 7\n" in (told := shell("psql --dbname=petstore_old --file=statements.sql").stderr), told
            assert "order 6\n" not in told
        done = shell(commands)
        assert 0 == done.returncode, done.stderr
        with engine.admin("petstore") as new:
            rows = new.execute("SELECT reference FROM petstore.orders ORDER BY id").fetchall()
            assert [("Käse",), ("Käse",)] == rows
        asyncio.run(migrate(engine.url("petstore")))
        assert ([], False) == asyncio.run(check(engine.url("petstore")))
