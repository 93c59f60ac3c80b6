"""The list of all orders, never older than the request for it, on any number of hosts (D8).

A host keeps its copy together with the snapshot in which it was read. Every row carries the number of the transaction
that last changed it in the list, and PostgreSQL tells of a snapshot which transactions it saw: all below `xmax`, but
for those that were under way. What is visible now and was not in that snapshot has changed since, whatever the order
in which transactions committed; and an index finds it.
"""

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from petstore_server.storage.listing import STARTS_PIECE, Assembly, EncodedList, Range, Version, cut, cut_again
from petstore_server.storage.postgres.arrays import numbers
from petstore_server.storage.postgres.pool import Pool
from petstore_server.storage.postgres.session import SNAPSHOT, Session
from petstore_server.storage.postgres.shared import Shared
from petstore_server.storage.stats import Stats

_MOST_CHANGED = 50_000  # beyond so many, reading the whole list anew is no slower
_PIECES_AT_ONCE = 16  # some 1.5 MB: read in milliseconds, so the bound on a statement holds

# Identifies one history of one store. A restart, a failover (the timeline changes) and a restore each begin another
# one: changes seen before may be gone, and PostgreSQL may assign transaction numbers again. The same holds after crash
# recovery, for which the server does not restart; PostgreSQL then discards its statistics, which sets `stats_reset`.
HISTORY = """
    concat_ws('/', epoch, pg_postmaster_start_time(), (SELECT stats_reset FROM pg_stat_wal),
        left(pg_walfile_name(pg_current_wal_insert_lsn()), 8),
        'petstore.orders'::regclass::oid, pg_relation_filenode('petstore.orders'))
"""

# Rows that another cluster wrote, before a dump was restored here, may carry numbers that are still to come; no
# snapshot sees a transaction from its `xmax` on. Sorted, because then the index is used whatever is known of the table.
_CHANGED = """
    (SELECT id FROM petstore.orders
    WHERE revision >= %s AND revision < pg_snapshot_xmax(pg_current_snapshot())::text::bigint
    ORDER BY revision LIMIT %s)
    UNION ALL
    (SELECT id FROM petstore.orders WHERE revision = ANY(%s::bigint[]) ORDER BY revision LIMIT %s)
"""
_NEWS = f"""
    SELECT {HISTORY}, pg_current_snapshot()::text, EXISTS ({_CHANGED}) FROM petstore.store
"""  # noqa: S608 - constants
_NOW = f"SELECT {HISTORY}, pg_current_snapshot()::text FROM petstore.store"  # noqa: S608 - constants
_STARTS = f"SELECT id FROM petstore.orders WHERE {STARTS_PIECE} ORDER BY id"  # noqa: S608 - constants
_RECORDS = """
    SELECT (SELECT string_agg(record, ',' ORDER BY id) FROM petstore.orders WHERE id BETWEEN first AND last)
    FROM unnest(%s::bigint[], %s::bigint[]) WITH ORDINALITY AS range (first, last, number) ORDER BY number
"""


class Seen(NamedTuple):
    """What a copy shows: all that transactions below `xmax` did in this history, but for those `under_way`."""

    history: str
    xmax: int
    under_way: tuple[int, ...]

    @classmethod
    def of(cls, history: str, snapshot: str) -> "Seen":
        """Read PostgreSQL's text of a snapshot, `xmin:xmax:number,number…`."""
        _, xmax, under_way = snapshot.split(":")
        return cls(history, int(xmax), tuple(map(int, under_way.split(","))) if under_way else ())

    def changed_since(self, most: int) -> list[int | str]:
        """The parameters of _CHANGED."""
        return [self.xmax, most, numbers(self.under_way), most]


class FreshList:
    """Holds the newest list that was read, and before each use makes sure that it is the newest there is."""

    def __init__(self, pool: Pool, stats: Stats) -> None:
        self._pool = pool
        self._stats = stats
        self._held: tuple[Seen, EncodedList] | None = None
        self._shared = Shared(self._look)
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="petstore-list")
        # Compressing a large list takes as long as reading it, and must not hold up the next reading.
        self._compressor = ThreadPoolExecutor(1, thread_name_prefix="petstore-gzip")

    async def newest(self) -> EncodedList:
        """The list, never older than any change acknowledged before this call, by any process."""
        return await self._shared.response()

    async def close(self) -> None:
        """Wait for what is under way."""
        await self._shared.close()
        await asyncio.to_thread(self._threads.shutdown)
        await asyncio.to_thread(self._compressor.shutdown)

    async def _look(self) -> EncodedList:
        """One indexed query where nothing has changed; else what has changed is read.

        The query comes first even where nothing is held: it tells soon that the store cannot be used.
        """
        seen, held = self._held or (Seen("", 0, ()), None)
        [(history, snapshot, changed)] = await self._pool.rows(_NEWS, seen.changed_since(1))
        if held is not None and history == seen.history and not changed:
            self._held = Seen.of(history, snapshot), held
            return held
        began = time.perf_counter()
        self._held = await self._pool.transaction(self._read, SNAPSHOT)
        self._stats.rebuilt(time.perf_counter() - began)
        return self._held[1]

    async def _read(self, session: Session) -> tuple[Seen, EncodedList]:
        """Within a snapshot: the list in it, of which only what has changed since the held one is read."""
        now = Seen.of(*(await session.rows(_NOW))[0])
        held = self._held[1] if self._held is not None else None
        changed = await self._changed(session, now)
        if held is None or changed is None:
            ranges = cut(row[0] for row in await session.rows(_STARTS))
            stale = set(ranges)
        else:
            ranges, stale = cut_again(held, changed)
        assembly = Assembly(held)
        done = 0
        while done < len(ranges):
            done = await self._take(session, assembly, ranges, done, stale)
        encoded = await self._on_thread(assembly, now)
        return now, encoded

    async def _changed(self, session: Session, now: Seen) -> list[int] | None:
        """The orders that changed in the list since the held one; None where that is unknown or too many."""
        if self._held is None or self._held[0].history != now.history:
            return None
        changed = await session.rows(_CHANGED, self._held[0].changed_since(_MOST_CHANGED + 1))
        return [row[0] for row in changed] if len(changed) <= _MOST_CHANGED else None

    async def _take(
        self, session: Session, assembly: Assembly, ranges: Sequence[Range], done: int, stale: set[Range]
    ) -> int:
        """Take over, or read, the next ranges; return how many are done."""
        if ranges[done] not in stale:
            assembly.keep(ranges[done])
            return done + 1
        some: list[Range] = []
        while done < len(ranges) and len(some) < _PIECES_AT_ONCE and ranges[done] in stale:
            some.append(ranges[done])
            done += 1
        found = await session.rows(_RECORDS, (numbers(one.first for one in some), numbers(one.last for one in some)))

        def add() -> None:
            for one, (records,) in zip(some, found, strict=True):
                assembly.add(one, records)

        await asyncio.get_running_loop().run_in_executor(self._threads, add)
        return done

    async def _on_thread(self, assembly: Assembly, now: Seen) -> EncodedList:
        """Joining the pieces of a large list takes milliseconds, which the event loop must not wait for."""
        version = Version(now.history, now.xmax)
        return await asyncio.get_running_loop().run_in_executor(
            self._threads, lambda: assembly.finish(version, self._compressor)
        )
