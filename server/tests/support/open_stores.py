"""Stores for tests, and the small things that are put into them."""

import gc
import itertools
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Protocol

from petstore_server.domain.accounts import PLAN_LIMITS, Plan
from petstore_server.domain.keys import DEFAULT_SCOPES, ApiKey, Environment, Successor
from petstore_server.http.list_cache import ListCache
from petstore_server.ports import Actor, AuditEntry, AuditFilters, Store
from petstore_server.storage.engines import AnyStore, is_sqlite
from petstore_server.storage.engines import open_store as open_any
from petstore_server.storage.sqlite import SqliteStore, open_store
from support.engines import PostgresEngine

BY = Actor("operator:test", 1_000.0)


class Places(Protocol):
    """Where stores can be made."""

    def new(self) -> str:
        """The URL of a place without a store."""


class SqlitePlaces:
    """Files in a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._numbers = itertools.count(1)

    def new(self) -> str:
        return f"sqlite:///{self._directory / f'store-{next(self._numbers)}.db'}"


class PostgresPlaces:
    """Databases of one server."""

    def __init__(self, engine: PostgresEngine) -> None:
        self.engine = engine
        self._names: list[str] = []

    def new(self) -> str:
        self._names.append(self.engine.new_database())
        return self.engine.url(self._names[-1])

    def connections(self) -> list[str]:
        """What connections are left to any of them."""
        gc.collect()  # an attempt to connect that was given up holds its socket until then
        return [query for name in self._names for query in self.engine.connections(name)]

    def remove(self) -> None:
        for name in self._names:
            self.engine.drop_database(name)


class Stores:
    """One store of a test, of whichever engine; opened any number of times, as by so many processes."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self.url = places.new()

    @property
    def is_sqlite(self) -> bool:
        return is_sqlite(self.url)

    def another(self) -> "Stores":
        """Another store of the same engine."""
        return Stores(self._places)

    def opened(self) -> AbstractAsyncContextManager[AnyStore]:
        """The store, made where it is missing, and closed at the end."""
        return opened_at(self.url)


@asynccontextmanager
async def opened_at(url: str) -> AsyncIterator[AnyStore]:
    """The store of this URL, of whichever engine, made where it is missing, and closed at the end."""
    store = await open_any(url, create=True, migrate=True, announce=lambda line: None)
    _fulfils_the_port(store)
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[SqliteStore]:
    """A store of the SQLite engine, made where it is missing, and closed at the end."""
    store = await open_store(path, create=True, migrate=True, announce=lambda line: None)
    try:
        yield store
    finally:
        await store.close()


def _fulfils_the_port(store: AnyStore) -> Store:
    """The type checker holds the adapters to the port here."""
    return store


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


async def body(store: Store) -> bytes:
    """The list, read as by a new process."""
    return b"[" + b"".join((await store.orders.snapshot()).pieces)[1:] + b"]"


async def served(cache: ListCache) -> bytes:
    """The list as a process serves it that has served it before."""
    return b"".join((await cache.current()).plain.chunks)


async def log(store: Store, since: float | None = None) -> list[AuditEntry]:
    """The audit log."""
    return [entry async for entry in store.audit.entries(AuditFilters(since=since))]
