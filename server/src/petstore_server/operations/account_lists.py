"""Lists of accounts with their usage: who is closest to a limit, who is banned."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

from petstore_server.domain.accounts import Account
from petstore_server.domain.bans import Ban
from petstore_server.domain.errors import KeyNotFound
from petstore_server.domain.windows import DAY, MINUTE, roll_window
from petstore_server.ports import Store, Usage

UsagesSource = Callable[[], Awaitable[Mapping[int, Usage]]]
"""Reads the usage of all accounts by their ids; accounts without any may be missing."""

_MOST_BANS = 20


class AccountUsage(NamedTuple):
    """An account and what its windows were charged with at a time."""

    account: Account
    minute: int
    day: int

    @property
    def share(self) -> float:
        """The used part of the window that is closest to its limit, from 0 to 1."""
        limits = self.account.limits
        return min(1.0, max(self.minute / limits.per_minute, self.day / limits.per_day))


class BannedKey(NamedTuple):
    """A ban in force, and the account that the key belongs to."""

    ban: Ban
    account: str


async def list_account_usage(store: Store, usages: UsagesSource, now: float) -> list[AccountUsage]:
    """All accounts, by name, with their usage at `now` (Unix seconds)."""
    accounts, used = await asyncio.gather(store.accounts.list(), usages())
    return await asyncio.to_thread(_with_usage, accounts, used, now)  # there may be tens of thousands


async def busiest_accounts(store: Store, usages: UsagesSource, now: float, limit: int) -> list[AccountUsage]:
    """The accounts that have used the largest share of a window at `now` (Unix seconds); without unused ones."""
    found = await list_account_usage(store, usages, now)
    used = [each for each in found if each.share > 0]
    return sorted(used, key=lambda each: (-each.share, each.account.name))[:limit]


async def current_bans(store: Store, now: float) -> list[BannedKey]:
    """The bans in force at `now` (Unix seconds), those that end last first; at most 20."""
    bans = sorted((ban for ban in await store.usage.bans() if ban.holds(now)), key=lambda ban: -ban.until)
    found = []
    for ban in bans[:_MOST_BANS]:
        try:
            found.append(BannedKey(ban, (await store.keys.find(ban.key_id)).account))
        except KeyNotFound:  # after a restore, a running server may still know the key
            continue
    return found


def _with_usage(accounts: Sequence[Account], usages: Mapping[int, Usage], now: float) -> list[AccountUsage]:
    unused = Usage()
    return [
        AccountUsage(account, roll_window(usage.minute, MINUTE, now).used, roll_window(usage.day, DAY, now).used)
        for account in accounts
        for usage in (usages.get(account.id, unused),)
    ]
