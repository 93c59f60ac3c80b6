"""Damage to a store that the service would not do itself, and what else others may add to it."""

from enum import Enum, auto
from pathlib import Path
from typing import Any

import psycopg

from petstore_server.runtime.opening import is_sqlite
from testing.stores import Stores, opened_file


class Refusal(Enum):
    """How a database refuses a row."""

    STATEMENT = auto()
    """A trigger raises an error."""
    CONSTRAINT = auto()
    """A CHECK; on SQLite, which adds none to a table, a trigger that undoes the whole transaction."""
    FUNCTION = auto()
    """A trigger fails by itself: its user lacks a privilege; on SQLite, it reads what is not JSON."""
    COMMIT = auto()
    """What is deferred to the commit."""


_SQLITE_BODIES = {
    Refusal.STATEMENT: "SELECT RAISE(ABORT, 'refused')",
    Refusal.CONSTRAINT: "SELECT RAISE(ROLLBACK, 'refused')",
    Refusal.FUNCTION: "SELECT json('{')",
    Refusal.COMMIT: "INSERT INTO refused VALUES (1)",
}
_ABSENT = """
    CREATE TABLE IF NOT EXISTS absent (id PRIMARY KEY);
    CREATE TABLE IF NOT EXISTS refused (id REFERENCES absent DEFERRABLE INITIALLY DEFERRED)
"""


def refuse(store: Stores | str, table: str, condition: str, how: Refusal) -> None:
    """Let the database refuse each row of a table, of which a condition on `new` holds. `store` may be its URL."""
    url = store if isinstance(store, str) else store.url
    if is_sqlite(url):
        with opened_file(url) as file:
            file.execute(_ABSENT)
            for event in ("INSERT", "UPDATE"):
                name = "refused" if event == "INSERT" and table == "usage_history" else f"refused_{table}_{event}"
                body = f"AFTER {event} ON {table} WHEN {condition} BEGIN {_SQLITE_BODIES[how]}; END"
                file.execute(f"CREATE TRIGGER {name} {body}")
        return
    raised = "insufficient_privilege" if how is Refusal.FUNCTION else "raise_exception"
    when = f"FOR EACH ROW WHEN ({condition}) EXECUTE FUNCTION refuse()"
    body = f"'BEGIN RAISE {raised} USING MESSAGE = ''refused''; END'"
    statements = [
        f"CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS {body}",
        f"CREATE TRIGGER refused BEFORE INSERT OR UPDATE ON petstore.{table} {when}",
    ]
    if how is Refusal.CONSTRAINT:
        statements = [f"ALTER TABLE petstore.{table} ADD CHECK (NOT ({condition.replace('new.', '')})) NOT VALID"]
    if how is Refusal.COMMIT:
        deferred = f"AFTER INSERT OR UPDATE ON petstore.{table} DEFERRABLE INITIALLY DEFERRED"
        statements[1] = f"CREATE CONSTRAINT TRIGGER refused {deferred} {when}"
    with psycopg.connect(url) as database:
        for statement in statements:
            database.execute(statement.encode())


def overwrite(path: Path, part: slice, byte: bytes = b"\xff") -> None:
    """Fill a part of a file with this byte."""
    content = bytearray(path.read_bytes())
    content[part] = byte * len(content[part])
    path.write_bytes(content)


def damage_table(path: Path, name: str) -> None:
    """Fill the page at which a table begins in the file of a store with zeros."""
    with opened_file(path) as file:
        page = file.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (name,)).get
        size = file.pragma("page_size")
    overwrite(path, slice((page - 1) * size, page * size), b"\0")


def set_record(stores: Stores, order_id: int, record: str) -> None:
    """Put this record into an order."""
    execute(stores, "UPDATE petstore.orders SET record = %s WHERE id = %s", record, order_id)


def execute(stores: Stores, sql: str, *parameters: str | int | None) -> list[tuple[Any, ...]]:
    """Execute a statement, written for PostgreSQL, on the store; return its rows."""
    if stores.is_sqlite:
        with opened_file(stores.url) as file:
            return list(file.execute(sql.replace("petstore.", "").replace("%s", "?"), parameters))
    with psycopg.connect(stores.url) as database:
        cursor = database.execute(sql.encode(), parameters)
        return cursor.fetchall() if cursor.description else []


def add_amcheck(url: str, damaged: str = "") -> None:
    """Add what seems to be the extension amcheck, which PostgreSQL's wheel lacks; it finds damage in this index."""
    with psycopg.connect(url) as database:
        database.execute("SET allow_system_table_mods = on")
        database.execute("INSERT INTO pg_extension VALUES (1, 'amcheck', 10, 'public'::regnamespace, false, '1')")
        broken = f"IF $1::text = '{damaged}' THEN RAISE index_corrupted USING MESSAGE = 'broken'; END IF;"
        function = "public.bt_index_check(regclass, boolean) RETURNS void LANGUAGE plpgsql"
        database.execute(f"CREATE FUNCTION {function} AS $$ BEGIN {broken} END $$".encode())
