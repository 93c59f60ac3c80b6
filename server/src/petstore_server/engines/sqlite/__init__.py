"""The store in one SQLite file: nothing else to install."""

from petstore_server.engines.sqlite.opening import is_served, lock_for_serving, migrate, open_store

__all__ = ["is_served", "lock_for_serving", "migrate", "open_store"]
