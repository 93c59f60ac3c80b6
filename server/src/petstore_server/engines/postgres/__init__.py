"""The store in a PostgreSQL database, shared by any number of processes and hosts. Needs the extra `postgres`."""

from petstore_server.engines.postgres.opening import check, durability_settings, migrate, open_store, url_problem

__all__ = ["check", "durability_settings", "migrate", "open_store", "url_problem"]
