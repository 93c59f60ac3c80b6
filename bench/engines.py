"""PostgreSQL and Valkey below a store, and pgbench."""

import re
from pathlib import Path
from typing import Any, NamedTuple

import psycopg

from bench.load import CONNECTIONS
from bench.machine import BenchError, pinned
from bench.plan import Plan, run
from testing.engines import PostgresEngine
from testing.redis_engine import RedisEngine

DURABLE = {
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
    def version(self) -> str:
        """The version, and whether plans are compiled (JIT): "15.14 with JIT"."""
        query = "SELECT current_setting('server_version'), pg_jit_available()"
        [(version, compiled)] = self.rows(self.url("postgres"), query)
        return f"{version.split()[0]}{' with JIT' if compiled else ''}"

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

    def pgbench(self, plan: Plan, url: str, script: Path, connections: int = CONNECTIONS, **variables: int) -> Pgbench:
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


class Engines(NamedTuple):
    """PostgreSQL, and Valkey with its append-only file, as the service recommends."""

    postgres: Postgres
    redis: RedisEngine

    def settings(self) -> dict[str, str]:
        """The settings of a new store on both."""
        database = self.postgres.url(self.postgres.new_database())
        return {"PETSTORE_DATABASE_URL": database, "PETSTORE_REDIS_URL": self.redis.url}

    def processes(self) -> dict[str, int]:
        """Their process identifiers, by name."""
        return {"PostgreSQL": self.postgres.processes()[0], "Redis": self.redis.process.pid}
