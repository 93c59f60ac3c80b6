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
