"""A real PostgreSQL for tests."""

import itertools
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

import psycopg

from testing.memory import memory
from testing.postgres_programs import SERVER_USER, empty_server, fill, installed_programs, make_private
from testing.subprocesses import at_end, await_ready, descendants, end, free_port, running, started

_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "fsync": "off",  # the machine does not fail in these tests, and a killed server loses nothing by it
    "full_page_writes": "off",
    "dynamic_shared_memory_type": "mmap",  # within the directory, so that a killed server leaves nothing elsewhere
    "min_wal_size": "32MB",  # the directory is in memory
    "max_wal_size": "128MB",
    "max_connections": "60",
    "shared_buffers": "64MB",
    "deadlock_timeout": "100ms",
    "autovacuum": "off",  # the databases do not live long enough to need it
    "timezone": "UTC",
}
_numbers = itertools.count(1)


class PostgresEngine:
    """A server with a directory of its own; `start` and `stop` may follow one another."""

    def __init__(
        self,
        programs: Path | None = None,
        settings: Mapping[str, str] | None = None,
        *,
        primary: "PostgresEngine | None" = None,
        within: Path | None = None,
        start_with: Sequence[str] = (),
    ) -> None:
        """`programs` are PostgreSQL's own, unless the wheel's are meant; `settings` go before those of all tests.

        With a `primary`, which must be running, it is a replica of that. Its directory is in memory, unless it is to be
        `within` another one. `start_with` is a command that starts the program, such as taskset.
        """
        self._bin = programs or installed_programs()
        self._start_with = start_with
        self.folder = Path(tempfile.mkdtemp(prefix="petstore-postgres-", dir=within or memory()))
        self.folder.chmod(0o755)  # for the user under whom the server runs
        self.port = free_port()
        self.data = self.folder / "data"
        self._process: subprocess.Popen[bytes] | None = None
        self._administrator: psycopg.Connection | None = None
        make_private(self.data)
        if primary is None:
            subprocess.run(["cp", "-a", f"{empty_server(self._bin)}/.", str(self.data)], check=True)
        else:
            source = f"--host=127.0.0.1 --port={primary.port} --username=postgres".split()
            options = ("--write-recovery-conf", "--checkpoint=fast", "--no-sync")
            try:
                fill(self.data, self._bin / "pg_basebackup", *source, *options)
            except AssertionError:
                shutil.rmtree(self.folder)
                raise
        with (self.data / "postgresql.conf").open("a") as file:
            file.writelines(f"{name} = '{text}'\n" for name, text in {**_SETTINGS, **(settings or {})}.items())

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        options = ["-D", str(self.data), "-p", str(self.port), "-k", str(self.data)]
        command = [*self._start_with, str(self._bin / "postgres"), *options]
        log = self.folder / "log"
        self._process = started(command, log, self._answers, user=SERVER_USER, group=SERVER_USER)

    def _answers(self) -> bool:
        with suppress(psycopg.OperationalError), psycopg.connect(self.url("postgres")):
            return True
        return False

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop the server: SIGINT shuts it down in order, SIGQUIT is like a crash.

        After PATIENCE seconds all its processes are killed, and AssertionError is raised.
        """
        self._disconnect()
        if self._process is not None:
            process, self._process = self._process, None
            end(process, how, self.folder / "log")

    def crash(self) -> None:
        """Kill a backend: PostgreSQL ends all other processes and recovers from its log. Returns after that."""
        assert self._process is not None
        self._disconnect()
        with psycopg.connect(self.url("postgres")) as victim:
            before = descendants(self._process.pid)
            os.kill(victim.info.backend_pid, signal.SIGKILL)
            while running(before):
                time.sleep(0.01)
        await_ready(self._process, self._answers, self.folder / "log")

    def kill(self) -> None:
        """SIGKILL to every process of the server at once, as far as that is possible."""
        processes = self.processes()
        self._send_all(signal.SIGKILL)
        self.stop(signal.SIGKILL)
        while running(processes):
            time.sleep(0.005)

    def processes(self) -> list[int]:
        """The process ids of the server."""
        assert self._process is not None
        return [self._process.pid, *descendants(self._process.pid)]

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Suspend all processes of the server: connections stay open, and nothing responds."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGSTOP)  # first, so that it starts no other process
        try:
            self._send_all(signal.SIGSTOP)
            yield
        finally:
            if self._process is not None:  # not removed meanwhile
                self._send_all(signal.SIGCONT)

    def _send_all(self, number: signal.Signals) -> None:
        """Send a signal to all processes of the server; one may end meanwhile."""
        for process in self.processes():
            with suppress(ProcessLookupError):
                os.kill(process, number)

    def remove(self) -> None:
        """Stop the server and delete its directory. Nothing is kept, so it does not write a checkpoint first."""
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.folder)

    def url(self, database: str) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def admin(self, database: str = "postgres") -> psycopg.Connection:
        """A connection of the superuser, each statement for itself; a context manager that closes it."""
        return psycopg.connect(self.url(database), autocommit=True)

    def _administer(self) -> psycopg.Connection:
        """The connection that stays open for what each test does: a new one takes as long as a test."""
        if self._administrator is None:
            self._administrator = self.admin()
        return self._administrator

    def _disconnect(self) -> None:
        if self._administrator is not None:
            self._administrator.close()
            self._administrator = None

    def new_database(self, template: str = "template1") -> str:
        """Make a database, an empty one unless another one is the template; return its name."""
        name = f"test_{os.getpid()}_{next(_numbers)}"  # forked processes may use one server
        # A copy of the files costs half as much as one through the log.
        self._administer().execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}" STRATEGY FILE_COPY')
        return name

    def drop_database(self, name: str) -> None:
        self._administer().execute(f'DROP DATABASE "{name}" WITH (FORCE)')

    def connections(self, database: str) -> list[str]:
        """What the connections to the database did last, those excepted that end within a second."""
        for _ in range(100):
            activity = "SELECT query FROM pg_stat_activity WHERE datname = %s"
            found = self._administer().execute(activity, (database,)).fetchall()
            if not found:
                break
            time.sleep(0.01)
        return [query for (query,) in found]

    def keep(self, file: Path, name: str) -> None:
        """Put a copy of the file where only the server can read it."""
        copy = self.data / name
        shutil.copyfile(file, copy)
        copy.chmod(0o600)
        if SERVER_USER is not None:
            os.chown(copy, SERVER_USER, SERVER_USER)

    def program(self, name: str) -> str:
        """The path of one of PostgreSQL's own programs."""
        return str(self._bin / name)

    def tool(self, program: str, *arguments: str) -> None:
        """Run one of PostgreSQL's own programs."""
        done = subprocess.run([self._bin / program, *arguments], capture_output=True, text=True, check=False)
        assert 0 == done.returncode, done.stderr


@contextmanager
def running_engine(
    programs: Path | None = None, settings: Mapping[str, str] | None = None, primary: PostgresEngine | None = None
) -> Iterator[PostgresEngine]:
    """A started server, gone at the end."""
    engine = PostgresEngine(programs, settings, primary=primary)
    try:
        engine.start()
        yield engine
    finally:
        engine.remove()


@cache
def shared_postgres() -> PostgresEngine:
    """The PostgreSQL of this test process, started; ended with it. Tests that stop it start one of their own."""
    return at_end.enter_context(running_engine())
