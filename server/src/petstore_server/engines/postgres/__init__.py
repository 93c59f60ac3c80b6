"""The store in a PostgreSQL database, shared by any number of processes and hosts. Needs the extra `postgres`."""

from petstore_server.engines.postgres.opening import check, migrate, open_store, state, url_problem

__all__ = ["check", "migrate", "open_store", "state", "url_problem"]
