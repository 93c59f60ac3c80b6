"""What a measurement needs: filled stores, the engines below them, and servers, each on a separate core."""

import http.client
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from bench.engines import DURABLE, Engines, Postgres
from bench.load import CONNECTIONS, Connection, Kind, Load, Reading, Successive
from bench.machine import BenchError, pinned, program
from bench.orders import LIST, order_file
from bench.plan import PETSTORE, Plan, run
from bench.results import PRODUCT
from testing.redis_engine import RedisEngine
from testing.subprocesses import end, environment_with, free_port, peak_resident

WRITER = ("orders:read", "orders:cancel", "orders:write")
"""The scopes of a key that may place orders as well."""

_UNLIMITED = ("--plan", "enterprise", "--per-minute", "1000000000", "--per-day", "1000000000")
ACCOUNT, _FILE = "bench", "store.db"
_START_SECONDS = 60
_POLL_SECONDS = 0.02
_NGINX = """
daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log stderr crit; worker_rlimit_nofile 20000;
events {{ worker_connections 8192; }}
http {{
    access_log off; sendfile off; output_buffers 2 512k; tcp_nodelay on; gzip_static on;
    keepalive_requests 1000000000; types {{ }} default_type application/json;
    client_body_temp_path {folder}/t1; proxy_temp_path {folder}/t2; fastcgi_temp_path {folder}/t3;
    uwsgi_temp_path {folder}/t4; scgi_temp_path {folder}/t5;
    server {{
        listen 127.0.0.1:{port} backlog=4096; root {folder};
        location = /fixed {{ return 200 '{fixed}'; }}
        location /nothing {{ return 204; }}
    }}
}}
"""


@dataclass
class Store:
    """A filled store: the environment that selects it, an API key without noticeable limits, and its orders."""

    environment: Mapping[str, str]
    key: str
    orders: int
    engines: Engines | None = None

    @property
    def url(self) -> str:
        return self.environment["PETSTORE_DATABASE_URL"]

    def petstore(self, *arguments: str | Path) -> str:
        """Run one command on this store; return its standard output."""
        return run([PETSTORE, *arguments], env=self.environment)


class Imported(NamedTuple):
    """What an import took: seconds, seconds of processor time, and bytes of memory at the most."""

    seconds: float
    cpu_seconds: float
    memory: int


@dataclass(frozen=True)
class Running:
    """A started server: the address of its root, without a slash at the end, and its process.

    `headers` are those that its requests need, and `watch` the processes whose time its loads read, by name. `admin` is
    the address of the product's admin port.
    """

    plan: Plan
    url: str
    pid: int
    ready_seconds: float
    headers: Mapping[str, str]
    watch: Mapping[str, int]
    admin: str = ""

    def with_key(self, key: str) -> "Running":
        """The same server, whose requests have another key."""
        return replace(self, headers={"Authorization": f"Bearer {key}"})

    def connection(self) -> Connection:
        return Connection(self.url, self.headers)

    def load(self, target: str, **options: Any) -> Load:
        """Start to load a target; the options are those of `Load`, and `headers` are further ones."""
        sent = {**self.headers, **options.pop("headers", {})}
        return Load(self.plan, self.url + target, **{"watch": self.watch, **options, "headers": sent})

    def wrk(self, target: str, **options: Any) -> Reading:
        """Load a target for some seconds."""
        return self.load(target, **options).wait()

    def successive(self, target: str, kind: Callable[[int], Kind], **options: Any) -> Successive:
        """A load with a new identifier in each request."""
        return Successive(lambda **more: self.load(target, **options, **more), kind)

    def unchanged(self, target: str = LIST) -> dict[str, str]:
        """The header that asks only for what has changed since now."""
        with self.connection() as connection:
            return {"If-None-Match": connection.get(target)[0].headers["ETag"]}


@dataclass
class Changes:
    """A load of pgbench on the tables of a store: a script gives pending orders a status, with a commit each time.

    `together` orders change in a transaction, by ascending identifier.
    """

    plan: Plan
    engine: Postgres
    url: str
    script: Path
    status: str
    together: int
    connections: int
    changed: int = 0
    next: int = 1

    def __call__(self) -> Reading:
        """Change the orders that follow those of the load before; each must have been pending."""
        variables = {"next": self.next, "clients": self.connections}
        found = self.engine.pgbench(self.plan, self.url, self.script, self.connections, **variables)
        query = f"SELECT count(*), max(id) FROM petstore.orders WHERE status = '{self.status}'"
        [(number, last)] = self.engine.rows(self.url, query)
        self.changed += found.transactions * self.together
        if number != self.changed:
            raise BenchError(f"pgbench gave {number:,} orders the status {self.status} instead of {self.changed:,}.")
        self.next = last + 1
        return Reading(found.rate * self.together)


class Setup(ExitStack):
    """What one measurement works with: everything is ended and deleted when it is left."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.plan = plan

    def folder(self) -> Path:
        """A directory that other users may enter: PostgreSQL and nginx drop their rights."""
        folder = Path(self.enter_context(tempfile.TemporaryDirectory(dir=self.plan.folder)))
        folder.chmod(0o755)
        return folder

    def postgres(self, core: int, programs: Path | None = None) -> Postgres:
        """PostgreSQL on one core; `programs` is the directory of another build than the usual one."""
        engine = Postgres(programs, DURABLE, within=self.plan.folder, start_with=pinned(core, []))
        self.callback(engine.remove)
        engine.start()
        return engine

    def redis(self, core: int) -> RedisEngine:
        """Valkey on one core."""
        engine = RedisEngine("--appendonly", "yes", start_with=pinned(core, []))
        self.callback(engine.close)
        return engine

    def engines(self, programs: Path | None = None) -> Engines:
        """Both on the core for databases."""
        core = self.plan.cores.database
        return Engines(self.postgres(core, programs), self.redis(core))

    def store(
        self,
        orders: int,
        engines: Engines | None = None,
        *,
        settings: Mapping[str, str] | None = None,
        varied: bool = False,
        scopes: tuple[str, ...] = (),
    ) -> Store:
        """Fill a new store with orders 1 to `orders`: on the engines, by the settings, or in a SQLite file.

        A SQLite store that was filled before in the same run is copied.
        """
        if engines or settings:
            made = self._filled(orders, settings or (engines.settings() if engines else {}), varied, scopes)
            made.engines = engines
            return made
        template = self.plan.folder / "stores" / f"{orders}-{varied}-{'-'.join(scopes)}"
        if not template.exists():
            template.mkdir(parents=True)
            (template / "key").write_text(self._filled(orders, _sqlite(template), varied, scopes).key)
        folder = self.folder()
        for file in template.glob(f"{_FILE}*"):
            shutil.copy(file, folder)
        return Store(environment_with(**_sqlite(folder)), (template / "key").read_text(), orders)

    def _filled(self, orders: int, settings: Mapping[str, str], varied: bool, scopes: tuple[str, ...]) -> Store:
        """A new store with orders, an account and a key, made by the command line."""
        made = Store(environment_with(**settings), "", orders)
        made.petstore("db", "migrate")
        if orders:
            made.petstore("orders", "import", order_file(self.plan, orders, varied=varied), "--format", "jsonl")
        made.petstore("accounts", "create", ACCOUNT, *_UNLIMITED)
        options = [part for scope in scopes for part in ("--scope", scope)]
        made.key = json.loads(made.petstore("keys", "create", ACCOUNT, *options, "--json"))["key"]
        return made

    def timed_import(self, store: Store, file: Path) -> Imported:
        """Import a file of orders with the command, on the server core."""
        log, memory, ended = self.folder() / "import.log", 0, 0
        words: list[str | Path] = [PETSTORE, "orders", "import", file, "--format", "jsonl", "--json"]
        command = pinned(self.plan.cores.server, words)
        began = time.perf_counter()
        with log.open("wb") as output:
            process = subprocess.Popen(command, env=store.environment, stdout=output, stderr=output)
        while not ended:
            with suppress(OSError, IndexError):  # it has ended; its resource usage would include this process
                memory = max(memory, peak_resident(process.pid))
            time.sleep(_POLL_SECONDS)
            ended, status, used = os.wait4(process.pid, os.WNOHANG)
        took = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise BenchError(f"petstore orders import: {log.read_text()[-2000:]}")
        return Imported(took, used.ru_utime + used.ru_stime, memory)

    def petstore(self, store: Store, *, core: int | str = "", **settings: str) -> Running:
        """`petstore serve` over a store, on the server core or another; ready when `/readyz` says so."""
        port, admin = free_port(), free_port()
        url, admin_url = (f"http://127.0.0.1:{each}" for each in (port, admin))
        command: list[str | Path] = [PETSTORE, "serve", "--port", str(port), "--admin-port", str(admin)]
        env = {**store.environment, **settings}
        server = self.started(command, url, f"{admin_url}/readyz", key=store.key, core=core, env=env)
        engines = store.engines.processes() if store.engines else {}
        return replace(server, watch={**server.watch, **engines}, admin=admin_url)

    def pgbench(
        self,
        engine: Postgres,
        orders: int,
        script: str,
        status: str,
        *,
        before: str = "",
        together: int = 1,
        connections: int = CONNECTIONS,
    ) -> "Changes":
        """The load of a script on a new store; the statements `before` prepare its tables."""
        store = self.store(orders, settings={"PETSTORE_DATABASE_URL": engine.url(engine.new_database())})
        engine.execute(store.url, f"{before};\nVACUUM ANALYZE")
        file = self.folder() / "script.sql"
        file.write_text(script)
        return Changes(self.plan, engine, store.url, file, status, together, connections)

    def nginx(self, folder: Path, fixed: bytes = b"") -> Running:
        """One nginx worker on the server core: the files of a folder, `fixed` at /fixed, 204 below /nothing."""
        port = free_port()
        config = folder / "nginx.conf"
        config.write_text(_NGINX.format(folder=folder, port=port, fixed=fixed.decode()))
        url = f"http://127.0.0.1:{port}"
        path = program("nginx") or "nginx"  # `need` has looked for it
        master = self.started([path, "-c", config, "-p", folder], url, f"{url}/nothing")
        worker = int(Path(f"/proc/{master.pid}/task/{master.pid}/children").read_text().split()[0])
        return replace(master, pid=worker, watch={"nginx": worker})

    def started(
        self,
        command: Sequence[str | Path],
        url: str,
        ready: str,
        *,
        name: str = PRODUCT,
        key: str = "",
        core: int | str = "",
        env: Mapping[str, str] | None = None,
    ) -> Running:
        """Start a server, on the server core unless another is given, which the key is sent to.

        It is ready when the URL `ready` gets a response below 500.
        """
        folder = self.folder()
        log = folder / "log"
        began = time.perf_counter()
        with log.open("wb") as output:
            process = subprocess.Popen(
                pinned(core or self.plan.cores.server, command), env=env, stdout=output, stderr=output, cwd=folder
            )
        self.callback(end, process, signal.SIGTERM, log)
        while not _answers(ready):
            if process.poll() is not None or time.perf_counter() - began > _START_SECONDS:
                raise BenchError(f"{Path(command[0]).name} did not start:\n{log.read_text()[-2000:]}")
            time.sleep(0.002)
        seconds = time.perf_counter() - began
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        return Running(self.plan, url, process.pid, seconds, headers, {name: process.pid})


def _answers(url: str) -> bool:
    try:
        with Connection(url) as peer:
            return peer.get(urlsplit(url).path)[0].status < 500
    except (OSError, http.client.HTTPException):
        return False


def _sqlite(folder: Path) -> dict[str, str]:
    return {"PETSTORE_DATABASE_URL": f"sqlite:///{folder / _FILE}"}
