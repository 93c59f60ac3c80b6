"""Refusing a server of PostgreSQL that another one has replaced (D19).

A promotion begins a new timeline. A primary that returns after its replica was promoted is still on the old one: it
lacks what was written to the new primary, and what is written to it is lost.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import psycopg

Share = Callable[[str, int], Awaitable[int]]
"""Note the timeline of the store with this identity where all processes see it; return the newest one noted there."""

IDENTITY = """
    SELECT system_identifier, (SELECT oid FROM pg_database WHERE datname = current_database())
    FROM pg_control_system()
"""
"""The identifiers of the cluster and of the database: rows would not do, for a dump copies them."""

_TIMELINE = f"""
    SELECT concat_ws('-', system_identifier, oid), left(pg_walfile_name(pg_current_wal_insert_lsn()), 8)
    FROM ({IDENTITY}) AS store WHERE NOT pg_is_in_recovery()
"""  # noqa: S608 - constants


class OldPrimary(psycopg.OperationalError):
    """The server is a primary that another one has replaced."""


class Timelines:
    """The newest timeline of each store that this process has seen, or, by `share`, any process."""

    def __init__(self, share: Share | None = None) -> None:
        self._share = share
        self._newest: dict[str, int] = {}

    async def verify(self, driver: psycopg.AsyncConnection[Any]) -> None:
        """Raises OldPrimary if the server has an older history than one that was seen, and psycopg.Error."""
        found = await (await driver.execute(_TIMELINE.encode())).fetchone()
        if found is None:  # a replica: a URL may ask for one
            return
        store, timeline = found[0], int(found[1], 16)
        newest = max(timeline, self._newest.get(store, 0))
        if self._share is not None:
            newest = max(newest, await self._share(store, newest))
        self._newest[store] = newest
        if timeline < newest:
            raise OldPrimary(f"timeline {timeline}, after {newest} was seen")
