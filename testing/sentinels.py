"""A primary of Redis, a replica, and three Sentinels that watch them, with passwords, for tests of failovers."""

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import redis

from testing import needs
from testing.redis_engine import VALKEY, valkey_program
from testing.subprocesses import PATIENCE, free_port, kill, started, within

NAME, PASSWORD, SENTINEL_PASSWORD = "shop", "s3cr3t-data", "s3cr3t-watch"
SENTINELS = 3


class Program:
    """A Redis or a Sentinel, with a file of settings. With `tls`, (certificate, key, authority), it speaks only TLS."""

    def __init__(
        self, folder: Path, server: str, lines: Sequence[str], password: str, tls: Sequence[Path] = (), role: str = ""
    ) -> None:
        self.port = free_port()
        self._program = valkey_program() if server == VALKEY else needs.program("redis-server")
        self._folder = folder / str(self.port)
        self._folder.mkdir()
        own = [f"port {self.port}", "bind 127.0.0.1", f"dir {self._folder}", f"requirepass {password}"]
        if tls:
            names = ("tls-cert-file", "tls-key-file", "tls-ca-cert-file")
            own += [f"{name} {file}" for name, file in zip(names, tls, strict=True)]
            own += [f"tls-port {self.port}", "port 0", "tls-auth-clients no", "tls-replication yes"]
        (self._folder / "conf").write_text("\n".join([*own, *lines, ""]))
        self._role = [role] if role else []
        secure = f"rediss://:{password}@127.0.0.1:{self.port}?ssl_ca_certs={tls[2]}" if tls else ""
        url = secure or f"redis://:{password}@127.0.0.1:{self.port}"
        self.client: Any = redis.Redis.from_url(url, decode_responses=True)
        self.start()

    def start(self) -> None:
        """Start it, or start it again."""
        command = [self._program, str(self._folder / "conf"), *self._role]
        self.process = started(command, self._folder / "log", self._answers, start_new_session=True)

    def _answers(self) -> bool:
        try:
            return bool(self.client.ping())
        except redis.ConnectionError:
            return False

    def is_replica(self) -> bool:
        """Whether it says that it is one; a Sentinel that makes it one ends its connections."""
        try:
            return bool(self.client.info()["role"] == "slave")
        except redis.ConnectionError:
            return False

    def close(self) -> None:
        """End it."""
        self.client.close()
        kill(self.process)


class Watched:
    """Two servers, of which Sentinels make one the primary."""

    def __init__(self, folder: Path, server: str, tls: Sequence[Path]) -> None:
        self._start_with = folder, server, tls
        self.servers: list[Program] = []
        self.sentinels: list[Program] = []
        self.url = ""

    def start(self) -> None:
        """Start all of them, and wait until they know each other."""
        data = ['save ""', f"masterauth {PASSWORD}"]
        first = self._add(self.servers, data, PASSWORD)
        self._add(self.servers, [*data, f"replicaof 127.0.0.1 {first.port}"], PASSWORD)
        watching = [
            f"sentinel monitor {NAME} 127.0.0.1 {first.port} 2",
            f"sentinel auth-pass {NAME} {PASSWORD}",
            f"sentinel down-after-milliseconds {NAME} 500",
            f"sentinel failover-timeout {NAME} 2000",
            f"sentinel sentinel-pass {SENTINEL_PASSWORD}",
        ]
        for _ in range(SENTINELS):
            self._add(self.sentinels, watching, SENTINEL_PASSWORD, "--sentinel")
        hosts = ",".join(f"127.0.0.1:{each.port}" for each in self.sentinels)
        self.url = f"redis{'s' if self._start_with[2] else ''}+sentinel://:{PASSWORD}@{hosts}/{NAME}/0"
        within(PATIENCE, self._know_each_other)

    def _add(self, to: list[Program], lines: Sequence[str], password: str, role: str = "") -> Program:
        folder, server, tls = self._start_with
        to.append(Program(folder, server, lines, password, tls, role))
        return to[-1]

    def _know_each_other(self) -> bool:
        """Whether each Sentinel knows the others and the replica, and the replica has all."""
        states = [each.client.sentinel_master(NAME) for each in self.sentinels]
        known = [(state["num-other-sentinels"], state["num-slaves"]) for state in states]
        return known == [(SENTINELS - 1, 1)] * SENTINELS and "up" == self.servers[1].client.info()["master_link_status"]

    def primary(self) -> Program:
        """The server that all Sentinels name, once they agree."""
        ports: set[int] = set()

        def agree() -> bool:
            ports.clear()
            ports.update(each.client.sentinel_master(NAME)["port"] for each in self.sentinels)
            return len(ports) == 1

        within(PATIENCE, agree)
        return next(each for each in self.servers if each.port in ports)

    def close(self) -> None:
        for each in [*self.sentinels, *self.servers]:
            each.close()


@contextmanager
def watched_redis(server: str = VALKEY, tls: Sequence[Path] = ()) -> Iterator[Watched]:
    """A primary, its replica and their Sentinels, ended and removed at the end."""
    folder = Path(tempfile.mkdtemp(prefix="petstore-sentinels-"))
    watched = Watched(folder, server, tls)
    try:
        watched.start()
        yield watched
    finally:
        watched.close()
        shutil.rmtree(folder, ignore_errors=True)
