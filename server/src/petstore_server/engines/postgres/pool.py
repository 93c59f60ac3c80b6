"""The connections of one process to one database, and connecting: to the first of several hosts that takes changes."""

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import lru_cache
from math import inf

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from petstore_server import deadlines
from petstore_server.deadlines import Timeouts
from petstore_server.domain.errors import DomainError, ServiceUnavailable, StatementFailed
from petstore_server.engines.postgres import faults
from petstore_server.engines.postgres.connections import Connection, Driver
from petstore_server.engines.postgres.options import Options, transactions
from petstore_server.engines.postgres.timelines import Timelines
from petstore_server.store.damage import Damage
from petstore_server.store.engine import run_in_background
from petstore_server.store.statements import Query, Result

CONNECTIONS = 8  # connections of one process at most; concurrent changes, and concurrent lists, share one
LONG = CONNECTIONS - 2  # of these, for reads of many orders: many requests for large pages leave some for all others
_RECENT_SECONDS = 5.0  # for which the last failure explains why connections are busy
_ATTEMPTS = 8  # for a transaction that meets others, or connections that are dead

logging.getLogger("psycopg").disabled = True  # it also logs failures that it raises


class Pool:
    """At most CONNECTIONS connections; a broken one counts until PostgreSQL has ended it."""

    def __init__(self, url: str, timelines: Timelines, timeouts: Timeouts | None = None) -> None:
        self._url = url
        self._timeouts = timeouts or deadlines.TIMEOUTS
        self._read = transactions(self._timeouts).read
        self._timelines = timelines
        self._idle: list[Driver] = []
        self._open = 0  # idle, in use, or broken while PostgreSQL may still execute a statement
        self._free, self._long = asyncio.Semaphore(CONNECTIONS), asyncio.Semaphore(LONG)
        self._loop = asyncio.get_running_loop()
        self._closed = False
        self._connecting: set[asyncio.Task[Driver]] = set()
        self._known_fault: str | None = None
        self.damage = Damage(self._save_damage, run_in_background)
        self._last_fault = "", -math.inf  # the last reason, and when it was found

    def fault(self) -> str | None:
        reason, at = self._last_fault
        return self.damage.reason or (reason if self._loop.time() - at < _RECENT_SECONDS else None)

    async def _save_damage(self, reason: str | None) -> None:
        await self.use(lambda connection: connection.rows([Query(Damage.SAVE, (reason,))]), self._read)

    def _explain(self, connection: Connection, error: psycopg.Error) -> DomainError:
        """The error to raise for this one; one of the environment is kept for `fault`."""
        if connection.concerns_statement(error):
            return StatementFailed(faults.reported(error))
        late = ServiceUnavailable(faults.NO_RESPONSE)
        explained = late if connection.timed_out else faults.unavailable(error)
        if isinstance(error, faults.DAMAGE):
            self.damage.seen(explained)
        if not (connection.timed_out and self.fault()):  # an answer says more than none
            self._last_fault = explained.reason, self._loop.time()
        return explained

    @asynccontextmanager
    async def long_read(self, options: Options) -> AsyncIterator[Connection]:
        """A read-only transaction that the caller ends. Raises ServiceUnavailable."""
        # Leaves a connection that works, if there is one.
        await self.use(lambda connection: connection.rows([Query("SELECT 1")]), self._read)
        async with self._connection(options, self._loop.time() + options.total) as connection:
            try:
                yield connection
            except psycopg.Error as error:
                raise self._explain(connection, error) from error
            finally:
                await connection.roll_back()

    async def use(
        self, work: Callable[[Connection], Awaitable[Result]], options: Options, ready: float = inf
    ) -> Result:
        """Do the work on a connection; repeat it after a conflict with another transaction, or on the next connection.

        After a restart, all may be dead. All attempts share the time limit of the call; none waits for a connection
        after `ready`, a time of the event loop's clock. Raises what the work raises, StatementFailed, and
        ServiceUnavailable: if a commit failed, changes may have been made (D19).
        """
        deadline = self._loop.time() + options.total
        for left in reversed(range(_ATTEMPTS)):
            async with self._connection(options, deadline, ready) as connection:
                try:
                    return await work(connection)
                except psycopg.Error as error:
                    conflict = isinstance(error, options.conflicts)
                    again = left and self._loop.time() < deadline
                    if not again or not (conflict or connection.can_be_repeated(error)):
                        raise self._explain(connection, error) from error
            if not conflict:
                await self._close_idle()
        raise AssertionError  # the last attempt returns or raises

    async def use_for_long(self, work: Callable[[Connection], Awaitable[Result]], options: Options) -> Result:
        """Like `use`, on one of the connections for long reads: their queue does not delay short work."""
        ready = self._loop.time() + self._timeouts.total
        await self._acquire(self._long, LONG, ready)
        try:
            return await self.use(work, options, ready)
        finally:
            self._long.release()

    @asynccontextmanager
    async def _connection(self, options: Options, deadline: float, ready: float = inf) -> AsyncIterator[Connection]:
        """A connection for one user. Raises ServiceUnavailable if none is available in time."""
        if options.writes:
            self.damage.require_none()
        ready = min(deadline, ready, self._loop.time() + self._timeouts.total)
        await self._acquire(self._free, CONNECTIONS, ready)
        try:
            driver = self._idle.pop() if self._idle else await self._connect(ready)
        except BaseException:
            self._free.release()
            raise
        connection = Connection(driver, options, deadline)
        try:
            yield connection
        finally:
            if connection.reusable and not self._closed:
                self._idle.append(driver)
                self._free.release()
            else:
                await driver.close()
                # What was broken in the middle of a statement goes on until PostgreSQL's limit ends it.
                self._loop.call_later(options.statement if connection.timed_out else 0, self._ended)

    async def _acquire(self, places: asyncio.Semaphore, number: int, until: float) -> None:
        """Take a slot. Raises ServiceUnavailable if none is free in time."""
        try:
            if places.locked():
                await asyncio.sleep(0)  # before it first waits, a request runs outside of a task (`server/eager.py`)
                async with asyncio.timeout_at(until):
                    await places.acquire()
            else:
                await places.acquire()
        except TimeoutError:
            because = f": {fault}" if (fault := self.fault()) else ""
            raise ServiceUnavailable(f"all {number} connections to PostgreSQL are busy{because}") from None

    def _ended(self) -> None:
        """PostgreSQL has ended a connection, whose place is free for another one."""
        self._open -= 1
        self._free.release()

    async def _connect(self, ready: float) -> Driver:
        """Return a new connection; one that is ready too late for its user is kept for the next."""
        deadline = min(self._loop.time() + self._timeouts.connect, ready)
        own: asyncio.Task[Driver] | None = None
        while not self._idle:
            if self._closed:
                raise ServiceUnavailable("the store is closed")
            if (own is None or own.done()) and self._open + len(self._connecting) < CONNECTIONS:
                own = asyncio.create_task(connect(self._url, self._timeouts.all_hosts, self._timelines))
                self._connecting.add(own)
                own.add_done_callback(self._keep)
            left = deadline - self._loop.time()
            done, _ = await asyncio.wait(self._connecting, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                raise ServiceUnavailable(self._known_fault or faults.NO_RESPONSE)
            # An attempt that began before this call may have met what is over by now.
            if own is not None and own in done and (fault := _fault(own)) is not None:
                raise ServiceUnavailable(fault)
        return self._idle.pop()

    def _keep(self, connecting: asyncio.Task[Driver]) -> None:
        self._connecting.discard(connecting)
        self._known_fault = _fault(connecting)  # of several hosts, the first may take longer than a request waits
        if self._known_fault is not None:
            return
        self._open += 1
        self._idle.append(connecting.result())

    async def close(self) -> None:
        """Close idle connections; one in use is closed after its use."""
        self._closed = True
        for connecting in self._connecting:
            connecting.cancel()
        if self._connecting:  # unlike `gather` since Python 3.12, `wait` waits for `_keep` of those that are done
            await asyncio.wait(self._connecting)
        await self._close_idle()

    async def _close_idle(self) -> None:
        """Close the idle connections: after one was found dead, they may be dead too."""
        while self._idle:
            self._open -= 1
            await self._idle.pop().close()


def _fault(connecting: asyncio.Task[Driver]) -> str | None:
    error = asyncio.CancelledError() if connecting.cancelled() else connecting.exception()
    if error is None:
        return None
    return faults.unavailable(error).reason if isinstance(error, psycopg.Error) else faults.NO_RESPONSE


async def connect(url: str, seconds: float, timelines: Timelines) -> Driver:
    """Open a connection. Raises psycopg.Error, OldPrimary among them, and TimeoutError."""
    try:
        async with asyncio.timeout(seconds):
            driver = await _connect_to_a_host(url)
            try:
                await driver.set_isolation_level(psycopg.IsolationLevel.READ_COMMITTED)  # of a migration and a copy
                await timelines.verify(driver)
            except faults.CONNECTION_ENDED:
                return driver  # its user finds out, and takes another one
            except BaseException:
                await driver.close()
                raise
            return driver
    except UnicodeError:
        raise psycopg.OperationalError("the URL has a malformed host name") from None


async def _connect_to_a_host(url: str) -> Driver:
    """Connect to the first host that accepts changes. Raises psycopg.Error, with the cause of each if none does.

    The driver would give the cause of the last one only, and leave out names that cannot be resolved.
    """
    causes: dict[str, None] = {}
    hosts = hosts_of(url)
    for host, conninfo in hosts:
        try:
            # A pooler gives the next transaction another connection, without the statements prepared on this one.
            return await psycopg.AsyncConnection.connect(conninfo, autocommit=True, prepare_threshold=None)
        except psycopg.OperationalError as error:
            if len(hosts) == 1:
                raise
            lines = str(error).strip().splitlines()
            of_addresses = [line for line in lines if line.startswith("- ")] or lines[:1]
            causes |= {f"{host}: {line.rpartition(' failed: ')[2]}": None for line in of_addresses}
    raise psycopg.OperationalError("; ".join(causes))


@lru_cache(maxsize=8)
def hosts_of(url: str) -> list[tuple[str, str]]:
    """Return each host of the URL, with its port if another one has its name, and how to connect to it.

    That is the URL, with defaults for what it leaves out.
    """
    defaults = {"application_name": "petstore", "target_session_attrs": "read-write", "connect_timeout": "2"}
    parameters = defaults | {name: str(text) for name, text in conninfo_to_dict(url, client_encoding="UTF8").items()}
    by_host = {name: parameters[name].split(",") for name in ("host", "hostaddr", "port") if name in parameters}
    number = max(map(len, by_host.values()), default=1)
    if any(len(texts) not in (1, number) for texts in by_host.values()):
        return [("", make_conninfo("", **parameters))]  # the driver says what is wrong with it
    places = [{name: (texts * number)[index] for name, texts in by_host.items()} for index in range(number)]
    names = [place.get("host") or place.get("hostaddr", "") for place in places]
    shown = [
        f"{name}:{place.get('port') or 5432}" if names.count(name) > 1 else name
        for name, place in zip(names, places, strict=True)
    ]
    return [(name, make_conninfo("", **parameters | place)) for name, place in zip(shown, places, strict=True)]
