"""Stores for tests, and the small things that are put into them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path

from petstore_server.domain.accounts import PLAN_LIMITS, Plan
from petstore_server.domain.keys import ALL_SCOPES, ApiKey, Environment
from petstore_server.ports import AuditEntry, By, Store
from petstore_server.storage.sqlite import SqliteStore, open_store

BY = By("operator:test", 1_000.0)


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[SqliteStore]:
    """A store of the SQLite engine, made where it is missing, and closed at the end."""
    store = await open_store(path, create=True, migrate=True, announce=lambda line: None)
    _fulfils_the_port(store)
    try:
        yield store
    finally:
        await store.close()


def _fulfils_the_port(store: SqliteStore) -> Store:
    """The type checker holds the adapter to the port here."""
    return store


def api_key(name: str, account: str = "zoo") -> ApiKey:
    """A key that is named after its text."""
    digest = sha256(name.encode()).digest()
    return ApiKey(f"key_{name}", account, digest, Environment.PRODUCTION, ALL_SCOPES, "", BY.at)


async def add_key(store: Store, name: str = "one", account: str = "zoo") -> ApiKey:
    """An account on the free plan, and a key of it."""
    await store.accounts.create(account, Plan.FREE, PLAN_LIMITS[Plan.FREE], BY)
    return await store.keys.create(api_key(name, account), BY)


async def body(store: Store) -> bytes:
    """The list as it is served."""
    return b"".join((await store.orders.snapshot()).plain.chunks)


async def log(store: Store, since: float | None = None) -> list[AuditEntry]:
    """The audit log."""
    return [entry async for entry in store.audit.entries(since)]
