"""The usage of accounts, from the store or, where servers count in Redis, from there."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from petstore_server.runtime.opening import is_served, read_counters, store_file
from petstore_server.settings import Settings
from petstore_server.store import Store

if TYPE_CHECKING:
    from petstore_server.domain.usage import Usage


def counts_elsewhere(settings: Settings) -> bool:
    """Whether servers count usage in a Redis that the settings do not name, so that it cannot be read from here.

    With SQLite such a server shares the lock, others do not (D12). With PostgreSQL all count there.
    """
    if settings.redis_url is not None:
        return False
    file = store_file(settings)
    return file is None or (is_served(file) and not is_served(file, shared=True))


async def account_usage(settings: Settings, store: Store, account_id: int) -> "Usage":
    """The usage of an account, from the store or from Redis. Raises SettingsError, ServiceUnavailable."""
    if settings.redis_url is None:
        return await store.usage.find(account_id)
    return (await _usage_in_redis(settings, store, [account_id]))[account_id]


async def all_usage(settings: Settings, store: Store) -> "Mapping[int, Usage]":
    """The usage of all accounts by id, without some that have none. Raises SettingsError, ServiceUnavailable."""
    if settings.redis_url is None:
        return await store.usage.all()
    return await _usage_in_redis(settings, store, [account.id for account in await store.accounts.list()])


async def _usage_in_redis(settings: Settings, store: Store, accounts: Sequence[int]) -> "Mapping[int, Usage]":
    async with read_counters(settings) as counters:
        counters.use_store(await store.engine.identity())
        return await counters.usages(accounts)
