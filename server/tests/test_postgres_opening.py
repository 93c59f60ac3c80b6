"""Finding, creating and migrating the store in PostgreSQL; every failure is one sentence that says what to do."""

import asyncio
import os
import re
from contextlib import nullcontext, suppress
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import AsyncMock

import psycopg
import pytest

from petstore_server.domain.errors import StoreUnusable
from petstore_server.domain.orders import CANCEL, Order
from petstore_server.engines.postgres import check, migrate, opening
from petstore_server.engines.postgres.timelines import Timelines
from petstore_server.engines.schema import StoreSchema
from petstore_server.runtime.backend import opened_backend
from petstore_server.runtime.opening import redis_counters, require_driver
from petstore_server.settings import SettingsError, read_settings
from petstore_server.store.damage import DAMAGED
from testing.cli import CommandLine
from testing.damage import add_amcheck, execute, set_record
from testing.engines import PostgresEngine
from testing.first_release import make_store
from testing.redis_engine import shared_redis
from testing.stores import BY, Stores, add_key, refusal
from testing.stores import opening as opening_of_store
from testing.subprocesses import free_port
from testing.webhooks import server_tls

MALFORMED = ("sslmode=require&SECRET=x", "password=SECRET&w0rd", "password=SECRET&word", "SECRET", "password=SECRET=x")


def test_what_cannot_be_reached_is_named_without_the_password(postgres: PostgresEngine) -> None:
    message = refusal("postgresql://postgres:secret@127.0.0.1:1/store", create=True)
    assert "refused" in message
    assert "secret" not in message
    message = refusal(postgres.url("nowhere"), create=True)
    assert 'database "nowhere" does not exist' in message
    assert "malformed host name" in refusal("postgresql://postgres:secret@host..example/store", create=True)


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
def test_a_database_in_another_encoding_is_refused_with_the_command_that_makes_one(
    encoding: str, postgres: PostgresEngine, postgres_stores: Stores, tmp_path: Path
) -> None:
    name = f"encoded_{os.getpid()}"
    with postgres.admin() as admin:
        admin.execute(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING '{encoding}' LOCALE 'C'")
        try:
            url = postgres.url(name)
            message = refusal(url, create=True)
            assert message.startswith(f"The encoding of the database {name} on 127.0.0.1 is {encoding}, ")
            settings = {"PETSTORE_DATABASE_URL": url, "PETSTORE_REDIS_URL": shared_redis().empty()}

            async def serve() -> None:
                async with opened_backend(read_settings(settings), lambda: 1.0):
                    pass

            with pytest.raises(StoreUnusable, match="needs UTF8"):
                asyncio.run(serve())
            source = CommandLine(tmp_path / "store.db")
            source.must("db", "migrate")
            for *command, given in (("db", "migrate", settings), ("doctor", settings), ("db", "copy", "--to", url, {})):
                done = source(*command, **given)
                assert (1, True) == (done.code, message in " ".join((done.out + done.err).split())), done
            with postgres.admin(name) as database:
                assert [] == database.execute("SELECT 1 FROM pg_namespace WHERE nspname = 'petstore'").fetchall()
        finally:
            admin.execute(f"DROP DATABASE {name}")
        [statement] = re.findall("CREATE DATABASE .* LOCALE 'C'", message)
        admin.execute(statement.replace("petstore", name, 1).replace("OWNER petstore", "OWNER postgres"))
        try:
            opening_of_store(url, create=True)
        finally:
            admin.execute(f"DROP DATABASE {name}")


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("FATAL:  sorry, too many clients already", "Raise its limit on connections"),
        ("FATAL:  remaining connection slots are reserved for", "Raise its limit on connections"),
        ("session is read-only", "Let it accept changes"),
        ("server is in hot standby mode", "Let it accept changes"),
        ("Connection refused", "Check PETSTORE_DATABASE_URL, and that PostgreSQL runs."),
    ],
)
async def test_a_postgresql_that_runs_and_takes_no_connection_gets_a_step_that_helps(
    text: str, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    failure = psycopg.OperationalError(f'connection failed: connection to server at "db" failed: {text}')
    monkeypatch.setattr(opening, "connect", AsyncMock(side_effect=failure))
    with pytest.raises(StoreUnusable) as caught:
        await migrate("postgresql://db/petstore")
    assert caught.value.message.removeprefix(caught.value.problem).strip().startswith(remedy)


def test_a_database_that_is_read_only_or_full_is_named_with_what_to_do(
    postgres_stores: Stores, postgres: PostgresEngine
) -> None:
    opening_of_store(postgres_stores.url, create=True)
    refused = refusal(f"{postgres_stores.url}?options=-c%20default_transaction_read_only%3Don")
    assert refused.endswith("Let it accept changes, or name the primary in PETSTORE_DATABASE_URL.")
    user = f"full_{os.getpid()}"
    with postgres.admin() as admin:
        admin.execute(f"CREATE ROLE {user} LOGIN CONNECTION LIMIT 0".encode())
        try:
            full = refusal(postgres_stores.url.replace("//postgres@", f"//{user}@"))
        finally:
            admin.execute(f"DROP ROLE {user}".encode())
    assert "Raise its limit on connections, use a pooler, or end other connections" in full


def test_the_documents_make_a_database_with_the_command_of_the_message() -> None:
    text = (Path(__file__).parents[2] / "docs" / "operating.md").read_text()
    assert 2 <= text.count(opening.CREATE_DATABASE) == text.count("CREATE DATABASE")


def test_the_place_of_a_store_is_its_database_and_its_host() -> None:
    assert "the database petstore on db" == opening.place("postgresql://ann:secret@db/petstore")
    assert "the database ann on db" == opening.place("postgresql://ann@db")
    assert "the database of the user's name on this machine" == opening.place("postgresql://")
    assert "the database x on db:5432,db:5433" == opening.place("postgresql://db,db:5433/x")
    assert "the database x on db,other" == opening.place("postgresql://db,other:5433/x")
    assert "the database x on a,b,c" == opening.place("postgresql://a,b,c/x?port=1,2")  # the driver says what is wrong


async def test_a_certificate_that_is_not_trusted_is_named_with_what_to_do(tmp_path: Path) -> None:
    tls, certificate = server_tls(tmp_path, "DNS:db.example")

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            await reader.readexactly(8)  # a request for TLS
            writer.write(b"S")
            await writer.start_tls(tls)
            await reader.read()

    async def remedy(parameters: str) -> str:
        url = f"postgresql://me:secret@127.0.0.1:{port}/x?sslmode=verify-full{parameters}"
        with pytest.raises(StoreUnusable) as caught:
            await migrate(url)
        assert "secret" not in caught.value.message
        return caught.value.message.removeprefix(caught.value.problem).strip()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        other = tmp_path / "other"
        other.mkdir()
        _, untrusted = server_tls(other)
        for parameters in (f"&sslrootcert={untrusted}", f"&sslrootcert={tmp_path / 'missing'}"):
            assert "sslrootcert= and the file of the authority" in await remedy(parameters)
        assert "Connect to a host name" in await remedy(f"&sslrootcert={certificate}")


def test_hosts_of_one_name_are_reported_with_their_ports() -> None:
    ports = free_port(), free_port()
    message = refusal("postgresql://postgres@" + ",".join(f"127.0.0.1:{port}" for port in ports) + "/x")
    for port in ports:
        assert f"127.0.0.1:{port}: Connection refused" in message


@pytest.mark.parametrize(("before", "lock_timeout"), [(0, "0"), (1, "300ms")])
async def test_a_migration_may_take_as_long_as_it_needs_but_waits_for_others_only_briefly(
    postgres_stores: Stores, monkeypatch: pytest.MonkeyPatch, before: int, lock_timeout: str
) -> None:
    if before:
        make_store(postgres_stores)
    missing = StoreSchema.missing
    limits = f"current_setting('lock_timeout') = '{lock_timeout}' AND current_setting('statement_timeout') = '0'"

    def with_a_check(schema: StoreSchema, version: int) -> list[str]:
        return [f"{sql};\nDO $$ BEGIN ASSERT {limits}; END $$" for sql in missing(schema, version)]

    monkeypatch.setattr(StoreSchema, "missing", with_a_check)
    assert (before, 2) == await migrate(postgres_stores.url)


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("sslmod=require", "has an unknown parameter, sslmod."),
        ("sslmode=require&pasword=SECRET", "has an unknown parameter, pasword."),
        *((query, "is not a URL that PostgreSQL accepts.") for query in (*MALFORMED, "password=SECRET%FF")),
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
    done = petstore("db", "copy", PETSTORE_COPY_TO_URL=url)
    assert (2, f"petstore: The URL of the target {problem}\n") == (done.code, done.err)


def test_a_user_without_rights_is_refused_with_the_reason(postgres_stores: Stores, postgres: PostgresEngine) -> None:
    with postgres.admin() as admin:
        admin.execute("CREATE ROLE clerk LOGIN")
    try:
        message = refusal(postgres_stores.url.replace("postgres@", "clerk@"), create=True)
        assert "privilege" in message
    finally:
        with postgres.admin() as admin:
            admin.execute("DROP ROLE clerk")


async def test_a_check_names_triggers_rules_and_the_orders_that_are_not_as_the_service_writes_them(
    postgres_stores: Stores,
) -> None:
    async with postgres_stores.opened() as store:
        await store.orders.import_batch([Order(number) for number in range(3)], "i", BY)
    assert ([], False) == await check(postgres_stores.url)
    set_record(postgres_stores, 1, '{"id": 1}')
    set_record(postgres_stores, 2, '{"id":7}')
    execute(postgres_stores, "CREATE FUNCTION spy() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'")
    execute(postgres_stores, "CREATE TRIGGER spy BEFORE UPDATE ON petstore.orders FOR EACH ROW EXECUTE FUNCTION spy()")
    execute(postgres_stores, "CREATE RULE hide AS ON DELETE TO petstore.keys DO INSTEAD NOTHING")
    assert [
        "The table orders has a trigger, spy, which another program has added: drop it.",
        "The table keys has a rule, hide, which another program has added: drop it.",
        "Order 1 has a record in another form than the service writes.",
        "Order 2 has a record that names order 7.",
    ] == (await check(postgres_stores.url))[0]


async def test_a_check_finds_and_notes_damage_in_any_table_and_with_amcheck_in_any_index(
    postgres_stores: Stores,
) -> None:
    async with postgres_stores.opened() as store:
        await add_key(store)
        function = "read(petstore.keys) RETURNS text LANGUAGE plpgsql"
        execute(postgres_stores, f"CREATE FUNCTION {function} AS 'BEGIN RAISE data_corrupted; END'")
        execute(postgres_stores, "CREATE CAST (petstore.keys AS text) WITH FUNCTION read(petstore.keys)")
        add_amcheck(postgres_stores.url, "petstore.audit_by_time")
        problems = ["The table keys is damaged: data_corrupted.", "The index audit_by_time is damaged: broken."]
        assert (problems, True) == await check(postgres_stores.url)
        assert [(f"PostgreSQL's data are damaged{DAMAGED}",)] == execute(
            postgres_stores, "SELECT damage FROM petstore.store"
        )


def test_commands_for_a_file_name_the_programs_for_a_database(tmp_path: Path) -> None:
    petstore = CommandLine(tmp_path / "unused.db", make=False)
    for command in (("backup", str(tmp_path / "b.db")), ("restore", str(tmp_path / "b.db"), "--yes")):
        done = petstore("db", *command, PETSTORE_DATABASE_URL="postgresql://127.0.0.1:1/x")
        assert (2, True) == (done.code, command[0] == "restore" or "pg_dump" in done.err)
    assert [] == list(tmp_path.iterdir())


def test_without_a_driver_the_line_says_why_it_is_needed_and_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    missing: list[str] = []
    monkeypatch.setattr("importlib.util.find_spec", missing.append)
    for reason, need in (
        ("A URL names PostgreSQL", lambda: require_driver("postgresql://host/db")),
        ("PETSTORE_REDIS_URL is set", lambda: redis_counters(read_settings({}))),
    ):
        with pytest.raises(SettingsError, match=rf"^{reason}, but .* requirements/scale-out\.lock$"):
            need()
    assert ["psycopg", "redis"] == missing


@pytest.mark.parametrize(("version", "refused"), [(149_999, True), (150_000, False)])
async def test_an_older_postgresql_is_refused(version: int, refused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    info = SimpleNamespace(server_version=version, parameter_status={"server_encoding": "UTF8"}.get)
    driver = SimpleNamespace(info=info, close=AsyncMock())
    monkeypatch.setattr(opening, "connect", AsyncMock(return_value=driver))
    message = re.escape("the database x on host is served by a PostgreSQL older than 15; update it.")
    with pytest.raises(StoreUnusable, match=message) if refused else nullcontext():
        async with opening.connected("postgresql://host/x"):
            assert not driver.close.called
    assert driver.close.called


def test_each_host_of_the_url_is_named_with_its_own_cause(postgres_stores: Stores, postgres: PostgresEngine) -> None:
    """The last one is a standby that is down: a line with its cause only would hide the first one's, which matters."""
    ports = f"{postgres.port},{free_port()},{free_port()}"
    hosts = "127.0.0.1,127.0.0.2,no-host.invalid"
    message = refusal(f"postgresql://stranger@{hosts}/{postgres_stores.url.rpartition('/')[2]}?port={ports}")
    assert '127.0.0.1: FATAL:  role "stranger" does not exist; 127.0.0.2: Connection refused' in message
    assert "failed to resolve host 'no-host.invalid'" in message
    assert "could not match 2 port numbers to 3 hosts" in refusal(f"postgresql://stranger@{hosts}/x?port=1,2")


async def test_a_change_that_another_process_shares_meanwhile_begins_no_new_history(postgres_stores: Stores) -> None:
    async with postgres_stores.opened() as store:
        await store.orders.import_batch([Order(1)], "import:1", BY)
        before = await store.search.change_clock()

        async def shared(name: str, at: int) -> int:
            """The newest number of all processes: one of these has changed an order, and shared when."""
            if ":clock:" not in name:
                return at
            await store.orders.change(1, CANCEL, BY)
            return (await store.search.change_clock()).at

        async with await psycopg.AsyncConnection.connect(postgres_stores.url, autocommit=True) as driver:
            await Timelines(shared).verify(driver)
        assert before.epoch == (await store.search.change_clock()).epoch
