"""The store in one SQLite file: nothing else to install."""

from petstore_server.engines.sqlite.maintenance import backup, check, restore
from petstore_server.engines.sqlite.opening import LATEST_VERSION, lock_for_serving, migrate, open_store

__all__ = ["LATEST_VERSION", "backup", "check", "lock_for_serving", "migrate", "open_store", "restore"]
