"""The store in a PostgreSQL database, shared by any number of processes and hosts. Needs the extra `postgres`."""

from petstore_server.storage.postgres.maintenance import check, durability_settings
from petstore_server.storage.postgres.opening import LATEST_VERSION, migrate, open_store
from petstore_server.storage.postgres.store import PostgresStore

__all__ = ["LATEST_VERSION", "PostgresStore", "check", "durability_settings", "migrate", "open_store"]
