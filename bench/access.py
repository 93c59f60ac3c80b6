"""Accounts and API keys in bulk, written into the tables of a store that no process uses.

The command line makes one key per process; a hundred thousand would take hours.
"""

import hashlib
import secrets
import time
from collections.abc import Iterable
from contextlib import closing
from itertools import chain

import apsw
import psycopg

from bench.setup import Store
from petstore_server.domain.keys import Environment, new_key

_LIMIT = 1_000_000_000
_FIRST = 1_000_000  # the number of the first account, larger than any that the command line made
_SCOPES = "orders:cancel orders:read pets:read"

Row = dict[str, object]


def name_of_account(index: int) -> str:
    """The name of an account that `add_keys` makes."""
    return f"Account {_FIRST + index}"


def add_keys(store: Store, number: int, *, orders: str = "all", scopes: str = _SCOPES, first: int = 0) -> list[str]:
    """Add accounts that see these orders (all or own), with one key each; return the keys.

    `first` is the index of the first of these accounts.
    """
    keys = [new_key(Environment.PRODUCTION, secrets.randbelow) for _ in range(number)]
    limits: Row = {"plan": "enterprise", "per_minute": _LIMIT, "per_day": _LIMIT}
    shared: Row = {**limits, "created_at": time.time(), "orders": orders}
    indexes = range(first, first + number)
    named = ({"id": _FIRST + index, "name": name_of_account(index), **shared} for index in indexes)
    _insert(store, "accounts", named)
    accounts = range(_FIRST + first, _FIRST + first + number)
    shared = {"environment": "production", "scopes": scopes, "note": "", "created_at": time.time()}
    digests = (hashlib.sha256(key.encode()).digest() for key in keys)
    made = zip(accounts, digests, strict=True)
    _insert(
        store,
        "keys",
        ({"id": f"key_{each:012}", "account_id": each, "digest": digest, **shared} for each, digest in made),
    )
    return keys


def _insert(store: Store, table: str, rows: Iterable[Row]) -> None:
    others = iter(rows)
    first = next(others)
    names = ", ".join(f'"{name}"' for name in first)
    values = (tuple(row.values()) for row in chain([first], others))
    if store.url.startswith("sqlite:"):
        with closing(apsw.Connection(store.url.removeprefix("sqlite:///"))) as connection, connection:
            connection.executemany(f"INSERT INTO {table} ({names}) VALUES ({', '.join('?' * len(first))})", values)
        return
    with (
        psycopg.connect(store.url) as other,
        other.cursor() as cursor,
        cursor.copy(f"COPY petstore.{table} ({names}) FROM STDIN".encode()) as copy,
    ):
        for row in values:
            copy.write_row(row)
