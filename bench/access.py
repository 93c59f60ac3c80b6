"""Accounts, API keys and usage in bulk, written into the tables of a store that no process uses.

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
_HOURS = 24

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
        store, "keys", ({"id": _key_id(each), "account_id": each, "digest": digest, **shared} for each, digest in made)
    )
    return keys


def add_usage(store: Store, number: int) -> None:
    """Add a day of usage to the accounts that `add_keys` made."""
    hour = int(time.time()) // 3600 * 3600
    accounts = range(_FIRST, _FIRST + number)
    unused: Row = {"minute_start": 0, "minute_used": 0, "day_start": hour}
    _insert(store, "usage", ({"account_id": each, **unused, "day_used": each % 10_000} for each in accounts))
    counts = "refused_day refused_banned cancelled succeeded unchanged forbidden not_found conflict gone invalid failed"
    others = dict.fromkeys(counts.split(), 0)
    hours = range(hour - (_HOURS - 1) * 3600, hour + 1, 3600)
    periods: list[Row] = [
        {"seconds": 3600, "start": start, "operation": operation, **others}
        for start in hours
        for operation in ("cancelOrder", "listOrders")
    ]
    counted: Iterable[Row] = (
        {"account_id": each, "admitted": each % 500, "refused_minute": each % 9, **period}
        for each in accounts
        for period in periods
    )
    _insert(store, "usage_history", counted)
    _insert(store, "key_use", ({"key_id": _key_id(each), "last_hour": hour} for each in accounts))


def add_bans(store: Store, number: int) -> None:
    """Ban keys of the accounts that `add_keys` made, for some hours."""
    now = int(time.time())
    ban: Row = {"began": now, "until": now + 36_000, "level": 1}
    _insert(store, "bans", ({"key_id": _key_id(each), **ban} for each in range(_FIRST, _FIRST + number)))


def add_audit(store: Store, number: int, accounts: int) -> None:
    """Add entries to the audit log: mostly cancels by the keys of accounts, and changes of these by five operators."""
    now = time.time()

    def entry(index: int) -> Row:
        account = _FIRST + index % accounts
        if index % 10:
            after = f'{{"status":"cancelled","request_id":"abc123-{index:x}"}}'
            actor, action, subject = f"key:{_key_id(account)}", "order.cancel", f"order:{index}"
        else:
            after = '{"plan":"enterprise"}'
            actor, action, subject = f"operator:op{index // 10 % 5}", "account.set_plan", f"account:Account {account}"
        changed: Row = {"before": '{"status":"pending"}', "after": after}
        return {"at": now - index * 10, "actor": actor, "action": action, "subject": subject, **changed}

    _insert(store, "audit", map(entry, range(number)))


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


def _key_id(account: int) -> str:
    return f"key_{account:012}"
