"""Finding, creating, migrating and checking the store in its database; every failure is one sentence."""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict

from petstore_server.domain.errors import StoreUnusable
from petstore_server.engines.postgres.connections import Driver, briefly
from petstore_server.engines.postgres.engine import PostgresEngine
from petstore_server.engines.postgres.faults import DAMAGE, OldPrimary, first_line, plain_words
from petstore_server.engines.postgres.pool import connect, hosts_of
from petstore_server.engines.postgres.timelines import SharedMaximum, Timelines
from petstore_server.engines.schema import StoreSchema
from petstore_server.store import Store
from petstore_server.store.damage import DAMAGED, Damage
from petstore_server.store.records import CHECKED, MAX_PROBLEMS, order_problem, trigger_problem

SCHEMA = StoreSchema("postgres")

MIN_SERVER = 15  # the oldest major version of PostgreSQL that is supported

CREATE_DATABASE = "CREATE DATABASE petstore OWNER petstore TEMPLATE template0 ENCODING 'UTF8' LOCALE 'C'"
_OPENING_SECONDS = 5.0
_MIGRATION_SECONDS = 120.0  # for which a migration waits for other programs, such as a backup, at each table
_MIGRATION_PAUSE = 1.0  # seconds between attempts
# What a statement waits for, requests wait for behind it.
_WAITING_BRIEFLY = "SET LOCAL lock_timeout TO '300ms'; SET LOCAL statement_timeout TO DEFAULT"
_LOCK = "SELECT pg_advisory_xact_lock(7306938521)"  # any number that all hosts agree on; ends with the transaction
# Asked of the catalogue's tables: to_regclass may still remember, from before the lock, that there was no store.
_TABLE = """
    SELECT 1 FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
    WHERE nspname = 'petstore' AND relname = 'store'
"""
# As JSON the row has no value for a column that is missing.
_VERSION = "SELECT schema_version, CAST(to_json(store) ->> 'migration' AS integer) FROM petstore.store WHERE one = 1"
_SET_VERSION = """
    UPDATE petstore.store SET migration = {}, schema_version = greatest(schema_version, {}) WHERE one = 1
"""
_TRIGGERS = """
    SELECT tgname, relname, 'trigger' FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid
    WHERE relnamespace = 'petstore'::regnamespace AND NOT tgisinternal
    UNION ALL SELECT rulename, tablename, 'rule' FROM pg_rules WHERE schemaname = 'petstore'
"""
# A statement that reads each table in full, and one that verifies each index, if the extension may be used.
_PARTS = """
    SELECT 'table ' || relname, format('SELECT count(t::text) FROM petstore.%I AS t', relname)
    FROM pg_class WHERE relnamespace = 'petstore'::regnamespace AND relkind = 'r'
    UNION ALL
    SELECT 'index ' || relname, format('SELECT %s.bt_index_check(%s, true)', extnamespace::regnamespace, indexrelid)
    FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid AND relnamespace = 'petstore'::regnamespace
        JOIN pg_am ON pg_am.oid = relam AND amname = 'btree',
        pg_extension JOIN pg_proc ON pronamespace = extnamespace AND proname = 'bt_index_check' AND pronargs = 2
    WHERE extname = 'amcheck' AND has_function_privilege(pg_proc.oid, 'EXECUTE') AND indisvalid
    ORDER BY 1 DESC
"""
_STATE = """
    SELECT name, setting FROM pg_settings
    WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit', 'max_connections')
    UNION ALL SELECT 'connections', sum(numbackends)::text FROM pg_stat_database
    UNION ALL SELECT 'replicas', count(*)::text FROM pg_stat_replication
    UNION ALL SELECT 'now', extract(epoch FROM clock_timestamp())::text
"""


async def open_store(url: str, shared_maximum: SharedMaximum | None = None, *, create: bool, upgrade: bool) -> Store:
    """Open the store after `migrate`, which the arguments are for. Raises StoreUnusable."""
    await migrate(url, shared_maximum=shared_maximum, create=create, upgrade=upgrade)
    return Store(PostgresEngine(url, Timelines(shared_maximum)))


async def migrate(
    url: str,
    announce: Callable[[str], None] = lambda _: None,
    shared_maximum: SharedMaximum | None = None,
    *,
    create: bool = True,
    upgrade: bool = True,
) -> tuple[int, int]:
    """Make a missing store, or bring an older one up to date, as `sqlite.migrate` does. Raises StoreUnusable."""
    where = f"in {place(url)}"
    async with connected(url, shared_maximum) as driver:
        version = await schema_version(driver, url)
        if SCHEMA.must_migrate(version, where, create=create, upgrade=upgrade):
            version = await _apply_migrations(driver, url)
            if version == 0:
                announce(f"Created a new store {where}.")
        return version, max(version, SCHEMA.latest)


async def state(url: str, shared_maximum: SharedMaximum | None = None) -> dict[str, str]:
    """Return PostgreSQL's settings that decide whether a change is durable, by name, and `max_connections`.

    Also the numbers of `connections` and `replicas`, and its clock, `now`, in Unix seconds. Raises StoreUnusable.
    """
    async with connected(url, shared_maximum) as driver:
        try:
            async with asyncio.timeout(_OPENING_SECONDS):
                return dict(await (await driver.execute(_STATE)).fetchall())
        except TimeoutError:
            raise StoreUnusable(f"PostgreSQL at {place(url)} has stopped answering.") from None


async def check(url: str, shared_maximum: SharedMaximum | None = None) -> tuple[list[str], bool]:
    """Read every table in full, and verify the indexes if the extension amcheck may be used.

    Return what is wrong with the store, in plain words, nothing if it is sound; and whether indexes were verified.
    Damage that PostgreSQL reports is saved in the store, so that no process accepts a change. Raises StoreUnusable.
    """
    damage, problems = list[str](), list[str]()
    async with connected(url, shared_maximum) as driver:
        SCHEMA.must_migrate(await schema_version(driver, url), f"in {place(url)}")
        parts = await (await driver.execute(_PARTS)).fetchall()
        with_indexes = any(part.startswith("index ") for part, _ in parts)
        for part, statement in parts:
            with _reporting_damage(damage, part):
                await driver.execute(statement.encode())
        if not damage:
            with _reporting_damage(damage, "table orders"):
                problems += await _other_problems(driver)
        if damage:
            with suppress(psycopg.Error):  # the damage may be where it would be saved
                await driver.execute(Damage.SAVE.encode(), (f"PostgreSQL's data are damaged{DAMAGED}",))
    return [*damage, *problems][:MAX_PROBLEMS], with_indexes


async def _other_problems(driver: Driver) -> list[str]:
    """What is wrong with triggers, rules and orders of a store without damage."""
    async with driver.transaction(), driver.cursor("checked") as orders:
        triggers = await (await driver.execute(_TRIGGERS)).fetchall()
        problems = [trigger_problem(*trigger) for trigger in triggers]
        await orders.execute(f"{CHECKED} ORDER BY id")
        while len(problems) < MAX_PROBLEMS and (page := await orders.fetchmany(5_000)):
            problems += filter(None, map(order_problem, page))
    return problems


@contextmanager
def _reporting_damage(found: list[str], part: str) -> Iterator[None]:
    """Add to what was found the damage that PostgreSQL reports in a part of the store."""
    try:
        yield
    except DAMAGE as error:
        found.append(f"The {part} is damaged: {first_line(error)}.")


@asynccontextmanager
async def connected(url: str, shared_maximum: SharedMaximum | None = None) -> AsyncIterator[Driver]:
    """A connection for opening and maintenance. Raises StoreUnusable, in one sentence, for any error of PostgreSQL."""
    try:
        driver = await connect(url, _OPENING_SECONDS, Timelines(shared_maximum))
    except psycopg.Error as error:
        problem = f"The store in {place(url)} cannot be used: {plain_words(error)}."
        raise StoreUnusable(problem, _connection_remedy(error)) from error
    except TimeoutError:
        raise StoreUnusable(f"PostgreSQL does not answer at {place(url)}.", "Check PETSTORE_DATABASE_URL.") from None
    try:
        if driver.info.server_version < MIN_SERVER * 10_000:
            raise StoreUnusable(f"{place(url)} is served by a PostgreSQL older than {MIN_SERVER}; update it.")
        if (encoding := driver.info.parameter_status("server_encoding")) != "UTF8":
            raise StoreUnusable(
                f"The encoding of {place(url)} is {encoding}, and a store needs UTF8. Make another database: "
                f'{CREATE_DATABASE}. A store in this one can be moved to it (docs/operating.md, "Encoding").'
            )
        yield driver
    except psycopg.Error as error:
        raise StoreUnusable(f"The store in {place(url)} cannot be used: {plain_words(error)}.") from error
    finally:
        await driver.close()


def _connection_remedy(error: psycopg.Error) -> str:
    """What to do about a connection that failed, by the text of libpq or of PostgreSQL."""
    reported = str(error)
    if isinstance(error, OldPrimary):
        return "Name the new one in PETSTORE_DATABASE_URL."
    if re.search("too many (clients|connections)|connection slots", reported):
        return "Raise its limit on connections, use a pooler, or end other connections (pg_stat_activity lists them)."
    if re.search("session is read-only|hot standby mode", reported):
        return "Let it accept changes, or name the primary in PETSTORE_DATABASE_URL."
    if "does not match host name" in reported:
        return "Connect to a host name that the certificate of PostgreSQL has."
    if "certificate verify failed" in reported or "root certificate file" in reported:
        return (
            "Append to PETSTORE_DATABASE_URL sslrootcert= and the file of the authority that has signed "
            "PostgreSQL's certificate. Those of public ones are in /etc/ssl/certs/ca-certificates.crt (the package "
            "ca-certificates)."
        )
    return "Check PETSTORE_DATABASE_URL, and that PostgreSQL runs."


def url_problem(url: str) -> str | None:
    """What is wrong with a URL that libpq does not accept, without any value in it; None if it is accepted."""
    try:
        conninfo_to_dict(url)
    except (psycopg.ProgrammingError, UnicodeError):  # its text, and one without `=`, may hold the password
        known = {option.keyword.decode() for option in psycopg.pq.Conninfo.get_defaults()}
        unknown = next((name for name in re.findall("[?&]([a-z_]{1,40})=", url) if name not in known), None)
        return f"has an unknown parameter, {unknown}" if unknown else "is not a URL that PostgreSQL accepts"
    return None


def place(url: str) -> str:
    """Where the store is, in words without a password."""
    said = conninfo_to_dict(url)
    name = said.get("dbname") or said.get("user") or "of the user's name"
    hosts = ",".join(host for host, _ in hosts_of(url)) or said.get("host") or "this machine"
    return f"the database {name} on {hosts}"


async def schema_version(driver: Driver, url: str) -> int:
    """The store's schema version, 0 where there is none. Raises StoreUnusable if it is too new."""
    if not await (await driver.execute(_TABLE)).fetchall():
        return 0
    [(version, migration)] = await briefly(driver, _VERSION)
    return SCHEMA.known(version, migration, f"in {place(url)}")


async def _apply_migrations(driver: Driver, url: str) -> int:
    """Create a store in one transaction, or bring an older one up to date; return the version before."""
    set_version = _SET_VERSION.format(SCHEMA.latest, SCHEMA.required)
    async with driver.transaction():
        await driver.execute(_LOCK)
        before = await schema_version(driver, url)
        if before == 0:
            await driver.execute("SET LOCAL lock_timeout TO DEFAULT; SET LOCAL statement_timeout TO DEFAULT")
            for script in [*SCHEMA.missing(0), set_version]:
                await driver.execute(script.encode())
    for script in SCHEMA.missing(before) if before else ():
        for statement in re.split(r";$", script.rstrip().removesuffix(";"), flags=re.MULTILINE):
            await _migrate_further(driver, url, statement)
    if before:
        await _migrate_further(driver, url, set_version)
    return before


async def _migrate_further(driver: Driver, url: str, statement: str) -> None:
    """Carry out one statement of a migration in a transaction of its own, unless another program has migrated.

    Requests wait for no more than that statement, and the next run begins with the first one again. Raises
    LockNotAvailable if other programs keep the table locked.
    """
    ends = time.monotonic() + _MIGRATION_SECONDS
    while True:
        try:
            async with driver.transaction():
                await driver.execute(_LOCK)
                if await schema_version(driver, url) < SCHEMA.latest:
                    await driver.execute(f"{_WAITING_BRIEFLY}; {statement}".encode())
        except errors.LockNotAvailable:
            if time.monotonic() >= ends:
                raise
        else:
            return
        await asyncio.sleep(_MIGRATION_PAUSE)
