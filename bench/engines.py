"""PostgreSQL and Valkey, durable and on one core each, and pgbench."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psycopg

from bench.machine import BenchError, pinned
from bench.plan import Plan, run
from testing.engines import PostgresEngine
from testing.redis_engine import RedisEngine

_SETTINGS = {
    "fsync": "on",
    "full_page_writes": "on",
    "autovacuum": "on",
    "max_connections": "100",
    "shared_buffers": "512MB",
    "min_wal_size": "80MB",
    "max_wal_size": "4GB",
    "deadlock_timeout": "1s",
}


class Pgbench(NamedTuple):
    """What pgbench reports: transactions per second, and how many."""

    rate: float
    transactions: int


class Postgres(PostgresEngine):
    """A PostgreSQL that flushes every commit to the disk (`fsync` and `synchronous_commit` are on)."""

    @property
    def pid(self) -> int:
        return self.processes()[0]

    @property
    def version(self) -> str:
        """The version, and whether plans are compiled (JIT): "15.14 with JIT"."""
        query = "SELECT current_setting('server_version'), pg_jit_available()"
        [(version, compiled)] = self.rows(self.url("postgres"), query)
        return f"{version.split()[0]}{' with JIT' if compiled else ''}"

    def new_url(self) -> str:
        """Create an empty database; return its URL."""
        return self.url(self.new_database())

    def execute(self, url: str, statements: str) -> None:
        """Run statements in a database, each committed by itself."""
        with psycopg.connect(url, autocommit=True) as connection:
            for statement in statements.split(";\n"):
                if statement.strip():
                    connection.execute(statement.encode())

    def rows(self, url: str, query: str) -> list[tuple[Any, ...]]:
        """The rows of a query."""
        with psycopg.connect(url) as connection:
            return connection.execute(query.encode()).fetchall()

    def pgbench(self, plan: Plan, url: str, script: Path, connections: int, **variables: int) -> Pgbench:
        """Run a pgbench script from the load core, over TCP and with prepared statements."""
        fixed = [self.program("pgbench"), "-n", "-c", str(connections), "-j", "1", "-M", "prepared"]
        options = [part for name, value in variables.items() for part in ("-D", f"{name}={value}")]
        command: list[str | Path] = [*fixed, "-T", str(plan.seconds), *options, "-f", script, url]
        printed = run(pinned(plan.cores.load, command))
        rate = re.search(r"tps = ([\d.]+)", printed)
        number = re.search(r"actually processed: (\d+)", printed)
        if rate is None or number is None:
            raise BenchError(f"pgbench: {printed}")
        return Pgbench(float(rate[1]), int(number[1]))


@contextmanager
def postgres(plan: Plan, core: int, programs: Path | None = None) -> Iterator[Postgres]:
    """PostgreSQL on one core, deleted at the end; `programs` is the directory of another build than the usual one."""
    engine = Postgres(programs, _SETTINGS, within=plan.folder, start_with=pinned(core, []))
    try:
        engine.start()
        yield engine
    finally:
        engine.remove()


def debian_programs() -> Path | None:
    """The directory of the newest PostgreSQL that Debian's packages installed."""
    return max(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda found: int(found.parent.name), default=None)


@contextmanager
def redis_server(core: int) -> Iterator[RedisEngine]:
    """Valkey with its append-only file, as the service recommends, on one core."""
    engine = RedisEngine("--appendonly", "yes", start_with=pinned(core, []))
    try:
        yield engine
    finally:
        engine.close()
