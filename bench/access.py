"""Accounts, API keys and usage in bulk, written into the tables of a store that no process uses.

The command line makes one key per process; a hundred thousand would take hours.
"""

import hashlib
import secrets
import time
from collections.abc import Iterable, Sequence

import apsw
import psycopg

from bench.setup import Store
from petstore_server.domain.keys import Environment, new_key

_LIMIT = 1_000_000_000
_FIRST = 1_000_000  # the number of the first account, larger than any that the command line made
_SCOPES = "orders:cancel orders:read pets:read"
_HOURS = 24

Rows = Iterable[Sequence[object]]


def add_keys(store: Store, number: int) -> list[str]:
    """Add accounts with one key each; return the keys."""
    keys = [new_key(Environment.PRODUCTION, secrets.randbelow) for _ in range(number)]
    now = time.time()
    accounts = range(_FIRST, _FIRST + number)
    columns: tuple[str, ...] = ("id", "name", "plan", "per_minute", "per_day", "created_at")
    _insert(
        store, "accounts", columns, ((each, f"Account {each}", "enterprise", _LIMIT, _LIMIT, now) for each in accounts)
    )
    columns = ("id", "account_id", "digest", "environment", "scopes", "note", "created_at")
    digests = (hashlib.sha256(key.encode()).digest() for key in keys)
    made = zip(accounts, digests, strict=True)
    _insert(
        store, "keys", columns, ((_key_id(each), each, digest, "production", _SCOPES, "", now) for each, digest in made)
    )
    return keys


def add_usage(store: Store, number: int) -> None:
    """Add a day of usage to the accounts that `add_keys` made."""
    hour = int(time.time()) // 3600 * 3600
    accounts = range(_FIRST, _FIRST + number)
    columns: tuple[str, ...] = ("account_id", "minute_start", "minute_used", "day_start", "day_used")
    _insert(store, "usage", columns, ((each, 0, 0, hour, each % 10_000) for each in accounts))
    columns = ("account_id", "seconds", "start", "operation", "admitted", "refused_minute", "refused_day")
    columns += ("refused_banned", "cancelled", "succeeded", "unchanged", "forbidden", "not_found", "conflict", "gone")
    columns += ("invalid", "failed")
    others = [0] * 10
    starts = range(hour - (_HOURS - 1) * 3600, hour + 1, 3600)
    _insert(
        store,
        "usage_history",
        columns,
        (
            (each, 3600, start, operation, each % 500, each % 9, 0, *others)
            for each in accounts
            for start in starts
            for operation in ("cancelOrder", "listOrders")
        ),
    )
    _insert(store, "key_use", ("key_id", "last_hour"), ((_key_id(each), hour) for each in accounts))


def add_bans(store: Store, number: int) -> None:
    """Ban keys of the accounts that `add_keys` made, for some hours."""
    now = int(time.time())
    keys = (_key_id(account) for account in range(_FIRST, _FIRST + number))
    _insert(store, "bans", ("key_id", "began", "until", "level"), ((key, now, now + 36_000, 1) for key in keys))


def add_audit(store: Store, number: int, accounts: int) -> None:
    """Add entries to the audit log: mostly cancels by the keys of accounts, and changes of these by five operators."""
    now = time.time()
    keys = [_key_id(account) for account in range(_FIRST, _FIRST + accounts)]
    entries = []
    for index in range(number):
        at, account = now - index * 10, _FIRST + index % accounts
        if index % 10:
            after = f'{{"status":"cancelled","request_id":"abc123-{index:x}"}}'
            actor, action, subject = f"key:{keys[index % accounts]}", "order.cancel", f"order:{index}"
        else:
            after = '{"plan":"enterprise"}'
            actor, action, subject = f"operator:op{index // 10 % 5}", "account.set_plan", f"account:Account {account}"
        entries.append((at, actor, action, subject, '{"status":"pending"}', after))
    _insert(store, "audit", ("at", "actor", "action", "subject", '"before"', '"after"'), entries)


def _insert(store: Store, table: str, columns: Sequence[str], rows: Rows) -> None:
    url = store.url
    names = ", ".join(columns)
    if url.startswith("sqlite:"):
        connection = apsw.Connection(url.removeprefix("sqlite:///"))
        with connection:
            values = ", ".join("?" * len(columns))
            connection.executemany(f"INSERT INTO {table} ({names}) VALUES ({values})", rows)
        connection.close()
        return
    with (
        psycopg.connect(url) as other,
        other.cursor() as cursor,
        cursor.copy(f"COPY petstore.{table} ({names}) FROM STDIN".encode()) as copy,
    ):
        for row in rows:
            copy.write_row(row)


def _key_id(account: int) -> str:
    return f"key_{account:012}"
