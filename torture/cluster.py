"""Several servers on one store, with proxies before what they depend on, and faults of all kinds."""

import asyncio
import random
import signal
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

from petstore_server.domain.accounts import VisibleOrders
from testing.engines import PostgresEngine, running_engine
from testing.failover import acknowledge_together, promote
from testing.proxy import Proxy
from testing.redis_engine import RedisEngine, own_redis
from torture.programs import Server
from torture.recording import Options
from torture.state import new_key, url_of

OWNERS = ("acme", "north", "south")
"""The accounts. The first one sees all orders, the others only their own. A pet's number says whose its order is."""
_AHEAD = (-3_600, -300, 0, 0, 60, 300, 3_600)
"""Seconds by which the clock of a server may be wrong."""

_LENIENT = {"PETSTORE_BAN_GRACE_SECONDS": "600", "PETSTORE_DRAIN_DELAY_SECONDS": "0"}
"""However slowly a busy machine sends a burst, no request is a strike; and restarts are short."""


@dataclass
class Cluster:
    """The servers, and what they share. `url` is the store as one reaches it without a proxy."""

    servers: list[Server]
    proxies: list[Proxy]
    clocks: list[Path]
    url: str
    key: str
    redis: RedisEngine
    primary: PostgresEngine | None
    replica: PostgresEngine | None
    faults: list[str] = field(default_factory=list)


async def cluster(
    stack: AsyncExitStack,
    engine: str,
    servers: int,
    *,
    replica: bool = False,
    direct: bool = False,
    options: Options | None = None,
    **more: str,
) -> Cluster:
    """Start everything: `engine` is sqlite or postgres. `direct`: without proxies, and on SQLite without Redis.

    Servers that are direct have the `options`, and more settings.
    """
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="petstore-torture-")))
    redis = stack.enter_context(own_redis("--appendonly", "yes", "--appendfsync", "always"))
    primary = stack.enter_context(running_engine()) if engine == "postgres" else None
    second = stack.enter_context(running_engine(primary=primary)) if primary is not None and replica else None
    url = (
        _url([each.port for each in (primary, second) if each is not None]) if primary else url_of(folder / "store.db")
    )
    made = Cluster([], [], [], url, await new_key(url), redis, primary, second)
    if primary is not None and second is not None:
        acknowledge_together(primary)
    for number in range(servers):
        clock = folder / f"clock-{number}"
        clock.write_text("0")
        made.clocks.append(clock)
        if direct:
            server = Server(url, {**({"PETSTORE_REDIS_URL": redis.url} if primary else {}), **more}, options)
        else:
            own = [await stack.enter_async_context(Proxy(each.port)) for each in (primary, second) if each is not None]
            to_redis = await stack.enter_async_context(Proxy(redis.port))
            made.proxies += [*own, to_redis]
            settings = {"PETSTORE_REDIS_URL": f"redis://127.0.0.1:{to_redis.port}/0", **_LENIENT}
            server = Server(_url([each.port for each in own]) if own else url, settings, Options(clock=str(clock)))
        stack.callback(server.log.unlink)
        stack.callback(server.end, signal.SIGKILL)
        made.servers.append(server)
        await asyncio.to_thread(server.start)
    return made


async def keys_of_owners(made: Cluster) -> list[str]:
    """A key of each account in OWNERS; those that see their own orders only are made."""
    return [made.key, *[await new_key(made.url, name, orders=VisibleOrders.OWN) for name in OWNERS[1:]]]


def _url(ports: list[int]) -> str:
    return f"postgresql://postgres@{','.join(f'127.0.0.1:{port}' for port in ports)}/postgres"


async def _start_again(server: Server) -> None:
    """Start a server as systemd would: again, where it ends because it does not reach its store or port in time."""
    for _ in range(9):
        with suppress(AssertionError):
            await asyncio.to_thread(server.start)
            return
        await asyncio.sleep(0.5)
    await asyncio.to_thread(server.start)


class Faults:
    """Faults, one at a time, by chance."""

    def __init__(self, made: Cluster, chance: random.Random) -> None:
        self._made = made
        self._chance = chance
        often = [self.cut, self.slow, self.unconfirmed, self.step, self.freeze, self.freeze_redis]
        self._kinds: list[Callable[[], Awaitable[None]]] = [*often * 4, self.kill, self.kill, self.restart]
        if made.primary is not None:
            self._kinds += [self.freeze_postgres, self.freeze_postgres, self.crash_postgres]

    async def run(self, seconds: float) -> None:
        """Faults until the time is over; afterwards all is well again, except for the clocks."""
        clock = asyncio.get_running_loop().time
        ends = clock() + seconds
        while clock() < ends or self._made.replica is not None:
            await asyncio.sleep(self._chance.uniform(0.02, 0.2))
            due = self._made.replica is not None and clock() > ends - seconds / 2
            fault = self.promote if due else self._chance.choice(self._kinds)
            self._made.faults.append(fault.__name__)
            await fault()

    def _pause(self) -> float:
        return self._chance.uniform(0.05, 0.5)

    async def kill(self) -> None:
        """A server is killed, and started again."""
        server = self._chance.choice(self._made.servers)
        await asyncio.to_thread(server.end, signal.SIGKILL)
        await asyncio.sleep(self._pause())
        await _start_again(server)

    async def restart(self) -> None:
        """A rolling restart of all servers."""
        for server in self._made.servers:
            await asyncio.to_thread(server.end)
            await _start_again(server)

    async def freeze(self) -> None:
        """A server stands still."""
        server = self._chance.choice(self._made.servers)
        server.send(signal.SIGSTOP)
        await asyncio.sleep(2 * self._pause())
        server.send(signal.SIGCONT)

    async def cut(self) -> None:
        """Connections break."""
        self._chance.choice(self._made.proxies).cut()

    async def slow(self) -> None:
        """A network is slow."""
        proxy = self._chance.choice(self._made.proxies)
        proxy.delay = self._chance.uniform(0.01, 0.3)
        await asyncio.sleep(self._pause())
        proxy.delay = 0.0

    async def unconfirmed(self) -> None:
        """What is sent arrives, and no response comes back: commits are done and not confirmed."""
        proxy = self._chance.choice(self._made.proxies)
        proxy.silent = True
        await asyncio.sleep(self._pause())
        proxy.cut()
        proxy.silent = False

    async def step(self) -> None:
        """The clock of a server is set."""
        self._chance.choice(self._made.clocks).write_text(str(self._chance.choice(_AHEAD)))

    async def freeze_redis(self) -> None:
        """Redis stands still."""
        with self._made.redis.frozen():
            await asyncio.sleep(self._pause())

    async def freeze_postgres(self) -> None:
        """PostgreSQL stands still."""
        assert self._made.primary is not None
        with self._made.primary.frozen():
            await asyncio.sleep(2 * self._pause())

    async def crash_postgres(self) -> None:
        """PostgreSQL ends all connections, and recovers from its log."""
        assert self._made.primary is not None
        await asyncio.to_thread(self._made.primary.crash)

    async def promote(self) -> None:
        """The primary is gone for good, and its replica takes its place."""
        primary, replica = self._made.primary, self._made.replica
        assert primary is not None
        assert replica is not None
        await asyncio.to_thread(primary.kill)
        with replica.admin() as admin:
            admin.execute("ALTER SYSTEM SET synchronous_standby_names = ''")
            await asyncio.to_thread(promote, replica)
            admin.execute("SELECT pg_reload_conf()")
        self._made.primary, self._made.replica = replica, None
