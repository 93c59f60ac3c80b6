"""A store as it is in an incident: many bans, an account with many keys, and a log of changes."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from petstore_server.domain.accounts import PLAN_LIMITS, Plan
from petstore_server.domain.audit import Actor
from petstore_server.domain.bans import Ban
from petstore_server.domain.keys import DEFAULT_SCOPES, ApiKey, Environment, digest, revoke
from petstore_server.domain.orders import CANCEL, Order
from petstore_server.runtime.opening import opened_store
from petstore_server.store import Store

BANNED = 60
KEYS = 40
ORDERS = 120
LONG_NAME = "Veterinary Supplies of Greater Northern Europe and Scandinavia"


def fill_busy_store(file: Path) -> None:
    """Make a store with banned keys, an account `acme` with many keys, orders, and a request that cancelled one."""
    with ThreadPoolExecutor(1) as thread:  # the test's own may have an event loop
        thread.submit(lambda: asyncio.run(_fill(file))).result()


async def _fill(file: Path) -> None:
    by = Actor("operator:ann", time.time() - 60)
    async with opened_store(f"sqlite:///{file}", create=True, migrate=True) as store:
        for name in ("acme", LONG_NAME, *(f"shop {number:02}" for number in range(BANNED))):
            await store.accounts.create(name, Plan.FREE, PLAN_LIMITS[Plan.FREE], by)
        for number in range(KEYS):
            await _add_key(store, "acme", f"acme{number:02}", by)
        for number in range(KEYS // 2):
            await store.keys.change(f"key_acme{number:02}", revoke(by.at), by)
        await _add_key(store, LONG_NAME, "longname", by)
        bans = []
        for number in range(BANNED):
            key = await _add_key(store, f"shop {number:02}", f"shop{number:02}", by)
            bans.append(Ban(key, int(by.at), int(by.at) + 36_000, 1 + number % 3))
        await store.usage.save({}, bans)
        await store.orders.import_batch([Order(number, 7, 1) for number in range(1, ORDERS + 1)], "import-busy", by)
        await store.orders.change(ORDERS, CANCEL, Actor("key:key_acme39", by.at, "abc123-7f"))


async def _add_key(store: Store, account: str, name: str, by: Actor) -> str:
    secret = digest(name)
    key = ApiKey(f"key_{name}", account, secret, Environment.PRODUCTION, DEFAULT_SCOPES, "till", by.at)
    return (await store.keys.create(key, by)).id
