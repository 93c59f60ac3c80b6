"""Accounts and API keys in bulk, written into the tables of a store that no process uses.

The command line makes one key per process; a hundred thousand would take hours.
"""

import secrets
import time
from collections.abc import Iterable, Sequence

import psycopg

from bench.setup import Store
from petstore_server.domain.keys import Environment, digest, new_key
from petstore_server.runtime.opening import is_sqlite
from testing.stores import opened_file

_LIMIT = 1_000_000_000
_FIRST = 1_000_000  # the number of the first account, larger than any that the command line made
_SCOPES = "orders:cancel orders:read pets:read"


def name_of_account(index: int) -> str:
    """The name of an account that `add_keys` makes."""
    return f"Account {_FIRST + index}"


def add_keys(store: Store, number: int, *, orders: str = "all", scopes: str = _SCOPES, first: int = 0) -> list[str]:
    """Add accounts that see these orders (all or own), with one key each; return the keys.

    `first` is the index of the first of these accounts.
    """
    keys = [new_key(Environment.PRODUCTION, secrets.randbelow) for _ in range(number)]
    indexes, now = range(first, first + number), time.time()
    accounts = (
        (_FIRST + index, name_of_account(index), "enterprise", _LIMIT, _LIMIT, now, orders) for index in indexes
    )
    _insert(store, "accounts", ("id", "name", "plan", "per_minute", "per_day", "created_at", "orders"), accounts)
    rows = (
        (f"key_{_FIRST + index:012}", _FIRST + index, digest(key), "production", scopes, "", now)
        for index, key in zip(indexes, keys, strict=True)
    )
    _insert(store, "keys", ("id", "account_id", "digest", "environment", "scopes", "note", "created_at"), rows)
    return keys


def _insert(
    store: Store, table: str, columns: Sequence[str], rows: Iterable[tuple[str | int | float | bytes, ...]]
) -> None:
    names = ", ".join(columns)
    if is_sqlite(store.url):
        with opened_file(store.url) as file, file:
            file.executemany(f"INSERT INTO {table} ({names}) VALUES ({', '.join('?' * len(columns))})", rows)
        return
    with psycopg.connect(store.url) as database, database.cursor() as cursor:
        values = ", ".join(["%s"] * len(columns))
        cursor.executemany(f"INSERT INTO petstore.{table} ({names}) VALUES ({values})".encode(), rows)
