"""Stores for tests, and the small things that are put into them."""

import asyncio
import gc
import itertools
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, ExitStack, closing, contextmanager
from functools import cache
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self, TypeVar

import apsw
import pytest

from petstore_server.api.list_cache import ListCache
from petstore_server.domain.accounts import PLAN_LIMITS, Plan
from petstore_server.domain.audit import Actor, AuditEntry, AuditFilters
from petstore_server.domain.errors import ServiceUnavailable, StoreUnusable
from petstore_server.domain.keys import DEFAULT_SCOPES, ApiKey, Environment, Successor
from petstore_server.domain.orders import CANCEL, Order, Status
from petstore_server.engines import postgres
from petstore_server.engines.sqlite import lock_for_serving, migrate
from petstore_server.runtime.opening import is_sqlite, opened_store, sqlite_path
from petstore_server.store import Store
from petstore_server.store.listing import OrderList
from testing.engines import PostgresEngine
from testing.subprocesses import PATIENCE

BY = Actor("operator:test", 1_000.0)
Result = TypeVar("Result")


def locked(path: Path, *, shared: bool, wait_seconds: float = 0) -> ExitStack:
    """Hold the lock of a served store until the result is closed. A missing store is made."""
    require_store_file(path)
    held = ExitStack()
    held.enter_context(lock_for_serving(path, shared=shared, wait_seconds=wait_seconds))
    return held


@contextmanager
def opened_file(store: str | Path) -> Iterator[apsw.Connection]:
    """The file of a store, by its URL or path, in another program, which waits for locks of the service."""
    with closing(apsw.Connection(str(store).removeprefix("sqlite:///"))) as connection:
        connection.set_busy_timeout(60_000)
        yield connection


@contextmanager
def write_locked(path: Path) -> Iterator[None]:
    """No change can be committed: another program keeps the file of a store locked."""
    with opened_file(path) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


class SqlitePlaces:
    """Files in a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._numbers = itertools.count(1)

    def new(self) -> str:
        return f"sqlite:///{self._directory / f'store-{next(self._numbers)}.db'}"

    def new_store(self) -> str:
        url = self.new()
        new_store_file(Path(url.removeprefix("sqlite:///")))
        return url


class PostgresPlaces:
    """Databases of one server; a context manager that removes them. No connection may be left to any by then."""

    def __init__(self, engine: PostgresEngine) -> None:
        self.engine = engine
        self._names: list[str] = []

    def new(self) -> str:
        self._names.append(self.engine.new_database())
        return self.engine.url(self._names[-1])

    def new_store(self) -> str:
        self._names.append(new_store_database(self.engine))
        return self.engine.url(self._names[-1])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        ends = time.monotonic() + PATIENCE
        while (left := self.connections()) and time.monotonic() < ends:
            gc.collect()  # an attempt to connect that was given up holds its socket until then
        for name in self._names:
            self.engine.drop_database(name)
        assert [] == left, left

    def connections(self) -> list[str]:
        """What connections are left to any of them."""
        return [query for name in self._names for query in self.engine.connections(name)]


Places = SqlitePlaces | PostgresPlaces


class Stores:
    """One store of a test, of whichever engine; opened any number of times, as by so many processes."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._url = ""

    @property
    def url(self) -> str:
        """Where the store is. If it was not opened before, there is none yet."""
        self._url = self._url or self._places.new()
        return self._url

    @property
    def is_sqlite(self) -> bool:
        return isinstance(self._places, SqlitePlaces)

    def another(self) -> "Stores":
        """Another store of the same engine."""
        return Stores(self._places)

    def opened(self) -> AbstractAsyncContextManager[Store]:
        """The store, made where it is missing, and closed at the end."""
        self._url = self._url or self._places.new_store()
        return opened_at(self._url)


def require_store_file(path: Path) -> None:
    """Make the file with an empty store if it is missing and its directory is there."""
    if path.parent.is_dir() and not path.exists():
        new_store_file(path)


def new_store_file(path: Path) -> None:
    """Make a file with an empty store, as a copy of one: migrating each would take longer."""
    with path.open("xb") as file:
        path.chmod(0o600)  # as that of any store
        file.write(_store_file())


@cache
def _store_file() -> bytes:
    """An empty store as SQLite writes it."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "store.db"
        migrate(path)
        return path.read_bytes()


def new_store_database(engine: PostgresEngine) -> str:
    """Make a database with an empty store, as a copy of one: migrating each would take longer. Returns its name."""
    return engine.new_database(_template(engine))


@cache
def _template(engine: PostgresEngine) -> str:
    """The database with an empty store that is copied."""
    name = engine.new_database()

    async def make() -> None:
        async with opened_at(engine.url(name)):
            pass

    with ThreadPoolExecutor(1) as thread:  # the caller may be in an event loop
        thread.submit(asyncio.run, make()).result()
    assert [] == engine.connections(name)
    return name


def opening(at: Path | str, *, create: bool = False, upgrade: bool = False) -> list[str]:
    """Open and close the store in a file or at a URL, as a command does; return what was announced."""
    lines: list[str] = []

    async def run() -> None:
        if isinstance(at, Path) or is_sqlite(at):
            migrate(at if isinstance(at, Path) else sqlite_path(at), lines.append, create=create, upgrade=upgrade)
        else:
            await postgres.migrate(at, lines.append, create=create, upgrade=upgrade)
        async with opened_store(f"sqlite:///{at}" if isinstance(at, Path) else at):
            pass

    asyncio.run(run())
    return lines


def refusal(at: Path | str, *, create: bool = False, upgrade: bool = False) -> str:
    """The one line with which opening is refused."""
    with pytest.raises(StoreUnusable) as caught:
        opening(at, create=create, upgrade=upgrade)
    assert "\n" not in caught.value.message
    return caught.value.message


def opened_at(url: str) -> AbstractAsyncContextManager[Store]:
    """The store of this URL, of whichever engine, made where it is missing, and closed at the end."""
    return opened_store(url, create=True, migrate=True)


def opened(path: Path) -> AbstractAsyncContextManager[Store]:
    """The store in a file, made where it is missing, and closed at the end."""
    return opened_at(f"sqlite:///{path}")


def api_key(name: str, account: str = "zoo") -> ApiKey:
    """A key that is named after its text."""
    digest = sha256(name.encode()).digest()
    return ApiKey(f"key_{name}", account, digest, Environment.PRODUCTION, DEFAULT_SCOPES, "", BY.at)


def successor(name: str) -> Successor:
    """The successor that a key is rotated to, with the id and digest of `api_key`."""
    key = api_key(name)
    return Successor(key.id, key.digest)


async def add_key(store: Store, name: str = "one", account: str = "zoo") -> ApiKey:
    """An account on the free plan, and a key of it."""
    await store.accounts.create(account, Plan.FREE, PLAN_LIMITS[Plan.FREE], BY)
    return await store.keys.create(api_key(name, account), BY)


async def add_owner(store: Store, name: str = "zoo") -> int:
    """An account on the free plan, with a key of its name; return the account's id."""
    await add_key(store, name, name)
    return (await store.accounts.find(name)).id


async def all_orders(store: Store) -> list[Order]:
    """All orders by their identifiers, read as an export reads them."""
    return [order async for batch in store.orders.scan() for order in batch]


def on_store(url: str, work: Callable[[Store], Awaitable[Result]]) -> Result:
    """Do something that no command does, to the store of this URL."""

    async def run() -> Result:
        async with opened_at(url) as store:
            return await work(store)

    return asyncio.run(run())


def pieces_of(orders: OrderList) -> list[bytes]:
    """The records of each piece."""
    return [piece.data for piece in orders.pieces]


def records_of(orders: OrderList) -> bytes:
    """The records of all orders, each after a comma."""
    return b"".join(pieces_of(orders))


async def body(store: Store) -> bytes:
    """The list as the store has it now."""
    return b"[" + records_of(await store.listing.current())[1:] + b"]"


async def served(cache: ListCache) -> bytes:
    """The list as a process serves it that has served it before."""
    return b"".join((await cache.current()).plain.whole.chunks)


async def log(store: Store, since: float | None = None) -> list[AuditEntry]:
    """The audit log."""
    return [entry async for entry in store.audit.entries(AuditFilters(since=since))]


async def batches(store: Store, import_id: str) -> list[AuditEntry]:
    """An entry for each batch of an import that changed something."""
    return [entry async for entry in store.imports.batches(import_id)]


async def reason(work: Awaitable[object]) -> str:
    """Why a store that cannot be used refuses this work."""
    with pytest.raises(ServiceUnavailable) as caught:
        await work
    return caught.value.reason


async def seconds_to_recovery(store: Store) -> float:
    """Wait until the store can be used again; return the seconds that this took."""
    began = time.perf_counter()
    while True:
        try:
            await store.check()
            await store.listing.current()
        except ServiceUnavailable:
            await asyncio.sleep(0.02)
        else:
            return time.perf_counter() - began


class Canceller:
    """Cancels each of a number of pending orders once, 32 at the same time, and notes what became of it."""

    def __init__(self, store: Store, number: int) -> None:
        self.acknowledged: set[int] = set()
        self.unsure: set[int] = set()
        """The orders whose change failed: it may have been made or not."""
        self._store = store
        self._numbers = iter(range(number))
        self._tasks = [asyncio.create_task(self._cancel()) for _ in range(32)]

    async def _cancel(self) -> None:
        for number in self._numbers:
            try:
                await self._store.orders.change(number, CANCEL, BY)
                self.acknowledged.add(number)
            except ServiceUnavailable:
                self.unsure.add(number)

    def done(self) -> bool:
        return all(task.done() for task in self._tasks)

    async def until(self, number: int) -> None:
        """Wait until so many changes were acknowledged, or some failed."""
        while len(self.acknowledged) < number and not self.unsure:  # noqa: ASYNC110 - no event: it would come too late
            await asyncio.sleep(0.001)

    async def end(self) -> None:
        """Begin no further change, and wait for those under way."""
        for _ in self._numbers:
            pass
        await asyncio.gather(*self._tasks)

    async def verify(self) -> set[int]:
        """Check that no acknowledged change was lost, and that each was recorded once; return the cancelled orders."""
        cancelled = {order.id for order in await all_orders(self._store) if order.status is Status.CANCELLED}
        assert self.acknowledged <= cancelled <= self.acknowledged | self.unsure
        entries = [entry.subject for entry in await log(self._store) if entry.action == "order.cancel"]
        assert sorted(f"order:{number}" for number in cancelled) == sorted(entries)
        return cancelled
