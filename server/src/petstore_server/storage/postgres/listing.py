"""The list of all orders, current on any number of hosts (D8).

A host keeps its copy of the list with the snapshot in which it was read. Every row has the number of the transaction
that last changed it in the list, and PostgreSQL describes a snapshot by the transactions that it saw: all below
`xmax`, except those still in progress. What is visible now and was not in that snapshot has changed since, whatever
the order in which transactions commit; an index finds it.
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from petstore_server.ports import OrderList
from petstore_server.storage.listing import STARTS_PIECE, Range, read_list
from petstore_server.storage.postgres.arrays import numbers
from petstore_server.storage.postgres.engine import run
from petstore_server.storage.postgres.pool import Pool
from petstore_server.storage.postgres.session import SNAPSHOT
from petstore_server.storage.statements import Query, Work
from petstore_server.storage.stats import Stats

# Identifies one history of one store. A restart, a failover (the timeline changes) and a restore each begin another
# one: changes seen before may be gone, and PostgreSQL may assign transaction numbers again. The same holds after crash
# recovery, for which the server does not restart; PostgreSQL then discards its statistics, which sets `stats_reset`.
HISTORY = """
    concat_ws('/', epoch, pg_postmaster_start_time(), (SELECT stats_reset FROM pg_stat_wal),
        left(pg_walfile_name(pg_current_wal_insert_lsn()), 8),
        'petstore.orders'::regclass::oid, pg_relation_filenode('petstore.orders'))
"""

# Rows that another cluster wrote, before a dump was restored here, may have numbers that are still to come; no snapshot
# sees a transaction from its `xmax` on. Sorted, so that the index is used whatever the statistics of the table.
CHANGED = """
    (SELECT id FROM petstore.orders
    WHERE revision >= %s AND revision < pg_snapshot_xmax(pg_current_snapshot())::text::bigint
    ORDER BY revision LIMIT %s)
    UNION ALL
    (SELECT id FROM petstore.orders WHERE revision = ANY(%s::bigint[]) ORDER BY revision LIMIT %s)
"""
ANY_CHANGED = f"""
    SELECT {HISTORY}, pg_current_snapshot()::text, EXISTS ({CHANGED}) FROM petstore.store
"""  # noqa: S608 - constants
STARTS = f"SELECT id FROM petstore.orders WHERE {STARTS_PIECE} ORDER BY id"  # noqa: S608 - constants
_MARK = f"SELECT {HISTORY}, pg_current_snapshot()::text FROM petstore.store"  # noqa: S608 - constants
_RECORDS = """
    SELECT (
        SELECT coalesce(',' || string_agg(record, ',' ORDER BY id), '')
        FROM petstore.orders WHERE id BETWEEN first AND last
    )
    FROM unnest(%s::bigint[], %s::bigint[]) WITH ORDINALITY AS range (first, last, number) ORDER BY number
"""


class Mark(NamedTuple):
    """Identifies a snapshot: in this history, all that transactions below `xmax` did, except those `in_progress`."""

    history: str
    xmax: int
    in_progress: tuple[int, ...]

    @classmethod
    def of(cls, history: str, snapshot: str) -> "Mark":
        """Parse PostgreSQL's text of a snapshot, `xmin:xmax:number,number…`."""
        _, xmax, in_progress = snapshot.split(":")
        return cls(history, int(xmax), tuple(map(int, in_progress.split(","))) if in_progress else ())

    def changed_since(self, limit: int) -> list[int | str]:
        """Return the parameters of CHANGED."""
        return [self.xmax, limit, numbers(self.in_progress), limit]


class ListReader:
    """Reads the list. Implements `storage.listing.ListReader`."""

    def mark(self) -> Work[Mark]:
        [row] = yield Query(_MARK)
        return Mark.of(*row)

    def changed_since(self, mark: Mark, now: Mark, limit: int) -> Work[list[int] | None]:
        if mark.history != now.history:
            return None
        return [row[0] for row in (yield Query(CHANGED, mark.changed_since(limit)))]

    def piece_starts(self) -> Work[list[int]]:
        return [row[0] for row in (yield Query(STARTS))]

    def records(self, ranges: Sequence[Range]) -> Work[list[bytes]]:
        edges = numbers(one.first for one in ranges), numbers(one.last for one in ranges)
        return [records.encode() for (records,) in (yield Query(_RECORDS, edges))]


async def newest_list(pool: Pool, stats: Stats, held: OrderList | None) -> OrderList:
    """Return the list, never older than any change acknowledged before this call, by any process.

    One indexed query if nothing has changed since `held`; otherwise the pieces that have changed are read.
    """
    if held is not None:
        [(history, snapshot, changed)] = await pool.rows(ANY_CHANGED, held.mark.changed_since(1))
        if history == held.mark.history and not changed:
            return replace(held, mark=Mark.of(history, snapshot))
    began = time.perf_counter()
    latest = await pool.transaction(lambda session: run(session, read_list(ListReader(), held)), SNAPSHOT)
    stats.rebuilt(time.perf_counter() - began)
    return latest
