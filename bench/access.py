"""Accounts and API keys in bulk, written into a SQLite store through its documented schema.

The command line makes one key per process; a hundred thousand would take hours. The form of a key is that of
`docs/decisions/0010-key-form.md`: `pso_live_`, 27 random characters of base62, and their CRC-32 in six.
"""

import hashlib
import secrets
import time
import zlib
from collections.abc import Iterator

import apsw

from bench.stores import Store

_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_LIMIT = 1_000_000_000


def add_keys(store: Store, number: int) -> list[str]:
    """Add accounts with one key each to a store that no process uses; return the keys."""
    keys = [_new_key() for _ in range(number)]
    connection = apsw.Connection(store.environment["PETSTORE_DATABASE_URL"].removeprefix("sqlite:///"))
    with connection:
        [(first,)] = connection.execute("SELECT coalesce(max(id), 0) + 1 FROM accounts")
        connection.executemany(
            "INSERT INTO accounts (id, name, plan, per_minute, per_day, created_at) VALUES (?, ?, ?, ?, ?, ?)",
            ((first + turn, f"bench-{turn}", "enterprise", _LIMIT, _LIMIT, time.time()) for turn in range(number)),
        )
        connection.executemany(
            "INSERT INTO keys (id, account_id, digest, environment, scopes, note, created_at)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            _rows(keys, first),
        )
    connection.close()
    return keys


def _rows(keys: list[str], first_account: int) -> Iterator[tuple[object, ...]]:
    scopes = "orders:cancel orders:read pets:read"
    for turn, key in enumerate(keys):
        digest = hashlib.sha256(key.encode()).digest()
        yield f"key_{turn:012}", first_account + turn, digest, "production", scopes, "", time.time()


def _new_key() -> str:
    body = "pso_live_" + "".join(secrets.choice(_DIGITS) for _ in range(27))
    rest, checksum = zlib.crc32(body.encode()), ""
    for _ in range(6):
        rest, digit = divmod(rest, 62)
        checksum = _DIGITS[digit] + checksum
    return body + checksum
