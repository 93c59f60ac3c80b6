"""A primary of PostgreSQL and a replica, for tests of a failover."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from testing.engines import PostgresEngine, running_engine
from testing.subprocesses import PATIENCE, within


class Pair(NamedTuple):
    """A primary, and a replica that takes its place."""

    primary: PostgresEngine
    replica: PostgresEngine

    @property
    def url(self) -> str:
        """The URL of the store on whichever is the primary."""
        return f"postgresql://postgres@127.0.0.1:{self.primary.port},127.0.0.1:{self.replica.port}/postgres"


@contextmanager
def running_pair() -> Iterator[Pair]:
    """Both started, gone at the end."""
    with running_engine() as primary, running_engine(primary=primary) as replica:
        yield Pair(primary, replica)


def acknowledge_together(primary: PostgresEngine) -> None:
    """Have a primary acknowledge nothing that its replica does not have."""
    with primary.admin() as admin:
        admin.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
        admin.execute("SELECT pg_reload_conf()")
        synchronous = "SELECT sync_state FROM pg_stat_replication"
        within(PATIENCE, lambda: [("sync",)] == admin.execute(synchronous).fetchall())


def disconnect(pair: Pair) -> None:
    """Have the replica get no further changes; return when it has all that were made."""
    with pair.primary.admin() as admin, pair.replica.admin() as other:
        [(newest,)] = admin.execute("SELECT pg_current_wal_insert_lsn()").fetchall()
        reached = "SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn"
        within(PATIENCE, lambda: other.execute(reached, (newest,)).fetchone() == (True,))
        other.execute("ALTER SYSTEM SET primary_conninfo = ''")
        other.execute("SELECT pg_reload_conf()")
        connected = "SELECT count(*) FROM pg_stat_replication"
        within(PATIENCE, lambda: admin.execute(connected).fetchone() == (0,))


def promote(replica: PostgresEngine) -> None:
    """Make a replica the primary. A query that waited for that itself would hold up what the replica has to apply."""
    with replica.admin() as admin:
        admin.execute("SELECT pg_promote(wait => false)")
        within(PATIENCE, lambda: admin.execute("SELECT pg_is_in_recovery()").fetchone() == (False,))
