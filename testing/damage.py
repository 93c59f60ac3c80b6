"""Damage to a store that the service would not do itself."""

from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import psycopg

from testing.stores import Stores


def overwrite(path: Path, part: slice, byte: bytes = b"\xff") -> None:
    """Fill a part of a file with this byte."""
    content = bytearray(path.read_bytes())
    content[part] = byte * len(content[part])
    path.write_bytes(content)


def damage_table(path: Path, name: str) -> None:
    """Fill the page at which a table begins in the file of a store with zeros."""
    with closing(apsw.Connection(str(path))) as file:
        page = file.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (name,)).get
        size = file.pragma("page_size")
    overwrite(path, slice((page - 1) * size, page * size), b"\0")


def set_record(stores: Stores, order_id: int, record: str) -> None:
    """Put this record into an order."""
    execute(stores, "UPDATE petstore.orders SET record = %s WHERE id = %s", record, order_id)


def execute(stores: Stores, sql: str, *parameters: str | int | None) -> list[tuple[Any, ...]]:
    """Execute a statement, written for PostgreSQL, on the store; return its rows."""
    if stores.is_sqlite:
        with closing(apsw.Connection(stores.url.removeprefix("sqlite:///"))) as file:
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
