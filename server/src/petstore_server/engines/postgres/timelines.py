"""Which server of PostgreSQL is the right one: the newest timeline, and a clock that is not behind.

A server that another one has replaced is refused (D19). A promotion begins a new timeline. A primary that returns after
its replica was promoted is still on the old one, and what is written to it is lost.

A server that was restored, or lost changes in a failover, is noticed by the clock of changes, which is behind. The
store then begins a new history, before a connection to it is used.
"""

import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from psycopg import errors

from petstore_server.engines.postgres.connections import Driver, briefly
from petstore_server.engines.postgres.dialect import epoch
from petstore_server.engines.postgres.faults import OldPrimary

SharedMaximum = Callable[[str, int], Awaitable[int]]
"""Store a number under a name where all processes see it; return the largest one stored there."""

IDENTITY = """
    SELECT system_identifier, (SELECT oid FROM pg_database WHERE datname = current_database())
    FROM pg_control_system()
"""
"""The identifiers of the cluster and of the database: rows would not do, for a dump copies them."""

_TIMELINE = f"""
    SELECT concat_ws('-', system_identifier, oid), left(pg_walfile_name(pg_current_wal_insert_lsn()), 8)
    FROM ({IDENTITY}) AS store WHERE NOT pg_is_in_recovery()
"""

_CLOCK = f"SELECT {epoch}, at FROM petstore.store JOIN petstore.clock USING (one) WHERE one = 1"
_BEGIN_HISTORY = f"""
    UPDATE petstore.store SET epoch = replace(gen_random_uuid()::text, '-', '')
    WHERE one = 1 AND {epoch} = %s RETURNING epoch
"""

_log = logging.getLogger(__name__)


class Timelines:
    """The newest timeline of each store, and the newest time of its clock, that this process has seen.

    With `shared_maximum`, that any process has seen.
    """

    def __init__(self, shared_maximum: SharedMaximum | None = None) -> None:
        self._shared_maximum = shared_maximum
        self._newest: dict[str, int] = {}
        self._store = ""
        self._shared = "", 0  # the epoch and the time that were shared last
        self.refused = 0

    async def verify(self, driver: Driver) -> None:
        """Raises OldPrimary if the server has an older timeline than one that was seen, and psycopg.Error."""
        rows = await briefly(driver, _TIMELINE)
        if not rows:  # a replica: a URL may ask for one
            return
        store, timeline = rows[0][0], int(rows[0][1], 16)
        newest = max(timeline, self._newest.get(store, 0))
        if self._shared_maximum is not None:
            newest = max(newest, await self._shared_maximum(f"{store}:timeline", newest))
        self._newest[store] = newest
        if timeline < newest:
            self.refused += 1
            raise OldPrimary(f"timeline {timeline}, after {newest} was seen")
        if self._shared_maximum is not None:
            self._store = store
            # There is no store yet; or another program keeps the clock locked, so that no change can be made. It is
            # compared within a second after that: only what needs the clock must wait for it.
            with suppress(errors.UndefinedTable, errors.InvalidSchemaName, errors.LockNotAvailable):
                await self._verify_clock(driver, self._shared_maximum)

    async def witness(self, epoch: str, at: int) -> None:
        known, latest = self._shared
        if self._shared_maximum is not None and (epoch != known or at > latest):
            await self._shared_maximum(f"{self._store}:clock:{epoch}", at)
            self._shared = epoch, at

    async def _verify_clock(self, driver: Driver, shared_maximum: SharedMaximum) -> None:
        """Begin a new history if the clock is behind the newest time that was seen in this one."""
        [(epoch, at)] = await briefly(driver, _CLOCK)
        newest = await shared_maximum(f"{self._store}:clock:{epoch}", at)
        self._shared = epoch, newest
        if at < newest:  # another process may have shared a change that was made since the clock was read
            [(_, at)] = await briefly(driver, _CLOCK)
        if at < newest:
            await briefly(driver, _BEGIN_HISTORY, (epoch,))
            _log.error("store lost changes", extra={"behind_seconds": (newest - at) / 1_000_000})
