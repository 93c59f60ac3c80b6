"""The store in one SQLite file: nothing else to install."""

from petstore_server.storage.sqlite.maintenance import backup, check, readable_by_others, restore
from petstore_server.storage.sqlite.opening import LATEST_VERSION, lock_for_serving, migrate, open_store
from petstore_server.storage.sqlite.store import SqliteStore

__all__ = [
    "LATEST_VERSION",
    "SqliteStore",
    "backup",
    "check",
    "lock_for_serving",
    "migrate",
    "open_store",
    "readable_by_others",
    "restore",
]
